"""A policy behind `python -m oxygen.serve`: openpi's protocol, with episodes, texts and a declared interface.

Requests and metadata have the field `oxygen_eval`, which other servers ignore.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError

from configs.errors import UsageError
from configs.schema import Fields, Mode
from configs.validation import invalid
from eval.policies.base import BadAnswerError
from eval.policies.remote import PolicyClient, RemotePolicy, timings_of
from oxygen.policy.reply import EpisodeEnd, Reply, Text, TextRequest
from oxygen.robots.openpi_keys import OpenpiKeys
from oxygen.serve.metadata import EXTENSION, VERSION, Declaration
from sim_envs.world import EpisodeKey, Observation

_ENGINE_STAGES = {"queue", "prefill", "denoise", "guided_denoise"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReceivedDeclaration(Declaration):
    """A declaration with the types that it is checked for on arrival."""

    mode: Mode
    feedback: dict[str, Fields] = dataclasses.field(default_factory=dict)


def read_declaration(metadata: Mapping[str, Any], url: str) -> ReceivedDeclaration:
    """Validate the metadata of a server at `url`.

    Raises:
        UsageError: They are of another version of the extension, or incomplete.
    """
    declared = metadata[EXTENSION]
    version = declared.get("version") if isinstance(declared, Mapping) else None
    if version != VERSION:
        raise UsageError(
            f"{url} speaks version {version!r} of this project's extension of openpi's protocol, and this "
            f"client version {VERSION}; install the same oxygen-eval on both sides"
        )
    try:
        return TypeAdapter(ReceivedDeclaration).validate_python(declared)
    except ValidationError as error:
        raise invalid(error, f"metadata of {url}") from error


def check_run(declared: Declaration, url: str, modes: Sequence[Mode], worlds: int) -> None:
    """Reject a run in other modes, or in more worlds, than the server was started for.

    Raises:
        UsageError: Names both.
    """
    if any(mode != declared.mode for mode in modes):
        raise UsageError(
            f"{url} runs in mode {declared.mode}, and this run is in {', '.join(dict.fromkeys(modes))}; give "
            f"--mode {declared.mode}, or start the server in another mode"
        )
    if worlds > declared.robots:
        raise UsageError(
            f"{url} serves {declared.robots} robots at once, and --num-envs is {worlds}; give --num-envs "
            f"{declared.robots}, or start the server with --robots {worlds}"
        )


class OxygenServerPolicy(RemotePolicy):
    """A policy behind our server. Sends episode and query; receives texts."""

    writes_texts = True

    def __init__(self, client: PolicyClient, keys: OpenpiKeys, declared: Declaration) -> None:
        super().__init__(client, keys, declared.feedback)
        self._generates_texts = bool(declared.language_tasks) and declared.mode != "actions"
        self._episode: dict[str, Any] = {}
        self._query = -1
        self._unfinished: dict[int, TextRequest] = {}

    def reset(self, key: EpisodeKey) -> None:
        """Connect if necessary. The first query announces the episode."""
        super().reset(key)
        self._episode = dataclasses.asdict(key)
        self._query = -1
        self._unfinished = {}

    def query(self, observation: Observation) -> dict[str, Any]:
        """The observation, with its place in the episode."""
        self._query += 1
        return {**super().query(observation), **self._about_query(reset=self._query == 0)}

    def stages(self, answer: Mapping[str, Any], answer_ms: float) -> Mapping[str, float]:
        """As `RemotePolicy`, and the engine's stages until the actions, milliseconds."""
        timing = timings_of(answer, "server_timing")
        engine = {stage: ms for stage, ms in timing.items() if stage in _ENGINE_STAGES}
        return {**super().stages(answer, answer_ms), **engine}

    def complete(self) -> Reply:
        """Wait for the query's language.

        Raises:
            BadAnswerError: A text is incomplete.
        """
        answers = [self.answer]
        timings_ms = dict(self.timings_ms)
        if self._generates_texts:
            answers.append(self.client.infer(self._about_query(poll=True)))
            decode = timings_of(answers[-1], "server_timing").get("decode")
            timings_ms |= {} if decode is None else {"decode": decode}
        timings_ms["frame"] = timings_ms["action"] + timings_ms.get("decode", 0.0)
        wire_ms = timings_ms.get("wire", 0.0)
        replies = [_language(answer) for answer in answers]
        finished = tuple(self._received(text, wire_ms) for reply in replies for text in reply.finished)
        requested = tuple(each for reply in replies for each in reply.requested)
        dropped = tuple(each for reply in replies for each in reply.dropped)
        self._unfinished |= {each.request_id: each for each in requested}
        for ended in (*finished, *dropped):
            self._unfinished.pop(ended.request_id, None)
        return Reply(
            timings_ms=timings_ms,
            requested=requested,
            finished=finished,
            dropped=dropped,
            tokens=sum(reply.tokens for reply in replies),
        )

    def finish(self) -> EpisodeEnd:
        """End the episode. The server cancels its texts when the next one starts."""
        return EpisodeEnd(cancelled=len(self._unfinished), requests=tuple(self._unfinished.values()))

    def _about_query(self, **flags: bool) -> dict[str, Any]:
        return {EXTENSION: {"episode": self._episode, "query": self._query, **flags}}

    def _received(self, text: Text, wire_ms: float) -> Text:
        """The text, with the time on the wire added to its latency."""
        if not 0 <= text.requested_query <= self._query:
            raise BadAnswerError(
                f"the policy server sent a text of query {text.requested_query} in query {self._query}"
            )
        return text if text.after_ms is None else dataclasses.replace(text, after_ms=text.after_ms + wire_ms)


_REPLY = TypeAdapter(Reply)


def _language(answer: Mapping[str, Any]) -> Reply:
    """The texts of an answer, as requested, finished and dropped, and their tokens."""
    try:
        texts = [{**text, "requested_query": text["query"]} for text in answer.get("texts", ())]
        return _REPLY.validate_python({**answer.get(EXTENSION, {}), "finished": texts, "timings_ms": {}})
    except (TypeError, KeyError, ValidationError) as error:
        raise BadAnswerError(f"the policy server sent texts that cannot be read: {error}") from error
