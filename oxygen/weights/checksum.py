"""Checksums of remote files as stores publish them, and of local files."""

import base64
import binascii
import dataclasses
import hashlib
import importlib.util
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class Checksum:
    """A file's checksum: its kind, `sha256`, `md5` or `crc32c`, and its value in hexadecimal."""

    kind: str
    value: str

    def of(self, file: Path) -> str | None:
        """The checksum of this kind of `file`; None if the package for it is not installed."""
        if self.kind == "crc32c" and importlib.util.find_spec("google_crc32c") is None:
            return None
        running: Any
        if self.kind == "crc32c":
            import google_crc32c

            running = google_crc32c.Checksum()
        else:
            running = hashlib.new(self.kind, usedforsecurity=False)
        with file.open("rb") as stream:
            while piece := stream.read(1 << 20):
                running.update(piece)
        return str(running.digest().hex())


def of_bucket_object(entry: Mapping[str, Any]) -> Checksum | None:
    """The checksum in Google Cloud Storage's metadata; files uploaded in parts have no MD5."""
    return _decoded("md5", entry.get("md5Hash")) or _decoded("crc32c", entry.get("crc32c"))


def of_headers(headers: Iterable[tuple[str, str]]) -> Checksum | None:
    """The strongest checksum in a web server's headers, redirects included.

    An ETag counts only if it is a SHA-256, as Hugging Face's are; elsewhere it may be anything.
    """
    found: dict[str, Checksum | None] = {}
    for name, value in headers:
        match name.lower():
            case "etag" | "x-linked-etag":
                tag = value.strip('"').lower()
                if re.fullmatch(r"[0-9a-f]{64}", tag):
                    found["sha256"] = Checksum(kind="sha256", value=tag)
            case "content-md5":
                found["md5"] = _decoded("md5", value)
            case "x-goog-hash" | "digest" | "repr-digest":
                for part in value.split(","):
                    kind, _, coded = part.strip().partition("=")
                    kind = kind.lower().replace("sha-256", "sha256")
                    found[kind] = _decoded(kind, coded.strip(":"))
    return found.get("sha256") or found.get("md5") or found.get("crc32c")


_SIZES = {"sha256": 32, "md5": 16, "crc32c": 4}


def _decoded(kind: str, coded: str | None) -> Checksum | None:
    if not coded or kind not in _SIZES:
        return None
    try:
        raw = base64.b64decode(coded, validate=True)
    except binascii.Error:
        return None
    return Checksum(kind=kind, value=raw.hex()) if len(raw) == _SIZES[kind] else None
