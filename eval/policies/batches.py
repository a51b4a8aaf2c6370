"""Policies that answer many worlds at once: one object, whose `infer_batch` takes observations of rows."""

import copy
import dataclasses
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np

from contracts.episode import EpisodeKey
from contracts.errors import one_line
from contracts.observation import Observation
from contracts.prompt import FieldsByTask
from contracts.text import EpisodeEnd, Reply
from eval.policies.base import BadAnswerError, BatchSlot, LoadedPolicy, PolicyLostError, QueryTimeoutError
from eval.policies.openpi import OpenpiQueries, described
from eval.policies.torch_objects import fatal_failure, inference_mode, runs_on, share_cores
from oxygen.robots.openpi_keys import OpenpiKeys

Result = TypeVar("Result")

PADDING = -1
"""The `row` of the observations that pad a batch."""


class BatchInference(Protocol):
    """A policy that one object serves to all worlds.

    Its optional attribute `pad_batches` says whether every batch has the batch size; copies of its first
    observation, of row -1, then pad it, and their answers are dropped.
    """

    def infer_batch(self, observations: list[dict[str, Any]], /) -> Sequence[Any]:
        """Answer each observation as openpi's `infer` does, or with the exception that ends its episode.

        Each observation has openpi's keys and `row`, which is the same throughout an episode. If it fails
        for several, it is called again with each alone.
        """

    def reset(self, rows: list[int], keys: list[EpisodeKey], /) -> None:
        """Begin an episode in each of these rows."""


class Row(OpenpiQueries):
    """One row of a policy: the queries of one world."""

    def __init__(
        self, policy: BatchInference, keys: OpenpiKeys, fields_by_task: FieldsByTask, row: int
    ) -> None:
        super().__init__(keys, fields_by_task)
        self._policy = policy
        self._row = row

    def reset(self, key: EpisodeKey) -> None:
        """Start an episode."""
        super().reset(key)
        self._policy.reset([self._row], [key])

    def query(self, observation: Observation) -> dict[str, Any]:
        """The observation with its row."""
        return {**super().query(observation), "row": self._row}


class Rows:
    """Some rows of a policy, which share its batches. A `BatchPolicy`."""

    def __init__(self, policy: BatchInference, rows: Sequence[Row], *, pad_to: int) -> None:
        """`pad_to` is the number of observations in every batch; with 0, only those that there are."""
        self._policy = policy
        self._rows = rows
        self._pad_to = pad_to
        self._acted: list[int] = []  # rows whose query has actions
        self._has_failed = False  # for several rows together

    def reset(self, row: int, key: EpisodeKey) -> None:
        """See `BatchPolicy`."""
        self._rows[row].reset(key)

    def act(self, observations: Mapping[int, Observation]) -> dict[int, np.ndarray | BaseException]:
        """See `BatchPolicy`."""
        began = time.perf_counter()
        queries = [self._rows[row].ask(observation) for row, observation in observations.items()]
        sent = time.perf_counter()
        answers = self._answers(queries)
        acted = {
            row: answer
            if isinstance(answer, BaseException)
            else _or_error(self._rows[row].take, answer, began, sent)
            for row, answer in zip(observations, answers, strict=True)
        }
        self._acted = [row for row, chunk in acted.items() if not isinstance(chunk, BaseException)]
        return acted

    def complete(self) -> dict[int, Reply | BaseException]:
        """See `BatchPolicy`."""
        return {row: _or_error(self._rows[row].complete) for row in self._acted}

    def finish(self, row: int) -> EpisodeEnd:
        """See `BatchPolicy`."""
        return self._rows[row].finish()

    def _answers(self, queries: list[dict[str, Any]]) -> list[Any]:
        """An answer to each, or an exception; if all fail together, each is asked alone."""
        try:
            return self._infer(queries)
        except (PolicyLostError, QueryTimeoutError):
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001 - raised again in the episode concerned
            if len(queries) == 1:
                return [error]
            if not self._has_failed:
                sys.stderr.write(
                    f"warning: infer_batch failed for {len(queries)} observations ({one_line(error)}); each "
                    "is asked alone, now and whenever it fails\n"
                )
            self._has_failed = True
        return [answer for query in queries for answer in self._answers([query])]

    def _infer(self, queries: list[dict[str, Any]]) -> list[Any]:
        padding = [{**queries[0], "row": PADDING}] * (self._pad_to - len(queries))
        padded = [copy.deepcopy(query) for query in (*queries, *padding)]  # the policy may change each
        try:
            with inference_mode():
                answers = self._policy.infer_batch(padded)
        except Exception as error:
            if lost := fatal_failure(error, len(padded)):
                raise PolicyLostError(lost) from error
            raise
        if not isinstance(answers, list | tuple):
            kind = type(answers).__name__
            raise BadAnswerError(f"infer_batch returned {kind}, not a list with an answer per observation")
        if len(answers) != len(padded):
            counts = f"{len(answers)} answers for {len(padded)} observations"
            raise BadAnswerError(f"infer_batch returned {counts}; return one for each, in their order")
        return list(answers[: len(queries)])


def _or_error(method: Callable[..., Result], *arguments: Any) -> Result | BaseException:
    """The result, or the exception about a bad answer, which concerns the episode of its row alone."""
    try:
        return method(*arguments)
    except BadAnswerError as error:
        return error


def opened_batches(
    policy: BatchInference,
    keys: OpenpiKeys,
    fields_by_task: FieldsByTask,
    *,
    worlds: int,
    batch_size: int,
    remark: str | None = None,
    **inputs: Any,
) -> LoadedPolicy:
    """The policy for a run of parallel `worlds`, divided into groups of at most the batch size."""
    share_cores(simulating=worlds - min(worlds, batch_size))
    pads = bool(getattr(policy, "pad_batches", False))
    count = math.ceil(worlds / batch_size)
    groups = [  # a world's row is its number
        Rows(
            policy,
            [Row(policy, keys, fields_by_task, row) for row in range(group, worlds, count)],
            pad_to=batch_size if pads else 0,
        )
        for group in range(count)
    ]
    first = BatchSlot(groups[0], keys.interface)
    shown = described(
        Row(policy, keys, fields_by_task, 0), lambda *_: first, remark=remark, padded_batches=pads, **inputs
    )
    return dataclasses.replace(shown, groups=groups, runs_on=runs_on(policy))
