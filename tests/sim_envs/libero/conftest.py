"""Copies of perturbed LIBEROs: the real ones where there are some, and a small one for any machine."""

import shutil
from pathlib import Path

import pytest

from contracts.errors import UsageError
from sim_envs.libero.assets import AssetSet
from sim_envs.libero.copies import Benchmark
from sim_envs.libero.plus.suite import LIBERO_PLUS
from sim_envs.libero.pro.suite import LIBERO_PRO
from tests.sim_envs.libero.small_copy import write, write_small_copy


def _real(benchmark: Benchmark) -> Path:
    try:
        return benchmark.find()
    except UsageError as error:
        pytest.skip(str(error))


@pytest.fixture
def plus_copy() -> Path:
    return _real(LIBERO_PLUS)


@pytest.fixture
def pro_copy() -> Path:
    return _real(LIBERO_PRO)


@pytest.fixture
def small_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A LIBERO-plus of one vanilla task, perturbed in every way, which the variable names."""
    monkeypatch.setenv(LIBERO_PLUS.variable, str(tmp_path / "checkout"))
    return write_small_copy(tmp_path / "checkout")


SODA = """<mujoco><worldbody><body><body name="object">
<geom type="box" size="0.02 0.02 0.04" group="0"/>
<geom type="box" size="0.02 0.02 0.04" group="1" contype="0" conaffinity="0"/>
</body>
<site name="bottom_site" pos="0 0 -0.04" size="0.005"/>
<site name="top_site" pos="0 0 0.04" size="0.005"/>
<site name="horizontal_radius_site" pos="0.02 0.02 0" size="0.005"/>
</body></worldbody></mujoco>"""


@pytest.fixture
def plus_assets(standins: AssetSet, tmp_path: Path) -> Path:
    """The stand-ins with what the small copy needs besides."""
    tree = Path(shutil.copytree(standins.path, tmp_path / "tree", symlinks=True))
    write(tree / "new_objects/soda/soda.xml", SODA)
    scene = (tree / "scenes/libero_tabletop_base_style.xml").read_text().replace("../", "../../")
    write(tree / "scenes/lights/dim.xml", scene.replace('diffuse=".8 .8 .8"', 'diffuse=".1 .1 .1"'))
    return tree
