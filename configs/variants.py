"""The schema of an evaluation: the same episodes in one mode, or in several that are compared."""

from collections.abc import Sequence
from typing import Annotated, Self

from pydantic import Field

from configs.cli import Several
from configs.schema import SERVING, Mode, RunConfig, ScheduledConfig
from configs.validation import check


class VariantsConfig(ScheduledConfig):
    """The options of `python -m eval.run`, on its command line or in a YAML file: one run per mode.

    Attributes:
        mode: How actions and language are scheduled. Each of several modes is a variant: a run of its own.
            All variants play each episode before the next, and are compared. Default: unified, or actions for
            a policy without texts.
        against: Another variant, the reference of the comparison. Default: the first in `mode`; in the demo,
            isolated.
    """

    mode: Annotated[Several[Mode], SERVING, Field(min_length=1)] = ("unified",)
    against: Annotated[Mode | None, SERVING] = None

    @property
    def modes(self) -> tuple[Mode, ...]:
        """The modes of the variants, the reference first."""
        return tuple(dict.fromkeys(self.mode if self.against is None else (self.against, *self.mode)))

    def variants(self) -> tuple[RunConfig, ...]:
        """One run per mode. A deadline applies to mode `unified` only, if that is among them.

        Raises:
            UsageError: Options contradict each other.
        """
        runs, shared = [], self.model_dump(exclude={"against"})
        for mode in self.modes:
            deadline_ms = self.deadline_ms if mode == "unified" or "unified" not in self.modes else None
            options = {**shared, "mode": mode, "deadline_ms": deadline_ms}
            runs.append(check(RunConfig, options, source="the command line"))
        return tuple(runs)

    @classmethod
    def of(cls, variants: Sequence[RunConfig]) -> Self:
        """Reconstruct the configuration from its runs."""
        deadlines = [variant.deadline_ms for variant in variants if variant.deadline_ms is not None]
        modes = {
            "mode": tuple(variant.mode for variant in variants),
            "deadline_ms": next(iter(deadlines), None),
        }
        return cls.model_validate({**variants[0].model_dump(), **modes})
