"""What a policy tells beside its actions: the reply to a query, its texts, and the tail of an episode.

Needs NumPy alone, so that policies without a model, and readers of records, can use it.
"""

import dataclasses
from collections.abc import Mapping

from oxygen.serving.requests import DecodeWork


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextRequest:
    """A text that was requested.

    Attributes:
        task: Name of its language task.
        request_id: Counts the requests of an episode.
        query: The query it was requested in, whose observation it describes.
    """

    task: str
    request_id: int
    query: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextTimes:
    """Moments of a text, in seconds of `time.perf_counter`.

    Attributes:
        requested_s: When the query it was requested in came in.
        first_token_s: When its first token was known.
        finished_s: When its last token was known.
    """

    requested_s: float
    first_token_s: float
    finished_s: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextFinished:
    """A finished text.

    Attributes:
        task: Name of its language task.
        request_id: Counts the requests of an episode.
        requested_query: The query whose observation it describes.
        finished_query: The robot's query in which its last token was decoded.
        text: What was written.
        tokens: Tokens decoded for it, the stop token included.
        reason: `stop` (the model ended it), `length` (the task's limit did), or `oracle` (no model wrote it:
            it states the world's own account).
        latency_ms: End-to-end latency in time that the policy was busy; what its caller did in between is not
            counted.
        after_ms: The same from `finished_query` alone; None if the policy does not report it.
        job: Index of its decode job in that query's `Reply.work`.
        job_steps: Decode steps of that job after which its last token was known.
        times: When it was requested, begun and finished; None where nothing was measured.
    """

    task: str
    request_id: int
    requested_query: int
    finished_query: int
    text: str
    tokens: int
    reason: str
    latency_ms: float
    after_ms: float | None = None
    job: int = 0
    job_steps: int = 0
    times: TextTimes | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reply:
    """The rest of a query whose actions have been given.

    Attributes:
        timings_ms: Time by stage, milliseconds. None contains what the caller did between `act` and `settle`.
            `preprocess`: images resized and prompts tokenised. `prefill`: until the prefix was ready.
            `denoise`: from there until the actions were on the host; `guided_denoise` instead where they were
            guided towards actions under way. `action`: from the request until the actions were there in the
            robot's units, all of these included. `decode`: time after that for which the engine was busy with
            this query's language, until the device was done. `frame`: `action` and `decode`.
        requested: Texts requested in this query.
        finished: Texts finished since the reply before.
        dropped: Requests dropped since the reply before for want of a slot.
        tokens: Tokens decoded since the reply before, stop tokens included.
        tokens_per_frame: Decode steps that the query was given, in mode `unified`; else 0.
        work: What the decode jobs of the query computed, in order, besides one prefill and one denoising;
            None if the policy does not report it.
    """

    timings_ms: Mapping[str, float]
    requested: tuple[TextRequest, ...] = ()
    finished: tuple[TextFinished, ...] = ()
    dropped: tuple[TextRequest, ...] = ()
    tokens: int = 0
    tokens_per_frame: int = 0
    work: tuple[DecodeWork, ...] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tail:
    """What was outstanding when an episode ended.

    Attributes:
        cancelled: How many requests were cancelled.
        requests: Which.
        reply: The reply to the last query, if that was not settled.
        finished: Texts finished after the last reply, while the robot sat out and others went on.
        dropped: Requests dropped in that time for want of a slot.
        tokens: Tokens decoded in that time.
        compiles_after_warm_up: Compilations since the policy was ready; None if it compiles nothing.
    """

    cancelled: int = 0
    requests: tuple[TextRequest, ...] = ()
    reply: Reply | None = None
    finished: tuple[TextFinished, ...] = ()
    dropped: tuple[TextRequest, ...] = ()
    tokens: int = 0
    compiles_after_warm_up: int | None = None
