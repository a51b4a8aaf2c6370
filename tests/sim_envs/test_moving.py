"""What moves until it is touched: trajectories in free space; which things, and experts that catch them."""

import math
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import mujoco
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.episode import EpisodeKey
from contracts.errors import UsageError
from contracts.motion import Drift, Shuttle, Static, parse_motion
from contracts.truth import Phase
from eval.records.protocol import describe_suite, protocol_hash, suite_hash
from sim_envs.droid.control import Control
from sim_envs.droid.expert import DroidExpert
from sim_envs.droid.sim import DroidSim
from sim_envs.droid.task_file import load_task
from sim_envs.libero.experts.expert import Expert
from sim_envs.libero.sim import SETTLE_ACTION, LiberoSim
from sim_envs.libero.tasks import get_task
from sim_envs.moving import RISE_S, Bounds, FreeSpace, Mover, sample_movers, sample_trajectory, straight_line
from sim_envs.scripted.surfaces import box_surface, rectangle
from sim_envs.suite import open_suite
from tests.sim_envs.conftest import attempt, key_of, told_by

TICK = 0.01
SECONDS = np.arange(0.0, 20.0, TICK)


class Between(FreeSpace):
    """A known rectangle (m) around the object."""

    def __init__(self, x, y):
        self._low, self._high = np.transpose([x, y])

    def along(self, way, most):
        step = np.where(np.abs(way[:2]) > 1e-9, way[:2], 1e-9)
        return float(min(most, np.maximum(self._low / step, self._high / step).min()))


motions = st.one_of(
    st.builds(Shuttle, speed=st.floats(0.001, 0.3), period=st.floats(1.0, 60.0)),
    st.builds(Drift, speed=st.floats(0.001, 0.3)),
)
sides = st.tuples(st.floats(-0.3, 0.0), st.floats(0.0, 0.3))


@given(motion=motions, room=st.builds(Between, x=sides, y=sides), seed=st.integers(0, 1000))
def test_trajectories_are_continuous_and_stay_within_free_space(motion, room, seed):
    trajectory = sample_trajectory(motion, room, np.random.default_rng(seed))
    if trajectory is None:
        return
    places = np.array([trajectory.offset(t) for t in SECONDS])
    velocities = np.array([trajectory.velocity(t) for t in SECONDS])
    assert not places[0].any()
    assert not velocities[0].any()
    assert np.linalg.norm(velocities, axis=1).max() <= motion.speed + 1e-12
    steps = TICK * (velocities[1:] + velocities[:-1]) / 2
    np.testing.assert_allclose(np.diff(places, axis=0), steps, atol=1e-9 + 1e-5 * motion.speed)
    swing = 2 * math.pi / motion.period if isinstance(motion, Shuttle) else 0.0
    changes = np.linalg.norm(np.diff(velocities, axis=0), axis=1)
    assert changes.max() <= motion.speed * (1.6 / RISE_S + swing) * TICK
    for side in (1, -1):
        assert (side * places @ trajectory.way).max() <= room.along(side * trajectory.way, 10.0) + 1e-9


def test_free_space_ends_at_obstacles_edges_and_forbidden_positions():
    table = rectangle(center=(0.0, 0.0), half=(0.2, 0.3), height=0.5, spacing=0.008)
    obj, other = (box_surface(np.full(3, 0.02), 0.004) + np.array([0.0, y, 0.52]) for y in (0.0, 0.15))
    room = FreeSpace(obj, np.concatenate([table, other]), may_be_at=lambda place: place[1] > -0.1)
    x, y = np.eye(3)[:2]
    assert room.along(y, 0.3) == pytest.approx(0.08, abs=0.011)  # up to 3 cm from the other's side
    assert room.along(x, 0.3) == pytest.approx(0.16, abs=0.011)  # up to 3 cm from the edge
    assert room.along(-y, 0.3) == pytest.approx(0.1, abs=0.006)
    assert room.along(x, 0.05) == 0.05


SCENE = """
<mujoco>
  <option timestep="0.002"/>
  <worldbody>
    <geom type="plane" size="1 1 0.1"/>
    <body name="bottle" pos="0 0 0.1"><freejoint/><geom type="cylinder" size="0.02 0.1" mass="0.5"/></body>
    <body name="can" pos="0 0.3 0.05"><freejoint/><geom type="cylinder" size="0.03 0.05" mass="0.3"/></body>
    <body name="post" pos="0.1 0 0.1"><joint type="slide" axis="0 0 1" damping="1e6"/>
      <geom type="box" size="0.01 0.1 0.08" mass="1"/></body>
  </worldbody>
</mujoco>
"""
TRAJECTORY = straight_line(np.array([1.0, 0.0, 0.0]), length=0.2, cruise=0.05)


@pytest.fixture
def data() -> mujoco.MjData:
    data = mujoco.MjData(mujoco.MjModel.from_xml_string(SCENE))
    for _ in range(200):
        mujoco.mj_step(data.model, data)
    return data


def play(data: mujoco.MjData, seconds: float, mover: Mover | None = None) -> None:
    for _ in range(round(seconds / data.model.opt.timestep)):
        mujoco.mj_step(data.model, data)
        if mover is not None:
            mover.lead()


def test_a_contact_ends_the_trajectory_for_good(data):
    mover = Mover(data, data.body("bottle").id, TRAJECTORY)
    play(data, 3.0, mover)
    assert not mover.leads
    assert data.qpos[0] == pytest.approx(0.07, abs=0.005)  # stopped by the post
    end = mover.offset()
    play(data, 3.0, mover)
    assert np.abs(data.qvel[:6]).max() < 0.01
    np.testing.assert_array_equal(mover.offset(1.0), end)


def test_the_trajectory_starts_when_the_body_is_at_rest(data):
    data.qpos[2] += 0.05
    mujoco.mj_forward(data.model, data)
    data.qvel[2] = -0.1
    mover = Mover(data, data.body("bottle").id, TRAJECTORY)
    play(data, 0.05, mover)
    assert not mover.leads
    assert data.qvel[2] < -0.1  # it still falls
    play(data, 1.0, mover)
    assert mover.leads
    assert data.qpos[0] > 0.01


FENCED_SCENE = """
<mujoco>
  <worldbody>
    <camera pos="0.5 0 1" fovy="90"/>
    <geom type="box" size="2 2 0.1" pos="0 0 -0.1"/>
    <body name="robot"><geom type="box" size="0.05 0.05 0.1" pos="0 0 0.1"/></body>
    <body name="can" pos="0.5 0 0.05"><freejoint/><geom type="cylinder" size="0.03 0.05"/></body>
    {fence}
  </worldbody>
</mujoco>
"""
FENCE = "".join(
    f'<geom type="box" size="0.01 0.06 0.02" pos="{0.45 + 0.1 * side} 0 0.02"/>'
    f'<geom type="box" size="0.06 0.01 0.02" pos="0.5 {0.1 * side - 0.05} 0.02"/>'
    for side in (0, 1)
)


def settled(fence: str = "") -> mujoco.MjData:
    data = mujoco.MjData(mujoco.MjModel.from_xml_string(FENCED_SCENE.format(fence=fence)))
    mujoco.mj_forward(data.model, data)
    return data


def bounds(data: mujoco.MjData, **changes: float) -> Bounds:
    return Bounds(**({"robot": data.body("robot").id, "reach": (0.3, 3.0), "camera": 0} | changes))


def test_the_view_is_as_wide_as_the_images():
    data = settled()
    for aspect in (1.0, 0.5):
        may_be_at = bounds(data, aspect=aspect).check(data, np.array([0.5, 0.0, 0.0]))
        for way, edge in ((np.array([1.0, 0, 0]), 0.9 * aspect), (np.array([0, 1.0, 0]), 0.9)):
            place = np.array([0.5, 0.0, 0.0])
            assert may_be_at(place + (edge - 0.01) * way)
            assert not may_be_at(place + (edge + 0.01) * way)


@pytest.mark.parametrize(("fence", "moves"), [("", True), (FENCE, False)])
def test_a_body_without_room_does_not_move(fence, moves):
    data = settled(fence)
    found = sample_movers(data, {"can": data.body("can").id}, Drift(speed=0.03), bounds(data), digest=7)
    assert list(found) == ["can"] * moves
    if moves:
        assert math.hypot(*found["can"]._trajectory.way) == pytest.approx(1)


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
        parsed = parse_motion(motion)
        holder._motion = None if isinstance(parsed, Static) else parsed
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
        task = load_task("clear_table")
        with closing(DroidSim(task, control=Control.JOINT_VELOCITY, image_height=36)) as sim:
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
    """The expert gets hold of what moves, which is not said to be pushed."""
    told = []
    for truth in told_by(sim, expert, key, steps=450):
        told.append((leads(), truth.narration.phase))
        if told[-1] == (False, Phase.CARRY):
            break
    assert {phase for moves, phase in told if moves} == {Phase.APPROACH}
    assert (False, Phase.CARRY) in told
    assert Phase.PUSH not in {phase for _, phase in told}


@pytest.mark.parametrize("world", ["libero"], indirect=True)
def test_libero_s_expert_catches_what_moves(world):
    world.states("shuttle:6", steps=0)
    sim = world.sim
    caught(sim, Expert(sim), key_of(sim), lambda: sim.predicted_motion("orange_juice_1") is not None)


def test_droid_s_expert_catches_what_moves():
    task, motion = load_task("cube_in_bowl"), parse_motion("drift:6")
    with closing(DroidSim(task, control=Control.JOINT_POSITION, image_height=36, motion=motion)) as sim:
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
            with closing(DroidSim(load_task(name), control=robot, image_height=36, motion=moves)) as sim:
                keys = [EpisodeKey(**DROID_KEY, init_id=init_id) for init_id in range(4)]
                solved += [attempt(sim, DroidExpert(sim), key=key).success for key in keys]
    assert sum(solved) >= 18


@pytest.mark.parametrize(
    ("suite", "can"),
    [
        ("libero_spatial", (0, 1, 2, 6, 8)),
        ("libero_memory_short", ()),  # what moved would show what is marked
        ("droid_tabletop", (0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12, 14)),
    ],
)
def test_tasks_in_which_nothing_can_move_are_refused_with_those_in_which_something_can(suite, can):
    opened = open_suite(suite, motion="shuttle:3", **({"assets": "standins"} if "libero" in suite else {}))
    cannot = [task.task_id for task in opened.tasks() if task.task_id not in can]
    refused, given = ", ".join(map(str, cannot)), " ".join(map(str, can))
    remedy = f"--task-ids {given}" if can else "another suite"
    with pytest.raises(UsageError, match=rf"{suite} task {refused}, .* has to be remembered.*{remedy}"):
        opened.check(opened.tasks())
    opened.check([opened.tasks()[task_id] for task_id in can])
    with pytest.raises(UsageError, match=f"task {cannot[0]}, the object to be grasped cannot move"):
        opened.open(opened.tasks()[cannot[0]])


@pytest.mark.parametrize(
    ("suite", "published"), [("libero_object", "0e2077fab59e6071"), ("droid_tabletop", "467ea282b5e958d8")]
)
def test_a_motion_is_part_of_the_protocol_and_none_changes_nothing(suite, published):
    assets = {"assets": "standins"} if "libero" in suite else {}

    def described(**overrides: str) -> dict:
        return describe_suite(open_suite(suite, env_seed="fixed", **assets, **overrides))

    assert described(motion="none") == described()
    assert protocol_hash({suite: described()}) == published
    hashes = [suite_hash(described(motion=each)) for each in ("none", "shuttle:3", "shuttle:6", "drift:3")]
    assert len(set(hashes)) == 4
    if suite == "droid_tabletop":
        assert suite_hash(described(variation=0.5)) not in hashes
    assert suite_hash(described(motion="shuttle:3.0,4")) == hashes[1]
