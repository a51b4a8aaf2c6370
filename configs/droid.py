"""DROID's joint impedance controller, which the simulated station executes and policies act through."""

CONTROL_HZ = 15.0

STIFFNESS = (40.0, 30.0, 50.0, 25.0, 35.0, 25.0, 10.0)
"""Stiffness of each joint, Nm/rad."""

DAMPING = (4.0, 6.0, 5.0, 5.0, 3.0, 2.0, 1.0)
"""Damping of each joint, Nm s/rad."""

MAX_STEP = 0.2
"""Lead (rad) of a joint's target at a velocity of 1; the joint moves by less in a step."""
