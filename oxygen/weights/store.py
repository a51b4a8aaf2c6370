"""Lists and reads remote files, in public buckets and on web servers, with sizes and checksums.

Both are read over HTTP through fsspec. gcsfs is not used: it requires credentials, which public buckets do
not need.
"""

import dataclasses
import json
import os
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote, unquote, urlencode, urlsplit

from configs.errors import UsageError
from oxygen.weights import checksum
from oxygen.weights.checksum import Checksum

CONNECT_S = 10.0
"""Timeout of a connection, s; reads have six times that."""
_IDENTITY = {"Accept-Encoding": "identity"}
_SKIPPED = "train_state"  # optimiser and EMA: twice the parameters' size, and no policy reads them


@dataclasses.dataclass(frozen=True, kw_only=True)
class RemoteFile:
    """A remote file.

    Attributes:
        name: Its path below the requested URL; empty if that is the file itself.
        url: Its URL.
        size: Bytes.
        checksum: The store's checksum, if any.
        version: Changes when the file does.
    """

    name: str
    url: str
    size: int
    checksum: Checksum | None
    version: str

    def __post_init__(self) -> None:
        if ".." in PurePosixPath(self.name).parts or self.name.startswith("/"):
            raise UsageError(f"{self.url} has the name {self.name!r}, which is outside its folder")


class Store:
    """Lists and opens files at URLs."""

    def __init__(self) -> None:
        try:
            import aiohttp
            import fsspec
        except ImportError as error:
            raise UsageError(
                f"downloading needs fsspec and aiohttp ({error}): install 'fsspec[http]', or give a folder"
            ) from None
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=6 * CONNECT_S)
        self.failures = (OSError, ValueError, aiohttp.ClientError)
        """Errors of the network or of malformed replies."""
        self._files: Any = fsspec.filesystem(
            "https", encoded=True, client_kwargs={"timeout": timeout, "trust_env": True}
        )

    def files(self, url: str) -> list[RemoteFile]:
        """The file at `url`, or every file below it.

        Raises:
            One of `failures`: The store cannot be reached, or has no such file.
        """
        parts = urlsplit(url)
        path = parts.path.strip("/")
        if parts.scheme == "gs":
            return list(self._in_bucket(parts.netloc, path))
        if PurePosixPath(path).suffix:
            return [self._on_server(url, "")]
        base = url.rstrip("/") + "/"
        below = (found for found in self._files.find(base) if "?" not in found)
        return [
            self._on_server(found, name) for found in below if _wanted(name := unquote(found[len(base) :]))
        ]

    def stream(self, file: RemoteFile, start: int) -> tuple[Any, int]:
        """Open a file from byte `start` if the server supports ranges; returns the actual start, too."""
        headers = {**_IDENTITY, "Range": f"bytes={start}-"} if start else _IDENTITY
        stream = self._files.open(file.url, block_size=0, size=file.size, headers=headers)
        return stream, start if stream.r.status == 206 else 0

    def _in_bucket(self, bucket: str, prefix: str) -> Iterator[RemoteFile]:
        host = os.environ.get("STORAGE_EMULATOR_HOST", "https://storage.googleapis.com")
        objects = f"{host}/storage/v1/b/{quote(bucket, safe='')}/o"
        query = {"prefix": prefix, "fields": "nextPageToken,items(name,size,md5Hash,crc32c,generation)"}
        while True:
            page = json.loads(self._files.cat_file(f"{objects}?{urlencode(query)}"))
            for entry in page.get("items", ()):
                name = entry["name"].removeprefix(prefix)
                if entry["name"].endswith("/") or name[:1] not in ("", "/") or not _wanted(name[1:]):
                    continue
                pinned = urlencode({"alt": "media", "generation": entry["generation"]})
                yield RemoteFile(
                    name=name[1:],
                    url=f"{objects}/{quote(entry['name'], safe='')}?{pinned}",
                    size=int(entry["size"]),
                    checksum=checksum.of_bucket_object(entry),
                    version=str(entry["generation"]),
                )
            if "nextPageToken" not in page:
                return
            query["pageToken"] = page["nextPageToken"]

    def _on_server(self, url: str, name: str) -> RemoteFile:
        from fsspec.asyn import sync

        headers = sync(self._files.loop, _headers, self._files, url)
        sizes = [int(value) for key, value in headers if key.lower() == "content-length"]
        if not sizes:
            raise ValueError(f"{url} has no Content-Length")
        tags = [value for key, value in headers if key.lower() in ("etag", "last-modified")]
        return RemoteFile(
            name=name,
            url=url,
            size=sizes[-1],
            checksum=checksum.of_headers(headers),
            version=" ".join((*tags, str(sizes[-1]))),
        )


async def _headers(files: Any, url: str) -> list[tuple[str, str]]:
    """The headers of all responses, redirects first."""
    session = await files.set_session()
    async with session.head(url, allow_redirects=True, headers=_IDENTITY) as answer:
        if answer.status == 404:
            raise FileNotFoundError(url)
        answer.raise_for_status()
        return [header for step in (*answer.history, answer) for header in step.headers.items()]


def _wanted(name: str) -> bool:
    return PurePosixPath(name).parts[:1] != (_SKIPPED,)
