"""The attempts at a run: ended even if killed, and added up without pauses."""

import datetime as dt
import os

from eval.records.run_folders import past_attempts, seconds_played
from tests.eval.factory import RunBuilder, episode, key


def at(*minutes: int) -> list[dict]:
    """Attempts from one minute to another, in pairs."""
    times = [f"2026-01-01T10:{minute:02d}:00+00:00" for minute in minutes]
    return [{"started": a, "finished": b} for a, b in zip(times[::2], times[1::2], strict=True)]


def test_a_killed_attempt_ended_with_its_last_record(tmp_path):
    attempt = {"started": "2026-01-01T00:00:00+00:00", "finished": None}
    run = RunBuilder.at(tmp_path / "run", status="running", finished=None, attempts=[attempt])
    assert past_attempts(run.folder)[-1]["finished"] == "2026-01-01T00:00:00+00:00"
    run.add(episode(key()))
    written = dt.datetime(2026, 1, 1, 0, 20, tzinfo=dt.UTC)
    os.utime(run.folder.episodes_path, times=(written.timestamp(), written.timestamp()))
    (killed,) = past_attempts(run.folder)
    assert dt.datetime.fromisoformat(killed["finished"]) == written


def test_pauses_do_not_count_and_parallel_attempts_count_once(tmp_path):
    interrupted, along, later = (
        {"attempts": at(*minutes)} for minutes in ((0, 4, 30, 35), (0, 5, 30, 34), (50, 51))
    )
    assert seconds_played([interrupted]) == 9 * 60
    assert seconds_played([interrupted, along]) == 10 * 60
    assert seconds_played([interrupted, along, later]) == 11 * 60
