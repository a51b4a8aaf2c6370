"""Whether LIBERO's states have in LeRobot policies the bits that they have in LeRobot's own environment."""

import sys

import numpy as np
import torch
from lerobot.processor.env_processor import LiberoProcessorStep

from eval.policies.lerobot import _liberos_state
from sim_envs.libero.arm import _axis_angle

rng = np.random.default_rng(0)
near_pi = np.array([0.02, 0.99, 0.05, 0.03]) + rng.normal(scale=0.02, size=(2000, 4))  # w x y z, gripper down
quaternions = np.vstack([near_pi, rng.normal(size=(2000, 4)), [[1.0, 0.0, 0.0, 0.0]]])
quaternions /= np.linalg.norm(quaternions, axis=1, keepdims=True)
position, fingers = rng.normal(size=(len(quaternions), 3)), rng.normal(size=(len(quaternions), 2))
ours = np.hstack([position, [_axis_angle(each) for each in quaternions], fingers])
xyzw = torch.from_numpy(np.roll(quaternions, -1, axis=1))
robot = {
    "eef": {"pos": torch.from_numpy(position), "quat": xyzw},
    "gripper": {"qpos": torch.from_numpy(fingers)},
}
theirs = LiberoProcessorStep().observation({"observation.robot_state": robot})["observation.state"]
unlike = (_liberos_state(ours) != theirs).any(dim=1).sum().item()
plain = (torch.from_numpy(ours).float() != theirs).any(dim=1).sum().item()
assert plain > len(ours) / 2, "in float64 it would be other bits"
sys.stdout.write("equal\n" if unlike == 0 else f"{unlike} of {len(ours)} differ\n")
