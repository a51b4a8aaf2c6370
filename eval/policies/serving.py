"""Serves policies to worlds in other processes, with dynamic batching.

Worlds are divided into groups, each with its own batch; while the model computes one group's batch, the
worlds of the others simulate. A batch is launched when every active world of its group has a query, or when
its oldest query has waited for the duration of a batch, so a query takes at most twice the minimum. Actions
do not depend on the composition of the batch.
"""

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from eval.policies.base import BatchPolicy, LoadedPolicy, PolicyLostError
from eval.policies.served import (
    ActionsRequest,
    EndRequest,
    EpisodeStart,
    FailedAnswer,
    Observations,
    ReplyRequest,
)
from oxygen.policy.reply import Reply

Answer = Callable[[object], None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Query:
    """A query waiting for its batch."""

    worker: int
    sent: Any
    answer: Answer
    came_s: float


class _Group:
    """The worlds of one batch in one variant.

    Attributes:
        policy: The policy.
        playing: Rows in an episode.
        waiting: Row to its waiting query.
        replies: Row to the reply of its last query.
    """

    def __init__(self, policy: BatchPolicy) -> None:
        self.policy = policy
        self.playing: set[int] = set()
        self.waiting: dict[int, _Query] = {}
        self.replies: dict[int, Reply | FailedAnswer] = {}
        self._took_s = 0.0

    def due_s(self) -> float:
        """When its batch is due, in the time of `time.monotonic`."""
        if not self.waiting:
            return math.inf
        first = min(query.came_s for query in self.waiting.values())
        return first if self.playing <= self.waiting.keys() else first + self._took_s

    def answer_all(self, observed: Sequence[Observations]) -> None:
        """Run the waiting queries as one batch: send actions first, then complete the queries."""
        began = time.monotonic()
        queries, self.waiting = self.waiting, {}
        seen = {row: observed[query.worker].read(query.sent) for row, query in queries.items()}
        try:
            actions = self.policy.act(seen)
            for row, query in queries.items():
                query.answer(actions[row])
            self.replies |= self.policy.complete()
        except PolicyLostError:
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001 - raised again in the episodes concerned
            failed = FailedAnswer.of(error)
            self.replies |= dict.fromkeys(queries, failed)
            for query in queries.values():
                query.answer(failed)
        self._took_s = time.monotonic() - began


def _answered(method: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a call of the policy, or its exception, to be raised in the episode concerned."""
    try:
        return method(*arguments)
    except PolicyLostError:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 - raised again in the episode concerned
        return FailedAnswer.of(error)


class PolicyServer:
    """Serves all workers in all variants. A request handler for `sim_envs.workers`."""

    def __init__(self, policies: Sequence[LoadedPolicy], observed: Sequence[Observations]) -> None:
        """Start serving.

        Args:
            policies: One per variant, with a row for each worker.
            observed: How each worker transfers observations.
        """
        self._variants = [[_Group(policy) for policy in each.groups] for each in policies]
        self._observed = observed
        self._at: dict[int, tuple[_Group, int]] = {}
        self._begun: dict[int, Any] = {}

    def handle(self, worker: int, message: Any, answer: Answer) -> None:
        """Queue a query, or answer a message that needs no batch."""
        match message:
            case EpisodeStart(variant=variant, key=key):
                self.job_ended(worker)
                groups = self._variants[variant]
                group, row = groups[worker % len(groups)], worker // len(groups)
                self._at[worker] = group, row
                self._begun[worker] = _answered(group.policy.reset, row, key)
                group.playing.add(row)
            case ActionsRequest() if isinstance(failed := self._begun[worker], FailedAnswer):
                answer(failed)
            case ActionsRequest(sent=sent):
                group, row = self._at[worker]
                group.waiting[row] = _Query(worker=worker, sent=sent, answer=answer, came_s=time.monotonic())
            case ReplyRequest():
                group, row = self._at[worker]
                answer(group.replies.pop(row))
            case EndRequest():
                group, row = self._at[worker]
                answer(_answered(group.policy.finish, row))

    def job_ended(self, worker: int) -> None:
        """See `RequestHandler`."""
        if worker in self._at:
            group, row = self._at.pop(worker)
            group.playing.discard(row)
            group.waiting.pop(row, None)

    def poll(self) -> float:
        """Run the batch that has been due longest.

        Returns:
            Seconds until the next batch may be due.
        """
        groups = [group for variant in self._variants for group in variant]
        first = min(groups, key=_Group.due_s, default=None)
        if first is None or first.due_s() > time.monotonic():
            return math.inf if first is None else max(0.0, first.due_s() - time.monotonic())
        first.answer_all(self._observed)
        return 0.0
