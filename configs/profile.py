"""The schema of a latency profile: how long a device takes for each stage of a query."""

from typing import Annotated, Literal

from pydantic import Field

from configs.schema import Dtype, Name, Preset

Origin = Literal["published", "derived", "computed", "measured"]
"""Where a number comes from: a publication; arithmetic on published numbers; the model's sizes and the
device's peaks; a measurement of this project."""
Line = Annotated[str, Field(pattern=r"^[^\n]+$")]
Milliseconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Slowdown = Annotated[float, Field(ge=1, allow_inf_nan=False)]


class StageTime(Preset):
    """How long a stage takes.

    Attributes:
        ms: Milliseconds.
        kind: Where the number comes from.
        source: The same in words, one line.
    """

    ms: Milliseconds
    kind: Origin
    source: Line


class ParallelSlowdown(Preset):
    """How much longer everything takes in mode `parallel`, where two processes share the device.

    Attributes:
        action: What the action latency is multiplied by.
        decode: What the time of the language is multiplied by, its prefills included.
        kind: Where the numbers come from.
        source: The same in words, one line.
    """

    action: Slowdown
    decode: Slowdown
    kind: Origin
    source: Line


class ProfileConfig(Preset):
    """What a device takes for a query of one robot.

    Attributes:
        name: Name of the profile.
        device: The device, in words.
        dtype: What the policy computes in.
        model: Configuration of the policy.
        source: Where the numbers come from on the whole, one line.
        host: Preprocessing and copies; part of the action latency.
        prefill: The prefix of an observation, images included.
        denoise: All steps of the flow.
        guided_denoise: The same, guided towards actions under way (`--overlap rtc`); None if unknown.
        fork: Beginning new requests in their slots, as many as one program takes.
        text_prefill: A prefill of the language's own, as in mode `isolated`; that of the actions if None.
        decode: A decode step, by the size of its batch.
        parallel: What mode `parallel` costs; None if unknown.
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
    decode: dict[Annotated[int, Field(gt=0)], StageTime] = Field(min_length=1)
    parallel: ParallelSlowdown | None = None
    jitter: float = Field(default=0.0, ge=0, allow_inf_nan=False)
