"""The latency of a query, and control steps in it."""

import dataclasses
import math
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True, kw_only=True)
class Latency:
    """Latency of a query in milliseconds since it was issued."""

    actions_ms: float  # until its actions were available
    busy_ms: float  # until the next query could start
    texts_ms: Sequence[float] = ()  # until the last token of each text finished in the query


@dataclasses.dataclass(frozen=True, kw_only=True)
class Quantiles:
    """Quantiles of a stage's latency, milliseconds."""

    p50: float
    p95: float
    p99: float


def steps_in(milliseconds: float, control_hz: float) -> int:
    """`milliseconds` in control steps, rounded up."""
    return max(0, math.ceil(milliseconds / 1e3 * control_hz - 1e-9))  # but for rounding errors
