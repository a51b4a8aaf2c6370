"""Mugs with handles, the moka pot, the wine bottle."""

import itertools
from collections.abc import Sequence

from sim_envs.libero.standins import labels
from sim_envs.libero.standins.mesh import Mesh, lathe, merge, moved, tube
from sim_envs.libero.standins.model import Body, Colour, Look, Model, Picture, Solid, Vec3
from sim_envs.libero.standins.solids import bar, block, drawn, prism, ring, shifted

BLACK: Colour = (0.08, 0.08, 0.08)
ALUMINIUM: Colour = (0.72, 0.73, 0.75)
GLASS: Colour = (0.03, 0.07, 0.04)


def turbosquid(category: str, body: Body) -> Model:
    """A model in the folder where LIBERO looks for household goods."""
    return Model(category=category, path=f"turbosquid_objects/{category}/{category}.xml", body=body)


def handle(path: Sequence[Vec3], *, width: float, thickness: float) -> list[Solid]:
    """Bars along a path."""
    pairs = itertools.pairwise(path)
    return [bar(start, end, width=width, thickness=thickness) for start, end in pairs]


def cup(profile: Sequence[tuple[float, float]], axis: tuple[float, float]) -> Mesh:
    """A turned cup that stands beside the origin."""
    return moved(lathe(profile, sides=18), (*axis, 0.0))


_PORCELAIN_EAR: list[Vec3] = [
    (-0.0242, 0.0, 0.0191),
    (-0.0595, 0.0, 0.0370),
    (-0.0605, 0.0, 0.0740),
    (-0.0290, 0.0, 0.0947),
]
PORCELAIN_MUG = Body(
    name="object",
    mass=0.0165,
    solids=[
        *shifted(
            [
                *prism(0.0235, 0.0024, 0.0128),
                *ring((0.0262, 0.0060), (0.0436, 0.0425), 0.0027, sides=8),
                *ring((0.0436, 0.0425), (0.0436, 0.1085), 0.0048, sides=8),
            ],
            (0.0157, -0.0010, 0.0),
        ),
        *handle(_PORCELAIN_EAR, width=0.008, thickness=0.0038),
    ],
    looks=[
        Look(
            mesh=merge(
                [
                    cup(
                        [
                            (0.0, 0.0024),
                            (0.0280, 0.0024),
                            (0.0430, 0.0350),
                            (0.0475, 0.0650),
                            (0.0470, 0.1110),
                            (0.0430, 0.1110),
                            (0.0420, 0.0500),
                            (0.0250, 0.0128),
                            (0.0, 0.0128),
                        ],
                        (0.0157, -0.0010),
                    ),
                    tube(_PORCELAIN_EAR, 0.0065),
                ]
            ),
            skin=(0.86, 0.86, 0.86),
            shine=0.4,
        )
    ],
)

_RED_EAR: list[Vec3] = [
    (0.0136, 0.0, 0.0251),
    (0.0590, 0.0, 0.0755),
    (0.0540, 0.0, 0.1120),
    (0.0166, 0.0, 0.1090),
]
RED_COFFEE_MUG = Body(
    name="object",
    mass=0.0294,
    solids=[
        *shifted(
            [*prism(0.0235, 0.0020, 0.0078), *ring((0.0251, -0.0018), (0.0401, 0.1305), 0.0070, sides=8)],
            (-0.0176, -0.0020, 0.0),
        ),
        *handle(_RED_EAR, width=0.0072, thickness=0.0028),
    ],
    looks=[
        Look(
            mesh=merge(
                [
                    cup(
                        [
                            (0.0, -0.0018),
                            (0.0290, -0.0018),
                            (0.0300, 0.0080),
                            (0.0435, 0.1330),
                            (0.0395, 0.1330),
                            (0.0265, 0.0078),
                            (0.0, 0.0078),
                        ],
                        (-0.0176, -0.0020),
                    ),
                    tube(_RED_EAR, 0.0065),
                ]
            ),
            skin=(0.62, 0.06, 0.06),
            shine=0.4,
        )
    ],
)

_YELLOW_EAR: list[Vec3] = [
    (0.0159, 0.0, 0.0212),
    (0.0640, 0.0, 0.0310),
    (0.0640, 0.0, 0.0810),
    (0.0248, 0.0, 0.0773),
]
WHITE_YELLOW_MUG = Body(
    name="object",
    mass=0.0309,
    solids=[
        *shifted(
            [
                *prism(0.0265, 0.0002, 0.0052),
                *ring((0.0284, -0.0001), (0.0406, 0.0165), 0.0082, sides=12),
                *ring((0.0410, 0.0161), (0.0524, 0.1025), 0.0082, sides=12),
            ],
            (-0.0183, 0.0, 0.0),
        ),
        *handle(_YELLOW_EAR, width=0.0088, thickness=0.0041),
    ],
    looks=[
        Look(
            mesh=cup(
                [
                    (0.0, -0.0001),
                    (0.0285, -0.0001),
                    (0.0408, 0.0165),
                    (0.0510, 0.1048),
                    (0.0450, 0.1048),
                    (0.0345, 0.0250),
                    (0.0, 0.0150),
                ],
                (-0.0183, 0.0),
            ),
            skin=Picture(name="glaze", paint=labels.white_and_yellow),
            shine=0.4,
        ),
        Look(mesh=tube(_YELLOW_EAR, 0.0065), skin=(0.88, 0.74, 0.20), shine=0.4),
    ],
)

_SPOUT = [
    block((-0.0176, -0.0417, 0.0181), (0.0176, -0.0300, 0.0671)),
    block((-0.0080, -0.0563, 0.0324), (0.0080, -0.0417, 0.0599)),
]
_GRIP = [
    block((-0.0102, 0.0340, 0.0387), (0.0102, 0.0488, 0.0662)),
    block((-0.0066, 0.0442, 0.0533), (0.0066, 0.0724, 0.0672)),
    *handle(
        [(0.0, 0.0648, 0.0631), (0.0, 0.0840, 0.0480), (0.0, 0.0620, 0.0040), (0.0, 0.0505, -0.0049)],
        width=0.0066,
        thickness=0.0070,
    ),
]
_KNOB = block((-0.0052, -0.0073, 0.0629), (0.0052, 0.0046, 0.0857))
MOKA_POT = Body(
    name="object",
    mass=0.0682,
    solids=[*prism(0.0345, -0.0661, 0.0670), *_SPOUT, *_GRIP, _KNOB],
    looks=[
        Look(
            mesh=merge(
                [
                    lathe(
                        [
                            (0.0, -0.0661),
                            (0.0400, -0.0661),
                            (0.0330, -0.0120),
                            (0.0345, -0.0080),
                            (0.0345, 0.0050),
                            (0.0320, 0.0090),
                            (0.0385, 0.0640),
                            (0.0080, 0.0740),
                            (0.0, 0.0740),
                        ],
                        sides=8,
                        smooth=False,
                    ),
                    drawn(_SPOUT),
                ]
            ),
            skin=ALUMINIUM,
            shine=0.5,
        ),
        Look(mesh=drawn([*_GRIP, _KNOB]), skin=BLACK, shine=0.3),
    ],
)

WINE_BOTTLE = Body(
    name="object",
    mass=0.0154,
    solids=[
        block((-0.0150, -0.0150, 0.0011), (0.0150, 0.0150, 0.0734)),
        *prism(0.0195, 0.0035, 0.0631),
        block((-0.0118, -0.0118, 0.0734), (0.0118, 0.0118, 0.0881)),
        block((-0.0080, -0.0080, 0.0881), (0.0080, 0.0080, 0.1001)),
        *prism(0.0064, 0.1001, 0.1580),
    ],
    looks=[
        Look(
            mesh=lathe(
                [
                    (0.0, 0.0011),
                    (0.0210, 0.0011),
                    (0.0215, 0.0650),
                    (0.0150, 0.0850),
                    (0.0085, 0.1000),
                    (0.0075, 0.1580),
                    (0.0, 0.1580),
                ],
                sides=14,
                turns=2,
            ),
            skin=Picture(name="label", paint=labels.wine),
            shine=0.6,
        )
    ],
)

DRINKWARE = (
    turbosquid("porcelain_mug", PORCELAIN_MUG),
    turbosquid("red_coffee_mug", RED_COFFEE_MUG),
    turbosquid("white_yellow_mug", WHITE_YELLOW_MUG),
    turbosquid("moka_pot", MOKA_POT),
    turbosquid("wine_bottle", WINE_BOTTLE),
)
