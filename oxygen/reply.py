"""What a policy answers: the reply to a query, and what was left over at the end of an episode."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from oxygen.language import TextBorn, TextFinished
from oxygen.typing import Float64


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reply:
    """What a query brought.

    Attributes:
        actions: The chunk, in the robot's units.
        timings_ms: Wall time by stage, each measured at its own buffer on the host:
            `preprocess` images resized and prompt tokenised; `prefill` until the prefix was ready; `denoise`
            from there until the actions were on the host; `action` from the request until then; `decode` from
            then until the language of this query was done, prefills of its own included; `frame` the whole
            query. In mode `unified`, `act()` returns after `action` while `decode` goes on; if something else
            is done between `act()` and `settle()`, `decode` and `frame` include it.
        born: Requests born in this query.
        finished: Texts finished in it.
        dropped: Requests given up in it for want of a slot: newborn ones, or waiting ones that made room.
        tokens: Tokens decoded in it, stop tokens included.
    """

    actions: Float64[np.ndarray, "horizon action"]
    timings_ms: Mapping[str, float]
    born: tuple[TextBorn, ...]
    finished: tuple[TextFinished, ...]
    dropped: tuple[TextBorn, ...]
    tokens: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tail:
    """What was outstanding when an episode ended.

    Attributes:
        cancelled: How many requests were given up.
        requests: Which.
        reply: The reply to a last query that had acted and had not been settled.
    """

    cancelled: int
    requests: tuple[TextBorn, ...]
    reply: Reply | None
