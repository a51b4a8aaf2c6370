"""RoboArena's servers: DROID's observations as their metadata ask for them, resets, and session ids."""

import numpy as np
import pytest

from configs.errors import UsageError
from configs.interface import compare
from eval.policies.remote import PolicyServerError
from oxygen.serve.msgpack_numpy import pack
from sim_envs.droid.control import Control, interface
from sim_envs.fake import FakeWorld
from sim_envs.world import Observation
from tests.eval.policies.openpi_server import KEY, OpenpiServer

ACTIONS = np.linspace(-2, 2, 80).reshape(10, 8)
METADATA = {
    "image_resolution": [224, 224],
    "needs_wrist_camera": True,
    "n_external_cameras": 1,
    "needs_stereo_camera": False,
    "needs_session_id": False,
    "action_space": "joint_position",
}


def roboarena(answer="reset successful", **metadata):
    """A server as robo-arena/roboarena's, which acknowledges a reset with a text."""
    return OpenpiServer(
        lambda query: answer if query["endpoint"] == "reset" else {"actions": ACTIONS},
        metadata={**METADATA, **metadata},
    )


def observation():
    image = np.full((180, 320, 3), 200, np.uint8)
    images = {"exterior_image_1_left": image, "wrist_image_left": image}
    return Observation(images=images, state=np.arange(8.0), language="put the cube in the bowl")


def acted(server, seen):
    """The actions of an episode with one query."""
    ((((actions, _),), _),) = server.play(1, observation=seen)
    return actions


def asked(server):
    """The requests of such an episode."""
    acted(server, observation())
    return server.queries


def test_an_episode_is_a_reset_and_queries_with_cameras_numbered_from_0():
    with roboarena() as server:
        reset, query = asked(server)
    assert reset == {"endpoint": "reset"}
    assert {key: np.shape(value) for key, value in query.items()} == {
        "endpoint": (),
        "observation/exterior_image_0_left": (224, 224, 3),
        "observation/wrist_image_left": (224, 224, 3),
        "observation/joint_position": (7,),
        "observation/gripper_position": (1,),
        "prompt": (),
    }
    assert query["endpoint"] == "infer"


def test_actions_may_come_without_a_map_around_them():
    with OpenpiServer(lambda _: pack(ACTIONS[:, :7]), metadata={"embodiment": "libero"}) as server:
        assert (acted(server, FakeWorld().observe()) == ACTIONS[:, :7]).all()


@pytest.mark.parametrize(("resolution", "size"), [([90, 320], (90, 320)), (None, (180, 320))])
def test_images_have_the_size_that_the_server_wants(resolution, size):
    with roboarena(image_resolution=resolution, needs_wrist_camera=False) as server:
        _, query = asked(server)
    image = query["observation/exterior_image_0_left"]
    assert image.shape == (*size, 3)
    assert image[:, 160].any()
    assert "observation/wrist_image_left" not in query


@pytest.mark.parametrize(("control", "largest"), [*zip(Control, (1.0, 2.0), strict=True)])
def test_each_action_space_fits_one_suite_of_droid_and_velocities_are_clipped_as_in_its_loop(
    control, largest
):
    suites = {each: interface(each, image_height=180) for each in Control}
    with roboarena(action_space=control.value) as server, server.opened() as policy:
        compare(policy.interface, suites.pop(control))
        (other,) = suites.values()
        with pytest.raises(UsageError, match="action: policy"):
            compare(policy.interface, other)
        assert acted(server, observation()).max() == largest


def test_a_session_id_names_the_episode_and_a_reset_that_fails_is_its_error():
    with roboarena(needs_session_id=True) as server:
        assert {query["session_id"] for query in asked(server)} == {str(KEY)}
    failing = roboarena("Traceback (most recent call last): no session")
    with failing as server, pytest.raises(PolicyServerError, match="no session"):
        asked(server)


@pytest.mark.parametrize(
    ("metadata", "kwargs", "why"),
    [
        ({"action_space": "cartesian_velocity"}, {}, "action space of a RoboArena server: 'cartesian_vel"),
        ({"image_resolution": "large"}, {}, "image_resolution is 'large'"),
        ({"n_external_cameras": 0, "needs_wrist_camera": False}, {}, "name at least one"),
        ({}, {"embodiment": "libero"}, "for DROID; leave out embodiment=libero"),
    ],
)
def test_mismatched_metadata_are_one_line(metadata, kwargs, why):
    with roboarena(**metadata) as server, pytest.raises(UsageError, match=why) as caught:
        server.opened(**kwargs)
    assert "\n" not in str(caught.value)
    with roboarena() as server, server.opened(embodiment="droid_jointpos"):
        pass
