"""Collecting in physics, with the experts: on LIBERO with the stand-in assets, and on DROID's station."""

import json

import numpy as np
import pytest

from configs.training import CollectConfig
from eval.collect.collection import collect_demonstrations
from eval.policies.resolved import read_policy
from oxygen.presets.policies import weights_sha256
from oxygen.training import layout
from oxygen.training.demonstrations import Demonstrations
from sim_envs.truth.wording import parse_memory, parse_narration

pytestmark = pytest.mark.slow

LIBERO = {"assets": "standins", "replan_steps": 5, "image_size": 64}


def test_an_expert_corrects_a_learner_and_only_its_own_turns_are_learnable(tmp_path):
    options = {**LIBERO, "learner": "tiny", "max_steps": 500}
    # The learner's first turn is short.
    config = CollectConfig(suites=("libero_object",), task_ids=(3,), init_ids=(6,), **options)
    assert collect_demonstrations(config, tmp_path, workers=1) == 0
    learner = json.loads((tmp_path / layout.MANIFEST).read_text())["learner"]
    assert learner == {"policy": "tiny", "weights_sha256": weights_sha256(read_policy("tiny"))}
    columns = Demonstrations(tmp_path).columns
    taught = ~columns[layout.PADDED]
    assert not taught[0].any()  # the learner's turn is first,
    assert (taught.sum(axis=1) == 10).any()  # then the expert's, for longer than a chunk
    assert all(parse_narration(text) for text in columns["oxygen.narration"])  # what to say is known in both


def test_an_expert_catches_a_moving_object_and_ground_truth_narrates_it(tmp_path):
    options = {**LIBERO, "motion": "shuttle:3", "expert_noise": 0.2}
    config = CollectConfig(suites=("libero_spatial",), task_ids=(2,), init_ids=(0,), **options)
    assert collect_demonstrations(config, tmp_path, workers=1) == 0
    manifest = json.loads((tmp_path / layout.MANIFEST).read_text())
    assert manifest["suites"]["libero_spatial"]["motion"] == "shuttle:3,4"
    found = Demonstrations(tmp_path)
    columns = found.columns
    assert set(columns["oxygen.assets"]) == {"standins"}
    assert set(columns["oxygen.noise"]) == {np.float32(0.2)}
    chunks = columns[layout.CHUNK]
    assert np.abs(chunks).max() <= 1
    assert chunks[0, 0, 6] == -1  # the gripper is open at first,
    assert chunks[:, :, 6].max() == 1  # and closes on the way
    assert all(parse_narration(text) for text in columns["oxygen.narration"])
    assert all(parse_memory(text) for text in columns["oxygen.memory"])
    first, *_, last = (frame["observation.images.image"] for frame in found)
    assert first.shape == (64, 64, 3)
    assert not np.array_equal(first, last)
    assert columns["oxygen.narration"][0] != columns["oxygen.narration"][-1]


def test_a_demonstration_of_the_expert_has_droids_shapes(tmp_path):
    config = CollectConfig(suites=("droid_tabletop",), task_ids=(7,), init_ids=(0,), replan_steps=10)
    assert collect_demonstrations(config, tmp_path, workers=1) == 0
    info = json.loads((tmp_path / layout.INFO).read_text())
    assert info["fps"] == 15 / 10
    features = info["features"]
    for camera in ("exterior_image_1_left", "wrist_image_left"):
        assert features[layout.IMAGES + camera]["shape"] == [180, 320, 3]
    positions, velocities = (
        [f"joint_{kind}_{number}" for number in range(7)] for kind in ("position", "velocity")
    )
    assert features[layout.STATE]["names"] == [*positions, "gripper_position"]
    assert features[layout.ACTION]["names"] == [*velocities, "gripper"]
    found = Demonstrations(tmp_path)
    assert found[0]["observation.images.wrist_image_left"].shape == (180, 320, 3)
    chunks, memory = found.columns[layout.CHUNK], found.columns["oxygen.memory"]
    assert np.abs(chunks).max() <= 1
    assert chunks[0, 0, 7] == 0
    assert chunks[:, :, 7].max() == 1
    assert found.columns["oxygen.narration"][0] == "Reaching for the can."
    assert memory[-1] != memory[0]
