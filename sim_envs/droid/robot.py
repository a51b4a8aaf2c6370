"""The robot as an MJCF tree: a Panda with a Robotiq 2F-85 and a wrist camera, of robosuite's meshes.

Kinematics and meshes are those of robosuite 1.4.0 (MIT licence); visual meshes have 15 % of their triangles.
Masses and inertias are those identified on a real Panda (Gaz et al., RA-L 2019), and Robotiq's; robosuite's
own are round numbers.
"""

import math
from pathlib import Path
from xml.etree import ElementTree as ET

ROBOSUITE = "1.4.0"
"""The version of robosuite whose robot this is."""

ARM_JOINTS = tuple(f"joint{number}" for number in range(1, 8))
FINGER_JOINT = "finger_joint"
GRIP_SITE = "grip_site"
WRIST_CAMERA = "wrist"

STIFFNESS = (40.0, 30.0, 50.0, 25.0, 35.0, 25.0, 10.0)
"""Stiffness of each joint (Nm/rad) in DROID's joint impedance controller."""

DAMPING = (4.0, 6.0, 5.0, 5.0, 3.0, 2.0, 1.0)
"""Damping of each joint (Nm s/rad) in the same controller."""

MAX_TORQUE = (87.0, 87.0, 87.0, 87.0, 12.0, 12.0, 12.0)
"""The Panda's torque limits, Nm."""

MAX_VELOCITY = (2.175, 2.175, 2.175, 2.175, 2.61, 2.61, 2.61)
"""The Panda's velocity limits, rad/s."""

FRICTION = (0.3, 0.3, 0.3, 0.3, 0.2, 0.15, 0.1)
"""Dry friction of each joint (Nm), with Franka's compensation: a third of that identified without it, so that
the arm holds an object of 50 g without sinking."""

GRIPPER_STROKE = 0.085
"""Greatest distance between the fingertips, m."""

GRIPPER_CLOSED = 0.8
"""Angle (rad) of the finger joint at which the pads meet; 0 is fully open, 85 mm."""

MAX_GRIP_TORQUE = 5.0
"""Torque (Nm) of both fingers together: about 25 N at each pad."""

_ARMATURE = 0.1
_LENS_OFFSET, _LENS_SIDE, _LENS_FORWARD, _LENS_TILT = 0.074, -0.031, 0.011, math.radians(18.2)
"""Position (m) of the left lens away from the gripper's axis, to the left and along the axis, and its tilt
(rad) towards the axis, so that images match those of sim-evals; see docs/droid.md."""
_WRIST_FOVY = 56.7

_INERTIALS = """
link0    0.629769 -0.041018 -0.00014 0.049974   0.00315 0.00388 0.004285 8.29e-7 0.00015 8.23e-6
link1    4.970684 0.003875 0.002081 -0.04762    0.70337 0.70661 0.009117 -0.000139 0.006772 0.019169
link2    0.646926 -0.003141 -0.02872 0.003495   0.007962 0.02811 0.025995 -0.003925 0.010254 0.000704
link3    3.228604 0.027518 0.039252 -0.066502   0.037242 0.036155 0.01083 -0.004761 -0.011396 -0.012805
link4    3.587895 -0.05317 0.104419 0.027454    0.025853 0.019552 0.028323 0.007796 -0.001332 0.008641
link5    1.225946 -0.011953 0.041065 -0.038437  0.035549 0.029474 0.008627 -0.002117 -0.004037 0.000229
link6    1.666555 0.060149 -0.014117 -0.010517  0.001964 0.004354 0.005433 0.000109 -0.001158 0.000341
link7    0.735522 0.010517 -0.004252 0.061597   0.012516 0.010027 0.004815 -0.000428 -0.001196 -0.000741
robotiq_85_adapter_link 0.95 0.01 0 0.035       0.0006 0.0006 0.0003 0 0 0
"""
"""Body, mass (kg), center of mass (m), inertia xx yy zz xy xz yz (kg m²). The last has the wrist camera."""

MIMICS = (
    ("right_outer_knuckle_joint", 1),
    ("left_inner_knuckle_joint", 1),
    ("right_inner_knuckle_joint", 1),
    ("left_inner_finger_joint", -1),
    ("right_inner_finger_joint", -1),
)
"""Joints, and their angles as multiples of the finger joint's: the 2F-85's linkage is a parallelogram, so the
fingertips stay parallel."""

ROBOT_CONTYPE, ROBOT_CONAFFINITY = "1", "2"
"""The robot collides with the scene, not with itself."""


def add_robot(root: ET.Element) -> None:
    """Add the robot, its base at the origin, with its assets, couplings and actuators to an MJCF tree."""
    arm = _model("panda")
    gripper = _model("robotiq_2f85")
    assets = _section(root, "asset")
    assets.extend([*_of(arm, "asset"), *_of(gripper, "asset")])
    base = _of(arm, "worldbody").find("body/body[@name='link0']")
    hand = _of(gripper, "worldbody").find("body")
    assert base is not None
    assert hand is not None
    _mount(base, hand)
    _tune_bodies(base)
    _section(root, "worldbody").append(base)
    _add_couplings(root)
    _add_actuators(root)


def _model(name: str) -> ET.Element:
    """One of robosuite's models, with absolute paths."""
    folder = Path(__file__).with_name("robot_model")
    root = ET.parse(folder / f"{name}.xml").getroot()
    for mesh in _of(root, "asset").findall("mesh"):
        if "file" in mesh.attrib:
            mesh.set("file", str(folder / mesh.attrib["file"]))
    return root


def _of(root: ET.Element, name: str) -> ET.Element:
    found = root.find(name)
    assert found is not None
    return found


def _section(root: ET.Element, name: str) -> ET.Element:
    found = root.find(name)
    return ET.SubElement(root, name) if found is None else found


def _mount(base: ET.Element, hand: ET.Element) -> None:
    """Mount the gripper on the flange, as DROID does: the fingers open along the y axis of the last link."""
    flange = base.find(".//body[@name='link7']")
    assert flange is not None
    for body in flange.findall("body"):
        flange.remove(body)
    hand.set("pos", "0 0 0.107")
    for site in [site for site in hand.iter("site") if site.get("name") != GRIP_SITE]:
        for body in hand.iter("body"):
            if site in list(body):
                body.remove(site)
    for site in hand.iter("site"):
        site.set("group", "4")
    hand.append(_wrist_camera())
    hand.extend(_camera_housing())
    flange.append(hand)


def _wrist_camera() -> ET.Element:
    """A camera that looks along the gripper's axis; the gripper is at the lower edge of the image."""
    up = f"{math.cos(_LENS_TILT):.6f} 0 {math.sin(_LENS_TILT):.6f}"
    place = f"{_LENS_OFFSET} {_LENS_SIDE} {_LENS_FORWARD}"
    return ET.Element("camera", name=WRIST_CAMERA, pos=place, xyaxes=f"0 1 0 {up}", fovy=str(_WRIST_FOVY))


def _camera_housing() -> list[ET.Element]:
    """The visible geoms of a ZED mini and its bracket."""
    common = {"type": "box", "group": "1", "contype": "0", "conaffinity": "0", "mass": "0"}
    parts = [
        ("0.013 0.062 0.012", f"{_LENS_OFFSET} 0 {_LENS_FORWARD - 0.02}"),
        ("0.03 0.02 0.003", f"{_LENS_OFFSET / 2} 0 {_LENS_FORWARD - 0.03}"),
    ]
    return [ET.Element("geom", common, size=size, pos=pos, rgba="0.12 0.12 0.13 1") for size, pos in parts]


def _tune_bodies(base: ET.Element) -> None:
    inertials = {name: numbers for name, *numbers in map(str.split, _INERTIALS.strip().splitlines())}
    for body in base.iter("body"):
        body.set("gravcomp", "1")
        if body.attrib["name"] in inertials:
            mass, *numbers = inertials[body.attrib["name"]]
            center, inertia = " ".join(numbers[:3]), " ".join(numbers[3:])
            _of(body, "inertial").attrib = {"mass": mass, "pos": center, "fullinertia": inertia}
    for joint in base.iter("joint"):
        _tune_joint(joint)
    for geom in base.iter("geom"):
        _tune_geom(geom)


def _tune_joint(joint: ET.Element) -> None:
    name = joint.attrib["name"]
    if name in ARM_JOINTS:
        friction = FRICTION[ARM_JOINTS.index(name)]
        joint.attrib |= {"armature": str(_ARMATURE), "damping": "0", "frictionloss": str(friction)}
        return
    joint.attrib |= {"armature": "0.002", "damping": "0.1"}
    if name not in (FINGER_JOINT, "right_outer_knuckle_joint"):
        joint.set("limited", "false")  # the driving joints are limited


def _tune_geom(geom: ET.Element) -> None:
    if geom.get("contype") == "0":
        return
    geom.attrib |= {"contype": ROBOT_CONTYPE, "conaffinity": ROBOT_CONAFFINITY, "group": "0"}
    name = geom.get("name", "")
    if "fingertip" in name or "fingerpad" in name:
        geom.attrib |= {"friction": "1.2 0.02 0.0005", "condim": "4", "priority": "1"}
        geom.attrib |= {"solref": "0.004 1", "solimp": "0.95 0.99 0.001"}


def _add_couplings(root: ET.Element) -> None:
    equality = _section(root, "equality")
    for joint, ratio in MIMICS:
        coupling = {"joint1": joint, "joint2": FINGER_JOINT, "polycoef": f"0 {ratio} 0 0 0"}
        ET.SubElement(equality, "joint", coupling, solref="0.005 1", solimp="0.95 0.99 0.001")
    tendon = ET.SubElement(_section(root, "tendon"), "fixed", name="fingers")
    for joint in (FINGER_JOINT, "right_outer_knuckle_joint"):
        ET.SubElement(tendon, "joint", joint=joint, coef="0.5")


def _add_actuators(root: ET.Element) -> None:
    """Add springs and dampers whose rest positions are the controls; implicit integration is stable."""
    actuators = _section(root, "actuator")
    for joint, stiffness, damping, torque in zip(ARM_JOINTS, STIFFNESS, DAMPING, MAX_TORQUE, strict=True):
        spring = {"gainprm": f"{stiffness}", "biastype": "affine", "biasprm": f"0 {-stiffness} {-damping}"}
        limits = {"forcelimited": "true", "forcerange": f"{-torque} {torque}"}
        ET.SubElement(actuators, "general", spring | limits, name=joint, joint=joint)
    grip = {"gainprm": "100", "biastype": "affine", "biasprm": "0 -100 -10", "forcelimited": "true"}
    grip["forcerange"] = f"{-MAX_GRIP_TORQUE} {MAX_GRIP_TORQUE}"
    ET.SubElement(actuators, "general", grip, name="fingers", tendon="fingers")
