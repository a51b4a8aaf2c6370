"""Clocks: the latency of a query in simulated time. Imports no simulator and no model.

`paused` charges nothing, as in published results. The other clocks charge a latency until the actions are
available and one until the next query can start: fixed, from a device profile, measured on this machine, or
replayed from a recorded run. All but `measured` are deterministic.
"""

import dataclasses
import functools
import math
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from configs.errors import UsageError, unknown
from configs.latency import ActionPrefix, Latency, steps_in
from configs.load import load
from configs.profile import ProfileConfig
from configs.schema import RunConfig
from eval.records import provenance
from eval.records.query_logs import ActionSpan, read_queries
from eval.records.reader import read_identity
from eval.records.schema import RunFolder
from eval.rollout.latency_model import LatencyModel, jitter
from oxygen.policy.reply import Reply, Text
from sim_envs.world import EpisodeKey

KINDS = ("paused", "fixed:A,B", "profile:NAME", "measured", "replay:RUN")
_RECENT = 10
"""Number of past queries; on a measured clock their longest latency is the estimated delay."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TimedQuery:
    """Measurements of a query for a clock, after `Policy.act` and again after `Policy.complete`.

    Attributes:
        key: The episode.
        index: Number of the query in the episode.
        act_ms: Time of `act` to charge on clock `measured`: wall time, or what the policy reports.
        guided: Whether denoising was guided towards the chunk being executed.
        complete_ms: Wall time of `complete`; the reply's stage `decode` takes precedence.
        reply: The reply; None before `complete`.
    """

    key: EpisodeKey
    index: int
    act_ms: float
    guided: bool = False
    complete_ms: float = 0.0
    reply: Reply | None = None

    @property
    def finished(self) -> Sequence[Text]:
        """The texts that were finished in the query."""
        return () if self.reply is None else self.reply.finished


class Clock(Protocol):
    """Maps each query to its latency in simulated time."""

    @property
    def knows_latency_in_advance(self) -> bool:
        """Whether the latency of a query is known before the policy has answered."""

    def describe(self) -> Mapping[str, Any]:
        """The part of the protocol that is hashed; empty if paused, as in published results."""

    def latency(self, query: TimedQuery) -> Latency:
        """Latency of a query. Before `complete`, only `actions_ms` is meaningful."""


@dataclasses.dataclass(frozen=True)
class PausedClock:
    """No time passes while the policy computes."""

    knows_latency_in_advance = True

    def describe(self) -> Mapping[str, Any]:
        """See `Clock`."""
        return {}

    def latency(self, query: TimedQuery) -> Latency:
        """See `Clock`."""
        return Latency(actions_ms=0.0, busy_ms=0.0, texts_ms=[0.0] * len(query.finished))


PAUSED = PausedClock()


@dataclasses.dataclass(frozen=True)
class FixedClock:
    """The same latency for every query; texts are delivered when it ends.

    Attributes:
        actions_ms: Milliseconds until the actions are available.
        busy_ms: Milliseconds until the next query can start.
    """

    actions_ms: float
    busy_ms: float
    knows_latency_in_advance = True

    def describe(self) -> Mapping[str, Any]:
        """See `Clock`."""
        return {"kind": "fixed", "actions_ms": self.actions_ms, "busy_ms": self.busy_ms}

    def latency(self, query: TimedQuery) -> Latency:
        """See `Clock`."""
        texts = [self.busy_ms] * len(query.finished)
        return Latency(actions_ms=self.actions_ms, busy_ms=self.busy_ms, texts_ms=texts)


@dataclasses.dataclass(frozen=True)
class ProfileClock:
    """The latency of the engine's work on the device of a profile.

    Attributes:
        profile: The profile.
        latency_model: Latency of plain queries.
        guided: Latency of queries with guided denoising; None if there are none.
    """

    profile: ProfileConfig
    latency_model: LatencyModel
    guided: LatencyModel | None = None
    knows_latency_in_advance = True

    def describe(self) -> Mapping[str, Any]:
        """All numbers of the profile that are used."""
        idle = {"guided_denoise"} if self.guided is None else set[str]()
        return {"kind": "profile", "profile": _numbers(self.profile.model_dump(mode="json", exclude=idle))}

    def latency(self, query: TimedQuery) -> Latency:
        """Actions first, then the decode jobs.

        Raises:
            UnknownCostError: The reply lacks the work it took (`Reply.work`), for the query or for a text.
        """
        latency_model = self.guided if query.guided and self.guided else self.latency_model
        factor = jitter(self.profile, query.key, query.index)
        work = () if query.reply is None else query.reply.work
        if work is None:
            raise UnknownCostError(
                "the policy's reply does not say what it computed (`Reply.work`); choose another clock, such "
                "as measured"
            )
        for text in query.finished:
            if text.job >= len(work):
                raise UnknownCostError(
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


@dataclasses.dataclass(frozen=True)
class MeasuredClock:
    """Wall time on this machine.

    Time the rollout spends between `act` and `complete` is excluded. A text without a timestamp of its last
    token is delivered at the end of its query.
    """

    knows_latency_in_advance = False

    def describe(self) -> Mapping[str, Any]:
        """The machine; runs on different machines have different protocols."""
        machine = provenance.hardware()
        return {
            "kind": "measured",
            **{part: machine[part] for part in ("processor", "cores", "accelerators")},
        }

    def latency(self, query: TimedQuery) -> Latency:
        """See `Clock`."""
        stages: Mapping[str, float] = {} if query.reply is None else query.reply.timings_ms
        busy_ms = query.act_ms + stages.get("decode", query.complete_ms)
        texts = [busy_ms if text.after_ms is None else min(text.after_ms, busy_ms) for text in query.finished]
        return Latency(actions_ms=query.act_ms, busy_ms=busy_ms, texts_ms=texts)


class ReplayClock:
    """The latencies of a recorded run, in the same episodes."""

    def __init__(self, folder: RunFolder, described: Mapping[str, Any]) -> None:
        """Replay a run, with its description of the clock; logs are read on use."""
        self._described = described
        self.knows_latency_in_advance = described.get("kind") != "measured"  # as when it was recorded

        @functools.lru_cache(maxsize=1)
        def recorded(key: EpisodeKey) -> list[Latency]:
            return [query.latency for query in read_queries(folder, key) if query.latency is not None]

        self._recorded = recorded

    def describe(self) -> Mapping[str, Any]:
        """The recorded clock, so that a replay has the same protocol."""
        return self._described

    def latency(self, query: TimedQuery) -> Latency:
        """As recorded.

        Raises:
            ReplayError: The episode diverges from the recording.
        """
        recorded = self._recorded(query.key)
        if query.index >= len(recorded):
            raise ReplayError(f"{query.key}: {len(recorded)} queries were recorded, this is one more")
        found = recorded[query.index]
        if query.reply is not None and len(found.texts_ms) != len(query.finished):
            raise ReplayError(
                f"{query.key}, query {query.index}: {len(found.texts_ms)} texts were finished when it was "
                f"recorded, {len(query.finished)} now"
            )
        return found


class UnknownCostError(RuntimeError):
    """A reply does not report the work that a profile needs."""


class ReplayError(RuntimeError):
    """An episode diverges from the recorded one: other options or another policy."""


def _numbers(profile: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of a profile without its names and sources, which do not affect latency."""
    words = ("name", "dtype", "model", "source", "kind")
    return {
        field: _numbers(value) if isinstance(value, Mapping) else value
        for field, value in profile.items()
        if field not in words
    }


def find_clock(config: RunConfig, episodes: Sequence[EpisodeKey]) -> Clock:
    """The clock that a run's configuration names.

    Raises:
        UsageError: The clock, profile or run does not exist, or lacks the latencies of this run.
    """
    kind, _, rest = config.clock.partition(":")
    match kind:
        case "paused" | "measured" if rest:
            raise UsageError(f"clock {config.clock!r}: {kind} takes no value; write {kind}")
        case "paused":
            return PAUSED
        case "measured":
            return MeasuredClock()
        case "fixed":
            return _fixed(config.clock, rest)
        case "profile":
            profile = load(ProfileConfig, rest)
            guided = LatencyModel(profile, config.mode, guided=True) if config.overlap == "rtc" else None
            return ProfileClock(profile, LatencyModel(profile, config.mode), guided)
        case "replay":
            return _replayed(RunFolder(Path(rest)), config, episodes)
    raise unknown("clock", config.clock, KINDS)


def _fixed(given: str, rest: str) -> FixedClock:
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
    return FixedClock(numbers[0], numbers[-1])


def _replayed(folder: RunFolder, config: RunConfig, episodes: Sequence[EpisodeKey]) -> ReplayClock:
    """The latencies of a run, or of the variant of its evaluation in the requested mode."""
    named = read_identity(folder)
    variants = {named.mode: folder}
    if config.mode != named.mode:
        others = [RunFolder(folder.path.parent / name) for name in named.variants if name != named.run_id]
        variants |= {read_identity(other).mode: other for other in others}
    if config.mode not in variants:
        raise UsageError(
            f"clock {config.clock!r}: {named.run_id} was run in mode {', '.join(variants)}; give --mode "
            f"{' '.join(variants)}"
        )
    found = variants[config.mode]
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
    recorded = clocks[0].get("overlap", "skip")
    if (recorded == "rtc") != (config.overlap == "rtc"):
        raise UsageError(
            f"clock {config.clock!r}: {found.run_id} ran with overlap {recorded}, and guided denoising takes "
            f"longer; give --overlap {recorded}"
        )
    rules = ("while_waiting", "overlap")
    return ReplayClock(found, {key: value for key, value in clocks[0].items() if key not in rules})


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
