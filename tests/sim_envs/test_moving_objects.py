"""LIBERO's and DROID's things that move until they are touched: which, how, and experts that catch them."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from configs.errors import UsageError
from configs.motion import parse_motion
from eval.records.protocol import describe_suite, protocol_hash, suite_hash
from sim_envs.droid.control import Control
from sim_envs.droid.expert import DroidExpert
from sim_envs.droid.sim import DroidSim
from sim_envs.droid.task_file import load_task
from sim_envs.libero.experts.expert import Expert
from sim_envs.libero.sim import SETTLE_ACTION, LiberoSim
from sim_envs.libero.tasks import get_task
from sim_envs.suite import open_suite
from sim_envs.truth.ground_truth import Phase
from sim_envs.world import EpisodeKey
from tests.sim_envs.playing import attempt

MOTIONS = ("shuttle:3", "drift:3")
DROID_KEY = {"suite": "droid_tabletop", "task_id": 0, "seed": 7}


class MovingWorld:
    """A world with any motion, compiled once for all of them, and what the tests read of it."""

    def __init__(self, sim: LiberoSim | DroidSim) -> None:
        self.sim = sim
        is_libero = isinstance(sim, LiberoSim)
        self.data = sim._data if is_libero else sim.station.data
        self.joints = ["orange_juice_1_joint0"] if is_libero else ["cube", "banana"]
        self.still = SETTLE_ACTION if is_libero else np.zeros(8)
        self.step_s = 0.05 if is_libero else 1 / 15
        self.settle_steps = 10 if is_libero else 5

    def states(self, motion: str, *, init_id: int = 0, seed: int = 7, steps: int = 40) -> np.ndarray:
        """Positions and velocities while the robot holds still, after every control step."""
        holder: Any = self.sim if isinstance(self.sim, LiberoSim) else self.sim.station
        holder._motion = parse_motion(motion)
        self.sim.reset(init_id=init_id, seed=seed, settle_steps=self.settle_steps)
        seen = [np.concatenate([self.data.qpos, self.data.qvel])]
        for _ in range(steps):
            self.sim.advance(self.still[None])
            seen.append(np.concatenate([self.data.qpos, self.data.qvel]))
        return np.array(seen)

    def columns(self, joint: str) -> tuple[np.ndarray, np.ndarray]:
        """Where a thing's pose and its velocity are in a state."""
        model = self.data.model
        place, velocity = model.joint(joint).qposadr[0], model.nq + model.joint(joint).dofadr[0]
        return place + np.arange(7), velocity + np.arange(6)


@pytest.fixture(scope="module", params=["libero", "droid"])
def world(request: pytest.FixtureRequest, standins: Any) -> Iterator[MovingWorld]:
    if request.param == "libero":
        with LiberoSim(get_task("libero_object", 9), assets=standins, camera_size=32) as sim:
            yield MovingWorld(sim)
    else:
        with DroidSim(load_task("clear_table"), control=Control.JOINT_VELOCITY, image_height=36) as sim:
            yield MovingWorld(sim)


@pytest.mark.parametrize("motion", MOTIONS)
def test_things_move_smoothly_and_nothing_else_because_of_it(world, motion):
    still, moving, moved = world.states("none"), world.states(motion), []
    for joint in world.joints:
        place, velocity = world.columns(joint)
        moved += [*place, *velocity]
        ways = np.linalg.norm(np.diff(moving[:, place[:3]], axis=0), axis=1)
        assert 0.02 < ways.sum() < 0.09
        assert ways.max() < 0.03 * world.step_s + 1e-4
        changes = np.linalg.norm(np.diff(moving[:, velocity[:3]], axis=0), axis=1)
        assert changes.max() < 1.6 * 0.03 / 0.5 * world.step_s + 0.004
        np.testing.assert_array_equal(np.ptp(moving[:, place[2:]], axis=0), 0)  # it stays upright
    rest = np.setdiff1d(np.arange(moving.shape[1]), moved)
    np.testing.assert_allclose(moving[:, rest], still[:, rest], atol=1e-6)
    assert world.sim.truth().narration.phase is Phase.APPROACH


def test_an_episode_is_a_function_of_its_key(world):
    first, other, seeded, again = (
        world.states("shuttle:3", init_id=init_id, seed=seed, steps=20)
        for init_id, seed in ((0, 7), (1, 7), (0, 8), (0, 7))
    )
    np.testing.assert_array_equal(first, again)
    place, _ = world.columns(world.joints[0])
    ways = [each[-1, place[:2]] - each[0, place[:2]] for each in (first, other, seeded)]
    assert min(np.linalg.norm(ways[0] - way) for way in ways[1:]) > 0.002


@pytest.mark.parametrize("world", ["droid"], indirect=True)
def test_a_copy_of_the_station_moves_as_its_original_and_leaves_it_alone(world):
    world.states("shuttle:3", steps=5)
    station = world.sim.station
    before, twin = station.data.qpos.copy(), station.copy()
    for _ in range(10):
        twin.step(world.still)
    np.testing.assert_array_equal(station.data.qpos, before)
    world.sim.advance(np.tile(world.still, (10, 1)))
    np.testing.assert_array_equal(twin.data.qpos, station.data.qpos)


def caught(sim: LiberoSim | DroidSim, expert: Any, key: EpisodeKey, leads: Callable[[], bool]) -> None:
    """The expert succeeds, and what it touches is not said to be pushed."""
    expert.reset(key)
    solved, told = False, []
    while not solved and len(told) < 450:
        for action in expert.query(np.empty(8))[:5]:
            solved = solved or sim.advance(action[None]).success
            told.append((leads(), sim.truth().narration.phase))
    assert solved
    assert {phase for moves, phase in told if moves} == {Phase.APPROACH}
    assert Phase.CARRY in {phase for moves, phase in told if not moves}
    assert Phase.PUSH not in {phase for _, phase in told}


@pytest.mark.parametrize("world", ["libero"], indirect=True)
def test_libero_s_expert_catches_what_moves(world):
    world.states("shuttle:6", steps=0)
    key = EpisodeKey(suite="libero_object", task_id=9, init_id=0, seed=7)
    caught(
        world.sim, Expert(world.sim), key, lambda: world.sim.predicted_motion("orange_juice_1") is not None
    )


def test_droid_s_expert_catches_what_moves():
    task, motion = load_task("cube_in_bowl"), parse_motion("drift:6")
    with DroidSim(task, control=Control.JOINT_POSITION, image_height=36, motion=motion) as sim:
        sim.reset(init_id=0, seed=7, settle_steps=5)
        key = EpisodeKey(**DROID_KEY, init_id=0)
        caught(sim, DroidExpert(sim), key, lambda: sim.station.movers["cube"].leads)


@pytest.mark.slow
@pytest.mark.parametrize("motion", MOTIONS)
@pytest.mark.parametrize("robot", ["libero", *Control])
def test_experts_catch_nine_of_ten(standins, robot, motion):
    solved, moves = [], parse_motion(motion)
    if robot == "libero":
        for task in (get_task("libero_object", task_id) for task_id in range(10)):
            with LiberoSim(task, assets=standins, camera_size=32, motion=moves) as sim:
                solved += [attempt(sim, Expert(sim), init_id).success for init_id in range(2)]
    else:
        for name in ("cube_in_bowl", "can_in_mug", "banana_in_bin", "cup_on_board", "tape_in_container"):
            with DroidSim(load_task(name), control=robot, image_height=36, motion=moves) as sim:
                keys = [EpisodeKey(**DROID_KEY, init_id=init_id) for init_id in range(4)]
                solved += [attempt(sim, DroidExpert(sim), key=key).success for key in keys]
    assert sum(solved) >= 18


@pytest.mark.parametrize(
    ("suite", "can"),
    [("libero_spatial", (0, 1, 2, 6, 8)), ("droid_tabletop", (0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12, 14))],
)
def test_tasks_in_which_nothing_can_move_are_refused_with_those_in_which_something_can(suite, can):
    opened = open_suite(suite, motion="shuttle:3", **({"assets": "standins"} if "libero" in suite else {}))
    cannot = [task.task_id for task in opened.tasks() if task.task_id not in can]
    refused, given = ", ".join(map(str, cannot)), " ".join(map(str, can))
    with pytest.raises(UsageError, match=rf"{suite} task {refused}, .*--task-ids {given}"):
        opened.check(opened.tasks())
    opened.check([opened.tasks()[task_id] for task_id in can])
    with pytest.raises(UsageError, match=f"task {cannot[0]}, the object to be grasped cannot move"):
        opened.open(opened.tasks()[cannot[0]])


def test_motion_that_would_show_what_is_marked_is_refused():
    opened = open_suite("libero_memory_short", assets="standins", motion="shuttle:3")
    with pytest.raises(UsageError, match=r"task 0, the object .* has to be remembered"):
        opened.check(opened.tasks()[:1])


@pytest.mark.parametrize(
    ("suite", "published"), [("libero_object", "0e2077fab59e6071"), ("droid_tabletop", "467ea282b5e958d8")]
)
def test_a_motion_is_part_of_the_protocol_and_none_changes_nothing(suite, published):
    assets = {"assets": "standins"} if "libero" in suite else {}

    def described(**overrides: str) -> dict:
        return describe_suite(open_suite(suite, **assets, **overrides))

    assert described(motion="none") == described()
    assert protocol_hash({suite: described()}) == published
    hashes = [suite_hash(described(motion=each)) for each in ("none", "shuttle:3", "shuttle:6", "drift:3")]
    assert len(set(hashes)) == 4
    if suite == "droid_tabletop":
        assert suite_hash(described(variation=0.5)) not in hashes
    assert suite_hash(described(motion="shuttle:3.0,4")) == hashes[1]
