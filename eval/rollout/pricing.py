"""The latency of a query in simulated time, by clock (docs/clocks.md). Imports no simulator and no model."""

import dataclasses
import functools
import hashlib
import math
import statistics
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, assert_never

from configs.load import load
from configs.paths import absolute
from configs.profile import ProfileConfig, StageTime
from configs.schema import RunConfig
from contracts.clock import Fixed, Measured, Paused, Profile, Replay
from contracts.episode import EpisodeKey, Outcome
from contracts.errors import UsageError
from contracts.latency import Latency, steps_in
from contracts.mode import Mode
from contracts.text import DecodeWork, Reply, Text
from eval.records import provenance
from eval.records.query_logs import read_queries
from eval.records.reader import read_identity
from eval.records.schema import RunFolder

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


class Pricing(Protocol):
    """The latency of each query on a clock, in simulated time. Picklable."""

    @property
    def is_known_in_advance(self) -> bool:
        """Whether a latency is known before the policy has answered."""

    def describe(self) -> Mapping[str, Any]:
        """The hashed part of the protocol; empty if nothing is charged, as published."""

    def latency(self, query: TimedQuery) -> Latency:
        """The latency of a query; before `Policy.complete`, only its `actions_ms` is meaningful."""


@dataclasses.dataclass(frozen=True)
class FixedPricing:
    """The same latency for every query; texts are delivered when the next one can start."""

    clock: Fixed
    is_known_in_advance = True

    def describe(self) -> Mapping[str, Any]:
        """See `Pricing`."""
        return {"kind": "fixed", **dataclasses.asdict(self.clock)}

    def latency(self, query: TimedQuery) -> Latency:
        """See `Pricing`."""
        busy_ms = self.clock.busy_ms
        texts_ms = [busy_ms] * len(query.finished)
        return Latency(actions_ms=self.clock.actions_ms, busy_ms=busy_ms, texts_ms=texts_ms)


@dataclasses.dataclass(frozen=True)
class ProfilePricing:
    """The latency of the engine's work on the device of a profile: actions first, then the decode jobs."""

    profile: ProfileConfig
    mode: Mode
    guides: bool  # whether denoising may be guided
    is_known_in_advance = True

    def __post_init__(self) -> None:
        self._model(guided=self.guides)  # refuses a profile without its costs

    def describe(self) -> Mapping[str, Any]:
        """All numbers of the profile that are used."""
        idle = set[str]() if self.guides else {"guided_denoise"}
        return {
            "kind": "profile",
            "profile": _numbers(self.profile.model_dump(mode="json", exclude=idle)),
        }

    def latency(self, query: TimedQuery) -> Latency:
        """See `Pricing`."""
        model = self._model(guided=query.guided)
        factor = jitter(self.profile, query.key, query.index)
        work = () if query.reply is None else query.reply.work
        if work is None:
            raise UnknownLatencyError(
                "the policy's reply does not say what it computed (`Reply.work`); choose another clock, such "
                "as measured"
            )
        for text in query.finished:
            if not 0 <= text.job < len(work):
                raise UnknownLatencyError(
                    f"a text is of decode job {text.job} (`Text.job`), but its reply reports "
                    f"only {len(work)} jobs (`Reply.work`)"
                )
        return Latency(
            actions_ms=factor * model.action_ms,
            busy_ms=factor * model.busy_ms(work),
            texts_ms=[
                factor * model.text_ms(work, job=text.job, steps=text.job_steps) for text in query.finished
            ],
        )

    def _model(self, *, guided: bool) -> "LatencyModel":
        return LatencyModel(self.profile, self.mode, guided=guided)


@dataclasses.dataclass(frozen=True)
class MeasuredPricing:
    """Wall time on this machine, without the time that the rollout spends between `act` and `complete`.

    A text without a timestamp of its last token is delivered at the end of its query. The machine is part of
    the description: measured runs on different machines have different protocols.
    """

    is_known_in_advance = False

    def describe(self) -> Mapping[str, Any]:
        """See `Pricing`."""
        machine = provenance.hardware()
        parts = ("processor", "cores", "accelerators")
        return {"kind": "measured", **{part: machine[part] for part in parts}}

    def latency(self, query: TimedQuery) -> Latency:
        """See `Pricing`."""
        stages: Mapping[str, float] = {} if query.reply is None else query.reply.timings_ms
        busy_ms = query.act_ms + stages.get("decode", query.complete_ms)
        texts = [busy_ms if text.after_ms is None else min(text.after_ms, busy_ms) for text in query.finished]
        return Latency(actions_ms=query.act_ms, busy_ms=busy_ms, texts_ms=texts)


@dataclasses.dataclass(frozen=True)
class RecordedPricing:
    """The latencies of a recorded run. It has the recorded clock's description: a replay has its protocol."""

    folder: RunFolder
    described: Mapping[str, Any]

    @property
    def is_known_in_advance(self) -> bool:
        """As when it was recorded."""
        return self.described.get("kind") != "measured"

    def describe(self) -> Mapping[str, Any]:
        """See `Pricing`."""
        return self.described

    def latency(self, query: TimedQuery) -> Latency:
        """See `Pricing`; more queries than recorded are an UnknownLatencyError."""
        known = _recorded_latencies(self.folder, query.key)
        if query.index >= len(known):
            raise UnknownLatencyError(f"{query.key}: {len(known)} queries were recorded, this is one more")
        at = known[query.index]
        if query.reply is not None and len(at.texts_ms) != len(query.finished):
            raise UnknownLatencyError(
                f"{query.key}, query {query.index}: {len(at.texts_ms)} texts were finished when it was "
                f"recorded, {len(query.finished)} now"
            )
        return at


@functools.lru_cache(maxsize=1)
def _recorded_latencies(folder: RunFolder, key: EpisodeKey) -> list[Latency]:
    return [query.latency for query in read_queries(folder, key) if query.latency is not None]


@dataclasses.dataclass(frozen=True)
class NoPricing:
    """Nothing is charged: the clock is paused."""

    is_known_in_advance = True

    def describe(self) -> Mapping[str, Any]:
        """See `Pricing`."""
        return {}

    def latency(self, query: TimedQuery) -> Latency:
        """See `Pricing`."""
        return Latency(actions_ms=0.0, busy_ms=0.0, texts_ms=[0.0] * len(query.finished))


UNCHARGED = NoPricing()


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


def open_pricing(config: RunConfig, episodes: Sequence[EpisodeKey]) -> Pricing:
    """The pricing of queries on the clock of a run; one that lacks its latencies is a UsageError."""
    match config.clock:
        case Paused():
            return UNCHARGED
        case Measured():
            return MeasuredPricing()
        case Fixed():
            return FixedPricing(config.clock)
        case Profile(name):
            return ProfilePricing(load(ProfileConfig, name), config.mode, config.overlap == "rtc")
        case Replay(run):
            return _replayed(RunFolder(absolute(run)), config, episodes)
    assert_never(config.clock)


def _replayed(folder: RunFolder, config: RunConfig, episodes: Sequence[EpisodeKey]) -> RecordedPricing:
    """The latencies of a run, or of the variant of its evaluation in the requested mode, on one clock."""
    named, clock = read_identity(folder), str(config.clock)
    variants = {folder: named}
    if config.mode != named.mode:
        names = [name for name in named.variants if name != named.run_id]
        others = {
            each: read_identity(each) for each in (RunFolder(folder.path.parent / name) for name in names)
        }
        variants |= {each: other for each, other in others.items() if other.clock == named.clock}
    fitting = [each for each, variant in variants.items() if variant.mode == config.mode]
    if not fitting:
        modes = dict.fromkeys(each.mode for each in variants.values())
        raise UsageError(
            f"clock {clock!r}: {named.run_id} was run in mode {', '.join(modes)}; give --mode "
            f"{' '.join(modes)}"
        )
    if len(fitting) > 1:
        raise UsageError(
            f"clock {clock!r}: {len(fitting)} variants of {named.run_id} ran in mode {config.mode}; "
            f"name one of them, {' or '.join(each.run_id for each in fitting)}"
        )
    (found,) = fitting
    clocks = [suite.get("clock") for suite in found.read_manifest()["protocol"].values()]
    if not clocks or not clocks[0]:
        raise UsageError(
            f"clock {clock!r}: {found.run_id} ran on clock paused, so there is nothing to replay; "
            "give another run"
        )
    whole = {key for key, each in found.episodes().items() if each.outcome is not Outcome.ERROR}
    if missing := [key for key in episodes if key not in whole or not found.queries_path(key).is_file()]:
        raise UsageError(
            f"clock {clock!r}: {found.run_id} has no episode {missing[0]} that was played to its end; replay "
            "episodes that it has, or complete it with --resume"
        )
    overlap = clocks[0].get("overlap", "skip")
    if (overlap == "rtc") != (config.overlap == "rtc"):
        raise UsageError(
            f"clock {clock!r}: {found.run_id} ran with overlap {overlap}, and guided denoising takes "
            f"longer; give --overlap {overlap}"
        )
    described = {key: value for key, value in clocks[0].items() if key not in ("while_waiting", "overlap")}
    return RecordedPricing(found, described)


class DelayEstimator:
    """Estimates the delay of a query, in control steps, when it is issued.

    Clocks that know the latency in advance give it. On a measured clock the estimate is the longest latency
    of the episode's last ten queries, as in real-time chunking (arXiv 2506.07339); 0 in its first query.
    """

    def __init__(self, pricing: Pricing, key: EpisodeKey, *, control_hz: float, guided: bool = False) -> None:
        self._pricing = pricing
        self._key = key
        self._control_hz = control_hz
        self._guided = guided
        self._recent: deque[float] = deque(maxlen=_RECENT)

    def steps(self, query: int) -> int:
        """Control steps until the actions of a query are available."""
        if self._pricing.is_known_in_advance:
            timed = TimedQuery(key=self._key, index=query, act_ms=0.0, guided=self._guided)
            expected_ms = self._pricing.latency(timed).actions_ms
        else:
            expected_ms = max(self._recent, default=0.0)
        return steps_in(expected_ms, self._control_hz)

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
                others = ", ".join(name for name in Mode if name != mode)
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
