"""Queues queries into batches. Imports no JAX."""

import dataclasses
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class Query:
    """A query of one row of a batch."""

    observation: Any  # what the policy takes
    acted: Callable[[Any], None]  # called with the actions, or with the exception of the policy
    replied: Callable[[Any], None]  # called with the reply, or with the exception
    arrived_s: float = dataclasses.field(default_factory=time.monotonic)  # in the time of `time.monotonic`


class BatchQueue:
    """The queries that wait for one batch.

    The batch is due when every active row has a query, or when the oldest query has waited for the window.
    Actions do not depend on the composition of the batch.
    """

    def __init__(
        self,
        act: Callable[[Mapping[int, Any]], Mapping[int, Any]],
        complete: Callable[[], Mapping[int, Any]],
        *,
        window_s: float | None = None,
        failed: Callable[[Iterable[int]], None] | None = None,
    ) -> None:
        """Start empty.

        A query waits for others at most for the window; None is the duration of the last batch, so that a
        query takes at most twice the minimum. `failed` is called with the rows of a batch in which the policy
        has failed.
        """
        self._failed = failed
        self._act = act
        self._complete = complete
        self._window_s = window_s
        self._active: set[int] = set()
        self._waiting: dict[int, Query] = {}
        self._took_s = 0.0

    def activate(self, row: int) -> None:
        """Wait for this row's queries."""
        self._active.add(row)

    def add(self, row: int, query: Query) -> None:
        """Queue a query, which activates the row."""
        self._active.add(row)
        self._waiting[row] = query

    def remove(self, row: int) -> None:
        """Do not wait for this row until its next query."""
        self._active.discard(row)
        self._waiting.pop(row, None)

    def due_s(self) -> float:
        """When the batch is due, in the time of `time.monotonic`; infinite without a query."""
        first = min((query.arrived_s for query in self._waiting.values()), default=math.inf)
        window_s = self._took_s if self._window_s is None else self._window_s
        return first if self._active <= self._waiting.keys() else first + window_s

    def run(self) -> Iterator[bool]:
        """Take the waiting queries as a batch: answer with actions, yield, then answer with replies."""
        queries, self._waiting = self._waiting, {}
        return self._answer(queries)

    def _answer(self, queries: Mapping[int, Query]) -> Iterator[bool]:
        began_s = time.monotonic()
        has_acted = False
        try:
            actions = self._act({row: query.observation for row, query in queries.items()})
            acted = [(query, actions[row]) for row, query in queries.items()]
            has_acted = True
            for query, chunk in acted:
                query.acted(chunk)
            yield True
            replies = self._complete()
            for row, query in queries.items():
                query.replied(replies.get(row, LookupError("its episode has ended since it acted")))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - raised again where the queries came from
            for query in queries.values():
                (query.replied if has_acted else query.acted)(error)
            if self._failed is not None:
                self._failed(queries)
        self._took_s = time.monotonic() - began_s
