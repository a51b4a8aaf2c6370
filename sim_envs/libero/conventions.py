"""LIBERO's interface, to be compared with that of a policy."""

from sim_envs.eef_interface import delta_eef_interface

CONTROL_HZ = 20.0
CAMERAS = {"image": "agentview", "wrist_image": "robot0_eye_in_hand"}
"""Policies' camera names to LIBERO's."""

LIBERO_INTERFACE = delta_eef_interface("LIBERO", camera_size=256, control_hz=CONTROL_HZ)
