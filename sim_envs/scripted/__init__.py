"""Shared parts of scripted policies, for any MuJoCo model: grasps, clearance, kinematics, motion."""
