"""Answers for policies whose worlds are in other processes: the queries of a group of worlds in one batch.

Worlds are divided into groups, each with a batch of its own. While the model is at one group's, the worlds of
the others go on. A batch goes as soon as every world of its group that is in an episode has a query. It does
not wait for a slow one for ever: once its first query has waited for as long as a batch takes, it goes as it
is, so that a query takes at most twice as long as it must. Who is in a batch changes nothing of what it
answers.
"""

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from eval.policies.base import BatchPolicy, OpenPolicy, PolicyLostError
from eval.policies.served import (
    ActionsWanted,
    EpisodeBegun,
    FailedAnswer,
    ObservationBlock,
    ObservationLayout,
    ReplyWanted,
    TailWanted,
)
from oxygen.policy.reply import Reply

Answer = Callable[[object], None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Query:
    """A query that waits for its batch."""

    worker: int
    layout: ObservationLayout
    answer: Answer
    came_s: float


class _Group:
    """The worlds of one batch in one arm.

    Attributes:
        policy: The policy.
        playing: Rows whose episode has begun and has not ended.
        waiting: Row to its query.
        replies: Row to the rest of its last query.
    """

    def __init__(self, policy: BatchPolicy) -> None:
        self.policy = policy
        self.playing: set[int] = set()
        self.waiting: dict[int, _Query] = {}
        self.replies: dict[int, Reply | FailedAnswer] = {}
        self._took_s = 0.0

    def due_s(self) -> float:
        """From when on its batch can go, by `time.monotonic`."""
        if not self.waiting:
            return math.inf
        first = min(query.came_s for query in self.waiting.values())
        return first if self.playing <= self.waiting.keys() else first + self._took_s

    def answer_all(self, blocks: Sequence[ObservationBlock]) -> None:
        """Answer what waits: actions first, then the rest of the queries."""
        began = time.monotonic()
        queries, self.waiting = self.waiting, {}
        seen = {row: blocks[query.worker].read(query.layout) for row, query in queries.items()}
        try:
            actions = self.policy.act(seen)
            for row, query in queries.items():
                query.answer(actions[row])
            self.replies |= self.policy.settle()
        except PolicyLostError:
            raise
        except Exception as error:  # noqa: BLE001 - it is raised again in the episodes that it is of
            failed = FailedAnswer.of(error)
            self.replies |= dict.fromkeys(queries, failed)
            for query in queries.values():
                query.answer(failed)
        self._took_s = time.monotonic() - began


class PolicyServer:
    """Answers the worlds of all workers in all arms. An attendant of `sim_envs.workers`."""

    def __init__(self, policies: Sequence[OpenPolicy], blocks: Sequence[ObservationBlock]) -> None:
        """Begin to answer.

        Args:
            policies: Of each arm. They have a row for every worker.
            blocks: Of each worker, where its observations lie.
        """
        self._arms = [[_Group(policy) for policy in each.groups] for each in policies]
        self._blocks = blocks
        self._at: dict[int, tuple[_Group, int]] = {}

    def handle(self, worker: int, message: Any, answer: Answer) -> None:
        """Note a query, or answer at once what needs no batch."""
        match message:
            case EpisodeBegun(arm=arm, key=key):
                self.job_ended(worker)
                groups = self._arms[arm]
                group, row = groups[worker % len(groups)], worker // len(groups)
                self._at[worker] = group, row
                group.policy.reset(row, key)
                group.playing.add(row)
            case ActionsWanted(layout=layout):
                group, row = self._at[worker]
                group.waiting[row] = _Query(
                    worker=worker, layout=layout, answer=answer, came_s=time.monotonic()
                )
            case ReplyWanted():
                group, row = self._at[worker]
                answer(group.replies.pop(row))
            case TailWanted():
                group, row = self._at[worker]
                answer(group.policy.finish(row))

    def job_ended(self, worker: int) -> None:
        """A worker is in no episode any more."""
        if worker in self._at:
            group, row = self._at.pop(worker)
            group.playing.discard(row)
            group.waiting.pop(row, None)

    def poll(self) -> float:
        """Answer the batch that has been due for longest.

        Returns:
            Seconds until another one may be due.
        """
        groups = [group for arm in self._arms for group in arm]
        first = min(groups, key=_Group.due_s, default=None)
        if first is None or first.due_s() > time.monotonic():
            return math.inf if first is None else max(0.0, first.due_s() - time.monotonic())
        first.answer_all(self._blocks)
        return 0.0
