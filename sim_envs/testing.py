"""Conformance checks for custom suites and worlds. An AssertionError names the violation.

from sim_envs.suite import open_suite
from sim_envs.testing import check_suite

check_suite(open_suite("my_suite.yaml"))
"""

import contextlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any
from unittest import mock

import numpy as np
from jaxtyping import Float64

from contracts.episode import EpisodeKey
from contracts.errors import UsageError
from contracts.interface import Interface
from contracts.observation import Observation
from sim_envs.suite import Suite, Task
from sim_envs.world import AdvanceResult, World, as_progress, read_truth

Actions = Float64[np.ndarray, "steps action"]

_SEED = 7
_STEPS = 6  # control steps of each test episode

# Maps a world that has just been reset to actions that reach success before the last one. May first edit the
# simulator state.
Solver = Callable[[Any], Actions]


def check_suite(suite: Suite, *, task_ids: Iterable[int] = (0,), **how: Any) -> None:
    """Check that a suite implements `sim_envs.suite.Suite`, and that its worlds implement `World`.

    Args:
        suite: The suite.
        task_ids: Tasks whose worlds are checked.
        how: The options of `check_world`: `solve`, `hold_tolerances`, `renders_every_step`.

    Raises:
        AssertionError: Names the violation in one line.
    """
    tasks = suite.tasks()
    assert tasks, f"{suite.protocol.name} has no tasks"
    for number, task in enumerate(tasks):
        _check_task(suite, task, number)
    rate, declared = suite.protocol.control_hz, suite.interface.action.control_hz
    assert rate == declared, f"the protocol's control_hz is {rate}, the interface's {declared}"
    once, again = (json.dumps(dict(suite.describe("benchmark")), sort_keys=True) for _ in range(2))
    assert once == again, f"describe() gives {once}, then {again}"
    chosen = [tasks[task_id] for task_id in task_ids]
    suite.check(chosen)
    for task in chosen:
        with contextlib.closing(suite.open(task)) as world:
            check_world(world, suite.interface, init_ids=range(min(2, suite.init_ids(task).stored)), **how)


def check_world(
    world: World,
    interface: Interface,
    *,
    init_ids: Sequence[int] = (0, 1),
    solve: Solver | None = None,
    hold_tolerances: Mapping[str, float] | None = None,
    renders_every_step: bool = False,
) -> None:
    """Check that a world implements `sim_envs.world.World`. Closes the world.

    Args:
        world: The world, just opened.
        interface: The interface that its suite declares.
        init_ids: Initial states to use; they have to differ.
        solve: Solves the task. Without it, behaviour at success is not checked.
        hold_tolerances: Maps state channels to the largest change allowed during hold actions; other
            channels are not checked.
        renders_every_step: Whether the simulator inevitably renders at every control step.

    Raises:
        AssertionError: Names the violation in one line.
    """
    player = _EpisodePlayer(world, interface, renders_every_step=renders_every_step)
    first = player.begin(init_ids[0])
    _check_observation(first, interface)
    _assert_same(first, world.observe(), "two calls of observe() differ")
    before = player.play(init_ids[0])
    player.play(init_ids[-1], seed=_SEED + 1)
    after = player.play(init_ids[0])
    for moment, one, other in zip(("first", "last"), before, after, strict=True):
        _assert_same(one, other, f"the {moment} observation of an episode depends on earlier episodes")
    for init_id in init_ids[1:]:
        assert _difference(player.begin(init_id), before[0]), (
            f"initial states {init_ids[0]} and {init_id} look the same"
        )
    if solve is not None:
        _check_success(player, init_ids[0], solve)
    whole, single = (player.play(init_ids[0], chunk=chunk)[-1] for chunk in (_STEPS, 1))
    _assert_same(whole, single, "advancing action by action differs from advancing a chunk")
    _check_reads_have_no_effect(player, init_ids[0])
    if hold_tolerances is not None:
        _check_hold_action(player, init_ids[0], hold_tolerances)
    world.close()
    world.close()


class _EpisodePlayer:
    """Plays short episodes of a world, and asserts that `advance` does not render."""

    def __init__(self, world: World, interface: Interface, *, renders_every_step: bool) -> None:
        self.world = world
        self.interface = interface
        self._renders_every_step = renders_every_step

    def begin(self, init_id: int, *, seed: int = _SEED, settle_steps: int = 1) -> Observation:
        self.world.reset(init_id=init_id, seed=seed, settle_steps=settle_steps)
        return self.world.observe()

    def play(self, init_id: int, *, seed: int = _SEED, chunk: int = _STEPS) -> list[Observation]:
        """The first and the last observation of an episode whose actions depend only on the seed."""
        first = self.begin(init_id, seed=seed)
        actions = _some_actions(self.interface, first.state, seed)
        for start in range(0, len(actions), chunk):
            given = actions[start : start + chunk]
            outcome = self.advance(given)
            assert outcome.success or outcome.failed or outcome.steps == len(given), (
                f"advance stopped after {outcome.steps} of {len(given)} actions without success or failure"
            )
            path = outcome.end_effector
            assert path is None or (path.shape == (outcome.steps + 1, 3) and np.isfinite(path).all()), (
                f"end_effector is {list(path.shape)}, but must be finite [{outcome.steps + 1}, 3]"
            )
            if outcome.success or outcome.failed:
                break
        return [first, self.world.observe()]

    def advance(self, actions: Actions) -> AdvanceResult:
        with contextlib.nullcontext() if self._renders_every_step else _no_rendering(self.world):
            outcome = self.world.advance(actions)
        assert isinstance(outcome, AdvanceResult), f"advance() returns {outcome!r}, no AdvanceResult"
        return outcome


def _check_task(suite: Suite, task: Task, number: int) -> None:
    name = suite.protocol.name
    assert (task.suite, task.task_id) == (name, number), (
        f"task {number} of {name} identifies itself as task {task.task_id} of {task.suite}"
    )
    ids = suite.init_ids(task)
    assert ids.stored > 0, f"task {number} of {name} has no stored initial states"
    with contextlib.suppress(UsageError):
        ids.check(-1, task)
        raise AssertionError(f"task {number} of {name} accepts init id -1")
    for init_id in range(min(2, ids.stored)):
        key = EpisodeKey(suite=task.suite, task_id=task.task_id, init_id=init_id, seed=_SEED)
        given = suite.instruction(key, "benchmark")
        assert given == task.language, (
            f"the benchmark's instruction of task {task.task_id} is {given!r}, its language {task.language!r}"
        )


def _check_observation(observation: Observation, interface: Interface) -> None:
    declared = interface.observation
    images = observation.images
    assert list(images) == list(declared.camera_names), (
        f"the cameras are {list(images)}, but {list(declared.camera_names)} are declared"
    )
    for camera in declared.cameras:
        image = images[camera.name]
        assert camera.size is not None, f"camera {camera.name!r} is declared without a size"
        assert (image.dtype, image.shape) == (np.uint8, (*camera.size, 3)), (
            f"camera {camera.name!r} gives {image.dtype} {list(image.shape)}, declared uint8 "
            f"{[*camera.size, 3]}"
        )
    state = observation.state
    assert (state.dtype, state.shape) == (np.float64, (declared.state_size,)), (
        f"the state is {state.dtype} {list(state.shape)}, declared float64 [{declared.state_size}]"
    )
    assert np.isfinite(state).all(), f"the state is not finite: {state.tolist()}"
    assert observation.language.strip(), "the instruction is empty"


def _check_reads_have_no_effect(player: _EpisodePlayer, init_id: int) -> None:
    def played(look: Callable[[], object]) -> Observation:
        state = player.begin(init_id).state
        for action in _some_actions(player.interface, state, _SEED):
            look()
            player.advance(action[None])
        return player.world.observe()

    world = player.world
    alone = played(lambda: None)
    camera = player.interface.observation.camera_names[0]
    readers = {
        "truth": lambda: read_truth(world),
        "progress": world.progress,
        "render": lambda: world.render(camera),
    }
    for name, reader in readers.items():
        _assert_same(alone, played(reader), f"calling {name}() changes the episode")
    try:
        as_progress(world.progress())
    except UsageError as error:
        raise AssertionError(str(error)) from None
    for camera, image in world.observe().images.items():
        same = np.array_equal(world.render(camera), image)
        assert same, f"render({camera!r}) differs from the image in observe()"


def _check_success(player: _EpisodePlayer, init_id: int, solve: Solver) -> None:
    player.begin(init_id)
    actions = solve(player.world)
    outcome = player.advance(actions)
    assert outcome.success, f"advance reports no success within the {len(actions)} actions of `solve`"
    assert outcome.steps < len(actions), "advance does not stop at success"
    stopped = player.world.observe()
    share = player.world.progress()
    assert share == 1.0, f"progress() is {share} at success, but must be 1"
    player.begin(init_id)
    again = player.advance(solve(player.world)[: outcome.steps])
    assert again == outcome, f"the same actions give {outcome}, then {again}"
    _assert_same(stopped, player.world.observe(), "the world moved after success")


def _check_hold_action(player: _EpisodePlayer, init_id: int, hold_tolerances: Mapping[str, float]) -> None:
    spec = player.interface.observation
    begin = player.begin(init_id).state
    last: Float64[np.ndarray, " action"] | None = None
    for _ in range(_STEPS):
        last = player.interface.hold_action(player.world.observe().state, last)
        player.advance(last[None])
    end = player.world.observe().state
    for name, tolerance in hold_tolerances.items():
        moved = float(np.abs(spec.read(end, name) - spec.read(begin, name)).max())
        assert moved <= tolerance, (
            f"{name!r} moves by {moved:.3g} in {_STEPS} control steps of the hold action; the tolerance is "
            f"{tolerance:g}"
        )


def _some_actions(interface: Interface, state: Float64[np.ndarray, " state"], seed: int) -> Actions:
    """Random actions within the limits, or near the hold action if there are none."""
    draws, shape = np.random.default_rng(seed), (_STEPS, interface.action.size)
    if interface.action.limits is not None:
        return draws.uniform(*interface.action.limits, shape)
    return interface.hold_action(state, None) + draws.normal(scale=0.02, size=shape)


@contextlib.contextmanager
def _no_rendering(world: World) -> Iterator[None]:
    """Make `observe` and MuJoCo's rendering raise inside the context."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("advance renders; only observe() and render() may")

    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(world, "observe", refuse))
        if "mujoco" in sys.modules:
            stack.enter_context(mock.patch.object(sys.modules["mujoco"], "mjr_render", refuse))
        yield


def _assert_same(one: Observation, other: Observation, message: str) -> None:
    assert not (difference := _difference(one, other)), f"{message}: {difference}"


def _difference(one: Observation, other: Observation) -> str:
    """Describes the first difference of two observations; empty if they are equal."""
    if not np.array_equal(one.state, other.state):
        return f"state {one.state.round(6).tolist()}, then {other.state.round(6).tolist()}"
    for name, image in one.images.items():
        pixels = int((image != other.images[name]).any(axis=-1).sum())
        if pixels:
            return f"camera {name!r}, in {pixels} pixels"
    return "" if one.language == other.language else f"{one.language!r}, then {other.language!r}"
