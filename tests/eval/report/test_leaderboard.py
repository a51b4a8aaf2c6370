"""A leaderboard ranks what may be ranked together, and never drops a run without saying why."""

import json

import pytest

from configs.cli import run_app
from eval.leaderboard import app
from eval.metrics.success import summarize
from eval.records.json_files import write_json
from tests.eval.factory import RunBuilder, episode, key
from tests.eval.report.boards import leaderboard, not_ranked, tables


def command(arguments, capsys):
    """Exit code, stdout and stderr of the command line."""
    with pytest.raises(SystemExit) as stop:
        run_app(app, [str(argument) for argument in arguments])
    printed = capsys.readouterr()
    return stop.value.code, printed.out, printed.err


def test_a_rank_counts_the_runs_that_are_better_beyond_doubt(tmp_path):
    """Three that nobody can tell apart share the first; the fourth has three that are better."""
    solved = {"poor": "s" * 10 + "t" * 30, "good": "s" * 38 + "tt", "also": "tt" + "s" * 38, "best": "s" * 40}
    for name, outcomes in solved.items():
        RunBuilder.at(tmp_path / name, policy=name).add_all(outcomes)
    (rows,) = tables(leaderboard([tmp_path]))["libero_object"]
    assert [(row["#"], row["policy"]) for row in rows] == [
        ("1", "best"),
        ("1", "also"),
        ("1", "good"),
        ("4", "poor"),
    ]


def test_ranks_are_by_pairs_and_not_by_intervals_that_overlap(tmp_path):
    """Of 100 episodes 80 and 72: the intervals overlap, but the first solves all that the second does."""
    RunBuilder.at(tmp_path / "first").add_all("s" * 80 + "t" * 20)
    RunBuilder.at(tmp_path / "second").add_all("s" * 72 + "t" * 28)
    (rows,) = tables(leaderboard([tmp_path]))["libero_object"]
    assert [row["95 % interval"] for row in rows] == ["71.1 – 86.7", "62.5 – 79.9"]
    assert [row["#"] for row in rows] == ["1", "2"]


@pytest.mark.parametrize(("only_first", "rank"), [(5, "1"), (6, "2")])
def test_on_few_episodes_chance_is_not_taken_for_skill(tmp_path, only_first, rank):
    """Five pairs to none is what a fair coin does in one of sixteen."""
    RunBuilder.at(tmp_path / "first").add_all("s" * 10)
    RunBuilder.at(tmp_path / "second").add_all("t" * only_first + "s" * (10 - only_first))
    (rows,) = tables(leaderboard([tmp_path]))["libero_object"]
    assert rows[1]["#"] == rank


def test_other_episodes_are_another_experiment(tmp_path):
    """A run of one solved episode does not stand above one that solved 45 of 50."""
    RunBuilder.at(tmp_path / "lucky").add_all("s")
    RunBuilder.at(tmp_path / "thorough").add_all("s" * 45 + "t" * 5)
    RunBuilder.at(tmp_path / "seeded").add(episode(key(0, seed=8)))
    RunBuilder.at(tmp_path / "elsewhere").add(episode(key(7)))
    markdown = leaderboard([tmp_path])
    found = tables(markdown)["libero_object"]
    assert sorted(row["run"] for (row,) in found) == ["elsewhere", "lucky", "seeded", "thorough"]
    assert "episodes: 50, tasks: 1, initial states: 50 (0–49), seed 7" in markdown
    assert "episodes: 1, tasks: 1, initial states: 1 (7), seed 7" in markdown


def test_a_run_with_more_errors_than_the_budget_is_not_ranked(tmp_path):
    RunBuilder.at(tmp_path / "broken").add_all("s" + "e" * 9)
    RunBuilder.at(tmp_path / "sound").add_all("s" * 49 + "e")
    markdown = leaderboard([tmp_path])
    assert [row["run"] for (row,) in tables(markdown)["libero_object"]] == ["sound"]
    reason = "9 of 10 episodes on libero_object ended in an error, more than 2 %; run it again"
    assert not_ranked(markdown) == {"`broken`": reason}
    assert "with more than 2 % of them" in markdown
    generous = leaderboard([tmp_path], error_budget=90)
    assert len(tables(generous)["libero_object"]) == 2
    assert "with more than 90 % of them" in generous


@pytest.mark.parametrize("budget", [-1, 100])
def test_an_error_budget_that_is_none_is_refused(tmp_path, capsys, budget):
    RunBuilder.at(tmp_path / "run").add_all("s")
    code, out, err = command([tmp_path, "--error-budget", budget], capsys)
    assert (code, out) == (2, "")
    assert err == (f"error: an error budget of {budget} %; give one from 0 to less than 100, such as 2\n")


def test_the_same_assets_under_another_name_share_a_table(tmp_path):
    RunBuilder.at(tmp_path / "a").add_all("s")
    RunBuilder.at(tmp_path / "b", assets={"name": "a-copy", "digest": "d1ge57000000"}).add_all("s")
    markdown = leaderboard([tmp_path])
    (rows,) = tables(markdown)["libero_object"]
    assert [row["assets"] for row in rows] == ["real", "a-copy"]
    assert "assets a-copy, real (d1ge5700)" in markdown


def test_every_suite_has_its_table(tmp_path):
    RunBuilder.at(tmp_path / "both").add_all("ss", suite="libero_goal").add_all("st")
    RunBuilder.at(tmp_path / "one").add_all("tt")
    found = tables(leaderboard([tmp_path]))
    assert {suite: [len(rows) for rows in ranked] for suite, ranked in found.items()} == {
        "libero_goal": [1],
        "libero_object": [2],
    }


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"suite_hashes": {"libero_object": "0ther000"}}, "0ther000"),
        ({"suite_hashes": {}, "protocol_hash": "whole000"}, "whole000"),
        ({"assets": {"name": "stand-ins", "digest": "123456789abc"}}, "stand-ins (12345678)"),
        ({"assets": {"name": "real", "digest": "fedcba987654"}}, "real (fedcba98)"),
    ],
)
def test_other_protocols_or_assets_are_tables_of_their_own_and_named(tmp_path, changed, named):
    for name in ("a", "b"):
        RunBuilder.at(tmp_path / name).add_all("tt")
    RunBuilder.at(tmp_path / "other", **changed).add_all("ss")
    markdown = leaderboard([tmp_path])
    assert [[row["run"] for row in rows] for rows in tables(markdown)["libero_object"]] == [
        ["a", "b"],
        ["other"],
    ]
    assert named in markdown


def test_the_protocol_of_other_suites_does_not_matter(tmp_path):
    RunBuilder.at(tmp_path / "a", protocol_hash="x", suite_hashes={"libero_object": "same"}).add_all("s")
    RunBuilder.at(tmp_path / "b", protocol_hash="y", suite_hashes={"libero_object": "same"}).add_all("t")
    assert len(tables(leaderboard([tmp_path]))["libero_object"]) == 1


def test_what_cannot_be_ranked_is_listed_with_its_reason(tmp_path, capsys):
    RunBuilder.at(tmp_path / "fine").add_all("s")
    RunBuilder.at(tmp_path / "stopped", status="interrupted", n_planned=40).add_all("stt")
    RunBuilder.at(tmp_path / "errors").add_all("ee")
    RunBuilder.at(tmp_path / "empty-but-complete")
    RunBuilder.at(tmp_path / "torn").folder.manifest_path.write_text('{"run_id": ')
    RunBuilder.at(tmp_path / "nonsense").folder.episodes_path.write_text("nonsense\n")
    (tmp_path / "unsaid").mkdir()
    (tmp_path / "unsaid" / "results.json").write_text("{}")
    markdown = leaderboard([tmp_path])
    ((only,),) = tables(markdown)["libero_object"]
    assert only["run"] == "fine"
    reasons = not_ranked(markdown)
    expected = {
        "stopped": "3 of 40",
        "errors": "2 of 2 episodes",
        "empty-but-complete": "no episode",
        "torn": "manifest.json",
        "nonsense": "episodes.jsonl",
        "unsaid": "not a run: cannot read manifest.json",
    }
    assert set(reasons) == {f"`{name}`" for name in expected}
    for name, words in expected.items():
        assert words in reasons[f"`{name}`"]
    said = capsys.readouterr().err.splitlines()
    assert [line.split(":")[0] for line in said] == [
        f"skipped {tmp_path / name}" for name in ("nonsense", "torn", "unsaid")
    ]


@pytest.mark.parametrize("content", [b"[]", b"\xff\xfe", b"3", b"null"])
@pytest.mark.parametrize("file", ["manifest.json", "episodes.jsonl", "queries"])
def test_a_damaged_run_does_not_keep_the_others_from_being_ranked(tmp_path, capsys, file, content):
    RunBuilder.at(tmp_path / "fine").add_all("s")
    damaged = RunBuilder.at(tmp_path / "damaged").add_all("s")
    path = damaged.folder.queries_path(key()) if file == "queries" else damaged.path / file
    path.write_bytes(content + b"\n")
    markdown = leaderboard([tmp_path])
    assert [row["run"] for (row,) in tables(markdown)["libero_object"]] == ["fine"]
    assert list(not_ranked(markdown)) == ["`damaged`"]
    said = capsys.readouterr().err
    assert said.startswith(f"skipped {damaged.path}: ")
    assert said.count("\n") == 1


def test_what_is_no_evaluation_is_passed_over(tmp_path, capsys):
    """Trainings and benchmarks lie beside runs by default; a training's rollouts are runs by themselves."""
    RunBuilder.at(tmp_path / "run").add_all("s")
    checkpoints = tmp_path / "train" / "tiny" / "checkpoints"
    checkpoints.mkdir(parents=True)
    (checkpoints.parent / "run.json").write_text("{}")
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "small.jsonl").write_text("{}\n")
    (tmp_path / "notes.txt").write_text("not a run")
    markdown = leaderboard([tmp_path])
    assert [row["run"] for (row,) in tables(markdown)["libero_object"]] == ["run"]
    assert not_ranked(markdown) == {}
    assert command([tmp_path / "train"], capsys)[0] == 2
    RunBuilder.at(checkpoints.parent / "rollouts" / "run").add_all("s")
    assert leaderboard([tmp_path]) == markdown
    assert list(tables(leaderboard([checkpoints.parent]))) == ["libero_object"]


def test_runs_lie_anywhere_beneath(tmp_path):
    for name in ("run", "here/run", "here/and/there"):
        RunBuilder.at(tmp_path / name).add_all("s")
    RunBuilder.at(tmp_path / "here" / ".draft").add_all("s")
    (tmp_path / "here" / "back").symlink_to(tmp_path)
    (rows,) = tables(leaderboard([tmp_path]))["libero_object"]
    assert [row["run"] for row in rows] == ["there", "run", "run"]


def test_a_suite_without_graded_episodes_does_not_hide_the_others(tmp_path):
    RunBuilder.at(tmp_path / "run").add_all("e", suite="libero_goal").add_all("s")
    markdown = leaderboard([tmp_path])
    assert list(tables(markdown)) == ["libero_object"]
    assert "libero_goal" in not_ranked(markdown)["`run`"]


def test_what_counts_are_the_episodes_whatever_the_results_on_disk_say(tmp_path):
    run = RunBuilder.at(tmp_path / "run").add_all("tttttt")
    write_json(run.folder.results_path, summarize(run.path))
    run.add(episode(key(5)))
    (rows,) = tables(leaderboard([tmp_path]))["libero_object"]
    assert rows[0]["success"] == "16.7 %"


def test_several_paths_are_one_table_and_no_run_counts_twice(tmp_path):
    first = RunBuilder.at(tmp_path / "here" / "first").add_all("s")
    RunBuilder.at(tmp_path / "there" / "second").add_all("t")
    markdown = leaderboard([tmp_path / "here", tmp_path / "there", first.path])
    (rows,) = tables(markdown)["libero_object"]
    assert [row["run"] for row in rows] == ["first", "second"]


def test_the_command_prints_or_writes(tmp_path, capsys):
    RunBuilder.at(tmp_path / "runs" / "run").add_all("s")
    code, printed, err = command([tmp_path / "runs"], capsys)
    assert (code, err) == (0, "")
    code, out, _ = command([tmp_path / "runs", "-o", tmp_path / "board"], capsys)
    assert (code, out) == (0, f"{tmp_path / 'board' / 'index.html'}\n")
    assert (tmp_path / "board" / "leaderboard.md").read_text() == printed


@pytest.mark.parametrize("path", ["nowhere", "empty", "file"])
def test_without_a_run_there_is_one_line_and_exit_code_2(tmp_path, capsys, path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text(json.dumps({}))
    code, out, err = command([tmp_path / path], capsys)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert path in err
