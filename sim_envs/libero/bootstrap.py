"""Imports LIBERO with pinned versions, without prompts, output or torch."""

import contextlib
import functools
import importlib.metadata
import importlib.util
import io
import logging
import runpy
import sys
import threading
import types
import warnings
from collections.abc import Iterator
from pathlib import Path

import yaml

from configs.errors import UsageError
from configs.locks import temporary_folder
from sim_envs.blas import environment_variable, pin_kernels, use_one_thread
from sim_envs.gl import choose_backend

PINNED_VERSIONS = {"mujoco": "3.2.3", "robosuite": "1.4.0", "hf-libero": "0.1.4"}
"""Versions of LIBERO's published scores. Later versions of MuJoCo silently change objects and lighting."""

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
    warning filters and creates `~/.libero`; here it does none of these.

    Raises:
        UsageError: LIBERO is missing or of another version.
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
