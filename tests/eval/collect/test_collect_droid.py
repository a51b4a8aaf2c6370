"""Demonstrations on DROID's station have DROID's shapes: images, joints and gripper, velocities, rate."""

import json

import numpy as np
import pytest

from configs.collection import CollectConfig
from eval.collect.collection import collect_demonstrations
from oxygen.training import layout
from oxygen.training.demonstrations import Demonstrations


@pytest.mark.slow
def test_a_demonstration_of_the_expert_has_droids_shapes(tmp_path):
    config = CollectConfig(suites=("droid_tabletop",), task_ids=(7,), init_ids=(0,), replan_steps=10)
    assert collect_demonstrations(config, tmp_path, workers=1) == 0
    info = json.loads((tmp_path / layout.INFO).read_text())
    assert info["fps"] == 15 / 10
    features = info["features"]
    for camera in ("exterior_image_1_left", "wrist_image_left"):
        assert features[layout.IMAGES + camera]["shape"] == [180, 320, 3]
    joints = [f"joint_position_{number}" for number in range(7)]
    velocities = [f"joint_velocity_{number}" for number in range(7)]
    assert features[layout.STATE]["names"] == [*joints, "gripper_position"]
    assert features[layout.ACTION]["names"] == [*velocities, "gripper"]
    found = Demonstrations(tmp_path)
    assert {image.shape for image in found.frame(0).images.values()} == {(180, 320, 3)}
    assert np.abs(found.columns.action).max() <= 1
    assert found.columns.action[0, 0, 7] == 0
    assert found.columns.action[:, :, 7].max() == 1
    assert found.columns.narration[0] == "Reaching for the can."
    assert found.columns.memory[-1] != found.columns.memory[0]
