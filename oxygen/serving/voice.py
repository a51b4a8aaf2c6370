"""Who does the language of a frame: forks newborn requests into their slots and decodes, as planned."""

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np

from oxygen.model.pi05 import Prefix
from oxygen.serving.births import Birthing
from oxygen.serving.decoding import Births
from oxygen.serving.kv_pool import Texts
from oxygen.serving.plan import Birth, Identity, Plan, Stretch
from oxygen.serving.runner import ModelInput, Runner, Sizes
from oxygen.serving.sampling import Sampling


@dataclasses.dataclass(frozen=True, kw_only=True)
class Suffix:
    """What asks for the texts of a language task, and how their tokens are chosen."""

    tokens: tuple[int, ...]
    sampling: Sampling


@dataclasses.dataclass(frozen=True, kw_only=True)
class Turn:
    """The language of one frame, as it is to be done.

    Attributes:
        seen: What the robots see.
        seeds: Their episode seeds.
        plan: What the scheduler wants.
    """

    seen: ModelInput
    seeds: Sequence[int]
    plan: Plan


@dataclasses.dataclass(frozen=True, kw_only=True)
class Heard:
    """What a turn has brought.

    Attributes:
        written: Slot to all tokens written there since its request was born, for every slot decoded.
        first_at: When the first token of a request was known, in seconds of the clock; of requests that were
            watched while they were decoded.
        ended_at: Likewise, when it had ended.
        at: When all of it was known.
        decoded_at: When decoding was over, where somebody was waiting for that; None where it had been over
            for an unknown while.
    """

    written: Mapping[int, Sequence[int]]
    first_at: Mapping[Identity, float]
    ended_at: Mapping[Identity, float]
    at: float
    decoded_at: float | None


@runtime_checkable
class Voice(Protocol):
    """Does a frame's language: one `begin`, one `finish` and one `heard` for every turn, in this order."""

    @property
    def compiles_after_warm_up(self) -> int:
        """Compilations since it was ready, in a process of its own; 0 if it has none."""

    def begin(self, turn: Turn, prefix: Prefix | None, steps: int) -> None:
        """Queue what does not run to its end; called once the actions are queued, and waits for nothing.

        Args:
            turn: What is to be done.
            prefix: The actions' own; None where every text has a prefill of its own.
            steps: Decode steps that the frame affords, where texts do not run to their end.
        """

    def finish(self, turn: Turn, prefix: Prefix | None) -> None:
        """Let texts that run to their end do so; called once the actions are on the host."""

    def drain(self) -> None:
        """Wait until the language of the turn is done, and read nothing back."""

    def heard(self) -> Heard:
        """Wait for the language of the turn."""

    def close(self) -> None:
        """Give back what it holds; nothing is asked of it after that."""


class Silence:
    """Says nothing, and holds no pool for it: mode `actions`, and policies without a language task."""

    compiles_after_warm_up = 0

    def __init__(self, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock

    def begin(self, turn: Turn, prefix: Prefix | None, steps: int) -> None:
        """Nothing."""

    def finish(self, turn: Turn, prefix: Prefix | None) -> None:
        """Nothing."""

    def drain(self) -> None:
        """Nothing."""

    def heard(self) -> Heard:
        """No tokens."""
        return Heard(written={}, first_at={}, ended_at={}, at=self._clock(), decoded_at=None)

    def close(self) -> None:
        """Nothing."""


class LocalVoice:
    """Speaks with the programs that the actions run on too, behind them."""

    compiles_after_warm_up = 0

    def __init__(
        self, runner: Runner, suffixes: Sequence[Suffix], *, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._runner = runner
        self._suffixes = suffixes
        self._clock = clock
        self._pool, self._texts = runner.empty()
        self._watch = _Watch(clock)
        self._decoded_at: float | None = None
        self._rows: tuple[int, ...] = ()
        self._later: list[tuple[Stretch, list[Births]]] = []

    def begin(self, turn: Turn, prefix: Prefix | None, steps: int) -> None:
        """Queue the decode steps that the frame affords; only send what texts that run to their end ask."""
        self._watch = _Watch(self._clock)
        self._decoded_at = None
        self._rows = turn.plan.rows
        sent = [(stretch, self._sent(turn, stretch)) for stretch in turn.plan.stretches]
        self._later = [each for each in sent if each[0].to_the_end]
        for stretch, births in sent:
            if not stretch.to_the_end:
                self._fork(prefix, births)
                for _ in range(min(steps, stretch.steps)):
                    self._decode(stretch)
                self._texts.written.copy_to_host_async()

    def finish(self, turn: Turn, prefix: Prefix | None) -> None:
        """Texts that run to their end have done so when this returns."""
        for stretch, births in self._later:
            self._fork(self._runner.prefill(turn.seen) if stretch.own_prefill else prefix, births)
            self._to_the_end(stretch)

    def drain(self) -> None:
        """Wait for the device, and note when it was done if it was not yet."""
        if not _is_ready(self._texts.written):
            jax.block_until_ready(self._texts)
            self._decoded_at = self._clock()

    def heard(self) -> Heard:
        """Read back one small array."""
        self.drain()
        written = _read(self._texts, self._rows)
        return Heard(
            written=written,
            first_at=self._watch.first_at,
            ended_at=self._watch.ended_at,
            at=self._clock(),
            decoded_at=self._decoded_at,
        )

    def close(self) -> None:
        """Nothing: the programs are the policy's."""

    def _sent(self, turn: Turn, stretch: Stretch) -> list[Births]:
        """Requests on the device, as many at a time as one fork takes: of texts by themselves, few."""
        sizes, requests = self._runner.sizes.births, [self._birthing(turn, birth) for birth in stretch.births]
        size = sizes[0] if stretch.own_prefill else sizes[-1]
        return [
            self._runner.births(requests[first : first + size], batch=size)
            for first in range(0, len(requests), size)
        ]

    def _birthing(self, turn: Turn, birth: Birth) -> Birthing:
        who, suffix = birth.identity, self._suffixes[birth.identity.task]
        return Birthing(
            slot=birth.slot,
            parent=who.stream,
            suffix=suffix.tokens,
            seed=turn.seeds[who.stream],
            query=who.query,
            task=who.task,
            ordinal=who.ordinal,
            sampling=suffix.sampling,
        )

    def _fork(self, prefix: Prefix | None, births: Sequence[Births]) -> None:
        assert prefix is not None, "texts without a prefill of their own follow the actions' one"
        for some in births:
            self._pool, self._texts = self._runner.fork(prefix, some, self._pool, self._texts)

    def _to_the_end(self, stretch: Stretch) -> None:
        """Decode until every text has ended, watched one step behind, so that no step waits for the host.

        It is watched after those steps alone that can begin or end a text: without a stop token, the first
        and the limits. Nothing is read back in between.
        """
        for written in range(stretch.steps):
            before = self._texts
            self._decode(stretch)
            if _tells(stretch.births, written) and self._watch.all_ended(
                stretch.births, _read(before, stretch.rows)
            ):
                return
        self._watch.all_ended(stretch.births, _read(self._texts, stretch.rows))

    def _decode(self, stretch: Stretch) -> None:
        batch = batch_of(stretch, self._runner.sizes)
        self._pool, self._texts = self._runner.decode(stretch.rows, self._pool, self._texts, batch=batch)


def batch_of(stretch: Stretch, sizes: Sizes) -> int:
    """The size of the decode program that a stretch runs."""
    return next(size for size in sizes.rows if size >= stretch.batch)


def _tells(births: Sequence[Birth], written: int) -> bool:
    """Whether some text can have begun or ended with its so many tokens."""
    return written > 0 and any(birth.stop_token >= 0 or written in (1, birth.limit) for birth in births)


class _Watch:
    """Notes when requests had their first token, and when they had ended."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.first_at: dict[Identity, float] = {}
        self.ended_at: dict[Identity, float] = {}

    def all_ended(self, births: Sequence[Birth], written: Mapping[int, Sequence[int]]) -> bool:
        """Take in what has been written so far; says whether every request has ended."""
        now = self._clock()
        for birth in births:
            tokens = written[birth.slot]
            if tokens:
                self.first_at.setdefault(birth.identity, now)
            if birth.is_over(tokens):
                self.ended_at.setdefault(birth.identity, now)
        return all(birth.identity in self.ended_at for birth in births)


def _is_ready(array: Any) -> bool:
    """Whether a device has finished an array (JAX has the method, its declared types do not)."""
    return bool(array.is_ready())


def _read(texts: Texts, slots: Sequence[int]) -> dict[int, list[int]]:
    """What has been written in some slots so far: one small array, waited for."""
    if not slots:
        jax.block_until_ready(texts.written)
        return {}
    written = np.asarray(texts.written)
    return {slot: written[slot][written[slot] >= 0].tolist() for slot in slots}
