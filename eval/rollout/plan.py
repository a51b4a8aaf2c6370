"""Which episodes a run consists of, as an ordered list of their keys, and whether they can be played."""

import dataclasses

from configs.errors import UsageError
from configs.load import load
from configs.schema import RunConfig, SuiteConfig, Wordings
from sim_envs.libero.assets import AssetSet
from sim_envs.libero.libero_env import require_assets
from sim_envs.libero.tasks import FIRST_DRAWN, LiberoTask, get_task, init_states, is_drawn, list_tasks
from sim_envs.libero.wordings import wording_of
from sim_envs.world import EpisodeKey


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskPlan:
    """The episodes of one task, all run in one world.

    Attributes:
        task: The task.
        protocol: The suite's protocol, with what the configuration overrides.
        keys: The episodes, in the order they are run.
        wordings: In which words the policy is given the instruction.
    """

    task: Task
    protocol: SuiteConfig
    keys: tuple[EpisodeKey, ...]
    wordings: Wordings = "benchmark"

    def instruction(self, key: EpisodeKey) -> str:
        """What the policy is told in that episode."""
        return wording_of(key, self.task.language, self.wordings)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EpisodePlan:
    """Everything a run does, in order. A function of the configuration alone."""

    tasks: tuple[TaskPlan, ...]

    @property
    def keys(self) -> tuple[EpisodeKey, ...]:
        """Every episode of the run, in order."""
        return tuple(key for task in self.tasks for key in task.keys)

    @property
    def protocols(self) -> dict[str, SuiteConfig]:
        """The protocol of every suite that the run touches."""
        return {plan.protocol.name: plan.protocol for plan in self.tasks}


def make_plan(config: RunConfig) -> EpisodePlan:
    """The plan of a run.

    Raises:
        UsageError: A suite, a task or an initial state that does not exist.
    """
    return EpisodePlan(tasks=tuple(plan for suite in config.suites for plan in _plan_suite(config, suite)))


def check_playable(plan: EpisodePlan, assets: AssetSet, *, policy: str, horizon: int) -> None:
    """Refuse now what would otherwise be an error in every episode.

    Args:
        plan: The episodes.
        assets: What their worlds are built of.
        policy: The name of who acts, for the message.
        horizon: The number of actions that it answers a query with.

    Raises:
        UsageError: There are more control steps between two queries than actions, or a task's objects are not
            among the assets.
    """
    for name, suite in plan.protocols.items():
        if suite.replan_steps > horizon:
            raise UsageError(
                f"{suite.replan_steps} control steps between queries of {name}: policy {policy!r} "
                f"answers a query with {horizon} actions; give --replan-steps {horizon} or less"
            )
    for each in plan.tasks:
        require_assets(each.task, assets)


def suite_protocol(config: RunConfig, suite: str) -> SuiteConfig:
    """The suite's published protocol with the overrides of `config` in it."""
    overrides = {
        "max_steps": config.max_steps,
        "settle_steps": config.num_steps_wait,
        "replan_steps": config.replan_steps,
        "trials_per_task": config.num_trials_per_task,
    }
    given = {key: value for key, value in overrides.items() if value is not None}
    return load(SuiteConfig, suite).model_copy(update=given)


def _plan_suite(config: RunConfig, suite: str) -> list[TaskPlan]:
    protocol = suite_protocol(config, suite)
    task_ids = config.task_ids or range(len(list_tasks(suite)))
    tasks = [get_task(suite, task_id) for task_id in task_ids]
    return [
        TaskPlan(
            task=task,
            protocol=protocol,
            keys=tuple(
                EpisodeKey(suite=suite, task_id=task.task_id, init_id=init_id, seed=config.seed)
                for init_id in _init_ids(config, protocol, task)
            ),
            wordings=config.wordings,
        )
        for task in tasks
    ]


def _init_ids(config: RunConfig, protocol: SuiteConfig, task: LiberoTask) -> tuple[int, ...]:
    stored = len(init_states(task))
    if config.init_ids:
        for init_id in config.init_ids:
            if init_id >= stored and not is_drawn(init_id):
                raise UsageError(
                    f"init id {init_id}: task {task.task_id} of {task.suite} has {stored} stored initial "
                    f"states; give ids from 0 to {stored - 1}, or {FIRST_DRAWN} and more for drawn ones"
                )
        return config.init_ids
    if protocol.trials_per_task > stored:
        raise UsageError(
            f"{protocol.trials_per_task} trials per task: task {task.task_id} of {task.suite} has {stored} "
            f"stored initial states; give --num-trials-per-task {stored} or less"
        )
    return tuple(range(protocol.trials_per_task))
