"""Resolves the policy and language tasks that a run's configuration names, and loads them."""

import dataclasses
from collections.abc import Callable, Sequence

from configs.feedback import FeedbackByTask
from configs.interface import Interface
from configs.language_task import EveryNConfig, LanguageTaskConfig
from configs.schema import PolicyConfig, RunConfig
from eval.policies.base import LoadedPolicy
from eval.policies.names import read_policy
from eval.policies.python import open_python
from eval.policies.scripted import open_scripted
from oxygen.model import config as model_configs
from oxygen.model.config import Pi05Config
from oxygen.presets.policies import check_learnt, chosen_adapter, learnt_tasks, trained_tasks
from oxygen.robots.transforms import embodiment
from sim_envs.scripted.policy import HORIZON

_DEFAULT_TASKS = ("narration", "memory")  # default language tasks of scripted policies and random weights


@dataclasses.dataclass(frozen=True, kw_only=True)
class ResolvedPolicy:
    """A policy and the language tasks of a run."""

    policy: PolicyConfig  # its preset
    task_names: tuple[str, ...]  # the language tasks as given: presets, or YAML files
    tasks: tuple[LanguageTaskConfig, ...]  # their content, whose arrivals a run may override
    remark: str | None = None  # one line about the texts for the user, or None

    @property
    def model(self) -> Pi05Config:
        """The model configuration of a policy of kind `oxygen`."""
        return model_configs.preset(self.policy.model or self.policy.name)

    @property
    def interface(self) -> Interface | None:
        """Its conventions if known before loading; None for scripted policies, which take any suite's."""
        if self.policy.kind != "oxygen":
            return None
        robot = embodiment(str(self.policy.embodiment))
        return dataclasses.replace(robot.interface, name=self.policy.name, horizon=self.model.horizon)

    @property
    def horizon(self) -> int | None:
        """Actions per chunk; None if not known before loading."""
        if self.policy.kind == "oxygen":
            return self.model.horizon
        return None if self.policy.kind in ("python", "websocket") else HORIZON

    @property
    def is_served(self) -> bool:
        """Whether one process serves it to all worlds, rather than each worker loading it."""
        return self.policy.kind in ("oxygen", "python")

    @property
    def feedback(self) -> FeedbackByTask:
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

    Raises:
        UsageError: The policy or a language task does not exist, or the policy was not trained on it.
    """
    named = read_policy(config.policy, config.policy_kwargs)
    policy = chosen_adapter(named, config.adapter, config.adapter_mask)
    names, remark = _requested_texts(policy, config)
    tasks = learnt_tasks(policy, names)
    check_learnt(policy, tasks)
    return ResolvedPolicy(policy=policy, task_names=names, tasks=tasks, remark=remark)


def _requested_texts(policy: PolicyConfig, config: RunConfig) -> tuple[tuple[str, ...], str | None]:
    """Names of the language tasks (presets, or YAML files), and a remark on them for the user."""
    requested, trained = config.language_tasks, policy.language_tasks or {}
    if policy.kind in ("python", "websocket"):
        return requested or (), None
    if policy.weights is None or config.random_weights:
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
    names = trained_tasks(policy)
    missing = ", ".join(sorted(set(trained) - set(names)))
    remark = f"{policy.name} was also trained on {missing}: name its file with --language-tasks."
    return names, remark if missing else None


def open_policies(
    resolved: ResolvedPolicy,
    variants: Sequence[RunConfig],
    *,
    worlds: int = 1,
    notify: Callable[[str], None] = print,
) -> list[LoadedPolicy]:
    """Load the policy, once for all variants.

    Variants differ only in scheduling, so weights and the compiled prefill and denoise are shared.

    Args:
        resolved: The policy and its language tasks.
        variants: The runs.
        worlds: Number of parallel episodes.
        notify: Called with one line if a server has to be waited for.

    Raises:
        UsageError: The checkpoint, class or server is not available.
    """
    policy = resolved.policy
    if policy.kind == "oxygen":
        from eval.policies.engine import open_engine  # compiles

        loaded = open_engine(resolved, variants, worlds=worlds)
    elif policy.kind == "python":
        loaded = [open_python(str(policy.target), policy.kwargs, worlds=worlds)] * len(variants)
    elif policy.kind == "websocket":
        from eval.policies.websocket import open_websocket  # imports the protocol's libraries

        modes = [variant.mode for variant in variants]
        server = open_websocket(str(policy.target), policy.kwargs, notify=notify, modes=modes, worlds=worlds)
        loaded = [server] * len(variants)
    else:
        loaded = [open_scripted(policy, resolved.tasks_of(variant), variant) for variant in variants]
    return [
        each if each.feedback else dataclasses.replace(each, feedback=resolved.feedback) for each in loaded
    ]
