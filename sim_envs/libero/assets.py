"""LIBERO as installed: pinned versions, an import without side effects, and sources of meshes and textures.

Never prompts, and never downloads silently.
"""

import contextlib
import dataclasses
import functools
import hashlib
import importlib.metadata
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
from pathlib import Path

import yaml

from configs.errors import UsageError, unknown
from configs.hashing import hash_file
from configs.paths import temporary_folder
from sim_envs.blas import environment_variable, pin_kernels, use_one_thread
from sim_envs.gl import choose_backend

# The versions of LIBERO's published scores. Later versions of MuJoCo silently change objects and lighting.
PINNED_VERSIONS = {"mujoco": "3.2.3", "robosuite": "1.4.0", "hf-libero": "0.1.4"}
_lock = threading.RLock()


@functools.cache
def package_root() -> Path:
    """The folder of LIBERO's data, found without importing it; a UsageError if hf-libero is not installed."""
    spec = importlib.util.find_spec("libero")
    if spec is None or not spec.submodule_search_locations:
        raise UsageError(
            "LIBERO is not installed: run `oxygen-eval setup libero`, or `make setup` in a checkout"
        )
    return Path(next(iter(spec.submodule_search_locations))) / "libero"


def check_versions() -> None:
    """Raise a UsageError if a package is missing or of another version: scores would not be comparable."""
    for package, wanted in PINNED_VERSIONS.items():
        try:
            found = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found = "missing"
        if found != wanted:
            raise UsageError(
                f"{package} is {found}, but LIBERO's scores are valid for {wanted} only: run "
                "`oxygen-eval setup libero`, or `make setup` in a checkout"
            )


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
            from libero.libero import envs
        finally:
            logging.disable(disabled)
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


STANDINS = "standins"  # assets that need no download: shapes of the same sizes, masses, joints and regions
_ARCHIVE = Path(__file__).parent / "standins" / "assets.tar.xz"
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
    f"give its folder with --assets PATH or {ENVIRONMENT_VARIABLE}=PATH, download it with --assets download, "
    f"or use --assets {STANDINS}"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AssetSet:
    """A complete asset tree. Results of different trees are not comparable."""

    name: str  # `hf-libero` for LIBERO's own distribution, `standins` for ours, else the name of the folder
    path: Path  # the folder with `scenes`, `articulated_objects` and the rest

    @functools.cached_property
    def digest(self) -> str:
        """The first 12 hexadecimal digits of a SHA-256 over names and contents of all files."""
        total = hashlib.sha256()
        names = (file.relative_to(self.path) for file in self.path.rglob("*") if file.is_file())
        # Files of download clients (`.cache`, `.gitattributes`) do not count.
        for name in sorted(name for name in names if not any(part.startswith(".") for part in name.parts)):
            total.update(name.as_posix().encode())
            total.update(hashlib.sha256((self.path / name).read_bytes()).digest())
        return total.hexdigest()[:12]


def find_assets(source: str | os.PathLike[str] | None = None) -> AssetSet:
    """The asset tree that `source` names.

    Args:
        source: A folder; `standins` for ours, unpacked once; `download` for hf-libero's download, which
            skips files that exist; `auto` or None for the first that exists of the folder in
            `OXYGEN_LIBERO_ASSETS`, the one in the installed hf-libero package, and an earlier download, else
            the stand-ins.

    A UsageError if the folder is not an asset tree, or a download failed.
    """
    if source is None or source == "auto":
        if named := os.environ.get(ENVIRONMENT_VARIABLE):
            return _folder(Path(named), ENVIRONMENT_VARIABLE)
        for path in (package_root() / "assets", _download_cache()):
            if not _missing_parts(path):
                return AssetSet(name="hf-libero", path=path.resolve())
        source = STANDINS
    if source == STANDINS:
        return AssetSet(name=STANDINS, path=unpack_standins())
    if source == "download":
        load_libero()
        from huggingface_hub import snapshot_download
        from libero.libero.utils.download_utils import HF_ASSETS_REPO_ID

        path = _download_cache()
        try:  # hf-libero's own function fails with current Hugging Face clients
            snapshot_download(repo_id=HF_ASSETS_REPO_ID, repo_type="dataset", local_dir=path)
        except OSError as error:
            raise UsageError(
                f"the download of LIBERO's asset tree failed ({type(error).__name__}: {error}): try again, "
                "or give a folder with --assets PATH"
            ) from error
        if missing := _missing_parts(path):
            raise UsageError(
                f"the download at {str(path)!r} lacks {', '.join(missing)}: delete it and try again"
            )
        return AssetSet(name="hf-libero", path=path.resolve())
    if not Path(source).expanduser().exists() and Path(source).name == source:
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
    path = path.expanduser().resolve()
    if not path.is_dir():
        raise UsageError(f"{said_by} names {str(path)!r}, which is not a folder: {_HOW}")
    missing = _missing_parts(path)
    if missing:
        inside = next((child for child in sorted(path.iterdir()) if not _missing_parts(child)), None)
        hint = f"did you mean {str(inside)!r}?" if inside else _HOW
        raise UsageError(
            f"{said_by} names {str(path)!r}, no LIBERO asset tree: nothing is in {', '.join(missing)}; {hint}"
        )
    return AssetSet(name=path.name, path=path)


def _download_cache() -> Path:
    """The folder of hf-libero's download (`libero.libero.utils.download_utils`)."""
    return Path.home() / ".cache" / "libero" / "assets"


def _missing_parts(path: Path) -> list[str]:
    """The parts that are missing or empty."""
    return [part for part in _PARTS if not any((path / part).glob("*"))]
