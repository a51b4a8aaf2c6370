"""What lies behind a URL: the files of a public bucket or of a web server, their sizes and checksums.

Both are read over HTTP through fsspec. Google's own client is not used for buckets: it looks for credentials
first, which a public one does not ask for, and fails on machines that have none.
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
"""Seconds to wait for a connection, and for each piece of an answer six times that."""
_IDENTITY = {"Accept-Encoding": "identity"}
_SKIPPED = "train_state"  # optimizer and averages: twice the parameters' size, and no policy reads them


@dataclasses.dataclass(frozen=True, kw_only=True)
class RemoteFile:
    """A file to be had.

    Attributes:
        name: Its path below the URL that was asked for; empty if that is the file itself.
        url: Where its bytes are.
        size: How many there are.
        checksum: What its store says of them, if anything.
        version: What changes when the file does.
    """

    name: str
    url: str
    size: int
    checksum: Checksum | None
    version: str

    def __post_init__(self) -> None:
        if ".." in PurePosixPath(self.name).parts or self.name.startswith("/"):
            raise UsageError(f"{self.url} has the name {self.name!r}, which leads out of its folder")


class Store:
    """A connection to wherever URLs lead."""

    def __init__(self) -> None:
        try:
            import aiohttp
            import fsspec
        except ImportError as error:
            raise UsageError(
                f"downloading needs fsspec and aiohttp ({error}): install 'fsspec[http]', or give a folder"
            ) from None
        patience = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=6 * CONNECT_S)
        self.failures = (OSError, ValueError, aiohttp.ClientError)
        """What goes wrong on the way: no network, a broken connection, an answer that is no answer."""
        self._files: Any = fsspec.filesystem(
            "https", encoded=True, client_kwargs={"timeout": patience, "trust_env": True}
        )

    def files(self, url: str) -> list[RemoteFile]:
        """The file at `url`, or every file below it.

        Raises:
            One of `failures`: The store cannot be reached, or has no such thing.
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
        """A file's bytes, from `start` on if the server can do that; and where they really begin."""
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
            raise ValueError(f"{url} comes without its size")
        tags = [value for key, value in headers if key.lower() in ("etag", "last-modified")]
        return RemoteFile(
            name=name,
            url=url,
            size=sizes[-1],
            checksum=checksum.of_headers(headers),
            version=" ".join((*tags, str(sizes[-1]))),
        )


async def _headers(files: Any, url: str) -> list[tuple[str, str]]:
    """The headers of every answer on the way to a file, the last one's last."""
    session = await files.set_session()
    async with session.head(url, allow_redirects=True, headers=_IDENTITY) as answer:
        if answer.status == 404:
            raise FileNotFoundError(url)
        answer.raise_for_status()
        return [header for step in (*answer.history, answer) for header in step.headers.items()]


def _wanted(name: str) -> bool:
    return PurePosixPath(name).parts[:1] != (_SKIPPED,)
