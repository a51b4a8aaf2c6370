"""The sittings of a run: read from any manifest, ended even if killed, and added up without the pauses."""

import datetime as dt
import os

from eval.records.attempts import past_sittings, seconds_played, sittings_of
from tests.eval.factory import RunBuilder, episode, key


def at(*minutes: int) -> list[dict]:
    """Sittings from one minute to another, in pairs."""
    times = [f"2026-01-01T10:{minute:02d}:00+00:00" for minute in minutes]
    return [{"started": a, "finished": b} for a, b in zip(times[::2], times[1::2], strict=True)]


def test_a_manifest_without_a_list_tells_of_one_sitting(tmp_path):
    manifest = RunBuilder.at(tmp_path / "run", git={"commit": "c0ffee"}).folder.read_manifest()
    (only,) = sittings_of(manifest)
    assert only["git"] == {"commit": "c0ffee"}
    assert seconds_played([manifest]) == 3600


def test_a_sitting_that_was_killed_ended_with_its_last_record(tmp_path):
    run = RunBuilder.at(tmp_path / "run", status="running", finished=None)
    assert past_sittings(run.folder)[-1]["finished"] == "2026-01-01T00:00:00+00:00"
    run.add(episode(key()))
    written = dt.datetime(2026, 1, 1, 0, 20, tzinfo=dt.UTC)
    os.utime(run.folder.episodes_path, times=(written.timestamp(), written.timestamp()))
    (killed,) = past_sittings(run.folder)
    assert dt.datetime.fromisoformat(killed["finished"]) == written


def test_pauses_and_what_was_played_side_by_side_count_once(tmp_path):
    interrupted, along, later = (
        {"sittings": at(*minutes)} for minutes in ((0, 4, 30, 35), (0, 5, 30, 34), (50, 51))
    )
    assert seconds_played([interrupted]) == 9 * 60
    assert seconds_played([interrupted, along]) == 10 * 60
    assert seconds_played([interrupted, along, later]) == 11 * 60
