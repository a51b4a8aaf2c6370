"""Clocks: how long a query takes in simulated time. Knows no simulator and no model.

`paused` charges nothing, which is what the literature reports. All others charge a latency until the actions
come, and one until the next query can start: a fixed one, that of a device's profile, that of this machine,
or that of a recorded run. All but `measured` are deterministic.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from configs.profile import ProfileConfig
from eval.records import provenance
from eval.records.reader import read_queries
from eval.records.schema import RunFolder
from eval.records.timing import Latency
from eval.rollout.pricing import Pricing, jitter
from oxygen.policy.reply import Reply, TextFinished
from sim_envs.world import EpisodeKey


@dataclasses.dataclass(frozen=True, kw_only=True)
class Call:
    """A query as a clock sees it: after `Policy.act`, and again after `Policy.settle`.

    Attributes:
        key: The episode.
        query: Its number.
        act_ms: What `act` took on this machine.
        guided: Whether its actions are guided towards those under way.
        settle_ms: What `settle` took after that; what the reply says of its stage `decode` counts instead.
        reply: The reply; None before it is settled.
    """

    key: EpisodeKey
    query: int
    act_ms: float
    guided: bool = False
    settle_ms: float = 0.0
    reply: Reply | None = None

    @property
    def finished(self) -> Sequence[TextFinished]:
        """The texts that were finished in it."""
        return () if self.reply is None else self.reply.finished


class Clock(Protocol):
    """Charges queries with a latency."""

    @property
    def foresees(self) -> bool:
        """Whether it knows how long the actions of a query take before they have come."""

    def describe(self) -> Mapping[str, Any]:
        """What the protocol hash covers; nothing if paused, as published."""

    def latency(self, call: Call) -> Latency:
        """What a query takes. Before it is settled, only how long its actions take is known."""


@dataclasses.dataclass(frozen=True)
class PausedClock:
    """No time passes while the policy computes."""

    foresees = True

    def describe(self) -> Mapping[str, Any]:
        """Nothing."""
        return {}

    def latency(self, call: Call) -> Latency:
        """None."""
        return Latency(actions_ms=0.0, busy_ms=0.0, texts_ms=[0.0] * len(call.finished))


PAUSED = PausedClock()


@dataclasses.dataclass(frozen=True)
class FixedClock:
    """The same latency in every query, at the end of which its texts come.

    Attributes:
        actions_ms: Until the actions come.
        busy_ms: Until the next query can start.
    """

    actions_ms: float
    busy_ms: float
    foresees = True

    def describe(self) -> Mapping[str, Any]:
        """Both numbers."""
        return {"kind": "fixed", "actions_ms": self.actions_ms, "busy_ms": self.busy_ms}

    def latency(self, call: Call) -> Latency:
        """As given."""
        texts = [self.busy_ms] * len(call.finished)
        return Latency(actions_ms=self.actions_ms, busy_ms=self.busy_ms, texts_ms=texts)


@dataclasses.dataclass(frozen=True)
class ProfileClock:
    """What a device's profile says that the engine's work takes there.

    Attributes:
        profile: The profile.
        pricing: Its prices of queries.
        guided: Those of queries whose actions are guided; None where none are.
    """

    profile: ProfileConfig
    pricing: Pricing
    guided: Pricing | None = None
    foresees = True

    def describe(self) -> Mapping[str, Any]:
        """All numbers of the profile that are charged."""
        idle = {"guided_denoise"} if self.guided is None else set[str]()
        return {"kind": "profile", "profile": _numbers(self.profile.model_dump(mode="json", exclude=idle))}

    def latency(self, call: Call) -> Latency:
        """The actions, then the decode jobs.

        Raises:
            UnpricedError: The policy does not report what it computed, or not for one of its texts.
        """
        pricing = self.guided if call.guided and self.guided else self.pricing
        factor = jitter(self.profile, call.key, call.query)
        work = () if call.reply is None else call.reply.work
        if work is None:
            raise UnpricedError(
                "the policy's reply does not say what it computed (`Reply.work`); choose another clock, such "
                "as measured"
            )
        for text in call.finished:
            if text.job >= len(work):
                raise UnpricedError(
                    f"a text is of decode job {text.job} (`TextFinished.job`), but its reply reports "
                    f"only {len(work)} jobs (`Reply.work`)"
                )
        return Latency(
            actions_ms=factor * pricing.action_ms,
            busy_ms=factor * pricing.busy_ms(work),
            texts_ms=[
                factor * pricing.text_ms(work, job=text.job, steps=text.job_steps) for text in call.finished
            ],
        )


@dataclasses.dataclass(frozen=True)
class MeasuredClock:
    """What this machine took, as it happened.

    What the rollout did between `act` and `settle` is no part of it. A text comes at the end of its query
    if the policy does not say when its last token was known.
    """

    foresees = False

    def describe(self) -> Mapping[str, Any]:
        """On which machine: latencies of another are those of another protocol."""
        machine = provenance.hardware()
        return {
            "kind": "measured",
            **{part: machine[part] for part in ("processor", "cores", "accelerators")},
        }

    def latency(self, call: Call) -> Latency:
        """As measured."""
        stages: Mapping[str, float] = {} if call.reply is None else call.reply.timings_ms
        busy_ms = call.act_ms + stages.get("decode", call.settle_ms)
        texts = [busy_ms if text.after_ms is None else min(text.after_ms, busy_ms) for text in call.finished]
        return Latency(actions_ms=call.act_ms, busy_ms=busy_ms, texts_ms=texts)


class ReplayClock:
    """The latencies of a recorded run, in the same episodes."""

    def __init__(self, folder: RunFolder, described: Mapping[str, Any]) -> None:
        """Read nothing yet.

        Args:
            folder: The run.
            described: What it says of its own clock.
        """
        self._described = described
        self.foresees = described.get("kind") != "measured"  # when it was recorded, nobody knew either
        self._recorded = functools.lru_cache(maxsize=1)(functools.partial(_latencies, folder))

    def describe(self) -> Mapping[str, Any]:
        """The run's own clock: replayed, it is the same protocol."""
        return self._described

    def latency(self, call: Call) -> Latency:
        """As recorded.

        Raises:
            ReplayError: The episode goes otherwise than when it was recorded.
        """
        recorded = self._recorded(call.key)
        if call.query >= len(recorded):
            raise ReplayError(f"{call.key}: {len(recorded)} queries were recorded, this is one more")
        found = recorded[call.query]
        if call.reply is not None and len(found.texts_ms) != len(call.finished):
            raise ReplayError(
                f"{call.key}, query {call.query}: {len(found.texts_ms)} texts were finished when it was "
                f"recorded, {len(call.finished)} now"
            )
        return found


class UnpricedError(RuntimeError):
    """A profile cannot price a query."""


class ReplayError(RuntimeError):
    """An episode goes otherwise than when it was recorded: with other options, or another policy."""


def _latencies(folder: RunFolder, key: EpisodeKey) -> list[Latency]:
    return [query.latency for query in read_queries(folder, key) if query.latency is not None]


def _numbers(profile: Mapping[str, Any]) -> dict[str, Any]:
    """A profile without its name and where its numbers are from, which decide nothing."""
    words = ("name", "dtype", "model", "source", "kind")
    return {
        field: _numbers(value) if isinstance(value, Mapping) else value
        for field, value in profile.items()
        if field not in words
    }
