"""The schema of a latency profile: how long a device takes for each stage of a query."""

from typing import Annotated, Literal

from pydantic import Field

from configs.schema import Dtype, Name, Preset

Origin = Literal["published", "derived", "computed", "measured"]
"""Origin of a number: a publication; arithmetic on published numbers; a roofline model of the device; a
measurement of this project."""
Line = Annotated[str, Field(pattern=r"^[^\n]+$")]
Milliseconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Slowdown = Annotated[float, Field(ge=1, allow_inf_nan=False)]


class StageTime(Preset):
    """Latency of a stage."""

    ms: Milliseconds
    kind: Origin  # origin of the number
    source: Line  # its source in words, one line


class ParallelSlowdown(Preset):
    """Slowdown in mode `parallel`, where two processes share the device."""

    action: Slowdown  # factor of the action latency
    decode: Slowdown  # factor of the language's time, its prefills included
    kind: Origin  # origin of the numbers
    source: Line  # their source in words, one line


class ProfileConfig(Preset):
    """Latencies of a device for a query of one robot."""

    name: Name
    # The device, in words; unless its times were measured here, followed by their kind: as published, or
    # roofline.
    device: Line
    dtype: Dtype  # compute type of the policy
    model: str  # configuration of the policy
    source: Line  # source of the profile, one line
    host: StageTime  # preprocessing and copies; part of the action latency
    prefill: StageTime  # the prefix of an observation, images included
    denoise: StageTime  # all denoising steps
    guided_denoise: StageTime | None = None  # the same with guidance (`--overlap rtc`); None if unknown
    fork: StageTime  # one fork of new requests into their slots
    # A separate prefill of a text, as in mode `isolated`; equal to `prefill` if None.
    text_prefill: StageTime | None = None
    # Stacking the caches of texts into a batch and splitting it, once per decode job, by batch size;
    # nothing if empty, as in engines that decode in place.
    stack: dict[Annotated[int, Field(gt=0)], StageTime] = Field(default_factory=dict)
    decode: dict[Annotated[int, Field(gt=0)], StageTime] = Field(min_length=1)  # a decode step, by batch size
    parallel: ParallelSlowdown | None = None  # slowdown in mode `parallel`; None if unknown
    # Standard deviation of the logarithm of the factor that a query's times are multiplied by.
    jitter: float = Field(default=0.0, ge=0, allow_inf_nan=False)
