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
    """Latency of a stage.

    Attributes:
        ms: Milliseconds.
        kind: Origin of the number.
        source: Its source in words, one line.
    """

    ms: Milliseconds
    kind: Origin
    source: Line


class ParallelSlowdown(Preset):
    """Slowdown in mode `parallel`, where two processes share the device.

    Attributes:
        action: Factor of the action latency.
        decode: Factor of the language's time, its prefills included.
        kind: Origin of the numbers.
        source: Their source in words, one line.
    """

    action: Slowdown
    decode: Slowdown
    kind: Origin
    source: Line


class ProfileConfig(Preset):
    """Latencies of a device for a query of one robot.

    Attributes:
        name: Name of the profile.
        device: The device, in words; unless its times were measured here, followed by their kind: as
            published, or roofline.
        dtype: Compute type of the policy.
        model: Configuration of the policy.
        source: Source of the profile, one line.
        host: Preprocessing and copies; part of the action latency.
        prefill: The prefix of an observation, images included.
        denoise: All denoising steps.
        guided_denoise: The same with guidance (`--overlap rtc`); None if unknown.
        fork: One fork of new requests into their slots.
        text_prefill: A separate prefill of a text, as in mode `isolated`; equal to `prefill` if None.
        stack: Stacking the caches of texts into a batch and splitting it, once per decode job, by batch size;
            nothing if empty, as in engines that decode in place.
        decode: A decode step, by batch size.
        parallel: Slowdown in mode `parallel`; None if unknown.
        jitter: Standard deviation of the logarithm of the factor that a query's times are multiplied by.
    """

    name: Name
    device: Line
    dtype: Dtype
    model: str
    source: Line
    host: StageTime
    prefill: StageTime
    denoise: StageTime
    guided_denoise: StageTime | None = None
    fork: StageTime
    text_prefill: StageTime | None = None
    stack: dict[Annotated[int, Field(gt=0)], StageTime] = Field(default_factory=dict)
    decode: dict[Annotated[int, Field(gt=0)], StageTime] = Field(min_length=1)
    parallel: ParallelSlowdown | None = None
    jitter: float = Field(default=0.0, ge=0, allow_inf_nan=False)
