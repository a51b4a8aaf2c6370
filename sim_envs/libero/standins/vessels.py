"""Things that hold things: basket, bowl, plate, ramekin, frying pan."""

import functools
import math
from collections.abc import Sequence

from sim_envs.libero.standins.mesh import lathe
from sim_envs.libero.standins.model import Body, Colour, Look, Model, Picture, Region, Solid
from sim_envs.libero.standins.paint import weave
from sim_envs.libero.standins.solids import around, bar, block, drawn, panel, ring, slat


def scanned(category: str, body: Body) -> Model:
    """A model in the folder where LIBERO looks for dishes."""
    return Model(category=category, path=f"stable_scanned_objects/{category}/{category}.xml", body=body)


def dish(
    profile: Sequence[tuple[float, float]],
    solids: Sequence[Solid],
    *,
    colour: Colour,
    mass: float,
    shine: float = 0.3,
) -> Body:
    """A vessel of one colour: a turned shape to look at, a wall of boxes to hold."""
    return Body(
        name="object",
        mass=mass,
        solids=solids,
        looks=[Look(mesh=lathe(profile, sides=20), skin=colour, shine=shine)],
    )


_BASKET = [
    block((-0.0745, -0.0724, 0.0042), (0.0790, 0.0724, 0.0219)),
    panel((0.0787, 0.0134), (0.0851, 0.1404), width=0.0724, thickness=0.0133, yaw=0.0),
    panel((0.0740, 0.0132), (0.0838, 0.1404), width=0.0724, thickness=0.0133, yaw=math.pi),
    panel((0.0728, 0.0185), (0.0785, 0.1455), width=0.0725, thickness=0.0133, yaw=math.pi / 2),
    panel((0.0728, 0.0185), (0.0785, 0.1455), width=0.0725, thickness=0.0133, yaw=-math.pi / 2),
]
BASKET = Body(
    name="object",
    mass=0.1361,
    solids=_BASKET,
    regions=[
        Region(
            name="contain_region",
            pos=(0.0, 0.0, 0.07185),
            half=(0.06108, 0.06108, 0.06949),
            quat=(0.0, 0.0, 0.0, 1.0),
        )
    ],
    looks=[
        Look(
            mesh=drawn(_BASKET),
            skin=Picture(name="weave", paint=functools.partial(weave, (184, 134, 82), (128, 86, 48))),
        )
    ],
)

# Some episodes begin with the bowl inside the plate's rim, or high above the ramekin, and physics throws it
# aside or hooks it on the rim. Where it comes to rest then depends on how the wall segments stand, so their
# azimuths (degrees) are those of the real models, and their radii are fitted to the rest poses within 0.5 mm.
_BOWL_FOOT = (
    *(90.0, 116.0, 141.0, 166.3, 190.9, 216.5, 242.3, 267.9),
    *(293.8, 318.9, 344.2, 360.4, 384.9, 409.9, 429.8),
)
_BOWL_WALL = (
    *(90.0, 111.5, 132.3, 153.4, 174.4, 194.8, 215.7, 236.9, 257.6),
    *(278.5, 299.6, 320.4, 341.8, 362.2, 382.9, 403.5, 424.0, 437.0),
)
_PLATE_RIM = (90, 47.9, 3.7, -40.8, -87.3, -133.7, -178.5, 135.5)
_RAMEKIN_WALL = (
    *(-90.0, 91.5, 1.0, 180.6, 204.3, 226.7, 249.3, 295.7),
    *(320.5, 341.5, 26.0, 48.4, 71.7, 116.8, 141.2, 161.8),
)

BOWL = dish(
    [
        (0.0, 0.0016),
        (0.0235, 0.0016),
        (0.0245, 0.0040),
        (0.0435, 0.0150),
        (0.0535, 0.0520),
        (0.0515, 0.0520),
        (0.0418, 0.0165),
        (0.0235, 0.0068),
        (0.0, 0.0068),
    ],
    [
        block((-0.0232, -0.0154, 0.0016), (0.0232, 0.0155, 0.0068)),
        block((-0.0162, -0.0245, 0.0016), (0.0162, 0.0223, 0.0068)),
        *around(slat(0.0336698, 0.0098216, (0.0007, 0.0099, 0.0119), lean=60.0, twist=0.4711766), _BOWL_FOOT),
        *around(
            slat(0.0467844, 0.0334977, (0.0013, 0.00934, 0.01875), lean=14.69, twist=-0.2057586), _BOWL_WALL
        ),
    ],
    colour=(0.04, 0.04, 0.045),
    mass=0.0056,
)
PLATE = dish(
    [(0.0, -0.0024), (0.0330, -0.0024), (0.0690, 0.0120), (0.0690, 0.0150), (0.0320, 0.0058), (0.0, 0.0058)],
    [
        block((-0.0286, -0.03236, -0.0025), (0.0286, 0.03236, 0.0053)),
        *around(
            slat(0.0481213, 0.0073919, (0.002574, 0.02829, 0.018724), lean=71.143985, twist=-0.2439332),
            (azimuth + 0.2282264 for azimuth in _PLATE_RIM),
        ),
    ],
    colour=(0.86, 0.86, 0.84),
    mass=0.0115,
)
RAMEKIN = dish(
    [
        (0.0, 0.0008),
        (0.0372, 0.0008),
        (0.0435, 0.0385),
        (0.0447, 0.0395),
        (0.0447, 0.0430),
        (0.0385, 0.0430),
        (0.0325, 0.0073),
        (0.0, 0.0073),
    ],
    [
        block((-0.0354, -0.0244, 0.0009), (0.0366, 0.0244, 0.0073)),
        block((-0.0239, -0.0368, 0.0009), (0.0250, 0.0369, 0.0073)),
        *around(
            slat(0.038591, 0.021231, (0.002335, 0.00948, 0.02085), lean=9.034287),
            (azimuth + 192.160581 for azimuth in _RAMEKIN_WALL),
        ),
    ],
    colour=(0.80, 0.83, 0.86),
    mass=0.0097,
)

_PAN_HANDLE = [
    bar((0.1000, 0.0030, 0.0135), (0.1275, 0.0030, 0.0330), width=0.0105, thickness=0.0095),
    bar((0.1267, 0.0, 0.0355), (0.2585, 0.0, 0.0526), width=0.0127, thickness=0.0062),
]
_PAN = [
    block((-0.0549, -0.0549, 0.0008), (0.0549, 0.0549, 0.0127)),
    block((-0.0750, -0.0500, 0.0030), (0.0800, 0.0450, 0.0119)),
    block((-0.0470, -0.0749, 0.0030), (0.0520, 0.0714, 0.0119)),
    *ring((0.0793, 0.0023), (0.1013, 0.0387), 0.0072, sides=16),
]
FRYPAN = Body(
    name="object",
    mass=0.0502,
    solids=[*_PAN, *_PAN_HANDLE],
    looks=[
        Look(
            mesh=lathe(
                [
                    (0.0, 0.0008),
                    (0.0760, 0.0008),
                    (0.1015, 0.0410),
                    (0.0985, 0.0420),
                    (0.0740, 0.0119),
                    (0.0, 0.0119),
                ],
                sides=20,
            ),
            skin=(0.10, 0.10, 0.10),
            shine=0.4,
        ),
        Look(mesh=drawn(_PAN_HANDLE), skin=(0.05, 0.05, 0.05)),
    ],
)

VESSELS = (
    scanned("basket", BASKET),
    scanned("akita_black_bowl", BOWL),
    scanned("plate", PLATE),
    scanned("glazed_rim_porcelain_ramekin", RAMEKIN),
    scanned("chefmate_8_frypan", FRYPAN),
)
