"""The ten groceries of libero_object and the cookies of libero_spatial: cans, cartons, boxes, bottles."""

from collections.abc import Callable, Sequence

from PIL import Image

from sim_envs.libero.standins import labels
from sim_envs.libero.standins.mesh import Rect, box, gable, lathe
from sim_envs.libero.standins.model import UPRIGHT, Y_UP, Body, Look, Marks, Model, Picture, Quat, Solid
from sim_envs.libero.standins.solids import bar, block, prism

ORDINARY = Marks()
THIRDS: tuple[Rect, Rect, Rect] = ((0.0, 0.0, 1 / 3, 1.0), (1 / 3, 0.0, 2 / 3, 1.0), (2 / 3, 0.0, 1.0, 1.0))


def grocery(category: str, body: Body, marks: Marks = ORDINARY) -> Model:
    """A model in the folder where LIBERO looks for groceries."""
    path = f"stable_hope_objects/{category}/{category}.xml"
    return Model(category=category, path=path, body=body, marks=marks)


def can(picture: Picture, *, mass: float) -> Body:
    """A tin can, 76 mm high."""
    radius, z0, z1 = 0.031, -0.0382, 0.0376
    wall = radius + 0.001  # what is seen goes around the corners of what collides
    rim = [(wall, z0), (wall, z1), (wall - 0.003, z1), (wall - 0.003, z1 - 0.004)]
    mesh = lathe([(0.0, z0), *rim, (0.0, z1 - 0.004)], sides=14, turns=2)
    solids = prism(radius, z0, z1, sides=8)
    return Body(name="object", mass=mass, tilt=Y_UP, solids=solids, looks=[Look(mesh=mesh, skin=picture)])


def carton(picture: Picture, *, shift: float) -> Body:
    """A gable-topped drink carton, 131 mm high; `shift` is where its middle lies along x."""
    w, z0, z1 = 0.02625, -0.06975, 0.03975
    mesh = gable((w, w), (z0, z1, 0.0540, 0.0614), 0.0025)
    solids = [
        block((shift - w, -w, z0), (shift + w, w, z1)),
        bar((0.0, 0.0239, 0.0388), (0.0, 0.0031, 0.0568), width=w, thickness=0.0022),
        bar((0.0, -0.0239, 0.0388), (0.0, -0.0031, 0.0568), width=w, thickness=0.0022),
        block((-w, -0.0035, 0.0555), (w, 0.0035, 0.0614)),
    ]
    return Body(name="object", mass=0.031666, tilt=Y_UP, solids=solids, looks=[Look(mesh=mesh, skin=picture)])


def pack(picture: Picture, half: tuple[float, float, float], *, mass: float) -> Body:
    """A flat box; the picture's thirds are what is seen along x, y and z."""
    low = (-half[0], -half[1], -half[2])
    mesh = box(low, half, x=THIRDS[0], y=THIRDS[1], z=THIRDS[2])
    return Body(name="object", mass=mass, solids=[block(low, half)], looks=[Look(mesh=mesh, skin=picture)])


def bottle(
    picture: Picture,
    profile: Sequence[tuple[float, float]],
    solids: Sequence[Solid],
    *,
    squash: float,
    mass: float,
    tilt: Quat = Y_UP,
) -> Body:
    """A bottle of oval section: a turned shape to look at, a stack of boxes to hold."""
    mesh = lathe(profile, sides=14, squash=squash, turns=2)
    look = Look(mesh=mesh, skin=picture, shine=0.4)
    return Body(name="object", mass=mass, tilt=tilt, solids=solids, looks=[look])


def _label(paint: Callable[[], Image.Image]) -> Picture:
    return Picture(name="label", paint=paint)


# (radius, z) of what is seen; the radius is the broad one.
SQUEEZE = [
    (0.026, -0.0724),
    (0.0310, -0.062),
    (0.0310, -0.018),
    (0.0255, 0.028),
    (0.0215, 0.036),
    (0.0215, 0.0732),
]
BELLY = [
    (0.022, -0.0727),
    (0.0315, -0.055),
    (0.0315, -0.02),
    (0.0200, 0.018),
    (0.0190, 0.034),
    (0.0210, 0.036),
]
FLASK = [
    (0.0215, -0.0546),
    (0.0248, -0.046),
    (0.0248, -0.012),
    (0.0200, 0.022),
    (0.0180, 0.026),
    (0.0180, 0.0525),
]

KETCHUP = bottle(
    _label(labels.ketchup),
    [(0.0, SQUEEZE[0][1]), *SQUEEZE, (0.0, 0.0732)],
    [
        block((-0.0282, -0.0169, -0.0724), (0.0282, 0.0169, -0.0063)),
        block((-0.0239, -0.0183, -0.0063), (0.0239, 0.0183, 0.0145)),
        block((-0.0187, -0.0183, 0.0145), (0.0187, 0.0183, 0.0362)),
        *prism(0.0165, 0.0362, 0.0732),
    ],
    squash=0.68,
    mass=0.0232,
)
SALAD_DRESSING = bottle(
    _label(labels.salad_dressing),
    [(0.0, BELLY[0][1]), *BELLY, (0.0210, 0.0728), (0.0, 0.0728)],
    [
        block((-0.0173, -0.0173, -0.0727), (0.0173, 0.0173, -0.0628)),
        block((-0.0262, -0.0173, -0.0628), (0.0262, 0.0173, -0.0100)),
        block((-0.0200, -0.0173, -0.0100), (0.0200, 0.0173, 0.0128)),
        block((-0.0130, -0.0150, 0.0128), (0.0130, 0.0150, 0.0355)),
        *prism(0.0168, 0.0355, 0.0728),
    ],
    squash=0.69,
    mass=0.0218,
)
BBQ_SAUCE = bottle(
    _label(labels.bbq_sauce),
    [(0.0, FLASK[0][1]), *FLASK, (0.0, 0.0525)],
    [
        block((-0.0235, -0.0145, -0.0546), (0.0235, 0.0145, -0.0016)),
        block((-0.0181, -0.0143, -0.0016), (0.0181, 0.0143, 0.0263)),
        block((-0.0138, -0.0140, 0.0263), (0.0138, 0.0140, 0.0525)),
    ],
    squash=0.68,
    mass=0.0122,
    tilt=UPRIGHT,
)

GROCERIES = (
    grocery("alphabet_soup", can(_label(labels.alphabet_soup), mass=0.0259), Marks(bottom=-0.04)),
    grocery("tomato_sauce", can(_label(labels.tomato_sauce), mass=0.0266)),
    grocery("milk", carton(_label(labels.milk), shift=0.00037), Marks(radius=(0.03, 0.03))),
    grocery("orange_juice", carton(_label(labels.orange_juice), shift=-0.00035)),
    grocery("ketchup", KETCHUP),
    grocery("salad_dressing", SALAD_DRESSING),
    grocery("bbq_sauce", BBQ_SAUCE, Marks(top=0.06, radius=(0.015, 0.015))),
    grocery(
        "butter",
        pack(_label(labels.butter), (0.0381, 0.0198, 0.0087), mass=0.0052),
        Marks(bottom=-0.02, top=0.02, radius=(0.02, 0.02)),
    ),
    grocery(
        "cream_cheese",
        pack(_label(labels.cream_cheese), (0.040608, 0.021336, 0.008936), mass=0.006194),
        Marks(bottom=-0.025, top=0.025, radius=(0.03, 0.03)),
    ),
    grocery(
        "chocolate_pudding", pack(_label(labels.chocolate_pudding), (0.0401, 0.0232, 0.0131), mass=0.0102)
    ),
    grocery("cookies", pack(_label(labels.cookies), (0.0310, 0.0413, 0.0094), mass=0.0096)),
)
