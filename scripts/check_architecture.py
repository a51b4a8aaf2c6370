"""Checks that only LIBERO's own modules name it. Exceptions are listed; a needless one is an error, too."""

import ast
import re
import sys
from collections.abc import Set
from pathlib import Path

LIBERO_FREE = ("configs", "eval", "sim_envs", "videos")
LIBERO_MODULES = ("sim_envs/libero/", "eval/libero.py")
LIBERO_EXCEPTIONS: frozenset[str] = frozenset(
    [
        "eval/__main__.py",  # the command
        "eval/records/provenance.py",  # the version of its package
        "eval/rollout/preflight.py",  # whether it is installed
        "eval/setup.py",  # installs it
        "eval/train/__main__.py",  # the default robot
        "eval/train/training.py",
    ]
)
"""Other files whose code may name LIBERO."""


def check(root: Path, *, libero_exceptions: Set[str]) -> list[str]:
    """Violations in a source tree, one line each."""
    files = [path for package in LIBERO_FREE for path in sorted((root / package).rglob("*.py"))]
    found = {
        name
        for path in files
        if not (name := path.relative_to(root).as_posix()).startswith(LIBERO_MODULES)
        and re.search("libero", _code(path.read_text(encoding="utf-8")), re.IGNORECASE)
    }
    return [
        *(f"{name}: code that names LIBERO" for name in sorted(found - libero_exceptions)),
        *(f"{name}: does not name LIBERO; no exception needed" for name in sorted(libero_exceptions - found)),
    ]


def _code(text: str) -> str:
    """A module without comments and docstrings, which may name it."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [
                each
                for each in body
                if not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))
            ] or [ast.Pass()]
    return ast.unparse(tree)


if __name__ == "__main__":
    violations = check(Path(__file__).resolve().parents[1], libero_exceptions=LIBERO_EXCEPTIONS)
    sys.exit("\n".join(violations) or None)
