"""A policy behind the server that OxyGen's authors released: openpi's protocol, with texts in its answers.

Not `python -m oxygen.serve`, which is this project's own (`eval.policies.oxygen_server`).
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from pydantic import TypeAdapter, ValidationError

from configs.errors import UsageError
from configs.schema import Mode
from configs.validation import invalid
from eval.policies.base import BadAnswerError
from eval.policies.remote import PolicyClient, RemotePolicy
from oxygen.policy.reply import EpisodeEnd, Reply, Text, TextRequest
from oxygen.robots.openpi_keys import OpenpiKeys
from sim_envs.world import EpisodeKey, Observation

TASK = "textual_memory"
"""The language task of its texts."""

InferApi = Literal["infer", "continuous_batching", "blocking_baseline", "shared_kv"]
RequestMode = Literal["new_each_call", "resume_until_finished"]

_MODES: Mapping[InferApi, Mode] = {
    "infer": "actions",
    "continuous_batching": "unified",
    "blocking_baseline": "isolated",
    "shared_kv": "shared",
}
_END, _PADDING = 1, 0
"""Ids of PaliGemma's end token, and of what follows it until the end of a call."""

_TIMINGS = {
    "pre_proc_ms": "pre_proc",
    "prefill_actions_ms": "prefill_actions",
    "text_gen_ms": "text_gen",
    "post_proc_ms": "post_proc",
}
"""Fields of `policy_timing` and the stages as which they are recorded."""

_NOISE = (
    "the server draws noise in the order of the calls of all its clients; runs cannot be repeated bit for bit"
)
_RESUMED = (
    "a text describes the observation of the query that requested it; later queries continue it, without a "
    "text of their own, and their stage text_gen includes prefill and denoising"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReleaseMetadata:
    """The server's metadata, as far as they are read.

    Attributes:
        effective_infer_api: How it computes actions and texts.
        continuous_batching_request_mode: When it starts texts; only with continuous batching.
        text_stop_condition: `eos`, or `fixed_length`.
    """

    effective_infer_api: InferApi
    continuous_batching_request_mode: RequestMode | None = None
    text_stop_condition: str = "eos"

    @property
    def resumes(self) -> bool:
        """Whether a text delays the next one."""
        return self.continuous_batching_request_mode == "resume_until_finished"

    @property
    def remarks(self) -> list[str]:
        """Peculiarities of its texts and noise, for the record."""
        return [_NOISE, *([_RESUMED] if self.resumes else [])]

    def check(self, url: str, modes: Sequence[Mode]) -> None:
        """Reject a run whose modes are not the server's.

        Raises:
            UsageError: Names both.
        """
        own = _MODES[self.effective_infer_api]
        if any(mode != own for mode in modes):
            raise UsageError(
                f"{url} runs infer_api {self.effective_infer_api}, which is mode {own}, and this run is in "
                f"{', '.join(dict.fromkeys(modes))}; give --mode {own}, or start the server with another "
                "--execution"
            )


def read_release(metadata: Mapping[str, Any], url: str) -> ReleaseMetadata:
    """The metadata of OxyGen's server.

    Raises:
        UsageError: Unknown `effective_infer_api` or request mode.
    """
    try:
        read = TypeAdapter(ReleaseMetadata).validate_python(dict(metadata))
    except ValidationError as error:
        raise invalid(error, f"metadata of {url}") from error
    batches = read.effective_infer_api == "continuous_batching"
    if batches != (read.continuous_batching_request_mode is not None):
        raise UsageError(
            f"metadata of {url}: effective_infer_api {read.effective_infer_api!r} with "
            f"continuous_batching_request_mode {read.continuous_batching_request_mode!r}; exactly "
            "'continuous_batching' has one"
        )
    return read


class OxygenReleasePolicy(RemotePolicy):
    """A policy behind OxyGen's server. Each episode has its own connection.

    The server cancels the texts of a client when it disconnects, and has no other way to end an episode.

    Attributes:
        charged_ms: See `eval.policies.base.Policy`.
    """

    writes_texts = True

    def __init__(
        self, client: PolicyClient, keys: OpenpiKeys, metadata: ReleaseMetadata, *, charge_server: bool
    ) -> None:
        super().__init__(client, keys)
        self.charged_ms: float | None = None
        self._metadata = metadata
        self._charge_server = charge_server
        self._query = -1
        self._busy_ms = 0.0
        self._running: dict[int, tuple[TextRequest, float]] = {}  # and how long it had been busy before
        self._ended: set[int] = set()

    def reset(self, key: EpisodeKey) -> None:
        """Connect anew."""
        self.client.close()
        super().reset(key)
        self._query, self._busy_ms = -1, 0.0
        self._running, self._ended = {}, set()

    def act(self, observation: Observation) -> np.ndarray:
        """See `Policy`.

        Raises:
            BadAnswerError: The answer has no actions, or lacks the time to charge.
        """
        self._query += 1
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
        reported = answer.get("policy_timing")
        timings = reported if isinstance(reported, Mapping) else {}
        own = {
            stage: float(timings[name])
            for name, stage in _TIMINGS.items()
            if isinstance(timings.get(name), int | float | np.number)
        }
        return {**super().stages(answer, answer_ms), **own}

    def complete(self) -> Reply:
        """The texts that came with the actions.

        Raises:
            BadAnswerError: They contradict each other or earlier ones.
        """
        before_ms, self._busy_ms = self._busy_ms, self._busy_ms + self.timings_ms["action"]
        requested, finished, tokens = [], [], 0
        for number, update in self._updates().items():
            if update.get("created_this_call") is True:
                requested.append(self._begin(number, before_ms))
            tokens += len(np.trim_zeros(_token_ids(update.get("tokens_this_frame"), number), "b"))
            text = self._continue(number, update)
            if text is not None:
                finished.append(text)
        said = self.answer.get("active_language_requests")
        if said is not None and said != len(self._running):
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

    def _updates(self) -> dict[int, Mapping[str, Any]]:
        """Number of the text to what the last answer says about it; the whole answer if it has one text."""
        api, answer = self._metadata.effective_infer_api, self.answer
        if api == "infer":
            return {}
        if self._metadata.resumes or (api == "shared_kv" and "language_updates" not in answer):
            number = self._number(answer.get("request_id"))
            created = number not in {*self._running, *self._ended}
            return {number: {**answer, "created_this_call": created}}
        updates = answer.get("language_updates")
        if not isinstance(updates, Iterable) or not all(isinstance(each, Mapping) for each in updates):
            raise BadAnswerError(
                f"the policy server's language_updates are {updates!r:.200}, not a list of maps"
            )
        numbers = [self._number(each.get("request_id")) for each in updates]
        if len(set(numbers)) < len(numbers):
            raise BadAnswerError(f"the policy server sent two updates of one text: requests {numbers}")
        return dict(zip(numbers, updates, strict=True))

    def _number(self, request_id: object) -> int:
        """The number in a request's id (`req_12`); the query's for texts that need none."""
        if request_id is None and self._metadata.effective_infer_api != "continuous_batching":
            return self._query
        name, _, number = str(request_id).partition("_")
        if name != "req" or not number.isdecimal():
            raise BadAnswerError(
                f"the policy server sent a text with request_id {request_id!r}, not req_<number>"
            )
        return int(number)

    def _begin(self, number: int, before_ms: float) -> TextRequest:
        if number in self._ended or number in self._running:
            raise BadAnswerError(f"the policy server started text {number} twice")
        if self._metadata.resumes and self._running:
            raise BadAnswerError(
                f"the policy server started text {number}, and {next(iter(self._running))} is not finished"
            )
        request = TextRequest(task=TASK, request_id=number, query=self._query)
        self._running[number] = request, before_ms
        return request

    def _continue(self, number: int, update: Mapping[str, Any]) -> Text | None:
        """Follow a text; returns it when it is finished."""
        if number not in self._running:
            known = "has finished" if number in self._ended else "was never requested"
            raise BadAnswerError(f"the policy server sent an update of text {number}, which {known}")
        ids, text = _token_ids(update.get("tokens_full"), number), update.get("text")
        content = int(np.isin(ids, (_END, _PADDING), invert=True).sum())
        blocking = self._metadata.effective_infer_api != "continuous_batching"
        is_finished = blocking or update.get("is_finished") is True
        if not isinstance(text, str) or (is_finished and content and not text):
            raise BadAnswerError(f"the policy server sent {content} tokens of text {number}, and no text")
        if not is_finished:
            return None
        request, before_ms = self._running.pop(number)
        self._ended.add(number)
        stops = (ids == _END).any() and self._metadata.text_stop_condition == "eos"
        return Text(
            task=TASK,
            request_id=number,
            requested_query=request.query,
            finished_query=self._query,
            text=text.strip(),
            tokens=len(np.trim_zeros(ids, "b")),
            reason="stop" if stops else "length",
            latency_ms=self._busy_ms - before_ms,
        )


def _token_ids(sent: object, number: int) -> np.ndarray:
    """The token ids of a text, which may be missing."""
    ids = np.ravel(np.asarray([] if sent is None else sent))
    if len(ids) and ids.dtype.kind not in "iu":
        raise BadAnswerError(f"the policy server sent invalid token ids for text {number}: {sent!r:.80}")
    return ids.astype(np.int64)
