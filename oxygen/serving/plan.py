"""What the scheduler says and hears: requests, the plan of a frame, and what came of it. Integers only."""

import dataclasses
from collections.abc import Mapping, Sequence


@dataclasses.dataclass(frozen=True, kw_only=True)
class Identity:
    """Which request it is.

    Attributes:
        stream: The robot that asked.
        request_id: Counts the requests of the robot's episode in order of birth.
        task: Index of its language task.
        query: The robot's query whose prefix it follows.
        ordinal: Counts the requests of its task that are born in that query, those dropped at birth, too.
    """

    stream: int
    request_id: int
    task: int
    query: int
    ordinal: int

    @property
    def pair(self) -> tuple[int, int]:
        """The robot and the task."""
        return self.stream, self.task


@dataclasses.dataclass(frozen=True, kw_only=True, order=True)
class Place:
    """A place in the line for rows; the smaller is further ahead.

    Attributes:
        since: The frame it was taken in, less the frames of head start that its task's priority is.
        serial: Counts all requests, and tells apart what came at once.
    """

    since: int
    serial: int


@dataclasses.dataclass(kw_only=True)
class Request:
    """A text in progress. Only the scheduler changes it.

    Attributes:
        identity: Which it is.
        slot: Its place in the pool.
        place: Its place in the line for rows.
        limit: Tokens after which it ends.
        tokens: What has been decoded and committed.
        begun: Whether it has ever had a row. It waits until then, and can be dropped.
    """

    identity: Identity
    slot: int
    place: Place
    limit: int
    tokens: list[int] = dataclasses.field(default_factory=list)
    begun: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Birth:
    """A request that begins: its task's suffix goes into its slot.

    Attributes:
        identity: Which it is.
        slot: Its place in the pool.
        limit: Tokens after which it ends.
        stop_token: It ends with this one, if it comes; below 0, nothing ends it early.
    """

    identity: Identity
    slot: int
    limit: int
    stop_token: int

    def is_over(self, tokens: Sequence[int]) -> bool:
        """Whether it has ended once it reads `tokens`."""
        return len(tokens) >= self.limit or self.stop_token in tokens


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stretch:
    """A piece of language work: births first, then decode steps over the same rows.

    Attributes:
        births: Requests to be put in their slots.
        own_prefill: Whether they get a prefill of their own instead of the actions' one.
        rows: Slots to decode.
        batch: The batch is at least so many rows wide. It is the same for every stretch of a kind, since what
            a text reads like may depend on it in the last bits.
        steps: As many decode steps as anybody needs.
        to_the_end: Whether to watch the tokens and end as soon as every row has; else the frame's budget of
            tokens ends it.
    """

    births: tuple[Birth, ...]
    own_prefill: bool
    rows: tuple[int, ...]
    batch: int
    steps: int
    to_the_end: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """The language of one frame.

    Attributes:
        born: Requests born in it.
        dropped: Requests that found no room, or had to make some.
        stretches: What is to be run after the actions, in order.
    """

    born: tuple[Identity, ...]
    dropped: tuple[Identity, ...]
    stretches: tuple[Stretch, ...]

    @property
    def rows(self) -> tuple[int, ...]:
        """Every slot that is decoded in the frame."""
        return tuple(slot for stretch in self.stretches for slot in stretch.rows)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ended:
    """A finished request: its tokens without the stop token, and how many were decoded with it."""

    identity: Identity
    tokens: tuple[int, ...]
    decoded: int
    stopped: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Committed:
    """What a frame brought.

    Attributes:
        decoded: Tokens for requests alive, by robot.
        first: Requests whose first token is among them.
        ended: Requests that ended.
    """

    decoded: Mapping[int, int]
    first: tuple[Identity, ...]
    ended: tuple[Ended, ...]
