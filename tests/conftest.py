"""What every test runs under: strict JAX promotion, run-time shape checks, and the two optional data sets."""

import gc
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path

import hypothesis
import jaxtyping
import pytest
from beartype import BeartypeConf, claw
from jaxtyping import install_import_hook

from oxygen.model.compile_cache import processor
from tests import shape_checks
from tests.commands import ROOT, call

# Read by JAX when it is first imported, so that tests which need no JAX need not import it. Compiled programs
# are shared by all tests, workers and runs; only tests about compiling have folders of their own.
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "oxygen-eval" / "tests"
os.environ |= {
    "PYTHONPYCACHEPREFIX": str(_CACHE / "bytecode"),
    "JAX_COMPILATION_CACHE_DIR": str(_CACHE / f"jaxlib-{version('jaxlib')}-{processor()}"),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    "JAX_NUMPY_DTYPE_PROMOTION": "strict",
    "JAX_NUMPY_RANK_PROMOTION": "raise",
    "JAX_PLATFORMS": "cpu",
}

# Bytecode is kept as well, even where Python is told not to write any: otherwise every worker, simulator and
# second process compiles two thousand modules from their sources.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode, sys.pycache_prefix = False, os.environ["PYTHONPYCACHEPREFIX"]

# No deadline: a busy machine is not a failure. `make test-all` asks for the thorough profile.
hypothesis.settings.register_profile("quick", deadline=None, max_examples=25)
hypothesis.settings.register_profile("thorough", deadline=None)
hypothesis.settings.load_profile("quick")

# Shells start background commands with SIGINT ignored, and children inherit that; tests interrupt theirs.
signal.signal(signal.SIGINT, signal.default_int_handler)

# No test cuts the power: waiting for the disk proves nothing.
os.fsync = lambda descriptor: None

_INNER_LOOP = "sim_envs.libero.arm"
"""Called 25 times in a control step: run-time type checks would double the time that physics takes."""

_PACKAGES = ("oxygen", "sim_envs", "videos")
_SHAPED = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for package in _PACKAGES
    for path in (ROOT / package).rglob("*.py")
    if path.name != "__init__.py"
    and re.search(r"^(from (jaxtyping|oxygen\.typing) |if TYPE_CHECKING:)", path.read_text(), re.MULTILINE)
]
"""Modules that annotate shapes, or name types that only type checkers import, which jaxtyping passes over.
All others do without jaxtyping, since with it a check takes many times as long."""

claw.beartype_packages(
    _PACKAGES, conf=BeartypeConf(claw_is_pep526=False, claw_skip_package_names=(_INNER_LOOP,))
)
# Counts are numbers where these say `float`, as for every type checker.
claw.beartype_package(
    "contracts",
    conf=BeartypeConf(
        claw_is_pep526=False,
        is_pep484_tower=True,
        claw_skip_package_names=("contracts.interface",),  # checks itself what users write
    ),
)
jaxtyping.jaxtyped = shape_checks.checked_at_first
install_import_hook([name for name in _SHAPED if name != _INNER_LOOP], "beartype.beartype")


def _data(variable: str, beside: str) -> Path:
    """The folder that a variable names, else the one beside the project; skips where there is none."""
    path = Path(os.environ.get(variable) or ROOT.parent / "shared" / beside)
    if not path.is_dir():
        if os.environ.get("OXYGEN_REQUIRE_TEST_DATA") == "1":
            pytest.fail(f"there is no {path}, and OXYGEN_REQUIRE_TEST_DATA=1 requires it")
        pytest.skip(f"there is no {path}; {variable} may name another folder")
    return path


@pytest.fixture(scope="session")
def reference_assets() -> Path:
    """The asset tree with which the reference pictures were rendered: LIBERO's, with smaller textures."""
    return _data("OXYGEN_REFERENCE_ASSETS", "libero-assets")


@pytest.fixture(scope="session")
def golden() -> Path:
    """The folder of reference outputs."""
    return _data("OXYGEN_GOLDEN", "golden")


@pytest.fixture(scope="module")
def compiled_soon() -> Iterator[None]:
    """The module's programs are not optimised, see `tests.oxygen.compiling`."""
    from tests.oxygen.compiling import compile_soon

    with pytest.MonkeyPatch.context() as patch:
        compile_soon(patch)
        yield


@pytest.fixture
def command(capsys) -> Callable[..., tuple[int, str, str]]:
    """Calls a command; returns its exit code, stdout and stderr."""
    return lambda asked, *arguments: (call(asked, *arguments), *capsys.readouterr())


@pytest.fixture
def refused(command) -> Callable[..., str]:
    """Calls a command that has to end in one line on stderr with exit code 2; returns the line."""

    def refused(asked, *arguments: object) -> str:
        code, out, err = command(asked, *arguments)
        assert (code, out, err.count("\n"), err[:7]) == (2, "", 1, "error: ")
        return err

    return refused


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--hypothesis-profile") == "thorough":
        shape_checks.most = sys.maxsize


def pytest_collection_finish() -> None:
    """What has been imported stays: collecting garbage need not look through its half a million objects."""
    gc.collect()
    gc.freeze()
