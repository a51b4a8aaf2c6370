"""Checks that only LIBERO's own modules name it.

Exceptions are listed below. An exception that is no longer needed is an error, too.
"""

import io
import re
import sys
import tokenize
from collections.abc import Iterator, Mapping, Set
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

_LIBERO = re.compile("libero", re.IGNORECASE)
_LAYOUT = {tokenize.NL, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING}


def check(root: Path, *, libero_exceptions: Set[str]) -> list[str]:
    """Violations in a source tree, one line each."""
    return list(_differences("code that names LIBERO", libero_lines(root), libero_exceptions))


def libero_lines(root: Path) -> dict[str, list[str]]:
    """Lines of code outside LIBERO's modules that name it, by file. Docstrings and comments may."""
    found = {}
    for path, text in _sources(root):
        if not path.startswith(LIBERO_MODULES) and _LIBERO.search(text):
            lines = sorted({token.start[0] for token in _code(text) if _LIBERO.search(token.string)})
            if lines:
                found[path] = [f"{path}:{line}" for line in lines]
    return found


def _differences(what: str, found: Mapping[str, list[str]], allowed: Set[str]) -> Iterator[str]:
    for key in sorted(found.keys() - allowed):
        yield f"{key}: {what}: {', '.join(found[key])}"
    for key in sorted(allowed - found.keys()):
        yield f"{key}: no {what} any more: remove it from the list in {Path(__file__).name}"


def _sources(root: Path) -> Iterator[tuple[str, str]]:
    for package in LIBERO_FREE:
        for path in sorted((root / package).rglob("*.py")):
            yield path.relative_to(root).as_posix(), path.read_text(encoding="utf-8")


def _code(text: str) -> Iterator[tokenize.TokenInfo]:
    """The tokens of a module without comments and docstrings."""
    fresh = True
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in _LAYOUT:
            continue
        if not (fresh and token.type == tokenize.STRING):
            yield token
        fresh = token.type == tokenize.NEWLINE


if __name__ == "__main__":
    violations = check(Path(__file__).resolve().parents[1], libero_exceptions=LIBERO_EXCEPTIONS)
    sys.exit("\n".join(violations) or None)
