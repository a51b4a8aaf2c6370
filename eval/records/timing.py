"""When things happened in simulated time: the latency of a query, the delivery of a text."""

import dataclasses
from collections.abc import Sequence

from oxygen.policy.reply import TextFinished
from sim_envs.truth.ground_truth import Truth


@dataclasses.dataclass(frozen=True, kw_only=True)
class Latency:
    """How long a query took in simulated time since it was issued, milliseconds.

    Attributes:
        actions_ms: Until its actions came.
        busy_ms: Until the policy was free for the next query.
        texts_ms: Of each text that was finished in it, until its last token was known.
    """

    actions_ms: float
    busy_ms: float
    texts_ms: Sequence[float] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Delivery:
    """A text that was delivered before its episode was over.

    Attributes:
        text: The text.
        step: The control step at which its last token was known.
        truth: The world's own account of that moment, if it gives one.
    """

    text: TextFinished
    step: int
    truth: Truth | None
