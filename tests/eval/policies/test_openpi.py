"""What openpi's policies are shown is what openpi's own robots send: keys, types, sizes, pixels."""

import numpy as np
import pytest

from eval.policies.base import BadAnswerError
from eval.policies.openpi import OpenpiPolicy
from oxygen.robots.conventions import DROID, LIBERO
from oxygen.robots.openpi_keys import ROBOTS, keys_for, keys_of
from sim_envs.fake import FakeWorld

CAMERAS = {
    "libero": ("image", "wrist_image"),
    "droid": ("exterior_image_1_left", "wrist_image_left"),
}
STATES = {
    "libero": {"observation/state": [*range(8)]},
    "droid": {"observation/joint_position": [*range(7)], "observation/gripper_position": [7]},
}


def sent_by(robot, image):
    """What a robot with the same image in all cameras sends."""
    return keys_of(robot).write(dict.fromkeys(CAMERAS[robot], image), np.arange(8.0), "lift it")


class Constant:
    def __init__(self, answer):
        self.answer = answer

    def infer(self, obs):
        return self.answer

    def reset(self):
        pass


def acted(answer):
    policy = OpenpiPolicy(Constant(answer), keys_of("libero"))
    return policy, policy.act(FakeWorld(image_size=256).observe())


@pytest.mark.golden
@pytest.mark.parametrize(("robot", "name"), [("libero", "square256"), ("droid", "droid")])
def test_images_are_padded_as_openpi_client_does(golden, robot, name):
    with np.load(golden / "openpi_transforms.npz") as file:
        image, expected = file[f"resize.{name}.in"], file[f"resize.{name}.out"]
    for camera in CAMERAS[robot]:
        sent = sent_by(robot, image)[f"observation/{camera}"]
        assert sent.dtype == np.uint8
        assert np.abs(sent.astype(int) - expected).max() <= 1


@pytest.mark.parametrize("robot", CAMERAS)
def test_observations_have_the_keys_of_openpis_examples(robot):
    sent = sent_by(robot, np.zeros((180, 320, 3), np.uint8))
    assert sent.pop("prompt") == "lift it"
    assert {sent.pop(f"observation/{camera}").shape for camera in CAMERAS[robot]} == {(224, 224, 3)}
    assert {key: value.tolist() for key, value in sent.items()} == STATES[robot]


@pytest.mark.parametrize("embodiment", ROBOTS)
def test_an_embodiments_keys_show_all_of_its_interface(embodiment):
    keys = keys_of(embodiment)
    seen = keys.interface.observation
    assert tuple(keys.images.values()) == seen.camera_names
    assert [part for parts in keys.state.values() for part in parts] == [part.name for part in seen.state]


def test_a_robot_without_a_table_is_shown_the_names_of_its_interface():
    assert keys_for(DROID).names == keys_of("droid").names
    assert "observation/gripper_joints" in keys_for(LIBERO).names


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (None, "answered with NoneType"),
        (np.zeros((10, 7)), "answered with ndarray"),
        ({"action": np.zeros((10, 7))}, "no 'actions'; it has 'action'"),
        ({"actions": np.zeros((10, 7), complex)}, "'actions' are ndarray"),
        ({"actions": [[0.0], [0.0, 1.0]]}, "'actions' are list"),
        ({"actions": ["left"]}, "'actions' are list"),
    ],
)
def test_an_answer_without_actions_is_refused(answer, why):
    with pytest.raises(BadAnswerError, match=why):
        acted(answer)


@pytest.mark.parametrize("dtype", [np.float16, np.int64, np.float64])
def test_actions_of_any_real_type_are_taken_as_a_copy(dtype):
    answer = np.ones((10, 7), dtype)
    answer.flags.writeable = False
    _, actions = acted({"actions": answer})
    assert actions.dtype == np.float64
    assert (actions == 1).all()
    actions[:] = 0
    assert (answer == 1).all()


def test_a_query_is_timed_from_the_observation_to_the_actions():
    policy, _ = acted({"actions": np.zeros((10, 7))})
    timings = policy.complete().timings_ms
    assert sorted(timings) == ["action", "frame", "preprocess"]
    assert 0 < timings["preprocess"] < timings["action"] == timings["frame"]
