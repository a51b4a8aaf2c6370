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
from oxygen.serving.sampling import Sampling


def language_task(config: LanguageTaskConfig) -> LanguageTask:
    """The language task of a preset.

    Raises:
        UsageError: Its options are inconsistent.
    """
    return LanguageTask(
        name=config.name,
        prompt=config.prompt,
        arrivals=_arrivals(config.arrivals),
        max_tokens=config.max_tokens,
        priority=config.priority,
        sampling=Sampling(temperature=config.sampling.temperature, top_k=config.sampling.top_k),
        stop=config.stop,
    )


def _arrivals(config: ArrivalsConfig) -> Arrivals:
    match config:
        case EveryNConfig():
            return EveryN(config.n)
        case BurstConfig():
            return Burst(n=config.n, every=config.every)
        case PoissonConfig():
            return Poisson(rate=config.rate, seed=config.seed)
        case RandomLengthConfig():
            return RandomLength(
                arrivals=_arrivals(config.arrivals), least=config.least, most=config.most, seed=config.seed
            )
