"""A row of the benchmark's file: one configuration, what it took, and what is needed to believe it."""

import dataclasses
import functools
import operator
from collections.abc import Mapping
from typing import Any

IDENTITY = (
    "policy",
    "weights",
    "dtype",
    "device",
    "cameras",
    "prompt_tokens",
    "mode",
    "denoise_steps",
    "text_tokens",
    "tokens_per_frame",
    "deadline_ms",
    "robots",
    "arrivals",
    "slots",
    "rows",
    "repetitions",
    "queries",
    "versions.jax",
    "hardware.processor",
    "hardware.cores",
)
"""What says which configuration a row is of, and on what it was measured; all else is what came of it."""


def identity(values: Mapping[str, Any]) -> tuple[Any, ...]:
    """What two rows of the same configuration have in common, out of a row's fields and theirs."""
    return tuple(functools.reduce(operator.getitem, name.split("."), values) for name in IDENTITY)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
    """What all rows of a workload have in common.

    Attributes:
        policy: The preset.
        weights: `random`, or where they came from.
        dtype: What the policy computes in.
        device: As JAX names it.
        cameras: Images in an observation.
        prompt_tokens: Tokens that a prompt is padded to.
        prefix_tokens: Image and prompt tokens of one robot.
        horizon: Actions in a chunk.
    """

    policy: str
    weights: str
    dtype: str
    device: str
    cameras: int
    prompt_tokens: int
    prefix_tokens: int
    horizon: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row(Setting):
    """One line of the file. Times are milliseconds; None where there is nothing to tell.

    Attributes:
        mode: How language was scheduled.
        denoise_steps: Euler steps of the flow.
        text_tokens: Tokens of a text, N.
        tokens_per_frame: Decode steps in a frame of `unified`, k; None in the other modes, and by deadline.
        deadline_ms: What decided on these steps instead of k.
        robots: Observations in a query.
        arrivals: When texts are born.
        slots, rows: Texts alive at once, and in one batch; None for as many as were asked for.
        repetitions: Turns of this configuration.
        queries: Queries in a turn that count; one more goes before them.
        warm_up_queries: Queries before anything counted.
        action_ms_p50, action_ms_p95, action_ms_p99: From a query's start to its actions on the host.
        frame_ms_p50, frame_ms_p95, frame_ms_p99, frame_ms_mean: From a query's start to the next one's.
        first_token_ms_p50, …: From the start of the query a text is born in to its first token.
        request_ms_p50, …: From there to its last.
        chunks_per_s: Chunks of actions, all robots together.
        actions_per_s: The horizon times that, as OxyGen's paper counts.
        tokens_per_s: Tokens of text, all robots together.
        decode_steps_per_frame: Mean of those that a frame of `unified` was given; None in the other modes.
        deadline_missed_fraction: Frames that were longer than the deadline; None without one.
        requests_born, requests_finished, requests_dropped: Texts in the queries that counted.
        decode_batch: Texts in a decode step: the size of the program; None where nothing was decoded.
        stage_ms: Each of its programs by itself, median over repetitions: `prefill`, `denoise`,
            `guided_denoise` (none in older rows), `fork`, `decode_B`. The last two write a pool of this
            configuration's own size.
        decode_growth, decode_growth_ci95: A decode step of the workload's largest batch by one of its least,
            that of 30 texts by that of 1 say, each in its configuration's pool, paired by repetition; None
            where there is but one size.
        frame_ms_predicted: What the stages add up to, without a fork and without what holds them together;
            None where nobody can tell beforehand what is run: in `parallel`, by deadline, and where slots or
            rows were too few. So are the next figures that build on it.
        speedup_over_isolated: `isolated`'s mean frame by this one's, paired by repetition.
        speedup_ci95: Its 95 % interval, by the order of the repetitions; from less than six of them, a little
            or much less than 95 % (see `ratios.py`). So are all fields that end in `_ci95`.
        speedup_bootstrap95: The same by a bootstrap over the repetitions, paired; a little narrower from six
            repetitions on, and none in rows of before it was taken. So are all that end in `_bootstrap95`.
        predicted_speedup: The same ratio of the predicted frames.
        predicted_over_frame, predicted_over_frame_ci95: The predicted frame by the measured mean, paired by
            repetition: the part of a frame that its programs account for by themselves.
        attained_fraction, attained_ci95: Measured by predicted speed-up, paired by repetition.
        action_over_actions, action_over_actions_ci95: Median action latency by that of mode `actions`.
        actions_sha256: Of the digests of every query's actions, warm-up included.
        actions_equal: Whether they are, bit for bit, those of mode `actions`, or of the workload's first
            configuration where that is not asked for; None where it is the only one.
        compiles_after_warmup: Compilations in its own turns, the warm-up included.
        program_bytes: What each program of this configuration holds at once, by its compiler: weights and
            other arguments, results, temporary arrays. The pool is an argument of `fork` and of `decode_B`,
            and as large as this configuration needs it. None where nobody tells.
        needed_memory_bytes: The largest of these, as they run one after the other; in `parallel`, the largest
            of each of the two processes.
        second_process_bytes: The most that the second process of `parallel` had in the host's memory.
        peak_memory_bytes: The most that was in use since the process began, by any configuration.
        peak_memory_of: `device`, where its backend tells; else `process`, in `parallel` both of them.
        multi_process_service: Whether NVIDIA's was there for `parallel`, so that both processes' kernels
            could run side by side; None in other modes, and where the device is no GPU.
        took_s: Seconds from the start of the command until the row's workload was done: in the last row of a
            run, what all of it took but for the plots.
        written_at: UTC, ISO 8601.
        command: What was typed.
        commit, dirty: The code that ran, and whether files differed from it.
        versions: Of Python and the packages that matter.
        hardware: Processor, memory, accelerators, load.
    """

    mode: str
    denoise_steps: int
    text_tokens: int
    tokens_per_frame: int | None
    deadline_ms: float | None
    robots: int
    arrivals: str
    slots: int | None
    rows: int | None
    repetitions: int
    queries: int
    warm_up_queries: int
    action_ms_p50: float
    action_ms_p95: float
    action_ms_p99: float
    frame_ms_p50: float
    frame_ms_p95: float
    frame_ms_p99: float
    frame_ms_mean: float
    first_token_ms_p50: float | None
    first_token_ms_p95: float | None
    first_token_ms_p99: float | None
    request_ms_p50: float | None
    request_ms_p95: float | None
    request_ms_p99: float | None
    chunks_per_s: float
    actions_per_s: float
    tokens_per_s: float
    decode_steps_per_frame: float | None
    deadline_missed_fraction: float | None
    requests_born: int
    requests_finished: int
    requests_dropped: int
    decode_batch: int | None
    stage_ms: Mapping[str, float]
    decode_growth: float | None
    decode_growth_ci95: tuple[float, float] | None
    frame_ms_predicted: float | None
    predicted_over_frame: float | None
    predicted_over_frame_ci95: tuple[float, float] | None
    speedup_over_isolated: float | None
    speedup_ci95: tuple[float, float] | None
    predicted_speedup: float | None
    attained_fraction: float | None
    attained_ci95: tuple[float, float] | None
    action_over_actions: float | None
    action_over_actions_ci95: tuple[float, float] | None
    actions_sha256: str
    actions_equal: bool | None
    compiles_after_warmup: int
    program_bytes: Mapping[str, int] | None
    needed_memory_bytes: int | None
    second_process_bytes: int | None
    peak_memory_bytes: int
    peak_memory_of: str
    multi_process_service: bool | None
    took_s: float
    written_at: str
    command: str
    commit: str | None
    dirty: bool | None
    versions: Mapping[str, str | None]
    hardware: Mapping[str, Any]
    decode_growth_bootstrap95: tuple[float, float] | None = None
    predicted_over_frame_bootstrap95: tuple[float, float] | None = None
    speedup_bootstrap95: tuple[float, float] | None = None
    attained_bootstrap95: tuple[float, float] | None = None
    action_over_actions_bootstrap95: tuple[float, float] | None = None

    @property
    def identity(self) -> tuple[Any, ...]:
        """What two rows of the same configuration have in common."""
        return identity(vars(self))
