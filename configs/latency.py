"""The latency of a query, and control steps in it. Needs nothing but Python."""

import dataclasses
import math
from collections.abc import Sequence

_ROUNDING = 1e-9
"""Tolerance of `steps_in` for rounding errors, control steps."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Latency:
    """Latency of a query in milliseconds since it was issued.

    Attributes:
        actions_ms: Until its actions were available.
        busy_ms: Until the next query could start.
        texts_ms: Until the last token of each text finished in the query.
    """

    actions_ms: float
    busy_ms: float
    texts_ms: Sequence[float] = ()


def steps_in(milliseconds: float, control_hz: float) -> int:
    """`milliseconds` in control steps, rounded up."""
    return max(0, math.ceil(milliseconds / 1e3 * control_hz - _ROUNDING))
