"""Which texts are decoded when: plain Python over integers, no JAX, no clock.

A frame is planned, run by somebody else, and committed with what came back. Robots share one pool of slots
and one batch of rows. A request is given its slot at birth, since its prefix lives there; it waits in it for
a row of the batch. The slots are therefore the queue, and its bound.

Who decodes. Alive requests stand in one line, and in every frame of mode `unified` the first of them get the
rows. Their order is that of birth, a priority counting as so many frames of head start. So a request waits
only while all rows are held by requests born before it, or born later by fewer frames than their priority
is larger: narration does not wait for memory unless that is older by more than the difference. To be left
out of a frame costs a request nothing but time, since its keys and values stay in its slot.

Nothing starves. Only requests born within D frames after it (D: by how much the largest priority exceeds its
own) can ever get ahead of a request; there are S - 1 others with a slot then; each needs a row for at most L
frames (the longest limit over the tokens of a frame), and R of them have one while it waits. So a request
that is not dropped has ended D + (S - 1) L / R + L frames after its birth.

When slots run out. One slot is kept for every task of every robot that has no request alive. A newborn that
finds no other takes the place of the oldest one of its task and robot that waits, in the pool and in the
line; that one is dropped. If none waits, it takes a slot where most wait of one task and robot, two at least:
the oldest of these is dropped, the others move up in the line. Else the newborn is dropped itself. What has
begun is never dropped. As places are inherited, of every task that a robot keeps asking for a text is
finished within the same bound.
"""

import dataclasses
import enum
import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from configs.errors import UsageError
from oxygen.serving.arrivals import Arrivals
from oxygen.serving.plan import Birth, Committed, Ended, Identity, Place, Plan, Request, Stretch


class Mode(enum.StrEnum):
    """How the language beside the actions is scheduled."""

    ACTIONS = "actions"
    """No language: the floor for latency, the reference for actions."""
    ISOLATED = "isolated"
    """Every request has its own prefill and runs to its end, one by one, before the query returns."""
    SHARED = "shared"
    """All requests share the prefill of the actions and run to their end, in one batch, before it returns."""
    UNIFIED = "unified"
    """All requests share it, and every frame decodes a few tokens of all those in progress, in one batch."""
    PARALLEL = "parallel"
    """As isolated, but in a second process that shares the device with the actions."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wanted:
    """What the scheduler knows of a language task.

    Attributes:
        arrivals: When requests are born, and with which limits.
        max_tokens: The limit of those that are born without one.
        priority: Frames of head start in the line for rows.
        stop_token: A text ends with it, if it comes; below 0, nothing ends one early.
    """

    arrivals: Arrivals
    max_tokens: int
    priority: int
    stop_token: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """The sizes within which requests are scheduled.

    Attributes:
        streams: Robots.
        slots: Places in the KV pool, hence requests alive at once.
        rows: Requests decoded in one batch.
    """

    streams: int = 1
    slots: int
    rows: int

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if getattr(self, field.name) < 1:
                raise UsageError(f"{field.name} is {getattr(self, field.name)}; it must be at least 1")


class Scheduler:
    """The requests of all robots, and the slots they live in."""

    def __init__(self, *, mode: Mode, wanted: Sequence[Wanted], limits: Limits) -> None:
        self._mode = mode
        self._wanted = () if mode is Mode.ACTIONS else tuple(wanted)
        self._limits = limits
        asked_for = limits.streams * len(self._wanted)
        if limits.slots < asked_for:
            raise UsageError(
                f"{limits.slots} slots for {len(self._wanted)} language tasks of {limits.streams} robots; "
                f"each task needs one for every robot: {asked_for}"
            )
        self._alive: list[Request] = []  # in order of birth
        self._free = list(range(limits.slots))
        self._frame = 0
        self._serials = itertools.count()
        self._ids = [itertools.count() for _ in range(limits.streams)]

    @property
    def alive(self) -> tuple[Request, ...]:
        """Requests that have not ended, oldest first."""
        return tuple(self._alive)

    @property
    def free_slots(self) -> int:
        """Slots that no request holds."""
        return len(self._free)

    def reset(self, stream: int) -> None:
        """Begin an episode of a robot: none of its requests is alive, its ids count from 0."""
        self.cancel(stream)
        self._ids[stream] = itertools.count()

    def plan(self, queries: Mapping[int, int]) -> Plan:
        """Admit what is due, and say what the frame decodes.

        Args:
            queries: Robot to its query. One that sits out asks for nothing; its texts go on all the same.
        """
        dropped: list[Identity] = []
        births: list[Birth] = []
        born = list(self._due(queries))
        for identity, limit in born:
            births += self._admit(identity, limit, dropped)
        births = [birth for birth in births if birth.identity not in dropped]
        stretches = tuple(self._stretches(births))
        self._frame += 1
        return Plan(born=tuple(identity for identity, _ in born), dropped=tuple(dropped), stretches=stretches)

    def commit(self, written: Mapping[int, Sequence[int]]) -> Committed:
        """Take in what the planned frame has brought and free the slots of the requests that ended.

        Args:
            written: Slot to all tokens written there since its request was born.
        """
        decoded: Counter[int] = Counter()
        first = []
        for request in self._alive:
            new = self._take(request, written.get(request.slot, ()))
            decoded[request.identity.stream] += new
            if new and new == len(request.tokens):
                first.append(request.identity)
        over = [request for request in self._alive if self._has_ended(request)]
        for request in over:
            self._release(request)
        return Committed(decoded=decoded, first=tuple(first), ended=tuple(map(self._farewell, over)))

    def cancel(self, stream: int) -> tuple[Request, ...]:
        """Give up a robot's requests, as at the end of its episode, and return them."""
        cancelled = tuple(request for request in self._alive if request.identity.stream == stream)
        for request in cancelled:
            self._release(request)
        return cancelled

    def _due(self, queries: Mapping[int, int]) -> Iterable[tuple[Identity, int]]:
        """The requests to be born, and their limits."""
        for stream, query in queries.items():
            for task, wanted in enumerate(self._wanted):
                for ordinal, limit in enumerate(wanted.arrivals.due(stream, query)):
                    identity = Identity(
                        stream=stream,
                        request_id=next(self._ids[stream]),
                        task=task,
                        query=query,
                        ordinal=ordinal,
                    )
                    yield identity, limit or wanted.max_tokens

    def _admit(self, identity: Identity, limit: int, dropped: list[Identity]) -> list[Birth]:
        """Find a slot and a place in the line; see the head of this file."""
        wanted = self._wanted[identity.task]
        place = Place(since=self._frame - wanted.priority, serial=next(self._serials))
        if not self._has_room(identity):
            own, longest = self._waiting(identity)
            waiting = own or longest
            if not waiting:
                dropped.append(identity)
                return []
            self._release(waiting[0])
            dropped.append(waiting[0].identity)
            last = _moved_up(waiting)
            place = last if own else place
        request = Request(identity=identity, slot=self._free.pop(0), place=place, limit=limit)
        self._alive.append(request)
        return [Birth(identity=identity, slot=request.slot, limit=limit, stop_token=wanted.stop_token)]

    def _has_room(self, identity: Identity) -> bool:
        """Whether a slot is free that is not kept for somebody else."""
        pairs = {request.identity.pair for request in self._alive} | {identity.pair}
        kept = self._limits.streams * len(self._wanted) - len(pairs)
        return len(self._free) > kept

    def _waiting(self, newborn: Identity) -> tuple[list[Request], list[Request]]:
        """Who waits of its own task and robot, and where most do elsewhere, if two do; oldest first."""
        lines: dict[tuple[int, int], list[Request]] = {newborn.pair: []}
        for request in self._alive:
            if not request.begun:
                lines.setdefault(request.identity.pair, []).append(request)
        own = lines.pop(newborn.pair)
        others = [line for line in lines.values() if len(line) > 1]
        return own, max(others, key=len, default=[])

    def _stretches(self, births: Sequence[Birth]) -> list[Stretch]:
        match self._mode:
            case Mode.UNIFIED:
                return self._one_frame(births)
            case Mode.SHARED:
                size = self._limits.rows
                parts = [births[start : start + size] for start in range(0, len(births), size)]
                return [_to_the_end(part, batch=len(part), own_prefill=False) for part in parts]
            case _:
                rounds = _one_of_each_robot(births)
                return [_to_the_end(part, batch=self._limits.streams, own_prefill=True) for part in rounds]

    def _one_frame(self, births: Sequence[Birth]) -> list[Stretch]:
        running = sorted(self._alive, key=lambda request: request.place)[: self._limits.rows]
        if not running:
            return []
        for request in running:
            request.begun = True
        return [
            Stretch(
                births=tuple(births),
                own_prefill=False,
                rows=tuple(request.slot for request in running),
                batch=self._limits.rows,
                steps=max(request.limit - len(request.tokens) for request in running),
                to_the_end=False,
            )
        ]

    def _take(self, request: Request, written: Sequence[int]) -> int:
        """Keep the new tokens up to the limit and the stop token; returns how many."""
        before = len(request.tokens)
        if len(written) <= before:
            return 0
        tokens = list(written[: request.limit])
        stop = self._wanted[request.identity.task].stop_token
        request.tokens = tokens[: tokens.index(stop) + 1] if stop in tokens else tokens
        return len(request.tokens) - before

    def _has_ended(self, request: Request) -> bool:
        return self._stopped(request) or len(request.tokens) >= request.limit

    def _stopped(self, request: Request) -> bool:
        stop = self._wanted[request.identity.task].stop_token
        return bool(request.tokens) and request.tokens[-1] == stop

    def _release(self, request: Request) -> None:
        self._alive.remove(request)
        self._free.append(request.slot)

    def _farewell(self, request: Request) -> Ended:
        stopped = self._stopped(request)
        return Ended(
            identity=request.identity,
            tokens=tuple(request.tokens[:-1] if stopped else request.tokens),
            decoded=len(request.tokens),
            stopped=stopped,
        )


def _moved_up(waiting: Sequence[Request]) -> Place:
    """The first leaves the line, the others each move up to the place before; returns the last one's."""
    places = [request.place for request in waiting]
    for request, place in zip(waiting[1:], places, strict=False):
        request.place = place
    return places[-1]


def _one_of_each_robot(births: Sequence[Birth]) -> list[list[Birth]]:
    """Every robot's first request, then every robot's second one, and so on."""
    of_robot: dict[int, list[Birth]] = {}
    for birth in births:
        of_robot.setdefault(birth.identity.stream, []).append(birth)
    rounds = itertools.zip_longest(*of_robot.values())
    return [[birth for birth in members if birth is not None] for members in rounds]


def _to_the_end(births: Sequence[Birth], *, batch: int, own_prefill: bool) -> Stretch:
    return Stretch(
        births=tuple(births),
        own_prefill=own_prefill,
        rows=tuple(birth.slot for birth in births),
        batch=batch,
        steps=max(birth.limit for birth in births),
        to_the_end=True,
    )
