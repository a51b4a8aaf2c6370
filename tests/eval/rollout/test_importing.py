"""Results of other programs become runs: compared, ranked, shown. What is wrong in them is one line."""

import csv
import itertools
import json
from pathlib import Path

import pytest

from contracts.episode import Outcome
from contracts.errors import UsageError
from eval import import_results as command
from eval.export import main as export
from eval.records.reader import RunRecords
from eval.records.run_folders import find_unfinished
from eval.records.schema import RunFolder
from eval.report.comparison_verdict import judge_all
from eval.report.leaderboard import read_leaderboard
from eval.rollout.importing import import_results
from eval.rollout.merging import merge
from tests.eval.factory import RunBuilder, compare, episode, key, run_rows, write_report

FILES = Path(__file__).parent / "imports"
LEROBOT, VLA_EVAL = FILES / "eval_info.json", FILES / "libero_object_aggregate.json"
TABLE = "task_id,init_id,outcome\n0,0,success\n0,1,timeout\n1,0,true\n1,1,0\n"


@pytest.fixture
def table(tmp_path):
    file = tmp_path / "table.csv"
    file.write_text(TABLE)
    return file


def imported(file: Path, folder: Path, **how) -> RunFolder:
    return import_results(file, folder, **{"policy": "act", "protocol": "lerobot", **how})


def solved(run: RunFolder) -> dict[tuple[int, int], bool]:
    return {(k.task_id, k.init_id): each.outcome is Outcome.SUCCESS for k, each in run.episodes().items()}


def played(folder: Path, outcomes: str, protocol: str | None = "lerobot", **manifest) -> RunBuilder:
    """A run of two tasks that was played here."""
    run = RunBuilder.at(folder, config={"protocol": protocol, "seeds": [7]}, **manifest)
    half = len(outcomes) // 2
    for place, letter in enumerate(outcomes):
        run.add(episode(key(place % half, place // half), "success" if letter == "s" else "timeout"))
    return run


def test_lerobots_file_has_the_episodes_of_each_task_whose_initial_states_are_unknown(tmp_path):
    run = imported(LEROBOT, tmp_path)
    assert [*solved(run).values()] == [*map(bool, (1, 1, 0, 1, 1, 0, 1, 0, 1, 0))]
    first = next(iter(run.episodes().values()))
    assert first.instruction == "pick up the alphabet soup and place it in the basket"
    assert run_rows(run).overall.pc_success == 60.0
    assert run_rows(run).overall.mean_steps is None
    assert json.loads(run.results_path.read_text())["overall"]["eval_s"] is None
    assert not RunRecords(run).identity.names_states
    assert RunRecords(imported(LEROBOT, tmp_path, in_order=True)).identity.names_states


def test_vla_evals_episodes_begin_in_their_states_and_its_errors_are_errors(tmp_path):
    run = imported(VLA_EVAL, tmp_path, protocol="vla-eval")
    assert solved(run)[0, 2] is False
    row = run_rows(run).overall
    assert (row.n_success, row.n_episodes, row.n_errors) == (6, 7, 1)
    failed = run.episodes()[key(0, 1)]
    assert (failed.outcome, failed.steps, failed.error) == (Outcome.ERROR, 31, "timeout=30s: no action")
    assert RunRecords(run).identity.names_states


def test_a_table_has_outcomes_in_words_or_numbers_and_may_be_excels(tmp_path, table):
    assert solved(imported(table, tmp_path, suite="libero_object")) == {
        (0, 0): True,
        (0, 1): False,
        (1, 0): True,
        (1, 1): False,
    }
    named = tmp_path / "named.csv"
    named.write_text("suite,task,success\ncalvin,open drawer,1\ncalvin,close drawer,0\n", "utf-8-sig")
    run = imported(named, tmp_path, protocol="calvin-abcd")
    assert {each.key.task_id: each.task for each in run.episodes().values()} == {
        1: "open drawer",
        0: "close drawer",
    }


@pytest.mark.parametrize(("to", "name"), [("csv", "a.csv"), ("vla-eval", "a.json")])
def test_what_is_exported_here_is_imported_again(tmp_path, to, name):
    run = RunBuilder.at(tmp_path / "own", config={"protocol": "lerobot"})
    suites = ("libero_object", "libero_goal", "calvin"), ("success", "failure", "invalid_action", "error")
    for task_id, (suite, outcome) in enumerate(itertools.product(*suites)):
        for number, seed in enumerate((7, 8)):
            at = key((3, 1000)[number], task_id % 4, suite, seed)
            run.add(episode(at, outcome, steps=50 + task_id, wall_s=2.5 + number, task=f"task {task_id}"))
    export(run.path, to=to, output=tmp_path / name)
    read = imported(tmp_path / name, tmp_path / to).episodes()
    recorded = ("outcome", "steps", "wall_s", "error")
    assert {at: [getattr(each, part) for part in recorded] for at, each in read.items()} == {
        at: [getattr(each, part) for part in recorded] for at, each in run.folder.episodes().items()
    }
    assert {each.task for at, each in read.items() if at.suite == "calvin"} == {
        f"task {task_id}" for task_id in range(8, 12)
    }


def test_lerobots_format_has_outcomes_and_no_initial_states(tmp_path):
    run = played(tmp_path / "own", "sstt" + "stst")
    export(run.path, to="lerobot", output=tmp_path / "a.json")
    assert solved(imported(tmp_path / "a.json", tmp_path / "lerobot")) == solved(run.folder)


def test_lerobots_format_counts_errors_beside_the_episodes(tmp_path):
    run = played(tmp_path / "own", "s" * 49 + "t" * 49)
    for task_id, outcome in enumerate(("error", "success")):
        run.add(episode(key(49, task_id), outcome))
    export(run.path, to="lerobot", output=tmp_path / "a.json")
    row = run_rows(imported(tmp_path / "a.json", tmp_path / "lerobot")).overall
    assert (row.n_success, row.n_episodes, row.n_errors) == (50, 99, 1)
    with pytest.raises(UsageError, match="does not say which episodes were errors; leave it out"):
        imported(tmp_path / "a.json", tmp_path / "refused", in_order=True)


def test_steps_that_some_episodes_lack_have_no_mean(tmp_path):
    file = tmp_path / "a.csv"
    file.write_text("task,success,init_id,steps\n0,1,0,100\n0,0,1,\n")
    run = imported(file, tmp_path, suite="libero_object")
    assert run_rows(run).overall.mean_steps is None
    export(run.path, to="csv", output=tmp_path / "b.csv")
    with (tmp_path / "b.csv").open() as lines:
        rows = list(csv.DictReader(lines))
    assert [row["steps"] for row in rows] == ["100", ""]
    assert [row["wall_s"] for row in rows] == ["", ""]
    assert not {"queries", "policy_s"} & rows[0].keys(), "which are not known"
    export(run.path, to="vla-eval", output=tmp_path / "b.json")
    (task,) = json.loads((tmp_path / "b.json").read_text())["tasks"]
    assert (task["avg_steps"], [each["steps"] for each in task["episodes"]]) == (None, [100, None])


def test_runs_are_paired_where_initial_states_are_known(tmp_path):
    own = played(tmp_path / "own", "ssttt" + "ststt")
    for in_order in (True, False):
        run = imported(LEROBOT, tmp_path, in_order=in_order)
        comparison = compare(own.folder, run)
        pairs = comparison.overall
        assert pairs.paired is in_order
        assert (pairs.a.percent, pairs.b.percent) == (40, 60)
        sentence = judge_all(comparison).success.sentence
        assert ("not paired, as initial states are unknown" in sentence) is not in_order
        if in_order:
            assert (pairs.only_a, pairs.only_b, pairs.both) == (2, 4, 2)
        else:
            low, high = pairs.ci95
            assert (low, high) == pytest.approx((-22.8, 56.1), abs=0.1), (
                "Agresti and Caffo's of 4/10 and 6/10"
            )


@pytest.mark.parametrize(
    ("protocol", "said"),
    [("openpi", "openpi and .* imported as lerobot"), (None, "a protocol without a name and .* as lerobot")],
)
def test_another_protocol_is_not_compared_nor_with_partial(tmp_path, protocol, said):
    own, run = played(tmp_path / "own", "stst", protocol), imported(LEROBOT, tmp_path)
    for partial in (False, True):
        with pytest.raises(UsageError, match=f"own was played under {said}"):
            compare(own.folder, run, partial=partial)


def test_what_was_played_otherwise_is_stated_too_and_must_be_equal(tmp_path):
    own = played(tmp_path / "own", "ssttt" + "ststt")
    config = own.folder.read_manifest()["config"]
    small = {"camera_size": 32, "max_steps": 60}
    run = imported(LEROBOT, tmp_path, changes=small)
    with pytest.raises(UsageError, match=r"under lerobot and .* as lerobot\*; max steps 60; camera size 32"):
        compare(own.folder, run)
    for changed in (small, {**small, "clock": "fixed:100"}):
        own.folder.write_manifest({**own.folder.read_manifest(), "config": {**config, **changed}})
        if "clock" in changed:
            with pytest.raises(UsageError, match="clock fixed:100"):
                compare(own.folder, run)
        else:
            assert compare(own.folder, run).overall.graded == 10


def test_imported_runs_are_ranked_among_themselves_and_shown(tmp_path):
    played(tmp_path / "runs" / "own", "ssttt" + "ststt")
    better = json.loads(LEROBOT.read_text())
    for task in better["per_task"]:
        task["metrics"]["successes"] = [True] * 5
    (tmp_path / "better.json").write_text(json.dumps(better))
    run = imported(LEROBOT, tmp_path / "runs")
    other = imported(tmp_path / "better.json", tmp_path / "runs", policy="better")
    tables = {table.title: table.table.rows for table in read_leaderboard([tmp_path / "runs"]).tables}
    (title, rows), *_ = [(title, rows) for title, rows in tables.items() if "imported" in title]
    assert "initial states: unknown" in title
    assert [(entry.label, entry.rank.best) for entry in rows] == [
        ("better (imported)", 1),
        ("act (imported)", 2),
    ]
    assert len(tables) == 2
    page = write_report([run.path, other.path], tmp_path / "page").read_text()
    assert "act (imported), better (imported) on libero_object" in page
    assert "imported from LeRobot" in page
    assert "rows are not pairs of episodes" in page


def test_imported_results_are_neither_resumed_nor_joined(tmp_path):
    run = imported(VLA_EVAL, tmp_path, protocol="vla-eval")
    with pytest.raises(UsageError, match="nothing to resume: no unfinished run"):
        find_unfinished(tmp_path, {"policy": "act"})
    with pytest.raises(UsageError, match="is imported; join files"):
        merge([run, run], tmp_path)


def changed(file: Path, folder: Path, change) -> Path:
    content = json.loads(file.read_text())
    change(content)
    broken = folder / file.name
    broken.write_text(json.dumps(content))
    return broken


def _episodes(content: dict) -> list[dict]:
    return content["tasks"][0]["episodes"]


@pytest.mark.parametrize(
    ("file", "change", "said"),
    [
        (LEROBOT, lambda c: c["per_task"].append(c["per_task"][0]), "n_episodes is 10, and per_task has 15"),
        (LEROBOT, lambda c: c["per_task"][1].update(task_id=0), "successes[0]: episode libero_object.0.0.7"),
        (LEROBOT, lambda c: c["per_task"][0].update(task_id=12), "libero_object has no task 12; its"),
        (LEROBOT, lambda c: c["per_task"][0]["metrics"].pop("successes"), "successes is missing"),
        (LEROBOT, lambda c: c["per_task"][0]["metrics"].update(successes=["maybe"]), "successes.0"),
        (LEROBOT, lambda c: c.pop("per_task"), "has neither per_task"),
        (VLA_EVAL, lambda c: _episodes(c).pop(), "num_episodes is 4, and it has 3"),
        (VLA_EVAL, lambda c: c["tasks"][0].update(task="pick up the alphabet soap"), "did you mean 'pick up"),
        (VLA_EVAL, lambda c: _episodes(c)[1].update(episode_id=0), "also tasks[0].episodes[0]"),
        (VLA_EVAL, lambda c: _episodes(c)[3].update(episode_id=4), "episode libero_object.0.3.7 is missing"),
        (VLA_EVAL, lambda c: _episodes(c)[3].update(episode_id=50), "has 50 initial states"),
        (VLA_EVAL, lambda c: _episodes(c)[3]["metrics"].clear(), "metrics.success is None"),
        (VLA_EVAL, lambda c: _episodes(c)[2].update(elapsed_sec=float("nan")), "2.elapsed_sec is nan"),
        (VLA_EVAL, lambda c: c["config"].clear(), "does not name a suite; give --suite"),
    ],
)  # fmt: skip
def test_a_broken_file_is_refused_in_a_line_that_names_the_place(tmp_path, file, change, said):
    broken = changed(file, tmp_path, change)
    with pytest.raises(UsageError) as refusal:
        imported(broken, tmp_path / "runs")
    assert said in str(refusal.value)
    assert file.name in str(refusal.value)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "task_id,init_id\n0,0\n",
            "line 1: has columns task_id, init_id; give task (or task_id) and outcome",
        ),
        (
            "task_id,initial_state,outcome\n0,0,success\n",
            "column 'initial_state' is not read; call it 'init_id'",
        ),
        ("task_id,init,outcome\n0,0,success\n", "column 'init' is not read; call it 'init_id'"),
        ("task_id,init_id,seeds,outcome\n0,0,7,success\n", "column 'seeds' is not read; call it 'seed'"),
        (
            "task_id,task,outcome\n0,pick up the milk and place it in the basket,success\n",
            "task 0 of libero_object is 'pick up the alphabet soup and place it in the basket', not",
        ),
        (
            "suite,task,outcome\nlibero_90,close the top drawer of the cabinet,success\n",
            "tasks of libero_90 are 'close the top drawer of the cabinet'; give their numbers or names, such",
        ),
        (TABLE + "1,2\n", "line 6: has not 3 values"),
        (TABLE + "1,2,sucess\n", "line 6: 'sucess'; did you mean 'success'"),
        (TABLE + "1,1,success\n", "line 6: episode libero_object.1.1.7 is also line 5"),
        (TABLE + "1,2,success\n", "episode libero_object.0.2.7 is missing"),
        (TABLE + "1,-2,success\n", "line 6: init_id is '-2'; give a number from 0"),
        (TABLE + '1,"2,success\n', "give a CSV file"),
        ("task_id,outcome,outcome\n0,success,failure\n", "line 1: has column 'outcome' twice"),
        ("task_id,outcome,seed\n0,success,4294967296\n", "table.csv: seeds.0 is 4294967296"),
        ("task_id,init_id,outcome\n", "has 0 episodes"),
        ("", "has columns none"),
    ],
)
def test_a_broken_table_is_refused_in_a_line_that_names_the_row(tmp_path, table, text, said):
    table.write_text(text)
    with pytest.raises(UsageError) as refusal:
        imported(table, tmp_path / "runs", suite="libero_object")
    assert said in str(refusal.value)
    assert not (tmp_path / "runs").exists()


def test_the_command_says_what_it_read_and_what_it_cannot_use(tmp_path, capsys, refused):
    given = [LEROBOT, "--policy", "act", "--output-dir", tmp_path / "runs"]
    command.app([*map(str, given), "--protocol", "lerobot"], result_action="return_value")
    said = capsys.readouterr().out
    assert "act solved 60 % of 10 episodes (95 % interval 31 to 83 %)." in said
    assert "Initial states are unknown" in said
    cut = tmp_path / "cut.json"
    cut.write_text(LEROBOT.read_text()[:400])
    for words, told in (
        ([*given, "--protocol", "lerobt"], "unknown protocol 'lerobt'; did you mean 'lerobot'"),
        ([cut, *given[1:], "--protocol", "lerobot"], "cut.json: not JSON"),
        ([VLA_EVAL, *given[1:], "--protocol", "lerobot", "--in-order"], "--in-order: "),
        ([tmp_path / "none.json", *given[1:], "--protocol", "lerobot"], "none.json"),
    ):
        assert told in refused(command.app, *words)
