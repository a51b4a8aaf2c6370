"""Finds a policy by its name, and resolves the language tasks of a run."""

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from typing import Any

from configs.errors import check
from configs.language_task import EveryNConfig, LanguageTaskConfig
from configs.load import load, names
from configs.paths import absolute
from configs.schema import PolicyConfig, RunConfig
from contracts.errors import UsageError, unknown
from contracts.interface import Interface, compare
from contracts.prompt import FieldsByTask
from contracts.redaction import remember_secrets
from eval.policies.addresses import refuse_address
from eval.records.run_folders import policy_name
from oxygen.model.config import preset
from oxygen.presets.policies import (
    check_learnt,
    chosen_adapter,
    completed,
    learnt_tasks,
    read_preset,
    trained_tasks,
)
from oxygen.robots.openpi_keys import ASSUMED, OpenpiKeys
from oxygen.robots.transforms import embodiment
from oxygen.weights.source import CARD, fetch

ENTRY_POINTS = "oxygen_eval.policies"
"""Entry-point group of policies of other packages: policy name to class."""

LEROBOT = "lerobot:"
"""What a checkpoint of LeRobot begins with."""

_DEFAULT_TASKS = ("narration", "memory")  # of scripted policies and those without weights


def read_policy(name: str, kwargs: Mapping[str, Any] | None = None) -> PolicyConfig:
    """Find a policy by preset, entry point, YAML file, class, URL or checkpoint.

    A class is written `package.module:Class` or `path/to/file.py:Class`, a server `ws://host:port[/path]`, a
    checkpoint of LeRobot `lerobot:PATH_OR_ID`; they take `kwargs`. A preset may refer to a checkpoint, such
    as the bundled one; it then gives name and description, and the checkpoint's card the rest. A policy that
    does not exist, an invalid card, or a model that has changed, is a UsageError.
    """
    remember_secrets({"policy": name, "policy_kwargs": kwargs})
    presets = names(PolicyConfig)
    plugins = {} if name in presets else {each.name: each.value for each in entry_points(group=ENTRY_POINTS)}
    is_server, is_lerobot = name.startswith(("ws://", "wss://")), name.startswith(LEROBOT)
    if name not in (*presets, *plugins) and not is_lerobot:
        refuse_address(name)
    is_path = name.endswith((".yaml", ".yml")) or absolute(name).is_dir()
    if is_server or is_lerobot or (":" in name and "://" not in name and not is_path):
        kind = "websocket" if is_server else "lerobot" if is_lerobot else "python"
        given = {"name": policy_name(name), "kind": kind, "target": name.removeprefix(LEROBOT)}
        policy = check(PolicyConfig, given, source=f"policy {name!r}")
    elif name in plugins:
        policy = PolicyConfig(name=name, kind="python", target=plugins[name])
    elif name.endswith(".py"):
        raise UsageError(f"policy {name!r} is a file; name a class in it, such as {name}:MyPolicy")
    elif (found := read_preset(name)) is not None:
        policy = found
    else:
        remedy = (
            "Or give a YAML file, a checkpoint's folder, a class (module:Class or file.py:Class), a server "
            "(ws://…) or a checkpoint of LeRobot (lerobot:FOLDER_OR_ID)."
        )
        raise unknown("policy", name, (*presets, *plugins), remedy=remedy)
    if kwargs:
        if not policy.is_foreign:
            words = " ".join(f"{key}={value}" for key, value in kwargs.items())
            raise UsageError(
                f"--policy-kwargs {words} is for a class or a server; {policy.name} is of kind "
                f"{policy.kind}, so leave it out"
            )
        policy = policy.model_copy(update={"kwargs": {**policy.kwargs, **kwargs}})
    remember_secrets(policy.model_dump())
    return completed(policy)


def policies_for(interface: Interface) -> list[str]:
    """The presets with a model whose conventions agree with an environment's."""
    fitting = []
    for name in names(PolicyConfig):
        if load(PolicyConfig, name).kind == "oxygen":
            robot = embodiment(str(read_policy(name).embodiment))
            with contextlib.suppress(UsageError):
                compare(robot.interface, interface)
                fitting.append(name)
    return fitting


def start_of(name: str) -> tuple[str, str]:
    """The checkpoint that a training starts from, and the source of its normalization statistics.

    They are given by a policy's name, a YAML file, or a checkpoint; a policy without weights is a UsageError.
    """
    if not _is_policy(name):
        return name, name
    policy = read_policy(name)
    if policy.weights is None:
        raise UsageError(f"policy {name!r} has no weights to start from; give one that has, or a checkpoint")
    return policy.weights, policy.norm_stats or policy.weights


def policy_of(start: str) -> PolicyConfig | None:
    """The policy of a starting point; None for a checkpoint without a card."""
    return read_policy(start) if _is_policy(start) or (fetch(start) / CARD).is_file() else None


def _is_policy(start: str) -> bool:
    """Whether this names a preset or a YAML file, not a checkpoint."""
    return start in names(PolicyConfig) or start.endswith((".yaml", ".yml"))


@dataclasses.dataclass(frozen=True, kw_only=True)
class ResolvedPolicy:
    """A policy and the language tasks of a run."""

    policy: PolicyConfig  # its preset
    task_names: tuple[str, ...]  # the language tasks as given: presets, or YAML files
    tasks: tuple[LanguageTaskConfig, ...]  # their content, whose arrivals a run may override
    remark: str | None = None  # one line about the texts for the user, or None
    given: Any = None  # the class or object itself, if it is not to be imported
    assumed: OpenpiKeys = ASSUMED  # the observations of a class or a server that declares no robot

    @property
    def interface(self) -> Interface | None:
        """Its conventions if known before loading; None for scripted policies, which take any suite's."""
        if self.policy.kind != "oxygen":
            return None
        robot = embodiment(str(self.policy.embodiment))
        horizon = preset(self.policy.model or self.policy.name).horizon
        return dataclasses.replace(robot.interface, name=self.policy.name, horizon=horizon)

    @property
    def image_sizes(self) -> dict[str, tuple[int, int]]:
        """The height and width to which it resizes each camera's image, if known before loading."""
        if self.interface is None:
            return {}
        side = preset(self.policy.model or self.policy.name).image_size
        return dict.fromkeys(self.interface.observation.camera_names, (side, side))

    @property
    def is_served(self) -> bool:
        """Whether one process serves it to all worlds, rather than each worker loading it."""
        return self.policy.kind in ("oxygen", "python", "lerobot")

    @property
    def fields_by_task(self) -> FieldsByTask:
        """Language task to the fields of later prompts that hold its texts."""
        return {task.name: task.feedback for task in self.tasks if task.feedback}

    def tasks_of(self, config: RunConfig) -> tuple[LanguageTaskConfig, ...]:
        """The language tasks of one run, with its arrivals."""
        if config.text_every is None:
            return self.tasks
        arrivals = EveryNConfig(n=config.text_every)
        return tuple(task.model_copy(update={"arrivals": arrivals}) for task in self.tasks)

    def remark_for(self, variants: Sequence[RunConfig]) -> str | None:
        """One line on the texts to print before the first episode, or None."""
        return self.remark if any(each.mode != "actions" for each in variants) else None


def resolve_policy(config: RunConfig) -> ResolvedPolicy:
    """The policy and language tasks of a run. Default tasks: those the policy was trained on.

    A policy or language task that does not exist, or a task that the policy was not trained on, is a
    UsageError.
    """
    named = read_policy(config.policy, config.policy_kwargs)
    policy = chosen_adapter(named, config.adapter, config.adapter_mask)
    chosen, remark = _requested_texts(policy, config)
    tasks = learnt_tasks(policy, chosen)
    if not config.random_weights:
        check_learnt(policy, tasks)
    return ResolvedPolicy(policy=policy, task_names=chosen, tasks=tasks, remark=remark)


def _requested_texts(policy: PolicyConfig, config: RunConfig) -> tuple[tuple[str, ...], str | None]:
    """Names of the language tasks (presets, or YAML files), and a remark on them for the user."""
    requested, trained = config.language_tasks, policy.language_tasks or {}
    if policy.is_foreign:
        return requested or (), None
    if policy.weights is None or (config.random_weights and requested is not None):
        return _DEFAULT_TASKS if requested is None else requested, None
    if policy.adapter is not None and policy.language_tasks is None:
        remark = "The adapter has no card that names its texts: choose them with --language-tasks."
        return requested or (), None if requested else remark
    if requested is not None:
        noise = f"{policy.name} was not trained on texts: they will be noise, useful only as a load."
        return requested, noise if requested and not trained else None
    if not trained:
        return (), (
            f"{policy.name} was not trained on texts, so none are requested; "
            f"--language-tasks {' '.join(_DEFAULT_TASKS)} requests noise, as a load."
        )
    known = trained_tasks(policy)
    missing = ", ".join(sorted(set(trained) - set(known)))
    remark = f"{policy.name} was also trained on {missing}: name its file with --language-tasks."
    return known, remark if missing else None
