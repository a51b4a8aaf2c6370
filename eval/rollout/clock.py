"""Clocks: the latency of a query in simulated time (docs/clocks.md). Imports no simulator and no model."""

import dataclasses
import functools
import hashlib
import math
import statistics
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args

from configs.load import load, names
from configs.paths import absolute
from configs.profile import ProfileConfig, StageTime
from configs.schema import Mode, RunConfig
from contracts.episode import EpisodeKey
from contracts.errors import UsageError, unknown
from contracts.latency import Latency, steps_in
from contracts.observation import ActionPrefix
from contracts.query import ActionSpan
from contracts.text import DecodeWork, Reply, Text
from eval.records import provenance
from eval.records.query_logs import read_queries
from eval.records.reader import read_identity
from eval.records.schema import RunFolder

KINDS = ("paused", "fixed:A,B", "profile:NAME", "measured", "replay:RUN")
_RANDOM_BITS = 52
_RECENT = 10  # number of past queries; on a measured clock their longest latency is the estimated delay


@dataclasses.dataclass(frozen=True, kw_only=True)
class TimedQuery:
    """Measurements of a query for a clock, after `Policy.act` and again after `Policy.complete`."""

    key: EpisodeKey  # the episode
    index: int  # number of the query in the episode
    act_ms: float  # time of `act` to charge on clock `measured`: wall time, or what the policy reports
    guided: bool = False  # whether denoising was guided towards the chunk being executed
    complete_ms: float = 0.0  # wall time of `complete`; the reply's stage `decode` takes precedence
    reply: Reply | None = None  # the reply; None before `complete`

    @property
    def finished(self) -> Sequence[Text]:
        """The texts that were finished in the query."""
        return () if self.reply is None else self.reply.finished


@dataclasses.dataclass(frozen=True, kw_only=True)
class Clock:
    """Maps each query to its latency in simulated time."""

    # The hashed part of the protocol; empty if paused, as published.
    describe: Callable[[], Mapping[str, Any]]
    latency: Callable[[TimedQuery], Latency]  # before `complete`, only `actions_ms` is meaningful
    knows_latency_in_advance: bool = True  # whether it is known before the policy has answered
    profile: ProfileConfig | None = None  # the device that it prices queries with, which needs `Reply.work`


def fixed_clock(actions_ms: float, busy_ms: float) -> Clock:
    """The same latency for every query; texts are delivered when the next one can start."""

    def latency(query: TimedQuery) -> Latency:
        return Latency(actions_ms=actions_ms, busy_ms=busy_ms, texts_ms=[busy_ms] * len(query.finished))

    about = {"kind": "fixed", "actions_ms": actions_ms, "busy_ms": busy_ms}
    return Clock(describe=lambda: about, latency=latency)


PAUSED = dataclasses.replace(fixed_clock(0.0, 0.0), describe=dict)
"""No time passes while the policy computes."""


def _profile_clock(profile: ProfileConfig, mode: Mode, *, guided: bool) -> Clock:
    """The latency of the engine's work on the device of a profile: actions first, then the decode jobs.

    The clock's description has all numbers of the profile that are used.
    """
    plain = LatencyModel(profile, mode)
    with_guidance = LatencyModel(profile, mode, guided=True) if guided else plain

    def latency(query: TimedQuery) -> Latency:
        latency_model = with_guidance if query.guided else plain
        factor = jitter(profile, query.key, query.index)
        work = () if query.reply is None else query.reply.work
        if work is None:
            raise UnknownLatencyError(
                "the policy's reply does not say what it computed (`Reply.work`); choose another clock, such "
                "as measured"
            )
        for text in query.finished:
            if text.job >= len(work):
                raise UnknownLatencyError(
                    f"a text is of decode job {text.job} (`Text.job`), but its reply reports "
                    f"only {len(work)} jobs (`Reply.work`)"
                )
        return Latency(
            actions_ms=factor * latency_model.action_ms,
            busy_ms=factor * latency_model.busy_ms(work),
            texts_ms=[
                factor * latency_model.text_ms(work, job=text.job, steps=text.job_steps)
                for text in query.finished
            ],
        )

    idle = set[str]() if guided else {"guided_denoise"}
    used = _numbers(profile.model_dump(mode="json", exclude=idle))
    return Clock(describe=lambda: {"kind": "profile", "profile": used}, latency=latency, profile=profile)


def _measured_clock() -> Clock:
    """Wall time on this machine, without the time that the rollout spends between `act` and `complete`.

    A text without a timestamp of its last token is delivered at the end of its query. The machine is part of
    the description: measured runs on different machines have different protocols.
    """

    def latency(query: TimedQuery) -> Latency:
        stages: Mapping[str, float] = {} if query.reply is None else query.reply.timings_ms
        busy_ms = query.act_ms + stages.get("decode", query.complete_ms)
        texts = [busy_ms if text.after_ms is None else min(text.after_ms, busy_ms) for text in query.finished]
        return Latency(actions_ms=query.act_ms, busy_ms=busy_ms, texts_ms=texts)

    def describe() -> dict[str, Any]:
        machine = provenance.hardware()
        return {
            "kind": "measured",
            **{part: machine[part] for part in ("processor", "cores", "accelerators")},
        }

    return Clock(describe=describe, latency=latency, knows_latency_in_advance=False)


class UnknownLatencyError(RuntimeError):
    """A reply lacks the work that a profile prices, or an episode diverges from the one replayed."""


def _numbers(profile: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of a profile without its names and sources, which do not affect latency."""
    words = ("name", "dtype", "model", "source", "kind")
    return {
        field: _numbers(value) if isinstance(value, Mapping) else value
        for field, value in profile.items()
        if field not in words
    }


def find_clock(config: RunConfig, episodes: Sequence[EpisodeKey]) -> Clock:
    """The clock that a run's configuration names; one that lacks its latencies is a UsageError."""
    kind, _, rest = config.clock.partition(":")
    match kind:
        case "paused" | "measured" if rest:
            raise UsageError(f"clock {config.clock!r}: {kind} takes no value; write {kind}")
        case "paused":
            return PAUSED
        case "measured":
            return _measured_clock()
        case "fixed":
            return _fixed(config.clock, rest)
        case "profile":
            return _profile_clock(load(ProfileConfig, rest), config.mode, guided=config.overlap == "rtc")
        case "replay":
            return _replay_clock(RunFolder(absolute(rest)), config, episodes)
    raise unknown("clock", config.clock, (*KINDS, *(f"profile:{name}" for name in names(ProfileConfig))))


def _fixed(given: str, rest: str) -> Clock:
    try:
        numbers = [float(number) for number in rest.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) not in (1, 2) or not all(0 <= number < math.inf for number in numbers):
        raise UsageError(
            f"clock {given!r}: write fixed:A,B, milliseconds until the actions and until the next query can "
            "start, such as fixed:100,300"
        )
    if numbers[-1] < numbers[0]:
        raise UsageError(
            f"clock {given!r}: the next query cannot start before the actions are available; write "
            f"fixed:{numbers[1]:g},{numbers[0]:g}"
        )
    return fixed_clock(numbers[0], numbers[-1])


def _replay_clock(folder: RunFolder, config: RunConfig, episodes: Sequence[EpisodeKey]) -> Clock:
    """The latencies of a run, or of the variant of its evaluation in the requested mode, on the same clock.

    It has the recorded clock's description, so that a replay has the same protocol. Logs are read on use;
    more queries than recorded are an UnknownLatencyError.
    """
    named = read_identity(folder)
    variants = [named]
    if config.mode != named.mode:
        others = [RunFolder(folder.path.parent / name) for name in named.variants if name != named.run_id]
        variants += [other for other in map(read_identity, others) if other.clock == named.clock]
    fitting = [each.run_id for each in variants if each.mode == config.mode]
    if not fitting:
        modes = dict.fromkeys(each.mode for each in variants)
        raise UsageError(
            f"clock {config.clock!r}: {named.run_id} was run in mode {', '.join(modes)}; give --mode "
            f"{' '.join(modes)}"
        )
    if len(fitting) > 1:
        raise UsageError(
            f"clock {config.clock!r}: {len(fitting)} variants of {named.run_id} ran in mode {config.mode}; "
            f"name one of them, {' or '.join(fitting)}"
        )
    found = RunFolder(folder.path.parent / fitting[0])
    clocks = [suite.get("clock") for suite in found.read_manifest()["protocol"].values()]
    if not clocks or not clocks[0]:
        raise UsageError(
            f"clock {config.clock!r}: {found.run_id} ran on clock paused, so there is nothing to replay; "
            "give another run"
        )
    missing = [key for key in episodes if not found.queries_path(key).is_file()]
    if missing:
        raise UsageError(
            f"clock {config.clock!r}: {found.run_id} has no episode {missing[0]}; replay episodes that it has"
        )
    overlap = clocks[0].get("overlap", "skip")
    if (overlap == "rtc") != (config.overlap == "rtc"):
        raise UsageError(
            f"clock {config.clock!r}: {found.run_id} ran with overlap {overlap}, and guided denoising takes "
            f"longer; give --overlap {overlap}"
        )
    described = {key: value for key, value in clocks[0].items() if key not in ("while_waiting", "overlap")}

    @functools.lru_cache(maxsize=1)
    def recorded(key: EpisodeKey) -> list[Latency]:
        return [query.latency for query in read_queries(found, key) if query.latency is not None]

    def latency(query: TimedQuery) -> Latency:
        known = recorded(query.key)
        if query.index >= len(known):
            raise UnknownLatencyError(f"{query.key}: {len(known)} queries were recorded, this is one more")
        at = known[query.index]
        if query.reply is not None and len(at.texts_ms) != len(query.finished):
            raise UnknownLatencyError(
                f"{query.key}, query {query.index}: {len(at.texts_ms)} texts were finished when it was "
                f"recorded, {len(query.finished)} now"
            )
        return at

    in_advance = described.get("kind") != "measured"  # as when it was recorded
    return Clock(describe=lambda: described, latency=latency, knows_latency_in_advance=in_advance)


class DelayEstimator:
    """Estimates the delay of a query, in control steps, when it is issued.

    Clocks that know the latency in advance give it. On a measured clock the estimate is the longest latency
    of the episode's last ten queries, as in real-time chunking (arXiv 2506.07339).
    """

    def __init__(self, clock: Clock, key: EpisodeKey, *, control_hz: float) -> None:
        self._clock = clock
        self._key = key
        self._control_hz = control_hz
        self._recent: deque[float] = deque(maxlen=_RECENT)

    def prefix(self, query: int, rest: ActionSpan | None) -> ActionPrefix | None:
        """Actions of the rest of a chunk that are executed before the new one is available; None without."""
        if rest is None:
            return None
        if self._clock.knows_latency_in_advance:
            guided = TimedQuery(key=self._key, index=query, act_ms=0.0, guided=True)
            expected_ms = self._clock.latency(guided).actions_ms
        else:
            expected_ms = max(self._recent)
        delay = min(steps_in(expected_ms, self._control_hz), rest.steps)
        return ActionPrefix(first=rest.first, delay=delay) if delay else None

    def note(self, latency: Latency) -> None:
        """Record the latency of a query."""
        self._recent.append(latency.actions_ms)


class LatencyModel:
    """Simulated milliseconds since a query was issued, on the device of a profile.

    Actions come first: host, prefill, denoising. The decode jobs follow in order, each with its prefills,
    forks, stacking and decode steps. In mode `parallel` the jobs start with the query in a second process,
    and the query ends when both are done.
    """

    def __init__(self, profile: ProfileConfig, mode: Mode, *, guided: bool = False) -> None:
        """Build the model of one mode; a profile without its costs, or those of guidance, is a UsageError."""
        acting, language = 1.0, 1.0
        if mode == "parallel":
            if profile.parallel is None:
                others = ", ".join(name for name in get_args(Mode) if name != mode)
                raise UsageError(
                    f"profile {profile.name!r} cannot price mode {mode}: it has no `parallel`, the "
                    f"slowdown of two processes on one device; use another mode: {others}"
                )
            acting, language = profile.parallel.action, profile.parallel.decode
        denoise = profile.guided_denoise if guided else profile.denoise
        if denoise is None:
            raise UsageError(
                f"profile {profile.name!r} cannot price overlap rtc: it has no `guided_denoise`, the time "
                "of denoising with a backward pass in each step; measure it (`bench --save-profile`), "
                "or choose overlap blend or skip"
            )
        self._profile = profile
        self._slowdown = language
        # Until the actions are available.
        self.action_ms = acting * (profile.host.ms + profile.prefill.ms + denoise.ms)
        self._language_from_ms = 0.0 if mode == "parallel" else self.action_ms

    def busy_ms(self, work: Sequence[DecodeWork]) -> float:
        """Until the next query can start, given the query's decode jobs in order."""
        return max(self.action_ms, self._language_from_ms + sum(self._job_ms(job, job.steps) for job in work))

    def text_ms(self, work: Sequence[DecodeWork], *, job: int, steps: int) -> float:
        """Until the last token of a text is known: after `steps` decode steps of the job with index `job`."""
        before = sum(self._job_ms(other, other.steps) for other in work[:job])
        return self._language_from_ms + before + self._job_ms(work[job], steps)

    def decode_ms(self, batch: int) -> float:
        """One decode step on an otherwise idle device."""
        return _at(self._profile.decode, batch)

    def _job_ms(self, job: DecodeWork, steps: int) -> float:
        """A decode job up to `steps` of its steps."""
        prefill = self._profile.text_prefill or self._profile.prefill
        stack_ms = _at(self._profile.stack, job.batch) if self._profile.stack else 0.0
        begun = job.prefills * prefill.ms + job.forks * self._profile.fork.ms + stack_ms
        return self._slowdown * (begun + steps * self.decode_ms(job.batch))


def _at(times: Mapping[int, StageTime], batch: int) -> float:
    """Milliseconds at a batch size: piecewise linear, constant below the smallest, extrapolated above."""
    sizes = sorted(times)
    if batch <= sizes[0] or len(sizes) == 1:
        return times[sizes[0]].ms
    above = next((size for size in sizes if size >= batch), sizes[-1])
    below = sizes[sizes.index(above) - 1]
    slope = (times[above].ms - times[below].ms) / (above - below)
    if batch > above:  # measurement noise must not make a larger batch faster
        return times[above].ms + max(0.0, slope) * (batch - above)
    return times[below].ms + slope * (batch - below)


def jitter(profile: ProfileConfig, key: EpisodeKey, query: int) -> float:
    """Log-normal factor with median 1 for all times of a query, a function of its arguments."""
    if profile.jitter == 0:
        return 1.0
    digest = hashlib.sha256(f"latency of {key}, query {query}".encode()).digest()
    share = ((int.from_bytes(digest[:8], "big") >> (64 - _RANDOM_BITS)) + 0.5) / 2**_RANDOM_BITS
    return math.exp(profile.jitter * statistics.NormalDist().inv_cdf(share))
