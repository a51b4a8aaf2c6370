"""Exports have the shapes that their readers document, and the run's own numbers."""

import csv
import io
import json
from pathlib import Path

import pytest
import yaml
from huggingface_hub.repocard_data import model_index_to_eval_results

from contracts.episode import RequestCounts
from contracts.errors import UsageError
from eval import export
from eval.records.schema import RunFolder
from eval.report.export import FORMATS
from tests.commands import call
from tests.eval.factory import RunBuilder, episode, key


@pytest.fixture
def run(tmp_path) -> RunFolder:
    """Two suites: three of four solved and a video; an invalid action, a timeout and a success."""
    built = RunBuilder.at(tmp_path / "run_1", config={"seed": 7}, git={"commit": "c0ffee"})
    built.add_all("ssst").add_all("its", suite="libero_goal")
    return built.add(episode(key(0, 1), video="videos/0.mp4", simulated_s=5.0)).folder


def with_errors(tmp_path: Path) -> RunFolder:
    return RunBuilder.at(tmp_path / "broken").add_all("se").folder


def test_lerobots_evaluation_has_its_fields_counts_and_intervals(run):
    info = json.loads(FORMATS["lerobot"](run))
    assert set(info) == {"per_task", "per_group", "overall"}
    first = info["per_task"][0]
    assert {"task_group", "task_id", "metrics"} <= set(first)
    tasks = {(task["task_group"], task["task_id"]): task for task in info["per_task"]}
    assert tasks["libero_object", 0]["metrics"]["successes"] == [True, True, True, False]
    assert tasks["libero_object", 1]["metrics"]["video_paths"] == [str(run.path / "videos/0.mp4")]
    assert set(first["metrics"]) == {"sum_rewards", "max_rewards", "successes", "video_paths"}
    group = info["per_group"]["libero_object"]
    assert (group["n_episodes"], group["n_success"], group["pc_success"]) == (5, 4, 80.0)
    assert group["pc_success_ci95"] == pytest.approx([37.55, 96.38], abs=0.01)  # Wilson's score interval
    assert set(info["overall"]) == {*group, "eval_s", "eval_ep_s"}
    assert info["overall"]["avg_sum_reward"] == pytest.approx(5 / 8)


def test_vla_evals_aggregate_counts_errors_as_failures(tmp_path, run):
    found = json.loads(FORMATS["vla-eval"](run))
    assert (found["benchmark"], found["mode"], found["seed"]) == ("libero_goal, libero_object", "sync", 7)
    assert found["mean_success"] == 0.625
    assert (found["num_episodes_total"], found["num_errors"]) == (8, 1)
    invalid, timeout, _ = found["tasks"][0]["episodes"]
    assert (invalid["failure_reason"], invalid["failure_detail"]) == ("invalid_action", "ValueError: broken")
    assert "failure_reason" not in timeout
    assert json.loads(FORMATS["vla-eval"](with_errors(tmp_path)))["mean_success"] == 0.5
    built = RunBuilder.at(tmp_path / "named")
    for task_id, name, outcome in ((0, "push", "success"), (1, "push", "timeout"), (2, "pull", "success")):
        built.add(episode(key(0, task_id), outcome, task=name))
    tasks = json.loads(FORMATS["vla-eval"](built.folder))["tasks"]
    named = {task["task"].removeprefix("libero_object/"): task["mean_success"] for task in tasks}
    assert named == {"push (0)": 1.0, "push (1)": 0.0, "pull": 1.0}


def test_csv_has_a_line_per_episode(run):
    rows = list(csv.DictReader(io.StringIO(FORMATS["csv"](run))))
    assert [row["outcome"] for row in rows].count("success") == 5
    assert {"suite": "libero_goal", "init_id": "0", "error": "ValueError: broken"}.items() <= rows[4].items()
    assert (rows[0]["simulated_s"], rows[7]["simulated_s"]) == ("", "5.0")


def test_latex_is_the_leaderboards_table_of_one_run_or_several(run, tmp_path, capsys, refused):
    one = FORMATS["latex"](run)
    assert r"1 & tiny & 33.3 \% (6.1--79.2) & 80.0 \% (37.6--96.4) & 56.7 \% & 8 \\" in one
    assert "% runs: run_1" in one
    others = [RunBuilder.at(tmp_path / name, policy=name).add_all("st").path for name in ("a", "b")]
    assert call(export.app, *others, "--format", "latex", "--columns", "policy,run") == 0
    printed = capsys.readouterr().out
    assert r"policy & run \\" in printed
    assert r"a & a \\" in printed
    assert r"b & b \\" in printed
    assert "2 runs with --format csv" in refused(export.app, *others, "--format", "csv")
    assert "--columns with --format csv" in refused(export.app, run.path, "--format", "csv", "--columns", "n")


@pytest.mark.parametrize("clock", ["paused", "fixed:100"])
@pytest.mark.parametrize("requested", [0, 3])
def test_csv_has_columns_of_texts_and_clock_where_there_are_any(tmp_path, clock, requested):
    run = RunBuilder.at(tmp_path / "run", config={"clock": clock})
    run.add(episode(key(), requests=RequestCounts(requested=requested)))
    heading, _ = FORMATS["csv"](run.folder).splitlines()
    assert ("tokens" in heading, "idle_steps" in heading) == (requested > 0, clock != "paused")


def test_the_model_index_is_read_back_by_the_hub(run):
    opening, front, rest = FORMATS["model-card"](run).split("---\n")
    assert (opening, rest) == ("", "")
    card = yaml.safe_load(front)
    name, results = model_index_to_eval_results(card["model-index"])
    assert name == "tiny"
    assert {(each.dataset_type, each.metric_type, each.metric_value) for each in results} == {
        ("libero_object", "success_rate", 80.0),
        ("libero_goal", "success_rate", 33.33),
    }
    assert results[0].metric_args["n_episodes"] == 5
    assert results[0].dataset_args["protocol"] == "bbbb2222"


def test_runs_that_support_no_rate_are_refused(tmp_path):
    broken = with_errors(tmp_path)
    for name in ("lerobot", "latex", "model-card"):
        with pytest.raises(UsageError, match="1 of 2 episodes ended in an error"):
            FORMATS[name](broken)
    partial = RunBuilder.at(tmp_path / "partial", status="interrupted", n_planned=2).add_all("s").folder
    for convert in FORMATS.values():
        with pytest.raises(UsageError, match="interrupted with 1 of 2 episodes; complete it with --resume"):
            convert(partial)
    built = RunBuilder.at(tmp_path / "run").add_all("e", suite="libero_goal").add_all(99 * "s")
    assert "% not ranked: 1 of 1 episode on libero_goal ended in an error" in FORMATS["latex"](built.folder)
    assert "libero_goal" not in FORMATS["model-card"](built.folder)


def test_the_command_prints_or_writes(run, tmp_path, capsys, refused):
    assert call(export.app, run.path, "--format", "csv") == 0
    assert capsys.readouterr().out == FORMATS["csv"](run)
    file = tmp_path / "run.csv"
    assert call(export.app, run.path, "--format", "csv", "--output", str(file)) == 0
    assert file.read_text() == FORMATS["csv"](run)
    capsys.readouterr()
    assert "did you mean 'lerobot'" in refused(export.app, run.path, "--format", "lerbot")
    below = ("--format", "csv", "--output", file / "below")
    assert "is not a folder; give another" in refused(export.app, run.path, *below)
