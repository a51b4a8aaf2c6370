"""Stand-ins for LIBERO's assets: shapes of the same sizes, masses, joints and regions, in an archive."""

import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path

from configs.hashing import hash_file

ARCHIVE = Path(__file__).with_name("assets.tar.xz")
_WORKSPACES = frozenset({"floor", "table", "kitchen_table", "living_room_table", "study_table"})
"""Fixtures of BDDL that are part of a scene."""


def unpack(root: Path | None = None) -> Path:
    """The folder of the asset tree, unpacked if it is missing: whole, and safe against other processes.

    Args:
        root: The folder; by default one in the cache, named after the archive's digest.

    Raises:
        OSError: The folder cannot be written.
    """
    if root is None:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "oxygen-eval")
        root = cache / f"standins-{hash_file(ARCHIVE)[:12]}"
    if root.is_dir():
        return root
    root.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{root.name}-", dir=root.parent))
    try:
        with tarfile.open(ARCHIVE) as archive:
            archive.extractall(draft, filter="data")
        draft.chmod(0o755)
        draft.rename(root)
    except OSError:
        if not root.is_dir():  # otherwise another process was faster
            raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return root


def missing_for(categories: Iterable[str], root: Path) -> list[str]:
    """A task's object and fixture categories for which the tree below `root` has no model, sorted."""
    models = {model.stem for part in root.iterdir() for model in part.rglob("*.xml")}
    return sorted(set(categories) - models - _WORKSPACES)
