"""A policy's output beside actions: the reply to a query, its texts, and the end of an episode."""

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextRequest:
    """A text that was requested."""

    task: str  # name of its language task
    request_id: int  # its index among the requests of the episode
    query: int  # the query in which it was requested, whose observation it describes


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextTimes:
    """Times of a text, in seconds of `time.perf_counter`."""

    requested_s: float  # when its query arrived
    first_token_s: float  # when its first token was known
    finished_s: float  # when its last token was known


@dataclasses.dataclass(frozen=True, kw_only=True)
class Text:
    """A finished text of the policy, from its request to its delivery.

    Attributes:
        task: Name of its language task.
        request_id: Its index among the requests of the episode.
        requested_query: The query whose observation it describes.
        finished_query: The robot's query in which its last token was decoded.
        text: The text.
        tokens: Tokens decoded for it, including the stop token.
        reason: `stop` (stop token), `length` (token limit), or `oracle` (ground truth instead of a model).
        latency_ms: End-to-end latency in time that the policy was busy, without the caller's own time.
        after_ms: The part of it since `finished_query`; None if the policy does not report it.
        job: Index of its decode job in that query's `Reply.work`.
        job_steps: Decode steps of that job until its last token.
        times: When it was requested, started and finished; None if not measured.
        step: The robot's control step at which it was delivered; None in a reply.
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
    step: int | None = None

    @property
    def request(self) -> TextRequest:
        """The request that it answers."""
        return TextRequest(task=self.task, request_id=self.request_id, query=self.requested_query)

    @property
    def delivery_step(self) -> int:
        """`step` of a delivered text."""
        assert self.step is not None
        return self.step


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecodeWork:
    """The work of a decode job, from which latency profiles compute its time."""

    prefills: int  # its own prefills, which come first
    forks: int  # forks of a prefix into slots of the KV pool, which come next
    steps: int  # decode steps
    batch: int  # their batch size, padding included


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reply:
    """The reply to a query after its actions.

    Attributes:
        timings_ms: Time by stage, milliseconds, without the caller's own time between `act` and `complete`.
            `preprocess`: resizing images and tokenising prompts. `prefill`: until the prefix is ready.
            `denoise`: from there until the actions are on the host; `guided_denoise` instead if they were
            guided. `action`: from the query's arrival until the actions are ready in the robot's units,
            including all of these. `decode`: decoding after the actions, until the device is done.
            `frame`: `action` plus `decode`.
        requested: Texts requested in this query.
        finished: Texts finished since the previous reply.
        dropped: Requests dropped since the previous reply because no slot was free.
        tokens: Tokens decoded since the previous reply, including stop tokens.
        tokens_per_frame: Decode steps of each text in modes `unified` and `interleaved`; else 0.
        work: Work of the query's decode jobs, in order, besides one prefill and one denoising; None if the
            policy does not report it.
        prompt_cut: Tokens of the query's prompt that did not fit in the longest one.
    """

    timings_ms: Mapping[str, float]
    requested: tuple[TextRequest, ...] = ()
    finished: tuple[Text, ...] = ()
    dropped: tuple[TextRequest, ...] = ()
    tokens: int = 0
    tokens_per_frame: int = 0
    work: tuple[DecodeWork, ...] | None = None
    prompt_cut: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class EpisodeEnd:
    """What happened after an episode's last complete reply: cancelled, finished and dropped texts.

    Attributes:
        cancelled: Number of cancelled requests.
        requests: The cancelled requests.
        reply: The reply to the last query, if it was not completed.
        finished: Texts finished after the last reply, in other robots' queries.
        dropped: Requests dropped in that time.
        tokens: Tokens decoded in that time.
        compiles_after_warm_up: Compilations since the policy was ready; None if it compiles nothing.
    """

    cancelled: int = 0
    requests: tuple[TextRequest, ...] = ()
    reply: Reply | None = None
    finished: tuple[Text, ...] = ()
    dropped: tuple[TextRequest, ...] = ()
    tokens: int = 0
    compiles_after_warm_up: int | None = None
