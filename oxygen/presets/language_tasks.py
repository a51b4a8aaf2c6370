"""Builds language tasks from their presets."""

from collections.abc import Mapping
from typing import Any

from configs.language_task import LanguageTaskConfig
from oxygen.serving.language import Arrivals, Burst, EveryN, LanguageTask, Poisson, RandomLength
from oxygen.serving.requests import Sampling

_ARRIVALS = {"every_n": EveryN, "burst": Burst, "poisson": Poisson}


def language_task(config: LanguageTaskConfig) -> LanguageTask:
    """The language task of a preset, which has checked its options."""
    fields = config.model_dump(exclude={"arrivals", "sampling", "feedback"})
    return LanguageTask(
        **fields,
        feedback=config.feedback,
        arrivals=_arrivals(config.arrivals.model_dump()),
        sampling=Sampling(**config.sampling.model_dump()),
    )


def _arrivals(fields: Mapping[str, Any]) -> Arrivals:
    options = {name: value for name, value in fields.items() if name not in ("kind", "arrivals")}
    if fields["kind"] == "random_length":
        return RandomLength(arrivals=_arrivals(fields["arrivals"]), **options)
    return _ARRIVALS[fields["kind"]](**options)
