"""`python scripts/action_digest.py RUN…`: prints a digest of all actions of each run, to detect changes."""

import hashlib
import json
import sys
from pathlib import Path

import numpy as np


def action_digest(run: Path) -> tuple[str, int]:
    """SHA-256 over the chunks of all queries in order of episode and query, and how many there are."""
    digest, queries = hashlib.sha256(), 0
    for file in sorted((run / "queries").glob("*.jsonl")):
        digest.update(file.name.encode())
        for line in file.read_text(encoding="utf-8").splitlines():
            digest.update(np.asarray(json.loads(line)["actions"], np.float64).tobytes())
            queries += 1
    return digest.hexdigest(), queries


if __name__ == "__main__":
    for name in sys.argv[1:]:
        found, count = action_digest(Path(name))
        sys.stdout.write(f"{found[:16]}  {count:5} queries  {Path(name).name}\n")
