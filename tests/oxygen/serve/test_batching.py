"""When a batch of queries is due, and what its rows are answered."""

import math

import pytest

from oxygen.serve.batching import BatchQueue, Query


class Rows:
    """A policy of several rows that says what it was asked; fails in the method named in `fails`."""

    def __init__(self, fails=None, window_s=1.0):
        self.answers = []
        self.reset = []
        self.ended = set()
        self.fails = fails
        self.queue = BatchQueue(self.act, self.complete, window_s=window_s, failed=self.reset.extend)

    def ask(self, row, arrived_s=0.0):
        def said(kind):
            return lambda result: self.answers.append((row, kind, result))

        query = Query(
            observation=f"seen {row}", acted=said("acted"), replied=said("replied"), arrived_s=arrived_s
        )
        self.queue.add(row, query)

    def act(self, observations):
        if self.fails == "act":
            raise SystemExit(3)
        self.asked = observations
        return {row: f"actions {row}" for row in observations}

    def complete(self):
        if self.fails == "complete":
            raise ValueError
        return {row: f"reply {row}" for row in self.asked if row not in self.ended}


def test_a_batch_is_due_when_every_active_row_has_a_query_or_after_the_window():
    rows = Rows()
    assert rows.queue.due_s() == math.inf
    rows.queue.activate(1)
    rows.ask(0, arrived_s=5.0)
    assert rows.queue.due_s() == 6.0
    rows.ask(1, arrived_s=5.5)
    assert rows.queue.due_s() == 5.0
    rows.queue.remove(0)
    assert rows.queue.due_s() == 5.5


def test_actions_are_answered_before_replies_and_new_queries_wait_for_the_next_batch():
    rows = Rows()
    rows.ask(0)
    rows.ask(2)
    stages = rows.queue.run()
    assert next(stages)
    assert rows.answers == [(0, "acted", "actions 0"), (2, "acted", "actions 2")]
    rows.ask(0)
    assert not list(stages)
    assert rows.answers[2:] == [(0, "replied", "reply 0"), (2, "replied", "reply 2")]
    assert rows.asked == {0: "seen 0", 2: "seen 2"}
    list(rows.queue.run())
    assert rows.asked == {0: "seen 0"}


def test_an_episode_that_ends_between_actions_and_replies_costs_the_others_nothing():
    rows = Rows()
    rows.ask(0)
    rows.ask(1)
    stages = rows.queue.run()
    next(stages)
    rows.ended.add(1)
    assert not list(stages)
    _, ended = rows.answers[2:]
    assert rows.answers[2] == (0, "replied", "reply 0")
    assert isinstance(ended[2], LookupError)
    assert rows.reset == []


@pytest.mark.parametrize(
    ("fails", "kinds"), [("act", ["acted"] * 2), ("complete", ["acted", "acted", "replied", "replied"])]
)
def test_a_failure_is_answered_once_to_each_row_and_the_rows_are_reset(fails, kinds):
    rows = Rows(fails)
    rows.ask(0)
    rows.ask(1)
    list(rows.queue.run())
    assert [kind for _, kind, _ in rows.answers] == kinds
    assert all(isinstance(result, SystemExit | ValueError) for *_, result in rows.answers[-2:])
    assert rows.reset == [0, 1]
