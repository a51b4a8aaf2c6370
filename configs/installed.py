"""What runs under a distribution's name: where Python imports its modules from, and whether it is a release.

Versions come from metadata, code comes from Python's path: a clone on PYTHONPATH would be evaluated under the
version of the installed package.
"""

import base64
import dataclasses
import functools
import hashlib
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.metadata import Distribution, distribution, distributions, packages_distributions
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from contracts.errors import UsageError

_READ = {".py", ".bddl", ".xml", ".json", ".yaml", ".yml", ".pruned_init"}
"""Files that are compared with the installed ones: code, tasks, models of robots, initial states. Meshes and
textures take too long at every start."""
_COMMON = {"benchmarks", "build", "docs", "examples", "scripts", "test", "tests", "tools"}
"""Modules that distributions install by mistake, so that any of them may be the one that is imported."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Installed:
    """A distribution whose modules are imported from where it is installed.

    Attributes:
        name: Its name.
        version: Its version.
        folder: Where it is installed.
        origin: What tells it from the release of this version; empty for a release.
        digest: Digest of its code, tasks, models and initial states.
    """

    name: str
    version: str
    folder: Path
    origin: Mapping[str, Any]
    digest: str

    def describe(self) -> str | dict[str, Any]:
        """The version of a release; otherwise also the origin and the digest."""
        return (
            {"version": self.version, **self.origin, "digest": self.digest} if self.origin else self.version
        )

    def require_release(self, why: str, *, digest: str | None = None) -> None:
        """Raise a UsageError if this is not the release, or does not have the release's digest, if given."""
        is_release = self.origin.keys() <= {"archive"} if digest is None else self.digest == digest
        if is_release:
            return
        changed = self.origin.get("changed", ())
        files = ", ".join(changed[:3]) + (", …" if changed[3:] else "")
        place = next((self.origin[key] for key in ("editable", "url", "archive") if key in self.origin), None)
        what = f"was changed after its installation ({files})" if files else "is not the release"
        if place is not None:
            what = f"is installed from {place}"
        if self.origin.get("recorded") is False:
            what = "has no list of its files (RECORD)"
        raise UsageError(
            f"{self.name} {self.version} in {self.folder} {what}, but {why}: "
            f"{reinstall(self.name, self.version)}"
        )


def imported_version(name: str) -> str:
    """The version of a distribution, whose modules are imported from where it is installed.

    Raises:
        UsageError: Python has imported a module of that name from elsewhere, or would.
        PackageNotFoundError: It is not installed.
    """
    folder = str(distribution(name).locate_file(""))
    version = _version_in(name, folder)
    for module, place in _modules_in(name, folder).items():
        origin = _origin(module)
        if origin is None:
            raise UsageError(
                f"{name} {version} is installed in {folder}, but without its module {module!r}: "
                f"{reinstall(name, version)}"
            )
        if place not in (origin, *origin.parents):
            raise UsageError(
                f"{module!r} is imported from {origin}, and {name} {version} is installed at {place}: "
                f"{_remedy(module, origin)}"
            )
    return version


def identify(name: str) -> Installed:
    """What is installed under a name. Takes some 20 ms, once per process.

    Raises:
        UsageError: See `imported_version`.
        PackageNotFoundError: It is not installed.
    """
    imported_version(name)
    return _identified(name, str(distribution(name).locate_file("")))


def check_submodules(name: str) -> None:
    """Raise a UsageError if a module that was imported as a part of a distribution is not among its files."""
    dist = distribution(name)
    folder = str(dist.locate_file(""))
    owned = {os.path.normpath(f"{folder}/{file}") for file in dist.files or ()}
    roots = tuple(f"{module}." for module in _modules_in(name, folder))
    files = {module: getattr(loaded, "__file__", None) or "" for module, loaded in list(sys.modules.items())}
    parts = {module: file for module, file in files.items() if module.startswith(roots)}
    strange = {module: file for module, file in parts.items() if file and os.path.normpath(file) not in owned}
    resolved = set(map(os.path.realpath, owned)) if strange else set()  # modules may come through other links
    for module, file in strange.items():
        if os.path.realpath(file) not in resolved:
            raise UsageError(
                f"{module!r} is imported from {file}, which does not belong to {name} {dist.version}, "
                f"installed in {dist.locate_file('')}: remove that file"
            )


def distribution_of(module: str) -> str | None:
    """The name of the distribution that has a module, imported or not; None for a file of one's own.

    A file in this project's own checkout is one's own: tests and examples are no part of its distribution.
    """
    file = getattr(sys.modules.get(module), "__file__", None)
    editable = _editable_with(file) if file else None
    return editable or next(iter(_names_by_module().get(module.partition(".")[0], ())), None)


@functools.cache
def _editable_with(file: str) -> str | None:
    places, own = Path(file).resolve().parents, Path(__file__).resolve().parents[1]
    sources = ((dist, _source_tree(dist)) for dist in distributions())
    return next((dist.name for dist, source in sources if source in places and source != own), None)


@functools.cache
def _names_by_module() -> Mapping[str, Sequence[str]]:
    return packages_distributions()


def reinstall(name: str, version: str) -> str:
    """How to install a release, for messages. The cache may hold the same file, changed by an editor."""
    return f"run `uv pip install --no-cache --reinstall --no-deps {name}=={version}`"


def git_state(file: Path) -> dict[str, Any]:
    """Commit of the repository that tracks a file, and whether files differ from it; None if none does."""
    if not file.exists() or _git(file.parent, "ls-files", "--error-unmatch", file.name) is None:
        return {"commit": None, "dirty": None}
    changes = _git(file.parent, "status", "--porcelain")
    return {
        "commit": _git(file.parent, "rev-parse", "HEAD"),
        "dirty": None if changes is None else bool(changes),
    }


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True, timeout=10
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


@functools.cache
def _version_in(name: str, folder: str) -> str:
    """The version of a distribution; another folder on the path may hold another one."""
    del folder  # a part of the cache's key
    return distribution(name).version


@functools.cache
def _modules_in(name: str, folder: str) -> dict[str, Path]:
    """The top-level modules of a distribution: of each the file that defines it, or a folder around it."""
    dist = distribution(name)
    source = _source_tree(dist)
    if source is not None or dist.read_text("RECORD") is None:
        listed = (dist.read_text("top_level.txt") or name.replace("-", "_")).split()
        place = source or Path(folder).resolve()
        return {module: place for module in listed if module not in _COMMON and _origin(module) is not None}
    defined: dict[tuple[str, ...], Any] = {}
    for file in dist.files or ():
        stem, _, suffix = file.name.partition(".")
        if file.name == "__init__.py" and file.parts[0] != "..":
            defined[file.parts[:-1]] = file
        elif len(file.parts) == 1 and f".{suffix}" in (".py", *EXTENSION_SUFFIXES):
            defined[(stem,)] = file
    return {
        ".".join(module): Path(str(dist.locate_file(file))).resolve()
        for module, file in defined.items()
        if module[0] not in _COMMON and not any(module[:depth] in defined for depth in range(1, len(module)))
    }


def _origin(module: str) -> Path | None:
    """The file that a module was or would be imported from; a folder for a package without `__init__.py`."""
    try:
        loaded = sys.modules.get(module)
        spec = importlib.util.find_spec(module) if loaded is None else None
    except ModuleNotFoundError:  # of a parent
        return None
    file = getattr(loaded, "__file__", None) or getattr(spec, "origin", None)
    folders = getattr(loaded, "__path__", None) or getattr(spec, "submodule_search_locations", None)
    place = file or next(iter(folders or ()), None)
    return None if place is None else Path(place).resolve()


def _remedy(module: str, origin: Path) -> str:
    """How to have the installed module imported instead of the one at `origin`."""
    entry = next((each for each in sys.path if Path(each).resolve() in origin.parents), None)
    listed = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if entry is None:
        return f"do not import {module} from there"
    if os.environ.get("PYTHONPATH") and Path(entry).resolve() in (Path(each).resolve() for each in listed):
        return f"take {entry or Path.cwd()} out of PYTHONPATH"
    if Path(entry).resolve() == Path.cwd():
        return "run from another folder, or start with `oxygen-eval`, which imports from this one last"
    return f"take {entry} out of sys.path"


def _source_tree(dist: Distribution) -> Path | None:
    """The folder that an editable installation imports from; None for any other."""
    direct = _direct_url(dist)
    if direct.get("dir_info", {}).get("editable"):
        return Path(unquote(urlsplit(direct["url"]).path)).resolve()
    folder = Path(str(dist.locate_file(""))).resolve()
    # What `setup.py develop` leaves, or a build, in a checkout that is on Python's path.
    is_checkout = dist.read_text("RECORD") is None and folder.name not in ("site-packages", "dist-packages")
    return folder if is_checkout else None


def _direct_url(dist: Distribution) -> dict[str, Any]:
    """Where a distribution was installed from (PEP 610); empty for an index, and for conda's own builds."""
    text = dist.read_text("direct_url.json")
    if text is None or (dist.read_text("INSTALLER") or "").strip() == "conda":
        return {}
    try:
        direct = json.loads(text)
    except ValueError:
        return {}
    return direct if isinstance(direct, dict) and isinstance(direct.get("url"), str) else {}


@functools.cache
def _identified(name: str, folder: str) -> Installed:
    dist = distribution(name)
    source, direct = _source_tree(dist), _direct_url(dist)
    origin: dict[str, Any] = {}
    if source is not None or dist.read_text("RECORD") is None:
        files = sorted(_code_of(dist))
        if source is None:
            origin = {"recorded": False}
        else:
            origin = {"editable": str(source), **git_state(next(iter(files), source / "pyproject.toml"))}
        digest = _digest((os.path.relpath(file, source or folder), _content(file)) for file in files)
    else:
        if direct:
            url = urlsplit(direct["url"])
            place = url._replace(netloc=url.netloc.rpartition("@")[2], query="", fragment="").geturl()
            origin["archive" if "archive_info" in direct else "url"] = place
            if commit := direct.get("vcs_info", {}).get("commit_id"):
                origin["commit"] = commit
        read = {
            file: _content(Path(str(dist.locate_file(file))))
            for file in sorted(dist.files or (), key=str)
            if file.suffix in _READ and file.parts[0] != ".." and not file.parts[0].endswith(".dist-info")
        }
        digest = _digest((file.as_posix(), content) for file, content in read.items())
        # Installers may record other digests than SHA-256, or none.
        hashes = {file: file.hash.value for file in read if file.hash and file.hash.mode == "sha256"}
        if changed := [str(file) for file, wanted in hashes.items() if _decoded(wanted) != read[file]]:
            origin["changed"] = changed
    return Installed(name=dist.name, version=dist.version, folder=Path(folder), origin=origin, digest=digest)


def _code_of(dist: Distribution) -> Iterator[Path]:
    """The files of a distribution's modules that are read, where no record lists them."""
    for module in _modules_in(dist.name, str(dist.locate_file(""))):
        origin = _origin(module)
        if origin is not None and origin.suffix and origin.name != "__init__.py":
            yield origin
        elif origin is not None:
            folder = origin.parent if origin.suffix else origin
            yield from (file for file in folder.rglob("*") if file.suffix in _READ and file.is_file())


def _digest(contents: Iterable[tuple[str, bytes]]) -> str:
    lines = "".join(f"{file} {content.hex()}\n" for file, content in contents)
    return hashlib.sha256(lines.encode()).hexdigest()[:16]


def _content(file: Path) -> bytes:
    """SHA-256 of a file; of nothing if it is missing."""
    return hashlib.sha256(file.read_bytes() if file.is_file() else b"").digest()


def _decoded(recorded: str) -> bytes:
    """A digest as RECORD writes it: base64 without its padding."""
    return base64.urlsafe_b64decode(recorded + "=" * (-len(recorded) % 4))
