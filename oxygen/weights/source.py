"""Resolves a checkpoint source to a local path: a path, a bundled checkpoint, or a cached URL.

Downloads from public buckets and web servers are resumable, verified, and marked once complete. fsspec and
gcsfs are not used: they begin a broken download again, and do not compare it with the checksum that the store
states.
"""

import base64
import concurrent.futures
import dataclasses
import functools
import glob
import hashlib
import http.client
import json
import os
import re
import shutil
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from configs.paths import absolute, cache_folder, lock, read_json_object
from contracts.errors import UsageError, unknown
from contracts.redaction import redact, strip_url

CARD = "policy.yaml"
TOKENIZER = "tokenizer.model"
RECORD = "training.json"
"""The training's record."""

CACHE_VARIABLE = "OXYGEN_CACHE"
BUNDLED = "bundled"
"""The scheme of checkpoints that ship with the package: `bundled://tiny`."""
SCHEMES = ("gs", "https", "http", BUNDLED)
AT_ONCE = 4
"""Concurrent downloads."""
TRIES = 5
"""Attempts without progress before a file is given up."""
_FIRST_WAIT_S = 0.5
_TIMEOUT_S = 60.0
_PIECE_BYTES = 1 << 20
_FAILURES = (OSError, ValueError, http.client.HTTPException)  # errors of the network or of malformed replies
_SKIPPED = "train_state"  # optimiser and EMA: twice the parameters' size, and no policy reads them
ADAPTER_CARD = "adapter_config.json"
"""Describes an adapter, in the folder of its file; OxyGen's release has one, too."""


def card_text(content: Mapping[str, Any]) -> str:
    """A card in YAML, one line per key. Paths in it are relative to its folder."""
    return "".join(f"{key}: {json.dumps(value, ensure_ascii=False)}\n" for key, value in content.items())


def fetch(source: str | Path) -> Path:
    """Return the local path of a source, downloaded if necessary.

    Args:
        source: A path; `bundled://NAME`; the URL of a file; or the `gs://` URL of a public folder.
            Training state beside the parameters is not downloaded.

    Raises:
        UsageError: The URL's scheme is unknown, the store cannot be reached or has no such file, the disk is
            full, or a checksum differs.
    """
    text = str(source)
    scheme, separator, _ = text.partition("://")
    if not separator:
        return absolute(Path(text).expanduser())
    if scheme not in SCHEMES:
        raise unknown(
            "kind of URL",
            scheme,
            SCHEMES,
            remedy="Local files have no scheme; from Hugging Face, `hf download` makes some.",
        )
    if scheme == BUNDLED:
        return bundled(text.removeprefix(f"{BUNDLED}://"))
    target = cached(text)
    if _is_complete(target):  # without the network
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_name(f"{target.name}.lock").open("w") as file:
        lock(file, wait=True)
        try:
            if not _is_complete(target):  # else another process has done it
                _download(text, target)
        except UsageError:
            raise
        except FileNotFoundError:
            raise UsageError(f"there is nothing at {text}, or nothing that can be listed") from None
        except _FAILURES as error:
            raise UsageError(
                f"{text} cannot be reached ({type(error).__name__}: {str(error)[:200]}), and {target} is "
                "incomplete. Connect and try again (the download resumes), give a folder, or "
                "take --random-weights to measure latency alone"
            ) from None
    return target


def bundled(name: str) -> Path:
    """The folder of a bundled checkpoint, which may not exist."""
    return Path(__file__).parents[1] / "assets" / name


def cached(url: str) -> Path:
    """The path of a URL in the cache, which may not exist."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise UsageError(f"{url} is not a URL: {error}") from None
    if not parts.netloc or not parts.path.strip("/"):
        raise UsageError(f"{url} does not name a file or folder")
    below = [quote(part, safe="") for part in parts.path.strip("/").split("/")]
    if parts.query:
        query = hashlib.sha256(parts.query.encode()).hexdigest()[:16]  # which may hold a secret
        below[-1] = f"%3F{query}-{below[-1]}"  # the suffix stays last
    if any(part in (".", "..", "") for part in below):
        raise UsageError(f"{url} is not a plain path: it has an empty part, '.' or '..'")
    return cache_folder(CACHE_VARIABLE, "checkpoints").joinpath(
        parts.scheme, quote(parts.netloc.rpartition("@")[2], safe=""), *below
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class _RemoteFile:
    """A remote file."""

    name: str  # its path below the requested URL; empty if that is the file itself
    url: str
    size: int  # bytes
    # `sha256` or `crc32c`, and the value that the store states, in hexadecimal; None if it states none.
    checksum: tuple[str, str] | None
    version: str  # changes when the file does

    def __post_init__(self) -> None:
        if ".." in PurePosixPath(self.name).parts or self.name.startswith("/"):
            raise UsageError(f"{self.url} has the name {self.name!r}, which is outside its folder")

    def difference(self, path: Path) -> str | None:
        """How a local file differs from this one, by size and checksum; None if it is equal."""
        if path.stat().st_size != self.size:
            return f"its size is {path.stat().st_size} instead of {self.size}"
        if self.checksum is None:
            return None
        kind, expected = self.checksum
        running: Any = hashlib.sha256()
        if kind == "crc32c":
            import google_crc32c

            running = google_crc32c.Checksum()
        with path.open("rb") as stream:
            while piece := stream.read(_PIECE_BYTES):
                running.update(piece)
        actual = running.digest().hex()
        return None if actual == expected else f"its {kind} is {actual}, not {expected}"


def _marker(target: Path) -> Path:
    return target.with_name(f"{target.name}.complete.json")


def _is_complete(target: Path) -> bool:
    """Whether a download was completed and its files still have their sizes."""
    try:
        sizes = json.loads(_marker(target).read_text())["files"]
        return all((target / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _download(url: str, target: Path) -> None:
    files = list(_in_bucket(url) if url.startswith("gs://") else [_on_server(url)])
    if not files:
        raise FileNotFoundError(url)
    missing = sum(file.size for file in files if not (target / file.name).exists())
    missing -= sum(path.stat().st_size for path in target.parent.glob(f"{glob.escape(target.name)}*.partial"))
    missing -= sum(path.stat().st_size for path in target.rglob("*.partial"))
    free = shutil.disk_usage(target.parent).free
    if missing > free:
        raise UsageError(
            f"{url} needs {missing / 1e9:.1f} GB more and {target.parent} has {free / 1e9:.1f} GB: "
            "make room, or set OXYGEN_CACHE to a folder with more"
        )
    from rich import progress
    from rich.console import Console

    columns = (*progress.Progress.get_default_columns(), progress.DownloadColumn())
    console, stop = Console(stderr=True), threading.Event()
    with (
        progress.Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar,
        concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool,
    ):
        advance = functools.partial(
            bar.advance, bar.add_task(strip_url(url), total=sum(file.size for file in files))
        )
        pending = [pool.submit(_get, file, target / file.name, advance, stop) for file in files]
        try:
            for done in concurrent.futures.as_completed(pending):
                done.result()
        except BaseException:  # also Ctrl-C; partial files stay for the next attempt
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    draft = _marker(target).with_suffix(f".{os.getpid()}.draft")
    draft.write_text(json.dumps({"url": redact(url), "files": {file.name: file.size for file in files}}))
    draft.replace(_marker(target))


def _get(file: _RemoteFile, path: Path, advance: Callable[[int], None], stop: threading.Event) -> None:
    """Complete one file, from where an earlier attempt ended; `advance` is told the number of new bytes."""
    if path.is_file() and not file.difference(path):
        advance(file.size)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    version = hashlib.sha256(file.version.encode()).hexdigest()[:8]
    partial = path.with_name(f"{path.name}.{version}.partial")
    failures = 0
    with partial.open("ab") as out:
        advance(out.tell())
        while (begun := out.tell()) < file.size and not stop.is_set():
            try:
                with _open(file.url, {"Range": f"bytes={begun}-"} if begun else {}) as reply:
                    if begun and reply.status != http.client.PARTIAL_CONTENT:
                        out.seek(0)
                        out.truncate()
                        advance(-begun)
                    while (piece := reply.read(_PIECE_BYTES)) and not stop.is_set():
                        out.write(piece)
                        advance(len(piece))
                if out.tell() < file.size and not stop.is_set():
                    raise ConnectionError(f"{file.url} ended {file.size - out.tell()} bytes early")
            except FileNotFoundError:
                raise
            except _FAILURES:
                failures = 1 if out.tell() > begun else failures + 1
                if failures == TRIES:
                    raise
                stop.wait(_FIRST_WAIT_S * 2 ** (failures - 1))
    if stop.is_set():
        return
    if difference := file.difference(partial):
        partial.unlink()
        raise UsageError(f"{file.url} was damaged in transit ({difference}) and has been removed; try again")
    partial.replace(path)
    for stale in path.parent.glob(f"{glob.escape(path.name)}.*.partial"):  # of other versions
        stale.unlink()


def _in_bucket(url: str) -> Iterator[_RemoteFile]:
    """The files at or below a `gs://` URL."""
    parts = urlsplit(url)
    prefix = parts.path.strip("/")
    host = os.environ.get("STORAGE_EMULATOR_HOST", "https://storage.googleapis.com")
    objects = f"{host}/storage/v1/b/{quote(parts.netloc, safe='')}/o"
    query = {"prefix": prefix, "fields": "nextPageToken,items(name,size,crc32c,generation)"}
    while True:
        with _open(f"{objects}?{urlencode(query)}") as reply:
            page = json.load(reply)
        for entry in page.get("items", ()):
            name = entry["name"].removeprefix(prefix)
            if entry["name"].endswith("/") or name[:1] not in ("", "/") or name.split("/")[1:2] == [_SKIPPED]:
                continue
            pinned = urlencode({"alt": "media", "generation": entry["generation"]})
            yield _RemoteFile(
                name=name[1:],
                url=f"{objects}/{quote(entry['name'], safe='')}?{pinned}",
                size=int(entry["size"]),
                checksum=("crc32c", base64.b64decode(entry["crc32c"]).hex()),
                version=str(entry["generation"]),
            )
        if "nextPageToken" not in page:
            return
        query["pageToken"] = page["nextPageToken"]


def _on_server(url: str) -> _RemoteFile:
    """The file at a URL."""
    if not PurePosixPath(urlsplit(url).path).suffix:
        raise UsageError(f"{url} does not name a file; give the URL of a file, or a gs:// folder")
    redirects = _Redirects()
    with _open(url, method="HEAD", opener=urllib.request.build_opener(redirects)) as reply:
        headers = [(key.lower(), value) for key, value in (*redirects.headers, *reply.headers.items())]
    sizes = [int(value) for key, value in headers if key == "content-length"]
    if not sizes:
        raise ValueError(f"{url} has no Content-Length")
    tags = [value for key, value in headers if key in ("etag", "last-modified")]
    # An ETag counts only if it is a SHA-256, as Hugging Face's are.
    stated = [value.strip('"') for key, value in headers if key in ("etag", "x-linked-etag")]
    sums = [tag for tag in stated if re.fullmatch("[0-9a-f]{64}", tag)]
    checksum = ("sha256", sums[-1]) if sums else None
    version = " ".join((*tags, str(sizes[-1])))
    return _RemoteFile(name="", url=url, size=sizes[-1], checksum=checksum, version=version)


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Keeps the headers of redirects: Hugging Face states checksums there."""

    def __init__(self) -> None:
        self.headers: list[tuple[str, str]] = []

    def redirect_request(
        self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        """Keep the headers, and follow."""
        self.headers += headers.items()
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _open(
    url: str,
    headers: Mapping[str, str] | None = None,
    *,
    method: str = "GET",
    opener: urllib.request.OpenerDirector | None = None,
) -> http.client.HTTPResponse:
    """Open a URL; raises FileNotFoundError if there is none, one of `_FAILURES` if it cannot be reached."""
    request = urllib.request.Request(
        url, headers={"Accept-Encoding": "identity", **(headers or {})}, method=method
    )
    try:
        reply: Any = (opener or urllib.request.build_opener()).open(request, timeout=_TIMEOUT_S)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == http.HTTPStatus.NOT_FOUND:
            raise FileNotFoundError(url) from None
        raise
    opened: http.client.HTTPResponse = reply
    return opened


def adapter_card(file: Path) -> Mapping[str, Any]:
    """The card in the folder of an adapter's file; empty if there is none."""
    card = file.with_name(ADAPTER_CARD)
    return read_json_object(card) if card.is_file() else {}
