"""SHA-256 of names, of content and of files."""

import hashlib
import json
from pathlib import Path
from typing import Any


def seed_of(name: str) -> int:
    """A 64-bit hash of a name, such as an episode's: `suite.task_id.init_id.seed`; equal on all machines."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")


def hash_of(content: Any) -> str:
    """The first 16 hexadecimal digits of SHA-256 over the canonical JSON of the content."""
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def hash_file(file: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
