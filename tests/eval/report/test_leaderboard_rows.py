"""A row of a leaderboard says all that the results say, and runs that are unlike do not look alike."""

from eval.leaderboard import leaderboard
from eval.metrics.success import summarize
from tests.eval.factory import RunBuilder
from tests.eval.report.boards import tables


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
