"""What stands in the rooms: tables that carry the tasks, and furniture at the back wall that is only seen."""

import functools

from sim_envs.libero.standins import paint
from sim_envs.libero.standins.mesh import lathe, moved
from sim_envs.libero.standins.model import Body, Colour, Look, Picture, Vec3
from sim_envs.libero.standins.solids import block, drawn

OAK: Colour = (0.55, 0.38, 0.24)
WALNUT = Picture(name="walnut", paint=functools.partial(paint.grain, (104, 68, 46), size=128, stretch=16))
PINE = Picture(name="pine", paint=functools.partial(paint.grain, (188, 152, 110), size=128, stretch=16))


def decor(name: str, *looks: Look) -> Body:
    """Something to look at."""
    return Body(name=name, looks=looks)


def boxes(colour: Colour | Picture, *corners: tuple[Vec3, Vec3]) -> Look:
    """Plain boxes of one colour, between pairs of corners."""
    return Look(mesh=drawn(block(low, high) for low, high in corners), skin=colour)


_COFFEE_TABLE_TOP = [
    block((-0.69432, -0.61932, 0.41308), (0.19432, 0.72410, 0.43676)),
    block((-0.66675, 0.69803, 0.41308), (0.16675, 0.90069, 0.43676)),
    block((-0.66675, -0.82139, 0.41308), (0.16675, -0.61873, 0.43676)),
    block((0.18369, -0.61932, 0.41308), (0.33873, 0.72410, 0.43676)),
    block((-0.82417, -0.61932, 0.41308), (-0.66913, 0.72410, 0.43676)),
]
_COFFEE_TABLE_FOOT = block((-0.66162, -0.18516, -0.00470), (0.16162, 0.68516, 0.41298))
COFFEE_TABLE = Body(
    name="living_room_table",
    solids=[*_COFFEE_TABLE_TOP, _COFFEE_TABLE_FOOT],
    looks=[
        Look(mesh=drawn([block((-0.82417, -0.82139, 0.41308), (0.33873, 0.90069, 0.43676))]), skin=WALNUT),
        Look(mesh=drawn([_COFFEE_TABLE_FOOT]), skin=WALNUT),
    ],
)

_DESK = [
    block((-0.68946, -1.39273, 0.81345), (0.68946, 1.39273, 0.88513)),
    *(
        block((x, y, 0.0002), (x + 0.0400, y + 0.1006, 0.8134))
        for x in (-0.5205, 0.4762)
        for y in (-0.7409, 0.6600)
    ),
    block((-0.5175, 0.6600, 0.0053), (0.5078, 0.7650, 0.0453)),
    block((-0.5175, -0.7480, 0.0053), (0.5078, -0.6470, 0.0453)),
]
DESK = Body(name="study_table", solids=_DESK, looks=[Look(mesh=drawn(_DESK), skin=PINE)])

KITCHEN_BACK = (
    decor(
        "counter",
        boxes(OAK, ((-1.95, -1.80, 0.0), (-1.37, 1.80, 0.86)), ((-1.95, -1.80, 1.60), (-1.65, 1.80, 2.40))),
        boxes((0.78, 0.78, 0.76), ((-1.95, -1.80, 0.86), (-1.34, 1.80, 0.90))),
        boxes(
            (0.30, 0.20, 0.13), *(((-1.66, y, 1.62), (-1.645, y + 0.01, 2.38)) for y in (-0.90, 0.0, 0.90))
        ),
    ),
    decor(
        "cooker",
        boxes((0.10, 0.10, 0.11), ((-1.93, -0.40, 0.90), (-1.37, 0.40, 0.93))),
        Look(
            mesh=moved(lathe([(0.0, 0.93), (0.13, 0.93), (0.13, 1.06), (0.0, 1.06)]), (-1.55, 0.25, 0.0)),
            skin=(0.60, 0.12, 0.10),
        ),
    ),
    decor("fridge", boxes((0.62, 0.64, 0.66), ((-1.97, -2.83, 0.0), (-1.53, -1.97, 1.77)))),
)
LIVING_ROOM_BACK = (
    decor(
        "wall_unit",
        boxes(
            OAK,
            ((-1.91, -1.18, 0.0), (-1.53, 1.15, 0.45)),
            ((-1.91, -1.18, 0.45), (-1.60, -0.90, 1.59)),
            ((-1.91, 0.87, 0.45), (-1.60, 1.15, 1.59)),
        ),
        boxes((0.05, 0.05, 0.06), ((-1.86, -0.70, 0.60), (-1.82, 0.68, 1.40))),
    ),
)
STUDY_BACK = (
    decor(
        "bookshelf",
        boxes(
            OAK,
            ((-1.87, -1.60, 0.0), (-1.83, -0.38, 1.79)),
            *(((-1.87, -1.60, z), (-1.56, -0.38, z + 0.03)) for z in (0.0, 0.44, 0.88, 1.32, 1.76)),
        ),
        boxes(
            (0.20, 0.28, 0.45),
            *(((-1.80, -1.50 + 0.14 * k, 0.91), (-1.62, -1.42 + 0.14 * k, 1.15)) for k in range(7)),
        ),
        boxes(
            (0.55, 0.16, 0.14),
            *(((-1.80, -1.45 + 0.15 * k, 0.47), (-1.62, -1.38 + 0.15 * k, 0.72)) for k in range(6)),
        ),
    ),
    decor("painting", boxes((0.25, 0.45, 0.55), ((-1.95, 0.0, 1.0), (-1.91, 0.98, 1.98)))),
    decor(
        "plant",
        Look(
            mesh=moved(
                lathe([(0.0, 0.0), (0.12, 0.0), (0.16, 0.32), (0.0, 0.32)], sides=10), (-1.8, 0.56, 0.0)
            ),
            skin=(0.60, 0.34, 0.22),
        ),
        Look(
            mesh=moved(
                lathe([(0.02, 0.32), (0.28, 0.65), (0.22, 1.05), (0.0, 1.25)], sides=8, smooth=False),
                (-1.8, 0.56, 0.0),
            ),
            skin=(0.14, 0.38, 0.16),
        ),
    ),
    decor(
        "lamp",
        Look(
            mesh=moved(
                lathe(
                    [(0.0, 0.886), (0.09, 0.886), (0.09, 0.91), (0.012, 0.92), (0.012, 1.42), (0.0, 1.42)],
                    sides=10,
                ),
                (0.3, -0.65, 0.0),
            ),
            skin=(0.12, 0.12, 0.13),
        ),
        Look(
            mesh=moved(
                lathe([(0.0, 1.40), (0.16, 1.40), (0.09, 1.62), (0.0, 1.62)], sides=12), (0.3, -0.65, 0.0)
            ),
            skin=(0.90, 0.84, 0.66),
        ),
    ),
)
