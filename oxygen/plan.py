"""What the scheduler says and hears: requests, the plan of a frame, and what came of it. Integers only."""

import dataclasses


@dataclasses.dataclass(kw_only=True)
class Request:
    """A text in progress. Only the scheduler changes it.

    Attributes:
        request_id: Counts the requests of an episode in order of birth.
        task: Index of its language task.
        born_query: The query whose prefix it follows.
        slot: Its place in the pool.
        limit: Tokens after which it ends.
        tokens: What has been decoded and committed.
        decoding: Whether it holds a row; it keeps it until its end.
        waited: Frames it has waited for one.
    """

    request_id: int
    task: int
    born_query: int
    slot: int
    limit: int
    tokens: list[int] = dataclasses.field(default_factory=list)
    decoding: bool = False
    waited: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Birth:
    """A request that begins: its task's suffix goes into its slot."""

    request_id: int
    task: int
    slot: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stretch:
    """A piece of language work: births first, then decode steps over the same rows.

    Attributes:
        births: Requests to be put in their slots.
        own_prefill: Whether they get a prefill of their own instead of the actions' one.
        rows: Slots to decode.
        steps: Decode steps; at most so many if `to_the_end`.
        to_the_end: Whether to watch the tokens and end as soon as every row has finished.
    """

    births: tuple[Birth, ...]
    own_prefill: bool
    rows: tuple[int, ...]
    steps: int
    to_the_end: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """The language of one frame.

    Attributes:
        query: The frame's query.
        born: Requests born in it, (task, request id).
        dropped: Requests that found no room, or had to make some: (task, request id, born query).
        stretches: What is to be run after the actions, in order.
    """

    query: int
    born: tuple[tuple[int, int], ...]
    dropped: tuple[tuple[int, int, int], ...]
    stretches: tuple[Stretch, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ended:
    """A finished request: its tokens without the stop token, and how many were decoded with it."""

    request_id: int
    task: int
    born_query: int
    tokens: tuple[int, ...]
    decoded: int
    stopped: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Committed:
    """What a frame brought: tokens decoded for requests alive, and the requests that ended."""

    decoded: int
    ended: tuple[Ended, ...]
