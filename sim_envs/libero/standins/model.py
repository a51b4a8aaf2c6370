"""What a stand-in is made of: solids that collide, looks that are drawn, regions, joints, bodies, models."""

import dataclasses
import math
from collections.abc import Callable, Sequence

from PIL import Image

from sim_envs.libero.standins.mesh import Mesh

Vec3 = tuple[float, float, float]
Quat = tuple[float, float, float, float]  # w, x, y, z, as MuJoCo writes it
Colour = tuple[float, float, float]
UPRIGHT: Quat = (1.0, 0.0, 0.0, 0.0)
Y_UP: Quat = (math.sqrt(0.5), -math.sqrt(0.5), 0.0, 0.0)  # takes z to y: for categories whose own frame lies


def about(axis: str, angle: float) -> Quat:
    """The rotation by `angle` (rad) about an axis of the frame."""
    half = [math.sin(angle / 2) if name == axis else 0.0 for name in "xyz"]
    return (math.cos(angle / 2), half[0], half[1], half[2])


def times(a: Quat, b: Quat) -> Quat:
    """The rotation `b` followed by `a`."""
    (w, x, y, z), (p, q, r, s) = a, b
    return (
        w * p - x * q - y * r - z * s,
        w * q + x * p + y * s - z * r,
        w * r - x * s + y * p + z * q,
        w * s + x * r - y * q + z * p,
    )


def rotate(q: Quat, v: Vec3) -> Vec3:
    """The vector, rotated."""
    _, x, y, z = times(times(q, (0.0, *v)), (q[0], -q[1], -q[2], -q[3]))
    return (x, y, z)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Solid:
    """A box that collides. MuJoCo's box contacts are its fastest and steadiest, so nothing else is used.

    Attributes:
        pos: Centre (m).
        half: Half sizes (m).
        quat: Orientation.
    """

    pos: Vec3
    half: Vec3
    quat: Quat = UPRIGHT


@dataclasses.dataclass(frozen=True, kw_only=True)
class Picture:
    """A texture, painted by code.

    Attributes:
        name: File name without suffix, unique within its model.
        paint: Makes the image.
    """

    name: str
    paint: Callable[[], Image.Image]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Look:
    """A mesh that is drawn and never collides, in one colour or wearing a picture."""

    mesh: Mesh
    skin: Colour | Picture
    shine: float = 0.1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Region:
    """A site that LIBERO's predicates and samplers refer to by name, with the size they reckon with."""

    name: str
    pos: Vec3
    half: Vec3
    quat: Quat = UPRIGHT
    shape: str = "box"
    colour: Colour = (0.8, 0.8, 0.8)
    visible: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Joint:
    """A hinge or a slide.

    Attributes:
        name: LIBERO's name for it.
        kind: `hinge` or `slide`.
        axis: Direction.
        limits: Range (rad or m).
        damping: As MuJoCo defines it.
        pos: Where a hinge's axis passes.
        friction: Dry friction; holds a knob or a door where it was left.
        armature: Added inertia.
    """

    name: str
    kind: str
    axis: Vec3
    limits: tuple[float, float]
    damping: float
    pos: Vec3 = (0.0, 0.0, 0.0)
    friction: float = 0.0
    armature: float = 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Body:
    """A rigid part, with the parts that hang on it.

    Attributes:
        name: LIBERO's name for it; the outermost is `object`.
        solids: What collides.
        looks: What is drawn.
        regions: Sites.
        mass: Of all solids together (kg); spread by volume. None: of LIBERO's usual density.
        inertia: (mass, diagonal) where LIBERO states it instead of deriving it from the shape.
        joint: How the part moves on its parent; None is fixed.
        aloof: Whether it collides with other models only, not with parts of its own.
        tilt: Orientation of solids and looks in the body's frame.
        pos: Position in the parent's frame.
        quat: Orientation in the parent's frame.
        parts: Child bodies.
    """

    name: str
    solids: Sequence[Solid] = ()
    looks: Sequence[Look] = ()
    regions: Sequence[Region] = ()
    mass: float | None = None
    inertia: tuple[float, Vec3] | None = None
    joint: Joint | None = None
    aloof: bool = False
    tilt: Quat = UPRIGHT
    pos: Vec3 = (0.0, 0.0, 0.0)
    quat: Quat = UPRIGHT
    parts: Sequence["Body"] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Marks:
    """The extent LIBERO's samplers reckon with: z of bottom and top, x and y of the horizontal radius (m)."""

    bottom: float = -0.06
    top: float = 0.04
    radius: tuple[float, float] = (0.025, 0.025)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Model:
    """One category of LIBERO's objects.

    Attributes:
        category: LIBERO's name for it in BDDL.
        path: The file LIBERO opens, relative to the asset tree.
        body: The outermost body.
        marks: Its extent, as LIBERO's samplers see it.
    """

    category: str
    path: str
    body: Body
    marks: Marks = Marks()
