"""Checks of a suite's tasks by playing them: what each looks like, and what is wrong with it."""

import contextlib
import dataclasses
from typing import Protocol, runtime_checkable

import numpy as np

from contracts.episode import EpisodeKey
from contracts.errors import UsageError, one_line
from sim_envs.preflight import CheckResult, Status
from sim_envs.scripted.policy import Noop, Random, ScriptedPolicy
from sim_envs.suite import Suite, Task
from sim_envs.testing import check_suite
from sim_envs.world import PhysicsError, TaskError, World, read_truth

_SEED = 7


@runtime_checkable
class ReachWorld(Protocol):
    """A world that knows how far its robot reaches."""

    def out_of_reach(self) -> str:
        """What its goal needs and the robot cannot reach, in words; empty if nothing."""


@dataclasses.dataclass(kw_only=True)
class TaskCheck:
    """What was found about a task."""

    task: Task
    results: list[CheckResult] = dataclasses.field(default_factory=list)  # each fault, or that there is none
    pictures: np.ndarray | None = None  # of each camera, side by side; None if the task does not open

    def say(self, detail: str, status: Status, remedy: str = "") -> None:
        """Add a result."""
        name = f"{self.task.task_id} {self.task.name}"
        self.results.append(CheckResult(name=name, status=status, detail=detail, remedy=remedy))


def check_task(suite: Suite, task: Task, *, play: bool = True) -> TaskCheck:
    """Open a task, look at it, and with `play` see whether anything solves it."""
    check = TaskCheck(task=task)
    try:
        suite.check([task])
        with contextlib.closing(suite.open(task)) as world:
            _check_begin(suite, world, check)
            if play and not check.results:
                _check_play(suite, world, check)
    except UsageError as error:
        check.say(str(error), Status.FAIL)
    except Exception as error:  # noqa: BLE001 - a user's task may break its simulator anywhere
        check.say(one_line(error), Status.FAIL, "look at its files, and at those of a task that opens")
    if not check.results:
        check.say("opens", Status.OK)
    return check


def check_conformance(suite: Suite, task: Task) -> CheckResult:
    """Whether the suite, and the task's worlds, implement the contracts."""
    try:
        check_suite(suite, task_ids=[task.task_id], renders_every_step=True)
    except Exception as violation:  # noqa: BLE001 - as in `check_task`
        remedy = "mend what it names; all randomness comes from the init id and the seed of `reset`"
        said = one_line(violation).removeprefix("AssertionError: ")
        return CheckResult.of("worlds", said, ok=False, remedy=remedy)
    return CheckResult.of("worlds", "the same actions give the same bits, and all is as declared")


def _check_begin(suite: Suite, world: World, check: TaskCheck) -> None:
    is_solved = False
    try:
        world.reset(init_id=0, seed=_SEED, settle_steps=suite.protocol.settle_steps)
    except TaskError:  # which is said below, with its picture
        is_solved = True
    images = list(world.observe().images.values())
    height = min(map(len, images), default=0)
    check.pictures = np.concatenate([image[:height] for image in images], axis=1) if images else None
    if is_solved or world.progress() == 1.0:
        check.say("the goal is true at the start", Status.FAIL, "change the goal, or where things begin")
    elif isinstance(world, ReachWorld) and (beyond := world.out_of_reach()):
        check.say(f"unreachable: {beyond}", Status.FAIL, "move it, or change the goal")


def _check_play(suite: Suite, world: World, check: TaskCheck) -> None:
    task, limit = check.task, suite.protocol.max_steps
    key = EpisodeKey(suite=task.suite, task_id=task.task_id, init_id=0, seed=_SEED)
    baselines: dict[str, ScriptedPolicy] = {"holding still": Noop(suite.interface)}
    with contextlib.suppress(UsageError):  # without limits
        baselines["acting at random"] = Random(suite.interface)
    for name, policy in baselines.items():
        solved, steps = play_episode(suite, world, key, policy, is_blind=True)
        if solved:
            status = Status.FAIL if name == "holding still" else Status.WARN
            check.say(f"{name} solves it in {steps} control steps", status, "make the goal harder")
    _, no_truth = read_truth(world)
    if no_truth is not None:
        check.say(f"no truth: {no_truth}", Status.WARN)
    outcome = "no expert plays it"
    if task in suite.expert_tasks():
        try:
            expert = suite.expert(world)
        except UsageError as error:
            expert, outcome = None, f"no expert: {error}"
        if expert is not None:
            solved, steps = play_episode(suite, world, key, expert)
            outcome = f"the expert solves it in {steps} of {limit} control steps"
            if not solved:
                check.say(
                    f"the expert does not solve it in {limit} control steps (progress "
                    f"{world.progress():.0%})",
                    Status.WARN,
                    "look whether it can be done at all, in the picture, or with --policy expert --video all",
                )
                return
    if not any(each.status is Status.FAIL for each in check.results):
        check.say(f"opens, is not solved by chance; {outcome}", Status.OK)


def play_episode(
    suite: Suite, world: World, key: EpisodeKey, policy: ScriptedPolicy, *, is_blind: bool = False
) -> tuple[bool, int]:
    """Whether a policy solves an episode, and after how many control steps it ended.

    One that is blind is given the first state alone, and nothing is rendered.
    """
    protocol, steps = suite.protocol, 0
    world.reset(init_id=key.init_id, seed=key.seed, settle_steps=protocol.settle_steps)
    policy.reset(key)
    state = world.observe().state
    while steps < protocol.max_steps:
        most = min(protocol.replan_steps, protocol.max_steps - steps)
        try:
            result = world.advance(policy.query(state)[:most])
        except PhysicsError:  # random actions may break it
            return False, steps
        steps += result.steps
        if result.success or result.failed or not result.steps:
            return result.success, steps
        state = state if is_blind else world.observe().state
    return False, steps
