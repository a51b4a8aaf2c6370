"""Simulated times: the latency of a query, the delivery of a text."""

import dataclasses
from collections.abc import Sequence

from oxygen.policy.reply import TextFinished
from sim_envs.truth.ground_truth import Truth


@dataclasses.dataclass(frozen=True, kw_only=True)
class Latency:
    """Latency of a query in simulated milliseconds since it was issued.

    Attributes:
        actions_ms: Until its actions were available.
        busy_ms: Until the next query could start.
        texts_ms: Until the last token of each text finished in the query.
    """

    actions_ms: float
    busy_ms: float
    texts_ms: Sequence[float] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Delivery:
    """A text delivered before its episode ended.

    Attributes:
        step: Control step at which its last token was known.
        truth: Ground truth at that step, if the world provides it.
    """

    text: TextFinished
    step: int
    truth: Truth | None
