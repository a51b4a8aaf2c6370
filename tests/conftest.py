"""What every test runs under: strict JAX promotion, run-time shape checks, and the two optional data sets."""

import os
from pathlib import Path

import hypothesis
import pytest

# Read by JAX when it is first imported, so that tests which need no JAX need not import it.
os.environ["JAX_NUMPY_DTYPE_PROMOTION"] = "strict"
os.environ["JAX_NUMPY_RANK_PROMOTION"] = "raise"
os.environ["JAX_PLATFORMS"] = "cpu"

from jaxtyping import install_import_hook

hypothesis.settings.register_profile("unhurried", deadline=None)  # a busy machine is no failure
hypothesis.settings.load_profile("unhurried")
install_import_hook(["oxygen", "sim_envs", "videos"], "beartype.beartype")

_BESIDE = Path(__file__).resolve().parents[1].parent / "shared"


def _required_or_skip(what: str) -> None:
    if os.environ.get("OXYGEN_REQUIRE_TEST_DATA") == "1":
        pytest.fail(f"{what}, and OXYGEN_REQUIRE_TEST_DATA=1 requires it")
    pytest.skip(what)


@pytest.fixture(scope="session", autouse=True)
def compiled_apart(tmp_path_factory) -> None:
    """What tests compile is kept for this run alone, not in the user's cache."""
    os.environ["OXYGEN_COMPILE_CACHE"] = str(tmp_path_factory.mktemp("compiled"))


@pytest.fixture(scope="session")
def libero_assets() -> Path:
    """LIBERO's real asset tree: `OXYGEN_LIBERO_ASSETS`, else the folder beside the project."""
    path = Path(os.environ.get("OXYGEN_LIBERO_ASSETS") or _BESIDE / "libero-assets")
    if not path.is_dir():
        _required_or_skip(f"LIBERO's asset tree is not at {path}")
    return path


@pytest.fixture(scope="session")
def golden() -> Path:
    """The folder of reference outputs: `OXYGEN_GOLDEN`, else the folder beside the project."""
    path = Path(os.environ.get("OXYGEN_GOLDEN") or _BESIDE / "golden")
    if not path.is_dir():
        _required_or_skip(f"the reference outputs are not at {path}")
    return path
