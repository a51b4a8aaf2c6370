"""DROID's things that move until they are touched: which, how, and an expert that catches them."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from configs.errors import UsageError
from configs.motion import parse_motion
from eval.records.protocol import describe_suite, protocol_hash, suite_hash
from sim_envs.droid.control import CONTROL_HZ, Control
from sim_envs.droid.expert import DroidExpert
from sim_envs.droid.sim import DroidSim
from sim_envs.droid.task_file import load_task
from sim_envs.suite import open_suite
from sim_envs.truth.ground_truth import Phase
from sim_envs.world import EpisodeKey

OpenSim = Callable[..., DroidSim]
STILL = np.zeros((1, 8))
THINGS = ("cube", "banana")


@pytest.fixture(scope="module")
def open_moving() -> Iterator[OpenSim]:
    """A station with two things to grasp and any motion: it is compiled once for all of them."""
    with DroidSim(load_task("clear_table"), control=Control.JOINT_VELOCITY, image_height=36) as sim:

        def opened(motion: str) -> DroidSim:
            sim.station._motion = parse_motion(motion)
            return sim

        yield opened


def states(sim: DroidSim, *, init_id: int = 0, seed: int = 7, steps: int = 40) -> np.ndarray:
    """Joint positions and velocities while the robot holds still, after every control step."""
    sim.reset(init_id=init_id, seed=seed, settle_steps=5)
    seen = [np.concatenate([sim.station.data.qpos, sim.station.data.qvel])]
    for _ in range(steps):
        sim.advance(STILL)
        seen.append(np.concatenate([sim.station.data.qpos, sim.station.data.qvel]))
    return np.array(seen)


def columns(sim: DroidSim, obj: str) -> tuple[np.ndarray, np.ndarray]:
    """Where a thing's pose and its velocity are in a state."""
    joint, model = sim.station.model.joint(obj), sim.station.model
    return joint.qposadr[0] + np.arange(7), model.nq + joint.dofadr[0] + np.arange(6)


@pytest.mark.parametrize("motion", ["shuttle:3", "drift:3"])
def test_things_move_smoothly_and_nothing_else_because_of_it(open_moving, motion):
    still = states(open_moving("none"))
    sim = open_moving(motion)
    moving, moved = states(sim), []
    for obj in THINGS:
        place, velocity = columns(sim, obj)
        moved += [*place, *velocity]
        ways = np.linalg.norm(np.diff(moving[:, place[:3]], axis=0), axis=1)
        assert 0.02 < ways.sum() < 0.09
        assert ways.max() < 0.03 / CONTROL_HZ + 1e-6
        changes = np.linalg.norm(np.diff(moving[:, velocity[:3]], axis=0), axis=1)
        assert changes.max() < 1.6 * 0.03 / 0.5 / CONTROL_HZ + 0.004
        np.testing.assert_array_equal(np.ptp(moving[:, place[2:]], axis=0), 0)  # it stays upright
    rest = np.setdiff1d(np.arange(moving.shape[1]), moved)
    np.testing.assert_allclose(moving[:, rest], still[:, rest], atol=1e-6)
    assert sim.truth().narration.phase is Phase.APPROACH


def test_an_episode_is_a_function_of_its_key(open_moving):
    sim = open_moving("drift:3")
    first, other, seeded, again = (
        states(sim, init_id=init_id, seed=seed, steps=15)
        for init_id, seed in ((0, 7), (1, 7), (0, 8), (0, 7))
    )
    np.testing.assert_array_equal(first, again)
    place, _ = columns(sim, "cube")
    ways = [each[-1, place[:2]] - each[0, place[:2]] for each in (first, other, seeded)]
    assert min(np.linalg.norm(ways[0] - way) for way in ways[1:]) > 0.002


def test_a_copy_moves_as_its_original_and_leaves_it_alone(open_moving):
    sim = open_moving("shuttle:3")
    states(sim, steps=5)
    before, twin = sim.station.data.qpos.copy(), sim.station.copy()
    for _ in range(10):
        twin.step(STILL[0])
    np.testing.assert_array_equal(sim.station.data.qpos, before)
    sim.advance(np.tile(STILL, (10, 1)))
    np.testing.assert_array_equal(twin.data.qpos, sim.station.data.qpos)


def play(sim: DroidSim, init_id: int, told: list[tuple[bool, Phase]]) -> bool:
    """Whether the expert succeeds; collects whether the first thing still moves by itself, and the phase."""
    sim.reset(init_id=init_id, seed=7, settle_steps=5)
    expert = DroidExpert(sim)
    expert.reset(EpisodeKey(suite="droid_tabletop", task_id=0, init_id=init_id, seed=7))
    mover = next(iter(sim.station.movers.values()))
    for _ in range(56):
        if sim.advance(expert.query(sim.policy_state())[:8]).success:
            return True
        told.append((mover.leads, sim.truth().narration.phase))
    return False


def test_the_expert_catches_what_moves_and_what_it_touches_is_not_said_to_be_pushed():
    motion, told = parse_motion("drift:6"), []
    with DroidSim(
        load_task("cube_in_bowl"), control=Control.JOINT_POSITION, image_height=36, motion=motion
    ) as sim:
        assert play(sim, 0, told)
    assert {phase for leads, phase in told if leads} == {Phase.APPROACH}
    assert Phase.CARRY in {phase for leads, phase in told if not leads}
    assert Phase.PUSH not in {phase for _, phase in told}


@pytest.mark.slow
@pytest.mark.parametrize("motion", ["shuttle:3", "drift:3"])
@pytest.mark.parametrize("control", Control)
def test_the_expert_catches_nine_of_ten_at_3_cm_per_second(control, motion):
    solved = []
    for task in ("cube_in_bowl", "can_in_mug", "banana_in_bin", "cup_on_board", "tape_in_container"):
        with DroidSim(load_task(task), control=control, image_height=36, motion=parse_motion(motion)) as sim:
            solved += [play(sim, init_id, []) for init_id in range(4)]
    assert sum(solved) >= 18


def test_tasks_in_which_nothing_can_move_are_refused_with_those_in_which_something_can():
    suite = open_suite("droid_tabletop", motion="shuttle:3")
    can = (0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12, 14)
    with pytest.raises(UsageError, match=r"task 8, 9, 13, 15, .*--task-ids 0 1 2 3 4 5 6 7 10 11 12 14"):
        suite.check(suite.tasks())
    suite.check([suite.tasks()[task_id] for task_id in can])
    with pytest.raises(UsageError, match="droid_tabletop task 9, the object to be grasped cannot move"):
        suite.open(suite.tasks()[9])


def test_a_motion_is_part_of_the_protocol_and_none_changes_nothing():
    def described(**overrides: str) -> dict:
        return describe_suite(open_suite("droid_tabletop", **overrides))

    assert described(motion="none") == described()
    assert protocol_hash({"droid_tabletop": described()}) == "e126bf9c783e6380"  # of runs that are published
    motions = ("none", "shuttle:3", "shuttle:6", "drift:3")
    assert len({suite_hash(described(motion=motion)) for motion in motions}) == 4
