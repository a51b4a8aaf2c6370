"""A policy behind the server that OxyGen's authors released: openpi's protocol, with texts in its answers.

Not `oxygen-eval serve`, which is this project's own (`eval.policies.websocket`).
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, Field, StrictBool, StrictInt, StrictStr

from configs.errors import check
from contracts.episode import EpisodeKey
from contracts.errors import UsageError
from contracts.mode import Mode
from contracts.observation import Observation
from contracts.text import EpisodeEnd, Reply, Text, TextRequest
from eval.policies.base import BadAnswerError
from eval.policies.remote import PolicyClient, RemotePolicy, check_modes, timings_of
from oxygen.robots.openpi_keys import OpenpiKeys

TASK = "textual_memory"
"""The language task of its texts."""

InferApi = Literal["infer", "continuous_batching", "blocking_baseline", "shared_kv"]
RequestMode = Literal["new_each_call", "resume_until_finished"]

_MODES: Mapping[InferApi, Mode] = {
    "infer": Mode.ACTIONS,
    "continuous_batching": Mode.UNIFIED,
    "blocking_baseline": Mode.ISOLATED,
    "shared_kv": Mode.SHARED,
}
_END, _PADDING = 1, 0  # ids of PaliGemma's end token, and of what follows it until the end of a call

_TIMINGS = ("pre_proc_ms", "prefill_actions_ms", "text_gen_ms", "post_proc_ms")
"""Fields of `policy_timing` that are recorded as stages."""

_NOISE = (
    "the server draws noise in the order of the calls of all its clients; runs cannot be repeated bit for bit"
)
_RESUMED = (
    "a text describes the observation of the query that requested it; later queries continue it, without a "
    "text of their own, and their stage text_gen includes prefill and denoising"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReleaseMetadata:
    """The server's metadata, as far as they are read."""

    effective_infer_api: InferApi  # how it computes actions and texts
    # When it starts texts; only with continuous batching.
    continuous_batching_request_mode: RequestMode | None = None
    text_stop_condition: str = "eos"  # `eos`, or `fixed_length`

    @property
    def resumes(self) -> bool:
        """Whether a text is decoded to its end before the next one is requested."""
        return self.continuous_batching_request_mode == "resume_until_finished"

    @property
    def remarks(self) -> list[str]:
        """Peculiarities of its texts and noise, for the record."""
        return [_NOISE, *([_RESUMED] if self.resumes else [])]


def read_release(metadata: Mapping[str, Any], url: str, modes: Sequence[Mode]) -> ReleaseMetadata:
    """The metadata of OxyGen's server; a run in another mode than the server's is a UsageError."""
    read = check(ReleaseMetadata, metadata, source=f"metadata of {url}")
    check_modes(url, _MODES[read.effective_infer_api], modes, option="--execution")
    batches = read.effective_infer_api == "continuous_batching"
    if batches == (read.continuous_batching_request_mode is None):
        raise UsageError(
            f"metadata of {url}: effective_infer_api {read.effective_infer_api} with "
            f"continuous_batching_request_mode {read.continuous_batching_request_mode}; exactly "
            "'continuous_batching' has one"
        )
    return read


_Ids = Annotated[
    list[StrictInt], BeforeValidator(lambda sent: [] if sent is None else np.ravel(sent).tolist())
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextUpdate:
    """What an answer says about a text, as far as it is read."""

    # `req_` and its number; None where texts need none.
    request_id: Annotated[str, Field(pattern=r"^req_\d+$")] | None = None
    created_this_call: StrictBool = False  # whether it was requested in this query
    # The ids of its new tokens, then padding.
    tokens_this_frame: _Ids = dataclasses.field(default_factory=list)
    tokens_full: _Ids = dataclasses.field(default_factory=list)  # the ids of all its tokens, likewise
    text: StrictStr  # their text
    is_finished: StrictBool | None = False  # whether it is complete; always with the blocking APIs


class OxygenReleasePolicy(RemotePolicy):
    """A policy behind OxyGen's server. Each episode has its own connection.

    The server cancels the texts of a client when it disconnects, and has no other way to end an episode.
    """

    follows_mode = True

    def __init__(
        self, client: PolicyClient, keys: OpenpiKeys, metadata: ReleaseMetadata, *, charge_server: bool
    ) -> None:
        super().__init__(client, keys)
        self.writes_texts = True
        self._metadata = metadata
        self._charge_server = charge_server
        self._busy_ms = 0.0
        self._running: dict[int, tuple[TextRequest, float]] = {}  # and how long it had been busy before
        self._ended: set[int] = set()

    def reset(self, key: EpisodeKey) -> None:
        """Connect anew."""
        self.client.close()
        super().reset(key)
        self._busy_ms, self._running, self._ended = 0.0, {}, set()

    def act(self, observation: Observation) -> np.ndarray:
        """See `Policy`; an answer without actions, or without the time to charge, is a BadAnswerError."""
        actions = super().act(observation)
        if self._charge_server:
            if "server" not in self.timings_ms:
                raise BadAnswerError(
                    "charge=server: the policy server's answer has no server_timing.infer_ms"
                )
            self.charged_ms = self.timings_ms["server"]
        return actions

    def stages(self, answer: Mapping[str, Any], answer_ms: float) -> Mapping[str, float]:
        """As `RemotePolicy`, and the server's own stages, milliseconds."""
        timings = timings_of(answer, "policy_timing")
        stages = {name.removesuffix("_ms"): timings[name] for name in _TIMINGS if name in timings}
        return {**super().stages(answer, answer_ms), **stages}

    def complete(self) -> Reply:
        """The texts that came with the actions.

        Texts that contradict each other or earlier ones are a BadAnswerError.
        """
        before_ms, self._busy_ms = self._busy_ms, self._busy_ms + self.timings_ms["action"]
        requested, finished, tokens = [], [], 0
        for number, update in self._updates().items():
            if update.created_this_call:
                request = TextRequest(task=TASK, request_id=number, query=self.number)
                self._running[number] = request, before_ms
                requested.append(request)
            tokens += len(np.trim_zeros(update.tokens_this_frame, "b"))
            text = self._finished(number, update)
            if text is not None:
                finished.append(text)
        said = self.answer.get("active_language_requests")
        if said not in (None, len(self._running)):
            raise BadAnswerError(
                f"the policy server says that {said!r} texts are unfinished, and its updates leave "
                f"{len(self._running)}"
            )
        return Reply(
            # The texts came with the actions: no decoding follows.
            timings_ms={**self.timings_ms, "decode": 0.0, "frame": self.timings_ms["action"]},
            requested=tuple(requested),
            finished=tuple(finished),
            tokens=tokens,
        )

    def finish(self) -> EpisodeEnd:
        """End the episode; the server cancels its texts when the connection closes."""
        self.client.close()
        return EpisodeEnd(
            cancelled=len(self._running), requests=tuple(request for request, _ in self._running.values())
        )

    def _updates(self) -> dict[int, TextUpdate]:
        """Number of the text to what the last answer says about it; the whole answer if it has one text."""
        api, answer = self._metadata.effective_infer_api, self.answer
        if api == "infer":
            return {}
        one = self._metadata.resumes or (api == "shared_kv" and "language_updates" not in answer)
        sent = [answer] if one else answer.get("language_updates")
        try:
            updates = check(list[TextUpdate], sent, source="texts of the policy server")
        except UsageError as error:
            raise BadAnswerError(str(error)) from error
        found: dict[int, TextUpdate] = {}
        for update in updates:
            if update.request_id is None and api == "continuous_batching":
                raise BadAnswerError("the policy server sent a text without request_id")
            number = self.number if update.request_id is None else int(update.request_id.removeprefix("req_"))
            known = number in self._running or number in found
            if one:
                update = dataclasses.replace(update, created_this_call=not known)  # noqa: PLW2901
            if number in self._ended or number in found or update.created_this_call == known:
                state = "has finished" if number in self._ended else "is running" if known else "is unknown"
                raise BadAnswerError(
                    f"the policy server sent an update of text {number}, which {state}, with "
                    f"created_this_call {update.created_this_call}"
                )
            if one and not known and self._running:
                raise BadAnswerError(
                    f"the policy server started text {number}, and {min(self._running)} is not finished"
                )
            found[number] = update
        return found

    def _finished(self, number: int, update: TextUpdate) -> Text | None:
        content = sum(token not in (_END, _PADDING) for token in update.tokens_full)
        blocking = self._metadata.effective_infer_api != "continuous_batching"
        if not (blocking or update.is_finished):
            return None
        if content and not update.text:
            raise BadAnswerError(f"the policy server sent {content} tokens of text {number}, and no text")
        request, before_ms = self._running.pop(number)
        self._ended.add(number)
        stops = _END in update.tokens_full and self._metadata.text_stop_condition == "eos"
        return Text(
            task=TASK,
            request_id=number,
            requested_query=request.query,
            finished_query=self.number,
            text=update.text.strip(),
            tokens=len(np.trim_zeros(update.tokens_full, "b")),
            reason="stop" if stops else "length",
            latency_ms=self._busy_ms - before_ms,
        )
