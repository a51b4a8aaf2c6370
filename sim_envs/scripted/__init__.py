"""What scripted policies share on any MuJoCo model: grasps, clearance, kinematics, motion."""
