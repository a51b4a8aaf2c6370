"""What lies outside a picture is not drawn, and no pixel changes for it."""

import mujoco
import numpy as np
import pytest

from sim_envs.rendering import Renderer, View

MODEL = """
<mujoco>
  <asset>
    <material name="mirror" reflectance="{reflectance}" rgba="0.4 0.4 0.5 1"/>
    <mesh name="wedge" vertex="0 0 0  0.3 0 0  0 0.3 0  0 0 0.3"/>
  </asset>
  <worldbody>
    <light pos="0 0 3" castshadow="{shadow}"/>
    <camera name="table" pos="0 -2 0.6" xyaxes="1 0 0 0 0.3 1" fovy="45"/>
    <camera name="above" pos="0 0 2" fovy="60"/>
    <geom name="floor" type="plane" size="4 4 0.1" rgba="0.8 0.8 0.8 1"/>
    <geom name="mirror" type="box" size="0.5 0.5 0.02" pos="0 0 0.05" material="mirror"/>
    {things}
  </worldbody>
</mujoco>
"""


def model(*, reflectance: float = 0.0, shadow: str = "false") -> mujoco.MjModel:
    """Things all over the place, most of them in no picture."""
    draw = np.random.default_rng(3)
    things = "".join(
        f'<geom type="{kind}" {size} pos="{x:.3f} {y:.3f} {z:.3f}" euler="{a:.0f} {b:.0f} 0" '
        f'rgba="{abs(x) / 4:.2f} {abs(y) / 4:.2f} 0.5 1"/>'
        for kind, size in [("box", 'size="0.2 0.1 0.3"'), ("sphere", 'size="0.15"'), ("mesh", 'mesh="wedge"')]
        * 25
        for x, y, z in [draw.uniform((-3, -3, 0), (3, 3, 2.5))]
        for a, b in [draw.uniform(0, 360, 2)]
    )
    return mujoco.MjModel.from_xml_string(MODEL.format(reflectance=reflectance, shadow=shadow, things=things))


def pictures(of: mujoco.MjModel) -> tuple[dict[str, np.ndarray], int]:
    """What both cameras show, and how many things were left out."""
    data = mujoco.MjData(of)
    mujoco.mj_forward(of, data)
    renderer, shown, hidden = Renderer(of, height=64, width=64), {}, 0
    for camera in ("table", "above"):
        view = View(of, camera)
        view.expose(of, data, mujoco.MjvOption())
        view.hide_unseen()
        shown[camera] = renderer.draw(view.scene)
        types = [geom.type for geom in view.scene.geoms[: view.scene.ngeom]]
        hidden += types.count(mujoco.mjtGeom.mjGEOM_NONE)
    renderer.close()
    return shown, hidden


@pytest.mark.parametrize(
    "kind", [{}, {"reflectance": 0.6}, {"shadow": "true"}], ids=["plain", "mirror", "shadow"]
)
def test_no_pixel_changes_for_what_is_left_out(kind, monkeypatch):
    culled, hidden = pictures(model(**kind))
    monkeypatch.setattr(View, "hide_unseen", lambda view: None)
    whole, none = pictures(model(**kind))
    assert none == 0
    assert (hidden > 50) == (not kind), "all is drawn where a mirror or a shadow may show it"
    for name, picture in whole.items():
        assert np.array_equal(culled[name], picture)
        assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 10, "something is in the picture"
