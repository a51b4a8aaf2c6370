"""LIBERO's things that move until they are touched: which, how, and an expert that catches them."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from configs.errors import UsageError
from configs.motion import parse_motion
from eval.records.protocol import describe_suite, protocol_hash, suite_hash
from sim_envs.libero.assets import AssetSet
from sim_envs.libero.experts.expert import Expert
from sim_envs.libero.sim import LiberoSim
from sim_envs.libero.tasks import LIBERO_INTERFACE, get_task
from sim_envs.suite import open_suite
from sim_envs.truth.ground_truth import Phase
from sim_envs.world import EpisodeKey
from tests.sim_envs.libero.playing import attempt

OpenSim = Callable[..., LiberoSim]
THING = "orange_juice_1"
STILL = LIBERO_INTERFACE.hold_action(np.zeros(8), None)[None]


@pytest.fixture(scope="module")
def open_moving(standins: AssetSet) -> Iterator[OpenSim]:
    """A simulator of libero_object task 9, with any motion: it is compiled once for all of them."""
    with LiberoSim(get_task("libero_object", 9), assets=standins, camera_size=32) as sim:

        def opened(motion: str) -> LiberoSim:
            sim._motion = parse_motion(motion)
            return sim

        yield opened


def states(sim: LiberoSim, *, init_id: int = 0, steps: int = 40) -> np.ndarray:
    """The simulator's state while the robot holds still, after every control step."""
    sim.reset(init_id=init_id, seed=7, settle_steps=10)
    seen = [sim.flat_state()]
    for _ in range(steps):
        sim.advance(STILL)
        seen.append(sim.flat_state())
    return np.array(seen)


def columns(sim: LiberoSim) -> tuple[np.ndarray, np.ndarray]:
    """Where the thing's position and its velocity are in a state."""
    joint = sim.env.sim.model._model.joint(f"{THING}_joint0")
    place, nq = 1 + joint.qposadr[0], sim.env.sim.model._model.nq
    return np.arange(place, place + 7), np.arange(1 + nq + joint.dofadr[0], 1 + nq + joint.dofadr[0] + 6)


@pytest.mark.parametrize("motion", ["shuttle:3", pytest.param("drift:3", marks=pytest.mark.slow)])
def test_the_thing_moves_smoothly_and_nothing_else_because_of_it(open_moving, motion):
    still = states(open_moving("none"))
    sim = open_moving(motion)
    moving = states(sim)
    place, velocity = columns(sim)
    rest = np.setdiff1d(np.arange(moving.shape[1]), [*place, *velocity])
    np.testing.assert_allclose(moving[:, rest], still[:, rest], atol=1e-9)
    ways = np.linalg.norm(np.diff(moving[:, place[:3]], axis=0), axis=1)
    assert 0.02 < ways.sum() < 0.06
    assert ways.max() < 0.0016  # 3 cm/s are 1.5 mm in a control step
    assert np.linalg.norm(np.diff(moving[:, velocity[:3]], axis=0), axis=1).max() < 0.006
    np.testing.assert_array_equal(np.ptp(moving[:, place[2:]], axis=0), 0)  # it stays upright
    assert sim.truth().narration.phase is Phase.APPROACH


def test_an_episode_is_a_function_of_its_key(open_moving):
    sim = open_moving("shuttle:3")
    first, other, again = (states(sim, init_id=init_id, steps=20) for init_id in (0, 1, 0))
    np.testing.assert_array_equal(first, again)
    place, _ = columns(sim)
    ways = [each[-1, place[:2]] - each[0, place[:2]] for each in (first, other)]
    assert np.linalg.norm(ways[0] - ways[1]) > 0.002


@pytest.mark.slow
@pytest.mark.parametrize("motion", ["shuttle:3", "drift:3"])
def test_the_expert_catches_nine_of_ten_at_3_cm_per_second(standins, motion):
    solved = []
    for task_id in range(10):
        with LiberoSim(
            get_task("libero_object", task_id), assets=standins, camera_size=32, motion=parse_motion(motion)
        ) as sim:
            solved += [attempt(sim, Expert(sim), init_id).success for init_id in range(3)]
    assert sum(solved) >= 27


def test_the_expert_catches_what_moves_and_what_it_touches_is_not_said_to_be_pushed(open_moving):
    sim = open_moving("shuttle:6")
    sim.reset(init_id=0, seed=7, settle_steps=10)
    expert, told = Expert(sim), []
    expert.reset(EpisodeKey(suite="libero_object", task_id=9, init_id=0, seed=7))
    solved = False
    while not solved and len(told) < 150:
        for action in expert.query(sim.policy_state())[:5]:
            solved = solved or sim.advance(action[None]).success
            told.append((sim.predicted_motion(THING) is None, sim.truth().narration.phase))
    assert solved
    assert {phase for touched, phase in told if not touched} == {Phase.APPROACH}
    assert Phase.GRASP in {phase for touched, phase in told if touched}
    assert Phase.PUSH not in {phase for _, phase in told}


def test_tasks_in_which_nothing_can_move_are_refused_with_those_in_which_something_can():
    moving = open_suite("libero_spatial", assets="standins", motion="shuttle:3")
    with pytest.raises(UsageError, match=r"libero_spatial.*task 3, 4, 5, 7, 9.*--task-ids 0 1 2 6 8"):
        moving.check(moving.tasks())
    moving.check([moving.tasks()[task_id] for task_id in (0, 1, 2, 6, 8)])
    goal = open_suite("libero_goal", assets="standins", motion="drift:3")
    with pytest.raises(UsageError, match="task 7"):
        goal.open(goal.tasks()[7])


def test_a_motion_is_part_of_the_protocol_and_none_changes_nothing():
    def described(**overrides: str) -> dict:
        return describe_suite(open_suite("libero_object", assets="standins", **overrides))

    standing = described()
    assert described(motion="none") == standing
    assert protocol_hash({"libero_object": standing}) == "0e2077fab59e6071"  # of runs that are published
    hashes = {
        suite_hash(described(motion=motion)) for motion in ("none", "shuttle:3", "shuttle:6", "drift:3")
    }
    assert len(hashes) == 4
    assert suite_hash(described(motion="shuttle:3")) == suite_hash(described(motion="shuttle:3.0,4"))
