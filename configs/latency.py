"""The latency of a query."""

import dataclasses
from collections.abc import Sequence


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
