"""Builds language tasks from their presets."""

from configs.language_task import (
    ArrivalsConfig,
    BurstConfig,
    EveryNConfig,
    LanguageTaskConfig,
    PoissonConfig,
    RandomLengthConfig,
)
from oxygen.serving.arrivals import Arrivals, Burst, EveryN, Poisson, RandomLength
from oxygen.serving.language import LanguageTask
from oxygen.serving.requests import Sampling


def language_task(config: LanguageTaskConfig) -> LanguageTask:
    """The language task of a preset.

    Raises:
        UsageError: Its options are inconsistent.
    """
    return LanguageTask(
        **config.model_dump(exclude={"arrivals", "sampling", "feedback"}),
        feedback=config.feedback,
        arrivals=_arrivals(config.arrivals),
        sampling=Sampling(**config.sampling.model_dump()),
    )


def _arrivals(config: ArrivalsConfig) -> Arrivals:
    options = config.model_dump(exclude={"kind", "arrivals"})
    match config:
        case EveryNConfig():
            return EveryN(**options)
        case BurstConfig():
            return Burst(**options)
        case PoissonConfig():
            return Poisson(**options)
        case RandomLengthConfig():
            return RandomLength(arrivals=_arrivals(config.arrivals), **options)
