"""Resolves the policy and language tasks that a run's configuration names."""

import dataclasses
from collections.abc import Sequence

from configs.feedback import FeedbackByTask
from configs.interface import Interface
from configs.language_task import EveryNConfig, LanguageTaskConfig
from configs.schema import PolicyConfig, RunConfig
from eval.policies.names import RequestedTexts, read_policy, requested_texts
from oxygen.model import config as model_configs
from oxygen.model.config import Pi05Config
from oxygen.presets.policies import check_learnt, chosen_adapter, learnt_tasks
from oxygen.robots.transforms import embodiment
from sim_envs.scripted.policy import HORIZON


@dataclasses.dataclass(frozen=True, kw_only=True)
class ResolvedPolicy:
    """A policy and the language tasks of a run.

    Attributes:
        policy: Its preset.
        texts: The language tasks by name.
        tasks: Their presets, whose arrivals a run may override.
    """

    policy: PolicyConfig
    texts: RequestedTexts
    tasks: tuple[LanguageTaskConfig, ...]

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
        return self.texts.remark if any(each.mode != "actions" for each in variants) else None


def resolve_policy(config: RunConfig) -> ResolvedPolicy:
    """The policy and language tasks of a run. Default tasks: those the policy was trained on.

    Raises:
        UsageError: The policy or a language task does not exist, or the policy was not trained on it.
    """
    named = read_policy(config.policy, config.policy_kwargs)
    policy = chosen_adapter(named, config.adapter, config.adapter_mask)
    texts = requested_texts(policy, config)
    tasks = learnt_tasks(policy, texts.names)
    check_learnt(policy, tasks)
    resolved = ResolvedPolicy(policy=policy, texts=texts, tasks=tasks)
    assert resolved.interface is not None or policy.kind != "oxygen"
    return resolved
