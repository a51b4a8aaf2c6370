"""Both suites keep the contracts of suites, worlds and Gymnasium; the expert solves what it says it can."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from configs.errors import UsageError
from oxygen.robots.openpi_keys import keys_of
from sim_envs.suite import open_suite
from sim_envs.testing import check_suite
from sim_envs.world import EpisodeKey

STILL = {"joint_position": 1e-3, "gripper_position": 1e-3}


def solve(world: Any) -> np.ndarray:
    """Put the cube into the bowl as if it had been carried there, and hold still."""
    world.rubric._reached = [True, True, False]
    bowl = world.station.pose("bowl").position
    world.station.data.joint("cube").qpos[:3] = bowl + np.array([0, 0, 0.008])
    at = np.zeros(7) if world.station.control == "joint_velocity" else world.policy_state()[:7]
    return np.tile([*at, 0.0], (3, 1))


@pytest.mark.slow
@pytest.mark.parametrize("suite", ["droid_tabletop", "droid_tabletop_jointpos"])
def test_a_suite_conforms(suite: str) -> None:
    check_suite(open_suite(suite, camera_size=36), solve=solve, hold_tolerances=STILL)


@pytest.mark.filterwarnings("ignore:.*A Box .* space (minimum|maximum) value is")
@pytest.mark.filterwarnings("ignore:.*For Box action spaces, we recommend")
@pytest.mark.slow
@pytest.mark.parametrize("suite", ["droid_tabletop", "droid_tabletop_jointpos"])
def test_gymnasium_finds_nothing_to_complain_about(suite: str) -> None:
    env = gymnasium.make(f"oxygen_eval/{suite}-v0", camera_size=36)
    assert env.spec is not None
    assert env.spec.max_episode_steps == 450
    check_env(env.unwrapped, skip_render_check=True)
    env.close()


def test_an_observation_has_openpis_keys_and_droids_proportions() -> None:
    suite = open_suite("droid_tabletop", camera_size=36)
    sizes = [camera.size for camera in open_suite("droid_tabletop").interface.observation.cameras]
    assert sizes == [(180, 320), (180, 320)]
    world = suite.open(suite.tasks()[0])
    world.reset(init_id=0, seed=7, settle_steps=0)
    seen = world.observe()
    sent = keys_of("droid").write(seen.images, seen.state, seen.language)
    world.close()
    assert sent["observation/exterior_image_1_left"].shape == (224, 224, 3)
    assert not sent["observation/wrist_image_left"][:40].any(), "padded above and below, not stretched"
    assert sent["observation/joint_position"].shape == (7,)
    assert sent["observation/gripper_position"].tolist() == [0.0]


def solved(suite: str, task: str, init_id: int) -> bool:
    opened = open_suite(suite)
    (chosen,) = [each for each in opened.tasks() if each.name == task]
    world: Any = opened.open(chosen)
    world.reset(init_id=init_id, seed=7, settle_steps=5)
    expert = opened.expert(world)
    expert.reset(EpisodeKey(suite=suite, task_id=chosen.task_id, init_id=init_id, seed=7))
    steps = 0
    while steps < opened.protocol.max_steps:
        outcome = world.advance(expert.query(world.policy_state())[: opened.protocol.replan_steps])
        steps += outcome.steps
        if outcome.success:
            break
    world.close()
    return outcome.success


@pytest.mark.slow
@pytest.mark.parametrize("suite", ["droid_tabletop", "droid_tabletop_jointpos"])
@pytest.mark.parametrize("task", [task.name for task in open_suite("droid_tabletop").expert_tasks()])
def test_the_expert_solves_thirteen_tasks_in_nine_of_ten_states_either_way(suite: str, task: str) -> None:
    assert sum(solved(suite, task, init_id) for init_id in range(10)) >= 9


@pytest.mark.parametrize(
    "suite", ["droid_tabletop_jointpos", pytest.param("droid_tabletop", marks=pytest.mark.slow)]
)
def test_the_expert_puts_the_cube_in_the_bowl_either_way(suite: str) -> None:
    assert solved(suite, "cube_in_bowl", 0)


@pytest.mark.parametrize("task", ["push_box_to_mark", "open_drawer", "stand_bottle_up"])
def test_the_expert_says_what_it_cannot_do(task: str) -> None:
    suite = open_suite("droid_tabletop")
    (chosen,) = [each for each in suite.tasks() if each.name == task]
    world = suite.open(chosen)
    with pytest.raises(UsageError, match=f"cannot do task {task}"):
        suite.expert(world)
    world.close()
