"""Things that work: the stove with its knob and burner, the microwave with its door."""

import math

from sim_envs.libero.standins.mesh import lathe, merge, moved
from sim_envs.libero.standins.model import Body, Colour, Joint, Look, Marks, Model, Region, about
from sim_envs.libero.standins.solids import block, drawn, prism

STEEL: Colour = (0.62, 0.63, 0.65)
_HOB = block((-0.095, -0.095, -0.0200), (0.095, 0.095, 0.0255))
_RINGS = merge(
    lathe([(r, 0.0200), (r + 0.012, 0.0200), (r + 0.012, 0.0255), (r, 0.0255), (r, 0.0200)], sides=20)
    for r in (0.018, 0.038, 0.058)
)
BURNER = Body(
    name="burner",
    pos=(0.15, 0.0, 0.0),
    solids=[_HOB],
    regions=[
        Region(name="cook_region", pos=(0.0, 0.0, 0.0), half=(0.075, 0.075, 0.0025)),
        Region(
            name="burner",
            pos=(0.0, 0.0, 0.022),
            half=(0.0625, 0.0005, 0.0),
            shape="cylinder",
            colour=(0.9, 0.05, 0.05),
            visible=True,
        ),
    ],
    looks=[
        Look(mesh=drawn([block((-0.095, -0.095, -0.0200), (0.095, 0.095, 0.0200))]), skin=(0.82, 0.82, 0.80)),
        Look(mesh=_RINGS, skin=(0.12, 0.12, 0.13), shine=0.4),
    ],
)
_DISC = prism(0.0460, 0.0004, 0.0128, at=(0.0013, 0.0043, 0.0))
_GRIP = [
    block((-0.0111, -0.0172, 0.0014), (0.0134, 0.0520, 0.0500)),
    block((-0.0111, -0.0328, 0.0039), (0.0134, -0.0172, 0.0433)),
    block((-0.0111, -0.0407, 0.0005), (0.0134, -0.0328, 0.0338)),
]
KNOB = Body(
    name="button",
    quat=about("z", math.pi / 2),
    inertia=(3.0, (1.0, 1.0, 1.0)),
    joint=Joint(name="button", kind="hinge", axis=(0.0, 0.0, 1.0), limits=(-0.005, 2.1), damping=1.0),
    solids=[*_DISC, *_GRIP],
    looks=[
        Look(
            mesh=moved(
                lathe([(0.0, 0.0004), (0.047, 0.0004), (0.046, 0.0128), (0.0, 0.0128)]), (0.0013, 0.0043, 0.0)
            ),
            skin=(0.10, 0.10, 0.10),
        ),
        Look(mesh=drawn(_GRIP), skin=(0.16, 0.16, 0.16)),
    ],
)
STOVE = Model(
    category="flat_stove",
    path="articulated_objects/flat_stove.xml",
    body=Body(name="object", parts=[Body(name="base", parts=[BURNER, KNOB])]),
    marks=Marks(bottom=-0.045, top=0.045, radius=(0.045, 0.045)),
)

_CASE = [
    block((-0.1725, -0.0880, 0.0), (-0.1435, 0.1110, 0.1870)),
    block((0.0635, -0.0880, 0.0), (0.1725, 0.1110, 0.1870)),
    block((-0.1440, 0.0805, 0.0), (0.0630, 0.1105, 0.1870)),
    block((-0.1435, -0.0880, 0.1680), (0.0635, 0.0810, 0.1870)),
    block((-0.1435, -0.0880, 0.0), (0.0635, 0.0800, 0.0240)),
    block((0.0875, -0.1105, 0.0), (0.1725, -0.0865, 0.1870)),
]
_DOOR = block((0.0, -0.0250, -0.0925), (0.2590, -0.0010, 0.0925))
_DOOR_HANDLE = [
    block((0.2275, -0.0640, -0.0750), (0.2475, -0.0440, 0.0750)),
    block((0.2275, -0.0640, 0.0550), (0.2475, -0.0230, 0.0750)),
    block((0.2275, -0.0640, -0.0750), (0.2475, -0.0230, -0.0550)),
]
_WINDOW = block((0.0300, -0.0262, -0.0600), (0.2050, 0.0002, 0.0600))
_BUTTONS = [block((0.1130, -0.1135, z), (0.1480, -0.1105, z + 0.0180)) for z in (0.0300, 0.0700, 0.1100)]
_DISPLAY = block((0.1050, -0.1120, 0.1450), (0.1550, -0.1105, 0.1700))
MICROWAVE_DOOR = Body(
    name="microdoorroot",
    pos=(-0.1725, -0.0880, 0.0960),
    mass=0.26,
    aloof=True,
    joint=Joint(name="microjoint", kind="hinge", axis=(0.0, 0.0, 1.0), limits=(-2.094, 0.0), damping=0.5),
    solids=[_DOOR, *_DOOR_HANDLE],
    looks=[
        Look(mesh=drawn([_DOOR]), skin=(0.14, 0.14, 0.15), shine=0.4),
        Look(mesh=drawn([_WINDOW]), skin=(0.48, 0.52, 0.55), shine=0.6),
        Look(mesh=drawn(_DOOR_HANDLE), skin=STEEL, shine=0.6),
    ],
)
MICROWAVE = Model(
    category="microwave",
    path="articulated_objects/microwave.xml",
    body=Body(
        name="object",
        aloof=True,
        mass=3.0,
        solids=_CASE,
        regions=[
            Region(name="top_side", pos=(0.0, 0.01, 0.20), half=(0.12, 0.0835, 0.005)),
            Region(name="heating_region", pos=(0.0, 0.01, 0.096), half=(0.12, 0.0835, 0.08)),
        ],
        looks=[
            Look(mesh=drawn(_CASE), skin=(0.34, 0.34, 0.36), shine=0.4),
            Look(mesh=drawn(_BUTTONS), skin=STEEL, shine=0.5),
            Look(mesh=drawn([_DISPLAY]), skin=(0.10, 0.55, 0.35)),
        ],
        parts=[MICROWAVE_DOOR],
    ),
    marks=Marks(top=0.06, radius=(0.015, 0.015)),
)

APPLIANCES = (STOVE, MICROWAVE)
