"""What a policy answers: actions, the reply to a query, and what was left over at the end of an episode."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from oxygen.serving.language import TextBorn, TextFinished
from oxygen.typing import Float64


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reply:
    """What a query brought.

    Attributes:
        actions: The chunk, in the robot's units.
        timings_ms: Wall time by stage, each measured at its own buffer on the host:
            `preprocess` images resized and prompts tokenised; `prefill` until the prefix was ready; `denoise`
            from there until the actions were on the host; `action` from the request until they were there in
            the robot's units, all that the host does before that included; `decode` from then until the
            language of this query was done, prefills of its own included; `frame` the whole query.
            In modes `actions`, `unified` and `parallel`, `act()` returns after `action`. In `unified`,
            `decode` goes on behind it; what is done between `act()` and `settle()`, or the next `act()`, is
            in `decode` and `frame`. In `parallel`, language runs beside the actions, and `decode` is what is
            left of it after them. In `isolated` and `shared`, a query returns when its texts have ended: its
            caller has the actions after `frame`, though they were there after `action`.
        born: Requests born in this query.
        finished: Texts finished in it.
        dropped: Requests given up for want of a slot since the reply before, newborn or waiting, also while
            the robot sat out.
        tokens: Tokens decoded in it, stop tokens included.
        tokens_per_frame: Decode steps that its frame was given, in mode `unified`; else 0.
    """

    actions: Float64[np.ndarray, "horizon action"]
    timings_ms: Mapping[str, float]
    born: tuple[TextBorn, ...]
    finished: tuple[TextFinished, ...]
    dropped: tuple[TextBorn, ...]
    tokens: int
    tokens_per_frame: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answer:
    """What `act()` returns.

    Attributes:
        actions: The chunk, in the robot's units.
        before: The reply to the robot's query before, if it had not been settled.
    """

    actions: Float64[np.ndarray, "horizon action"]
    before: Reply | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tail:
    """What was outstanding when an episode ended.

    Attributes:
        cancelled: How many requests were given up.
        requests: Which.
        reply: The reply to a last query that had acted and had not been settled.
        finished: Texts finished after it, while the robot sat out and others went on.
        dropped: Requests given up in that time for want of a slot.
        tokens: Tokens decoded in that time.
        compiles_after_warm_up: Compilations since the policy was ready; None if it has none to count.
    """

    cancelled: int
    requests: tuple[TextBorn, ...]
    reply: Reply | None
    finished: tuple[TextFinished, ...] = ()
    dropped: tuple[TextBorn, ...] = ()
    tokens: int = 0
    compiles_after_warm_up: int | None = None
