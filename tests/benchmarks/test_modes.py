"""The diagram of modes shows each run's queries as they were recorded."""

import pytest

from benchmarks import modes
from eval.records.query_logs import read_queries
from tests.eval.conftest import call
from tests.eval.factory import RunBuilder, asked, episode, key, query, said

TIMED = {
    "steps": 5,
    "actions_step": 2,
    "free_step": 4,
    "spans": [[None, 0, 2], [0, 0, 3]],
    "latency": {"actions_ms": 100.0, "busy_ms": 200.0, "texts_ms": [150.0]},
}


def recorded(path, mode, **timing):
    run = RunBuilder.at(path / mode, mode=mode)
    text = {"requested": [asked(0)], "finished": [{**said(0, "Grasping."), "step": 4, "truth": None}]}
    return run.add(episode(key(), simulated_s=5.0), query(0, texts=text) | timing)


@pytest.fixture
def draw(monkeypatch, tmp_path):
    """Draws runs, called as documented; returns the exit code."""
    monkeypatch.chdir(tmp_path)
    return lambda *runs: call(modes.app, *(run.path for run in runs))


def test_a_query_is_drawn_as_it_was_charged(tmp_path):
    (logged,) = read_queries(recorded(tmp_path, "unified", **TIMED).folder, key())
    assert modes._computed(logged, "unified", 20.0) == ((0.0, 0.1), (0.1, pytest.approx(0.1)))
    assert modes._computed(logged, "parallel", 20.0) == ((0.0, 0.1), (0.0, 0.2))
    assert modes._computed(logged, "actions", 20.0)[1][1] == 0.0
    assert list(modes._executed([logged], 20.0)) == [("held", (0.0, 0.1)), ("new", (0.1, 0.15))]


def test_runs_of_several_modes_are_one_figure(tmp_path, draw):
    assert draw(*(recorded(tmp_path, mode, **TIMED) for mode in ("isolated", "unified"))) == 0
    assert "<svg" in (tmp_path / "modes.svg").read_text()


def test_runs_without_a_clock_are_refused(tmp_path, draw, capsys):
    assert draw(recorded(tmp_path, "unified")) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "modes.svg").exists()
