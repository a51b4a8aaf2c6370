"""A row of a leaderboard says all that the results say, and runs that are unlike do not look alike."""

import pytest

from eval.metrics.success import summarize
from eval.records.schema import Share, TextScores
from tests.eval.factory import RunBuilder, episode, key, query
from tests.eval.report.boards import leaderboard, tables


def test_unlike_policies_do_not_look_alike(tmp_path):
    RunBuilder.at(tmp_path / "a", weights_sha256="0123456789ab").add_all("s")
    RunBuilder.at(tmp_path / "b", weights_sha256="0123456789ab", config={"dtype": "bfloat16"}).add_all("s")
    RunBuilder.at(tmp_path / "c", config={"random_weights": True}).add_all("s")
    (rows,) = tables(leaderboard([tmp_path]))["libero_object"]
    assert {row["run"]: row["policy"] for row in rows} == {
        "a": "tiny, weights 01234567, its own dtype",
        "b": "tiny, weights 01234567, bfloat16",
        "c": "tiny, random weights, its own dtype",
    }


def test_what_a_frame_decodes_is_told_where_it_differs(tmp_path):
    served = {
        "a": {"tokens_per_frame": 5, "deadline_ms": None},
        "b": {"tokens_per_frame": 5, "deadline_ms": None},
        "c": {"tokens_per_frame": 2, "deadline_ms": None},
        "d": {"tokens_per_frame": 5, "deadline_ms": 90.0},
    }

    def modes():
        (rows,) = tables(leaderboard([tmp_path]))["libero_object"]
        return {row["run"]: row["mode"] for row in rows}

    for name in ("a", "b"):
        RunBuilder.at(tmp_path / name, config=served[name]).add_all("s")
    RunBuilder.at(tmp_path / "isolated", mode="isolated", config=served["c"]).add_all("s")
    assert modes() == {"a": "unified", "b": "unified", "isolated": "isolated"}
    RunBuilder.at(tmp_path / "c", config=served["c"]).add_all("s")
    assert modes() == {
        "a": "unified, k = 5",
        "b": "unified, k = 5",
        "c": "unified, k = 2",
        "isolated": "isolated",
    }
    RunBuilder.at(tmp_path / "d", config=served["d"]).add_all("s")
    assert modes() == {
        "a": "unified, k = 5, no deadline",
        "b": "unified, k = 5, no deadline",
        "c": "unified, k = 2, no deadline",
        "d": "unified, k = 5, 90 ms",
        "isolated": "isolated",
    }


def test_how_often_texts_were_asked_for_is_told_where_the_run_was_told_so(tmp_path):
    for mode, every in (("actions", 4), ("isolated", 4), ("unified", 1), ("shared", None)):
        RunBuilder.at(tmp_path / mode, mode=mode, config={"text_every": every}).add_all("s")
    (rows,) = tables(leaderboard([tmp_path]))["libero_object"]
    assert {row["run"]: row["mode"] for row in rows} == {
        "actions": "actions",
        "isolated": "isolated, a text every 4 queries",
        "unified": "unified, a text every query",
        "shared": "shared",
    }


def test_baselines_stand_beside_policies_and_what_each_is_shown_is_said(tmp_path):
    RunBuilder.at(tmp_path / "a", policy_inputs={"prompt": "{language}"}).add_all("s")
    assert "What they are shown" not in leaderboard([tmp_path])
    RunBuilder.at(tmp_path / "b", policy="noop", policy_inputs={"privileged_state": True}).add_all("t")
    markdown = leaderboard([tmp_path])
    assert [len(rows) for rows in tables(markdown)["libero_object"]] == [2]
    assert "- tiny: `prompt {language}`" in markdown
    assert "- noop: `privileged state`" in markdown


def test_a_row_says_all_that_the_results_say(tmp_path):
    run = RunBuilder.at(tmp_path / "run", mode="isolated").add_all("ssste", latency=61.25)
    (rows,) = tables(leaderboard([tmp_path], error_budget=20))["libero_object"]
    (row,) = rows
    low, high = summarize(run.path)["overall"]["pc_success_ci95"]
    assert row == {
        "#": "1",
        "possible ranks": "1",
        "policy": "tiny",
        "mode": "isolated",
        "assets": "real",
        "n": "4",
        "success": "75.0 %",
        "95 % interval": f"{low:.1f} – {high:.1f}",
        "action (ms)": "61.2 / 61.2",
        "query (ms)": "61.2 / 61.2",
        "tokens/s": "15",
        "errors": "1",
        "run": "run",
    }


def test_a_name_cannot_break_the_table(tmp_path):
    RunBuilder.at(tmp_path / "run", policy="a|b\nc").add_all("s")
    (rows,) = tables(leaderboard([tmp_path]))["libero_object"]
    assert rows[0]["policy"] == "a\0b c"


def timed(path, *, seconds=6.0, hz=5.0, **manifest):
    """A run of two solved episodes and an unsolved one that took so long and queried so often, and spoke."""
    run = RunBuilder.at(path, **manifest)
    shares = {"all": Share(hits=1, of=2)}
    spoken = TextScores(
        texts=2, not_graded=0, oracle=0, at_request=shares, on_delivery=shares, staleness_s=1.5
    )
    for init_id, outcome in enumerate(("success", "success", "timeout")):
        at = {"simulated_s": seconds, "queries": round(hz * seconds), "texts": {"narration": spoken}}
        run.add(episode(key(init_id), outcome, **at), query(action=61.25, frame=61.25))
    return run


def test_a_run_under_a_clock_shows_simulated_time_and_not_the_machines(tmp_path):
    config = {"clock": "fixed:100,500", "while_waiting": "hold"}
    timed(tmp_path / "run", config=config)
    markdown = leaderboard([tmp_path])
    ((row,),) = tables(markdown)["libero_object"]
    assert list(row) == [
        *("#", "possible ranks", "policy", "mode", "assets", "n", "success", "95 % interval"),
        *("time to success (s)", "queries (Hz)", "narration (%), graded", "staleness (ms)", "errors", "run"),
    ]
    assert (row["time to success (s)"], row["queries (Hz)"], row["staleness (ms)"]) == ("6.0", "5.00", "750")
    assert row["mode"] == "unified", "the heading says the clock"
    assert "61.2" not in markdown
    assert (
        ", clock `fixed:100,500` (actions come 100 ms after the observation, and the next query can start "
        "after 500 ms; until new actions arrive, the robot holds still):"
    ) in markdown


@pytest.mark.parametrize("clock", ["paused", "measured"])
def test_the_machines_latency_is_shown_where_it_is_what_was_charged_or_nothing_was(tmp_path, clock):
    timed(tmp_path / "run", config={"clock": clock})
    markdown = leaderboard([tmp_path])
    ((row,),) = tables(markdown)["libero_object"]
    assert (row["action (ms)"], row["time to success (s)"]) == ("61.2 / 61.2", "6.0")
    assert ("clock `measured`" in markdown) == (clock == "measured")


def test_a_run_that_recorded_no_time_stands_beside_one_that_did(tmp_path):
    timed(tmp_path / "new")
    RunBuilder.at(tmp_path / "old").add_all("sst")
    (rows,) = tables(leaderboard([tmp_path]))["libero_object"]
    cells = {
        row["run"]: (row["time to success (s)"], row["queries (Hz)"], row["staleness (ms)"]) for row in rows
    }
    assert cells == {"new": ("6.0", "5.00", "750"), "old": ("–", "–", "–")}


def test_a_recording_and_its_replay_share_a_table_and_say_which_is_which(tmp_path):
    timed(tmp_path / "a", config={"clock": "measured"})
    timed(tmp_path / "b", config={"clock": "replay:runs/a"})
    markdown = leaderboard([tmp_path])
    (rows,) = tables(markdown)["libero_object"]
    assert {row["run"]: row["mode"] for row in rows} == {
        "a": "unified, measured, continue",
        "b": "unified, replay:runs/a, continue",
    }
    assert "each query takes as long as on this machine" in markdown
    assert "each query takes as long as recorded in runs/a" in markdown


def test_other_clocks_are_other_tables_and_a_profile_names_its_device(tmp_path):
    worlds = {
        "paused": {},
        "profile:jetson-thor": {
            "clock": {
                "kind": "profile",
                "profile": {"device": "Jetson AGX Thor"},
                "while_waiting": "continue",
            }
        },
    }
    for name, (clock, said) in zip("ab", worlds.items(), strict=True):
        protocol = {"libero_object": {"assets": {"name": "real", "digest": "d1ge57000000"}, **said}}
        timed(tmp_path / name, protocol=protocol, config={"clock": clock})
    markdown = leaderboard([tmp_path])
    assert [len(rows) for rows in tables(markdown)["libero_object"]] == [1, 1]
    assert "each query takes as long as profile jetson-thor says (Jetson AGX Thor); until new" in markdown
    assert markdown.count(", clock `") == 1
