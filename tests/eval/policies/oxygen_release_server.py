"""A stand-in of the server that OxyGen's authors released: its protocol without a model.

Every text is the same sentence, a word per token.
"""

import itertools
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
from websockets.sync.server import ServerConnection

from tests.eval.policies.openpi_server import ACTIONS, OpenpiServer

TEXT = "No relevant task progress is visible yet."
END = 1
TOKENS = [*range(100, 100 + len(TEXT.split())), END]


def metadata(
    api: str = "continuous_batching", request_mode: str | None = "new_each_call", **changes: Any
) -> dict[str, Any]:
    """What the server sends first."""
    batching = {"continuous_batching_request_mode": request_mode}
    return {
        "policy_seed": 7,
        "adapter": "/adapters/adapter_step_1500.npz",
        "adapter_rank": 16,
        "effective_infer_api": api,
        "infer_api": api,
        "text_stop_condition": "eos",
        "language_steps_per_frame": 5,
        "language_max_decoding_steps": 28,
        **(batching if api == "continuous_batching" else {}),
        **changes,
    }


class ReleaseServer(OpenpiServer):
    """Serves in threads; each connection has texts of its own.

    Args:
        api: `effective_infer_api`.
        request_mode: When texts are started.
        steps: Tokens per call and text.
        edit: Called with the number of the call, over all connections, and the answer; returns what is sent.
    """

    def __init__(
        self,
        api: str = "continuous_batching",
        request_mode: str | None = "new_each_call",
        *,
        steps: int = 5,
        edit: Any = lambda number, answer: answer,
        **changes: Any,
    ) -> None:
        self._api, self._request_mode, self._steps, self._edit = api, request_mode, steps, edit
        self._ids, self._calls = itertools.count(), itertools.count()
        self._of_connection = threading.local()
        self.dropped: list[list[str]] = []
        """The unfinished texts of each connection that has ended."""
        super().__init__(self._infer, metadata=metadata(api, request_mode, **changes))

    def _serve(self, connection: ServerConnection) -> None:
        self._of_connection.texts = {}
        try:
            super()._serve(connection)
        finally:
            self.dropped.append(list(self._of_connection.texts))

    def _infer(self, query: Mapping[str, Any]) -> Any:
        del query
        answer: dict[str, Any] = {"actions": ACTIONS / 100, "policy_timing": {"total_ms": 90.0}}
        if self._api in ("blocking_baseline", "shared_kv"):
            identity = None if self._api == "blocking_baseline" else f"req_{next(self._ids)}"
            answer["language_updates"] = [_update(identity, 0, len(TOKENS), created=True)]
        elif self._api == "continuous_batching":
            answer |= self._continued()
            timing = {"pre_proc_ms": 1.0, "prefill_actions_ms": 60.0, "text_gen_ms": 25.0}
            answer["policy_timing"] = {**timing, "post_proc_ms": 2.0, "total_ms": 88.0}
        return self._edit(next(self._calls), answer)

    def _continued(self) -> dict[str, Any]:
        """Start a text if one is due, and continue all by the tokens of a call."""
        texts: dict[str, int] = self._of_connection.texts
        resumes = self._request_mode == "resume_until_finished"
        new = None if resumes and texts else f"req_{next(self._ids)}"
        known = {**({} if new is None else {new: 0}), **texts}
        texts.clear()
        texts |= {
            each: done + self._steps for each, done in known.items() if done + self._steps < len(TOKENS)
        }
        updates = [_update(each, n, n + self._steps, created=each == new) for each, n in known.items()]
        if resumes:
            return {name: value for name, value in updates[0].items() if name != "created_this_call"}
        return {**updates[0], "language_updates": updates, "active_language_requests": len(texts)}


def _update(identity: str | None, before: int, after: int, *, created: bool) -> dict[str, Any]:
    padded = [*TOKENS, *[0] * max(0, after - len(TOKENS))]
    return {
        "request_id": identity,
        "tokens_this_frame": np.array(padded[before:after]),
        "tokens_full": np.array(padded[:after]),
        "text": " ".join(TEXT.split()[:after]),
        "is_finished": after >= len(TOKENS),
        "created_this_call": created,
    }
