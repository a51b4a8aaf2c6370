"""Furniture on the table: cabinets with three drawers, the wine rack, the desk caddy and the book for it."""

import functools
import math
from collections.abc import Iterable

from sim_envs.libero.standins import labels
from sim_envs.libero.standins.drinkware import turbosquid
from sim_envs.libero.standins.mesh import WHOLE, box
from sim_envs.libero.standins.model import (
    Body,
    Colour,
    Joint,
    Look,
    Marks,
    Model,
    Picture,
    Quat,
    Region,
    Solid,
    about,
)
from sim_envs.libero.standins.paint import Ink, grain
from sim_envs.libero.standins.solids import bar, block, drawn

FLIPPED: Quat = (0.0, 0.0, 1.0, 0.0)
METAL: Colour = (0.55, 0.55, 0.57)
LEVELS = {"top": (0.1488, 0.18563), "middle": (0.0791, 0.11690), "bottom": (0.0105, 0.04701)}
"""z of a drawer's lower edge and of its region's centre."""


def cabinet(category: str, wood: Ink) -> Model:
    """A chest of three drawers that slide out along -y."""
    carcass = [
        block((-0.1173, 0.1072, 0.0084), (0.1241, 0.1117, 0.2201)),
        block((-0.1189, -0.0735, 0.0046), (0.1270, 0.1062, 0.0091)),
        block((-0.1173, -0.0792, 0.0084), (-0.1070, 0.1117, 0.2201)),
        block((0.1138, -0.0792, 0.0084), (0.1241, 0.1117, 0.2201)),
        block((-0.1080, -0.0709, 0.1482), (0.1157, 0.1082, 0.1505)),
        block((-0.1080, -0.0709, 0.0782), (0.1157, 0.1082, 0.0804)),
        block((-0.1234, -0.0783, 0.2201), (0.1312, 0.1099, 0.2230)),
    ]
    top = Region(name="top_side", pos=(0.00354, 0.01567, 0.22152), half=(0.12534, 0.09438, 0.00147))
    base = Body(
        name="base",
        solids=carcass,
        regions=[top],
        looks=[_in_wood(carcass, wood)],
        parts=[drawer(level, wood) for level in LEVELS],
    )
    return Model(
        category=category,
        path=f"articulated_objects/{category}.xml",
        body=Body(name="object", parts=[base]),
        marks=Marks(bottom=-0.045, top=0.045, radius=(0.045, 0.045)),
    )


def drawer(level: str, wood: Ink) -> Body:
    """One drawer, with its handle."""
    z, centre = LEVELS[level]
    tray = [
        block((-0.1060, -0.0780, z), (0.1127, -0.0725, z + 0.0686)),
        block((-0.1035, -0.0725, z + 0.0026), (0.1101, -0.0648, z + 0.0669)),
        block((-0.1035, 0.0872, z + 0.0026), (0.1101, 0.0943, z + 0.0669)),
        block((-0.1046, -0.0704, z + 0.0031), (-0.0992, 0.0925, z + 0.0664)),
        block((0.1063, -0.0704, z + 0.0034), (0.1116, 0.0925, z + 0.0661)),
        block((-0.1035, -0.0705, z + 0.0023), (0.1104, 0.0914, z + 0.0103)),
    ]
    low = z + 0.0230 if level != "top" else z + 0.0270
    handle = [
        block((-0.0472, -0.1093, low), (0.0417, -0.0939, low + 0.0163)),
        block((0.0241, -0.0940, low + 0.0026), (0.0342, -0.0729, low + 0.0137)),
        block((-0.0407, -0.0940, low + 0.0026), (-0.0305, -0.0729, low + 0.0137)),
    ]
    region = Region(
        name=f"{level}_region",
        pos=(0.00328, 0.01128, centre),
        half=(0.02993, 0.07561, 0.10224),
        quat=about("y", math.pi / 2),
    )
    rail = Joint(
        name=f"{level}_level", kind="slide", axis=(0.0, 1.0, 0.0), limits=(-0.16, 0.01), damping=50.0
    )
    return Body(
        name=f"cabinet_{level}",
        inertia=(3.0, (1.0, 1.0, 1.0)),
        joint=rail,
        regions=[region],
        solids=[*tray, *handle],
        looks=[_in_wood(tray, wood), Look(mesh=drawn(handle), skin=METAL, shine=0.6)],
    )


def _in_wood(solids: Iterable[Solid], wood: Ink) -> Look:
    picture = Picture(name="wood", paint=functools.partial(grain, wood, size=64, stretch=16))
    return Look(mesh=drawn(solids), skin=picture)


_BOARDS = [
    bar((0.0, -0.0735, 0.2102), (0.0, 0.0613, 0.2922), width=0.1344, thickness=0.0045),
    bar((0.0, -0.1101, 0.0863), (0.0, 0.0247, 0.1682), width=0.1344, thickness=0.0045),
]
_STOPS = [
    bar((0.0, -0.0706, 0.2131), (0.0, -0.0791, 0.2283), width=0.1322, thickness=0.0011),
    bar((0.0, -0.1049, 0.0898), (0.0, -0.1134, 0.1050), width=0.1322, thickness=0.0011),
]
_STAND = [
    block((-0.0665, -0.0930, 0.0021), (0.0665, 0.0930, 0.0111)),
    bar((0.0, 0.0100, 0.0178), (0.0, 0.1289, 0.0022), width=0.0900, thickness=0.0045),
    bar((0.0, -0.0049, 0.0210), (0.0, -0.1237, 0.0043), width=0.0900, thickness=0.0045),
    block((-0.0905, -0.0141, 0.0160), (0.0905, 0.0141, 0.0250)),
    bar((0.0, -0.0353, 0.0148), (0.0, 0.0530, 0.3257), width=0.0076, thickness=0.0091),
]
WINE_RACK = Body(
    name="object",
    mass=0.1527,
    solids=[*_BOARDS, *_STOPS, *_STAND],
    regions=[
        Region(
            name="top_region",
            pos=(0.0, -0.08003, 0.21745),
            half=(0.10087, 0.02200, 0.00251),
            quat=(0.8549119, -0.5187733, 0.0, 0.0),
        )
    ],
    looks=[
        _in_wood(_BOARDS, (214, 176, 128)),
        Look(mesh=drawn(_STOPS), skin=(0.70, 0.76, 0.78)),
        Look(mesh=drawn(_STAND), skin=(0.28, 0.08, 0.05)),
    ],
)

_CADDY = [
    block((-0.0755, -0.2169, 0.0014), (0.0755, 0.2169, 0.0138)),
    block((-0.0706, -0.0742, 0.0026), (0.0706, -0.0618, 0.1674)),
    block((-0.0706, -0.2156, 0.0026), (0.0706, -0.2032, 0.1674)),
    block((0.0628, -0.2098, 0.0052), (0.0708, 0.2098, 0.1683)),
    block((-0.0056, -0.0668, 0.0118), (0.0025, 0.0668, 0.0987)),
    block((-0.0709, -0.2098, 0.0050), (-0.0628, 0.2098, 0.0741)),
    block((-0.0709, -0.2164, 0.0081), (-0.0628, -0.0631, 0.1673)),
    *(
        solid
        for y in (0.0671, 0.2048)
        for solid in (
            block((-0.0706, y, 0.0119), (0.0706, y + 0.0072, 0.0785)),
            block((0.0046, y, 0.0381), (0.0665, y + 0.0072, 0.1116)),
            block((0.0433, y, 0.1047), (0.0665, y + 0.0072, 0.1426)),
            bar((-0.0579, y + 0.0036, 0.0541), (0.0579, y + 0.0036, 0.1349), width=0.0036, thickness=0.0209),
            bar((0.0195, y + 0.0036, 0.1227), (0.0651, y + 0.0036, 0.1548), width=0.0036, thickness=0.0114),
        )
    ),
]
DESK_CADDY = Body(
    name="object",
    mass=0.2780,
    solids=_CADDY,
    regions=[
        Region(
            name="right_contain_region",
            pos=(0.00631, -0.14339, 0.06558),
            half=(0.06196, 0.06216, 0.06046),
            quat=FLIPPED,
        ),
        Region(
            name="left_contain_region",
            pos=(0.00631, 0.14551, 0.06558),
            half=(0.06196, 0.06216, 0.06046),
            quat=FLIPPED,
        ),
        Region(
            name="back_contain_region",
            pos=(0.03364, -0.00064, 0.08558),
            half=(0.02775, 0.06216, 0.06046),
            quat=FLIPPED,
        ),
        Region(
            name="front_contain_region",
            pos=(-0.03102, -0.00064, 0.04054),
            half=(0.02775, 0.03595, 0.06216),
            quat=(0.0, 0.0, 0.70711, -0.70711),
        ),
    ],
    looks=[_in_wood(_CADDY, (110, 66, 40))],
)

_BOOK = ((-0.0148, -0.0673, 0.0022), (0.0139, 0.0430, 0.1366))
BLACK_BOOK = Body(
    name="object",
    mass=0.0425,
    solids=[block(*_BOOK)],
    looks=[
        Look(
            mesh=box(*_BOOK, x=(0.0, 0.0, 0.05, 0.05), y=WHOLE, z=WHOLE),
            skin=Picture(name="pages", paint=labels.pages),
        )
    ],
)

FURNITURE = (
    cabinet("wooden_cabinet", (72, 48, 34)),
    cabinet("white_cabinet", (222, 222, 220)),
    turbosquid("wine_rack", WINE_RACK),
    turbosquid("desk_caddy", DESK_CADDY),
    turbosquid("black_book", BLACK_BOOK),
)
