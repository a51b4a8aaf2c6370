"""What openpi's policies are shown is what openpi's own robots send: keys, types, sizes, pixels."""

import numpy as np
import pytest

from eval.policies.base import BadAnswerError
from eval.policies.openpi import OpenpiPolicy
from oxygen.robots.conventions import DROID, LIBERO
from oxygen.robots.openpi_keys import ROBOTS, keys_for, keys_of
from sim_envs.fake import FakeWorld
from sim_envs.world import Observation

PROMPT = "put the black bowl on the plate"
LIBERO_STATE = np.arange(8.0)


def libero(image):
    return Observation(images={"image": image, "wrist_image": image}, state=LIBERO_STATE, language=PROMPT)


def droid(image):
    images = {"wrist_image_left": image, "exterior_image_1_left": image}
    return Observation(images=images, state=np.arange(8.0), language=PROMPT)


def sent_by(robot, seen):
    return keys_of(robot).write(seen.images, seen.state, seen.language)


class Constant:
    def __init__(self, answer):
        self.answer = answer

    def infer(self, obs):
        return self.answer

    def reset(self):
        pass


@pytest.mark.golden
@pytest.mark.parametrize(
    ("embodiment", "observed", "key", "name"),
    [
        ("libero", libero, "observation/image", "square256"),
        ("libero", libero, "observation/wrist_image", "square256"),
        ("droid", droid, "observation/exterior_image_1_left", "droid"),
        ("droid", droid, "observation/wrist_image_left", "droid"),
    ],
)
def test_images_are_padded_as_openpi_client_does(golden, embodiment, observed, key, name):
    with np.load(golden / "openpi_transforms.npz") as file:
        image, expected = file[f"resize.{name}.in"], file[f"resize.{name}.out"]
    sent = sent_by(embodiment, observed(image))[key]
    assert sent.dtype == np.uint8
    assert np.abs(sent.astype(int) - expected).max() <= 1


@pytest.mark.parametrize(
    ("embodiment", "observed", "cameras", "state"),
    [
        ("libero", libero, ("image", "wrist_image"), {"state": [*range(8)]}),
        (
            "droid",
            droid,
            ("exterior_image_1_left", "wrist_image_left"),
            {"joint_position": [*range(7)], "gripper_position": [7]},
        ),
    ],
)
def test_observations_have_the_keys_of_openpis_examples(embodiment, observed, cameras, state):
    sent = sent_by(embodiment, observed(np.zeros((180, 320, 3), np.uint8)))
    assert sent.pop("prompt") == PROMPT
    images = [sent.pop(f"observation/{camera}") for camera in cameras]
    assert {image.shape for image in images} == {(224, 224, 3)}
    assert {key: value.tolist() for key, value in sent.items()} == {
        f"observation/{part}": numbers for part, numbers in state.items()
    }


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
        ({"actions": {"arm": 1}}, "'actions' are dict"),
        ({"actions": ["left"]}, "'actions' are list"),
    ],
)
def test_an_answer_without_actions_is_refused(answer, why):
    policy = OpenpiPolicy(Constant(answer), keys_of("libero"))
    with pytest.raises(BadAnswerError, match=why):
        policy.act(FakeWorld().observe())


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int64])
def test_actions_of_any_real_type_are_taken(dtype):
    policy = OpenpiPolicy(Constant({"actions": np.ones((10, 7), dtype)}), keys_of("libero"))
    acted = policy.act(FakeWorld().observe())
    assert acted.dtype == np.float64
    assert (acted == 1).all()


def test_actions_are_a_copy():
    answer = np.ones((10, 7))
    answer.flags.writeable = False
    policy = OpenpiPolicy(Constant({"actions": answer}), keys_of("libero"))
    policy.act(FakeWorld().observe())[:] = 0
    assert (answer == 1).all()


def test_a_query_is_timed_from_the_observation_to_the_actions():
    policy = OpenpiPolicy(Constant({"actions": np.zeros((10, 7))}), keys_of("libero"))
    policy.act(FakeWorld(image_size=256).observe())
    timings = policy.complete().timings_ms
    assert sorted(timings) == ["action", "frame", "preprocess"]
    assert 0 < timings["preprocess"] < timings["action"] == timings["frame"]
