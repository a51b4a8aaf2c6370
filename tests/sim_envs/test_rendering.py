"""Culling removes geoms outside the image and changes no pixel; contact sheets have a tile for each task."""

import mujoco
import numpy as np
import pytest
from PIL import Image

from sim_envs.contact_sheet import Sheet
from sim_envs.rendering import Cameras
from sim_envs.suite import Task

MODEL = """
<mujoco>
  <asset>
    <material name="mirror" reflectance="{reflectance}" rgba="0.4 0.4 0.5 1"/>
    <material name="floor" reflectance="{floor}" rgba="0.8 0.8 0.8 1"/>
    <material name="metal" reflectance="0.6"/>
    <mesh name="wedge" vertex="0 0 0  0.3 0 0  0 0.3 0  0 0 0.3"/>
  </asset>
  <worldbody>
    <light pos="0 0 3" castshadow="{shadow}"/>
    <camera name="table" pos="0 -2 0.6" xyaxes="1 0 0 0 0.3 1" fovy="45"/>
    <camera name="above" pos="0 0 2" fovy="60"/>
    <geom name="floor" type="plane" size="4 4 0.1" material="floor"/>
    <geom name="mirror" type="box" size="0.5 0.5 0.02" pos="0 0 0.05" material="mirror"/>
    {things}
  </worldbody>
</mujoco>
"""


def model(*, reflectance: float = 0.0, floor: float = 0.0, shadow: str = "false") -> mujoco.MjModel:
    """Geoms scattered around, most of them outside both images; the spheres have a reflectance."""
    draw = np.random.default_rng(3)
    kinds = {"box": 'size="0.2 0.1 0.3"', "sphere": 'size="0.15" material="metal"', "mesh": 'mesh="wedge"'}
    things = "".join(
        f'<geom type="{kind}" {size} pos="{x:.3f} {y:.3f} {z:.3f}" euler="{a:.0f} {b:.0f} 0" '
        f'rgba="{abs(x) / 4:.2f} {abs(y) / 4:.2f} 0.5 1"/>'
        for kind, size in [*kinds.items()] * 25
        for x, y, z in [draw.uniform((-3, -3, 0), (3, 3, 2.5))]
        for a, b in [draw.uniform(0, 360, 2)]
    )
    return mujoco.MjModel.from_xml_string(
        MODEL.format(reflectance=reflectance, floor=floor, shadow=shadow, things=things)
    )


def pictures(of: mujoco.MjModel, *, cull: bool = True) -> tuple[dict[str, np.ndarray], int]:
    """The images of both cameras, and the number of culled geoms."""
    data = mujoco.MjData(of)
    mujoco.mj_forward(of, data)
    names = ("table", "above")
    cameras = Cameras(of, dict(zip(names, names, strict=True)), size=(64, 64), option=mujoco.MjvOption())
    cameras.capture(data)
    shown = {name: cameras.draw(name, cull=cull) for name in names}
    cameras.close()
    scenes = [scene for _, scene in cameras._views.values()]
    types = [geom.type for scene in scenes for geom in scene.geoms[: scene.ngeom]]
    return shown, types.count(mujoco.mjtGeom.mjGEOM_NONE)


def test_culling_changes_no_pixel():
    (culled, hidden), (whole, _) = pictures(model()), pictures(model(), cull=False)
    assert hidden > 40
    for name, picture in whole.items():
        np.testing.assert_array_equal(culled[name], picture)
        assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 10, "the image is not empty"


@pytest.mark.parametrize("scene", [{"shadow": "true"}, {"reflectance": 0.6}, {"floor": 0.4}])
def test_nothing_is_culled_that_a_shadow_or_a_mirror_may_show(scene):
    assert pictures(model(**scene))[1] == 0


def test_tiles_with_other_image_sizes_do_not_overlap(tmp_path):
    sheet = Sheet(tmp_path / "sheet.png")
    for task_id, size in enumerate((16, 64)):
        task = Task(suite="fake", task_id=task_id, name="", language="")
        sheet.add(task, np.zeros((size, 2 * size, 3), np.uint8))
    assert sheet.write()
    with Image.open(tmp_path / "sheet.png") as written:
        assert written.size == (2 * 2 * 64, 64 + 18)
