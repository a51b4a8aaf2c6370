"""The schema of an evaluation: the same episodes in one mode, or in several that are compared."""

from collections.abc import Sequence
from typing import Annotated, Any, Self

from pydantic import Field, ValidationError

from configs.cli import Several
from configs.schema import SERVING, Mode, RunConfig, ScheduledConfig
from configs.validation import invalid


class VariantsConfig(ScheduledConfig):
    """The options of `python -m eval.run`, on its command line or in a YAML file: one run per mode.

    Attributes:
        mode: How actions and language are scheduled. Each of several modes is a variant: a run of its own.
            All variants play each episode before the next, and are compared. Default: unified.
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
        shared = self.model_dump(exclude={"mode", "against", "deadline_ms"})
        return tuple(
            _run({**shared, "mode": mode, "deadline_ms": self.deadline_ms if keeps else None})
            for mode in self.modes
            for keeps in [mode == "unified" or "unified" not in self.modes]
        )

    @classmethod
    def of(cls, variants: Sequence[RunConfig]) -> Self:
        """Reconstruct the configuration from its runs."""
        deadline_ms = next(
            (variant.deadline_ms for variant in variants if variant.deadline_ms is not None), None
        )
        modes = {"mode": tuple(variant.mode for variant in variants), "deadline_ms": deadline_ms}
        return cls.model_validate({**variants[0].model_dump(), **modes})


def _run(options: dict[str, Any]) -> RunConfig:
    try:
        return RunConfig.model_validate(options)
    except ValidationError as error:
        raise invalid(error, "the command line", RunConfig) from error
