"""Checks two rules: only LIBERO's own modules name it, and no two public classes share a name.

Exceptions to the first are listed below. An exception that is no longer needed is an error, too.
"""

import io
import re
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterator, Mapping, Set
from pathlib import Path

PACKAGES = ("configs", "eval", "oxygen", "sim_envs", "videos")

LIBERO_FREE = ("configs", "eval", "sim_envs", "videos")
LIBERO_MODULES = ("sim_envs/libero/", "eval/libero.py")
LIBERO_EXCEPTIONS: frozenset[str] = frozenset(
    [
        "eval/records/provenance.py",  # the version of its package
        "eval/train/__main__.py",  # the default robot
        "eval/train/training.py",
    ]
)
"""Other files whose code may name LIBERO."""

_LIBERO = re.compile("libero", re.IGNORECASE)
_PUBLIC_CLASS = re.compile(r"^class ([A-Za-z]\w*)", re.MULTILINE)
_LAYOUT = {tokenize.NL, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING}


def check(root: Path, *, libero_exceptions: Set[str]) -> list[str]:
    """Violations in a source tree, one line each."""
    return [
        *_differences("code that names LIBERO", libero_lines(root), libero_exceptions),
        *_differences("public classes of one name", public_classes(root), frozenset()),
    ]


def libero_lines(root: Path) -> dict[str, list[str]]:
    """Lines of code outside LIBERO's modules that name it, by file. Docstrings and comments may."""
    found = {}
    for path, text in _sources(root, LIBERO_FREE):
        if not path.startswith(LIBERO_MODULES) and _LIBERO.search(text):
            lines = sorted({token.start[0] for token in _code(text) if _LIBERO.search(token.string)})
            if lines:
                found[path] = [f"{path}:{line}" for line in lines]
    return found


def public_classes(root: Path) -> dict[str, list[str]]:
    """The files of public classes, by name, for names that more than one has."""
    found = defaultdict(list)
    for path, text in _sources(root, PACKAGES):
        for name in _PUBLIC_CLASS.findall(text):
            found[name].append(path)
    return {name: paths for name, paths in found.items() if len(paths) > 1}


def _differences(what: str, found: Mapping[str, list[str]], allowed: Set[str]) -> Iterator[str]:
    for key in sorted(found.keys() - allowed):
        yield f"{key}: {what}: {', '.join(found[key])}"
    for key in sorted(allowed - found.keys()):
        yield f"{key}: no {what} any more: remove it from the list in {Path(__file__).name}"


def _sources(root: Path, packages: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for package in packages:
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
