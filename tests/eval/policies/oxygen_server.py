"""A double of `python -m oxygen.serve`: the contract of its protocol without a model."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from configs.interface import Interface
from oxygen.robots.conventions import LIBERO
from tests.eval.doubles import text_finished
from tests.eval.policies.openpi_server import OpenpiServer
from tests.oxygen.serve.serving import declaration

ACTIONS = np.linspace(-1, 1, 70).reshape(10, 7)


def metadata(interface: Interface = LIBERO, **changes: Any) -> dict[str, Any]:
    """What the server sends first."""
    declared = declaration(interface, model="tiny", weights_sha256="0" * 64).metadata()["oxygen_eval"]
    return {"oxygen_eval": {**declared, **changes}}


def text(query: int, **changes: Any) -> dict[str, Any]:
    """A text about a query that takes until the next one, as it is sent."""
    given = dataclasses.asdict(text_finished(query, after_ms=3.0))
    return {**given, "query": given.pop("requested_query"), **changes}


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """A text is requested in every query, and finished 3 ms after the next one's arrival."""
    about = request["oxygen_eval"]
    if about.get("poll"):
        query = about["query"]
        asked = {"task": "narration", "request_id": query, "query": query}
        return {
            "texts": [text(query - 1)] if query else [],
            "oxygen_eval": {"requested": [asked], "dropped": [], "tokens": 3},
            "server_timing": {"action": 0.5, "decode": 4.0, "frame": 4.5},
        }
    timing = {"queue": 0.0625, "prefill": 0.25, "denoise": 0.125, "action": 0.5, "infer_ms": 0.03125}
    return {"actions": ACTIONS, "texts": [], "oxygen_eval": {"tokens": 0}, "server_timing": timing}


def serving(reply: Any = answer, interface: Interface = LIBERO, **declared: Any) -> OpenpiServer:
    """A server in a thread."""
    return OpenpiServer(reply, metadata=metadata(interface, **declared))
