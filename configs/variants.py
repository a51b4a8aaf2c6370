"""The schema of an evaluation: the same episodes in one mode, or in several that are compared."""

from collections.abc import Sequence
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, model_validator

from configs.schema import EpisodesConfig, Mode, RunConfig, refuse_doubles


def _one_or_several(value: object) -> object:
    return (value,) if isinstance(value, str) else value


class VariantsConfig(EpisodesConfig):
    """Configuration of an evaluation: one run per mode, its variants.

    Attributes:
        mode: How actions and language are scheduled; one or several.
        against: Mode of the reference variant; the first in `mode` if None.
    """

    mode: Annotated[tuple[Mode, ...], BeforeValidator(_one_or_several), Field(min_length=1)] = ("unified",)
    against: Mode | None = None

    @model_validator(mode="after")
    def _has_a_variant_that_keeps_the_deadline(self) -> Self:
        refuse_doubles(self, "mode")
        if "unified" not in self.modes:
            self._variant(self.modes[0], self.deadline_ms)
        return self

    @property
    def modes(self) -> tuple[Mode, ...]:
        """The modes of the variants, the reference first."""
        return tuple(dict.fromkeys(self.mode if self.against is None else (self.against, *self.mode)))

    def variants(self) -> tuple[RunConfig, ...]:
        """One run per mode. A deadline applies to mode `unified` only."""
        return tuple(
            self._variant(mode, self.deadline_ms if mode == "unified" else None) for mode in self.modes
        )

    @classmethod
    def of(cls, variants: Sequence[RunConfig]) -> Self:
        """Reconstruct the configuration from its runs."""
        deadline_ms = next(
            (variant.deadline_ms for variant in variants if variant.deadline_ms is not None), None
        )
        modes = {"mode": tuple(variant.mode for variant in variants), "deadline_ms": deadline_ms}
        return cls.model_validate({**variants[0].model_dump(), **modes})

    def _variant(self, mode: Mode, deadline_ms: float | None) -> RunConfig:
        shared = self.model_dump(exclude={"mode", "against", "deadline_ms"})
        return RunConfig.model_validate({**shared, "mode": mode, "deadline_ms": deadline_ms})
