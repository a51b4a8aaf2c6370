"""The episodes of a run in order, and the runs of a sweep."""

import dataclasses
import functools
from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from configs.cli import format_option
from configs.errors import check
from configs.load import load
from configs.protocol import ProtocolConfig
from configs.schema import AXES, RunConfig, SuiteConfig, SweepConfig, Wordings
from contracts.clock import PAUSED, Clock, Replay
from contracts.episode import EpisodeKey
from contracts.errors import UsageError
from contracts.hashing import seed_of
from contracts.latency import steps_in
from contracts.perturbation import SEVERITIES
from eval.rollout.pricing import open_pricing
from sim_envs.perturbations.dimension import find_dimension
from sim_envs.suite import StateSource, Suite, Task, find_suite, open_suite


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskPlan:
    """The episodes of one task in order, all in one world, which the suite opens under its protocol."""

    suite: Suite
    task: Task
    keys: tuple[EpisodeKey, ...]
    wordings: Wordings = "benchmark"

    @property
    def protocol(self) -> SuiteConfig:
        """The suite's protocol with the overrides of the configuration."""
        return self.suite.protocol

    @functools.cached_property
    def world(self) -> Hashable:
        """Identifies the world, in this process; independent of `replan_steps` and perturbations."""
        protocol = self.protocol.model_dump_json(exclude={"replan_steps", "perturb"})
        return protocol, self.protocol.folder, repr(self.suite.assets), repr(self.task)

    def instruction(self, key: EpisodeKey) -> str:
        """The instruction given to the policy at the start of an episode."""
        return self.instructions(key)[0]

    def instructions(self, key: EpisodeKey) -> dict[int, str]:
        """The instructions given to the policy in an episode, by the control step from which they hold.

        Wordings that the suite does not have are a UsageError.
        """
        plain = self._worded(key, self.wordings, f"--wordings {self.wordings}", "leave it out")
        told = {0: plain}
        for part in self.protocol.perturb:
            dimension = find_dimension(part.dimension)
            if dimension.medium == "words":
                other = []
                if dimension.needs_other(part.severity):
                    fewer = [f"{part.dimension}:{s}" for s in SEVERITIES if not dimension.needs_other(s)]
                    remedy = f"give {' or '.join(fewer)}" if fewer else "leave it out"
                    other = [self._worded(key, "held_out", f"perturbation {part}", remedy)]
                draws = np.random.default_rng([key.digest(), seed_of(part.dimension)])
                step = steps_in(1e3 * part.at_s, self.protocol.control_hz)
                told[step] = dimension.reword(told.get(step, plain), other, part.severity, draws)
        return told

    def _worded(self, key: EpisodeKey, wordings: Wordings, asked: str, remedy: str) -> str:
        try:
            return self.suite.instruction(key, wordings)
        except UsageError as error:
            raise UsageError(f"{asked}: {error}; {remedy}") from error


@dataclasses.dataclass(frozen=True, kw_only=True)
class EpisodePlan:
    """All episodes of a run, in order; a function of the configuration."""

    tasks: tuple[TaskPlan, ...]  # the tasks that have episodes
    # The plan of all shards, which have its protocol; None if the run is not a shard.
    undivided: "EpisodePlan | None" = None

    @property
    def keys(self) -> tuple[EpisodeKey, ...]:
        """Every episode of the run, in order."""
        return tuple(key for task in self.tasks for key in task.keys)

    @property
    def suites(self) -> dict[str, Suite]:
        """The suites of the run by name."""
        return {plan.protocol.name: plan.suite for plan in self.tasks}

    def sources(self, suite: Suite) -> frozenset[StateSource]:
        """Whether initial states of the suite's episodes are stored, sampled, or some of both."""
        plans = [plan for plan in self.tasks if plan.suite is suite]
        return frozenset(suite.init_ids(plan.task).source(key.init_id) for plan in plans for key in plan.keys)


def make_plan(config: RunConfig, **overrides: Any) -> EpisodePlan:
    """The plan of a run; `overrides` are further fields of its suites' protocols.

    Raises:
        UsageError: No suite is given, two have the same name, or a suite, asset source, task or initial state
            does not exist.
    """
    if not config.suites:
        raise UsageError("no suite is named: give one with --suite")
    plans = []
    given: dict[str, str] = {}
    for name in config.suites:
        changes = {**_by_name(config, name), **overridden(config), **overrides}
        suite = open_suite(name, assets=config.assets, seeds=config.seeds, **changes)
        if (known := suite.protocol.name) in given:
            raise UsageError(
                f"--suite {given[known]} {name}: both are named {known!r}, and records tell suites apart by "
                "name; give one of them, or another `name` in its YAML file"
            )
        given[known] = name
        plans += [_plan_task(config, suite, task) for task in chosen_tasks(config, suite, name)]
    whole = EpisodePlan(tasks=tuple(plans))
    if config.shard is None:
        return whole
    number, count = map(int, config.shard.split("/"))
    shares = [[key for key in plan.keys if key.digest() % count == number - 1] for plan in plans]
    if not any(shares):
        raise UsageError(
            f"--shard {config.shard} has none of the {len(whole.keys)} episodes; skip "
            "this shard, or use fewer shards"
        )
    shared = [
        dataclasses.replace(plan, keys=tuple(keys)) for plan, keys in zip(plans, shares, strict=True) if keys
    ]
    return EpisodePlan(tasks=tuple(shared), undivided=whole)


def chosen_tasks(config: RunConfig, suite: Suite, name: str) -> Sequence[Task]:
    """The tasks of a suite that are played."""
    tasks = {task.task_id: task for task in suite.tasks()}
    for task_id in config.task_ids:
        if task_id not in tasks:
            raise UsageError(f"{name} has no task {task_id}: its task ids are 0 to {max(tasks)}")
    chosen = [tasks[task_id] for task_id in config.task_ids or tasks]
    if config.only_available and all(task.missing for task in chosen):
        raise UsageError(f"--only-available: {name} needs {chosen[0].missing} for its first task, as for all")
    chosen = [task for task in chosen if not (config.only_available and task.missing)]
    if config.per_category is None:
        return chosen
    if not all(task.category for task in chosen):
        raise UsageError(
            f"--per-category {config.per_category}: tasks of {name} have no categories; leave it out"
        )
    kinds = defaultdict[str, list[Task]](list)
    for task in sorted(chosen, key=lambda task: seed_of(task.name)):
        kinds[task.category].append(task)
    for category, of_kind in kinds.items():  # of each difficulty in turn
        earlier = Counter[int | None]()
        turns = {}
        for task in of_kind:
            turns[task.task_id] = (earlier[task.difficulty], task.difficulty is None, task.difficulty or 0)
            earlier[task.difficulty] += 1
        kinds[category] = sorted(of_kind, key=lambda task: turns[task.task_id])
    drawn = [task for of_kind in kinds.values() for task in of_kind[: config.per_category]]
    return sorted(drawn, key=lambda task: task.task_id)


def _plan_task(config: RunConfig, suite: Suite, task: Task) -> TaskPlan:
    known, init_ids = suite.init_ids(task), config.init_ids
    for init_id in init_ids or ():
        known.check(init_id, task)
    if not init_ids:
        if suite.protocol.trials_per_task > known.stored:
            raise UsageError(
                f"{suite.protocol.trials_per_task} trials per task: task {task.task_id} of {task.suite} has "
                f"{known.stored} stored initial states; give --num-trials-per-task {known.stored} or less"
            )
        init_ids = tuple(range(suite.protocol.trials_per_task))
    keys = [
        EpisodeKey(suite=suite.protocol.name, task_id=task.task_id, init_id=init_id, seed=seed)
        for seed in config.seeds
        for init_id in init_ids
    ]
    plan = TaskPlan(suite=suite, task=task, keys=tuple(keys), wordings=config.wordings)
    plan.instruction(keys[0])  # refuses a wording that the suite does not have
    return plan


def make_plans(variants: Sequence[RunConfig], *, chunk: int | None = None) -> list[EpisodePlan]:
    """One plan per variant, as `make_plan`: the same episodes, under the variant's protocol.

    A `chunk` is the number of actions in an answer, where a protocol by name executes all of them.

    Variants with the same protocol share a plan.
    """
    made: dict[str, EpisodePlan] = {}
    plans = []
    for config in variants:
        overrides = repr(overridden(config))
        steps = {} if chunk is None or not plays_chunks(config) else {"replan_steps": chunk}
        made[overrides] = made.get(overrides) or make_plan(config, **steps)
        plans.append(made[overrides])
    return plans


def _by_name(config: RunConfig, suite: str) -> dict[str, Any]:
    """The fields of a suite's protocol that the protocol by name sets."""
    if config.protocol is None:
        return {}
    own, _ = find_suite(suite)
    return load(ProtocolConfig, config.protocol).fields_of(own)


def plays_chunks(config: RunConfig) -> bool:
    """Whether the protocol by name executes all actions of an answer, and no option says otherwise."""
    named = None if config.protocol is None else load(ProtocolConfig, config.protocol)
    return named is not None and named.plays_chunks and config.replan_steps is None


def overridden(config: RunConfig) -> dict[str, Any]:
    """The fields of a suite's protocol that the run overrides."""
    given = {
        "max_steps": config.max_steps,
        "settle_steps": config.num_steps_wait,
        "settle_gripper": config.settle_gripper,
        "initial_states": config.initial_states,
        "camera_size": config.camera_size,
        "variation": config.variation,
        "motion": config.motion,
        "perturb": config.perturb or None,
        "env_seed": config.env_seed,
        "replan_steps": config.replan_steps,
        "trials_per_task": config.num_trials_per_task,
        "environment": config.environment or None,
    }
    return {key: value for key, value in given.items() if value is not None}


def cells_of(sweep: SweepConfig) -> tuple[RunConfig, ...]:
    """One run per distinct cell, in the order of the grids.

    Options without effect in a cell keep their default, so that equivalent cells become one run.

    Raises:
        UsageError: A cell is invalid, two clocks are the same, or there is only one cell.
    """
    shared = sweep.model_dump(exclude={"grids"})
    found: dict[str, RunConfig] = {}
    for grid in sweep.grids:
        for options in grid.combinations():
            spelling = (
                " ".join(format_option(option, value) for option, value in options.items()) or "the sweep"
            )
            cell = check(RunConfig, _effective({**shared, **options}), source=spelling)
            found.setdefault(cell.model_dump_json(), cell)
    if len(found) < 2:
        axes = ", ".join("--" + axis.replace("_", "-") for axis in AXES)
        raise UsageError(f"a sweep of one cell: give several values of at least one of {axes}")
    clocks: dict[str, Clock] = {}
    for clock, cell in {cell.clock: cell for cell in reversed(found.values())}.items():
        is_replay = isinstance(clock, Replay)
        described = str(clock) if is_replay else str(dict(open_pricing(cell, ()).describe()))
        if (same := clocks.setdefault(described, clock)) != clock:
            raise UsageError(f"clocks '{clock}' and '{same}' are the same; give one of them")
    return tuple(found.values())


def _effective(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a cell that have an effect in it."""
    from eval.policies.unused_options import unused_in  # imports JAX, which workers do without

    fields = RunConfig.model_fields
    mode, clock = (options.get(axis, fields[axis].default) for axis in ("mode", "clock"))
    unused = set(unused_in(mode) - {"language_tasks"})  # the same in all cells, like the policy
    if clock == PAUSED:
        unused |= {"while_waiting", "overlap"}
    if options.get("while_waiting") == "hold":
        unused |= {"overlap"}
    return {option: value for option, value in options.items() if option not in unused}
