"""The tables at the end of a run have room for what they show in 80 columns."""

import io

import pytest
from rich.console import Console

from eval.metrics.success import summarize
from eval.records.schema import Share, TextScores
from eval.report.tables import format_results, run_table, table_notes, tasks_table, variants_table
from sim_envs.libero.tasks import list_tasks
from tests.eval.factory import RunBuilder, episode, key, query


@pytest.mark.parametrize("modes", [("unified",), ("isolated", "parallel")])
def test_instructions_are_whole_beside_what_two_modes_solved(tmp_path, modes):
    run = RunBuilder.at(tmp_path / "run")
    for task in list_tasks("libero_object"):
        run.add(episode(key(0, task.task_id), task=task.name, instruction=task.language))
    results, file = summarize(run.path), io.StringIO()
    Console(file=file, width=80).print(tasks_table("tasks", dict.fromkeys(modes, results), width=80))
    lines = [" ".join(line.split()) for line in file.getvalue().splitlines()]
    for task in list_tasks("libero_object"):
        assert f"{task.task_id} {task.language}{' 1/1' * len(modes)}" in lines


def test_rows_can_be_told_apart_in_80_columns_with_all_there_is_to_show(tmp_path):
    """Thousands of episodes, errors, slow queries and scores of texts."""
    run = RunBuilder.at(tmp_path / "run")
    scores = TextScores(
        texts=1,
        not_graded=0,
        oracle=0,
        staleness_s=0.0,
        at_request={"all": Share(hits=1, of=1)},
        on_delivery={"all": Share(hits=1, of=1)},
    )
    for task in list_tasks("libero_goal"):
        said = {"task": task.name, "language": task.language, "texts": {"narration": scores}}
        run.add(episode(key(0, task.task_id), **said), query(action=12345.6, frame=12345.6))
        run.add(episode(key(1, task.task_id), "error", task=task.name, language=task.language))
    results, file = summarize(run.path), io.StringIO()
    Console(file=file, width=80).print(run_table("tasks", results, width=80))
    lines = file.getvalue().splitlines()
    rows = [line for line in lines if "12346" in line][:10]
    assert max(map(len, lines)) <= 80
    assert len({row[4:20] for row in rows}) == 10
    assert all(" 1 100.0 % 20.7–100.0  12346  12346 " in row and row.endswith(" 1   100 ") for row in rows)


def test_a_column_of_errors_is_there_where_there_are_any(tmp_path):
    shown = {}
    for outcomes in ("ss", "se"):
        run = RunBuilder.at(tmp_path / outcomes).add_all(outcomes)
        table = run_table("tasks", summarize(run.path), width=80)
        shown[outcomes] = [column.header for column in table.columns]
    assert [header for header in shown["se"] if header not in shown["ss"]] == ["errors"]


def narrations(requested, delivered, *, of=100, late_s=0.94, not_graded=0):
    return TextScores(
        texts=of + not_graded,
        not_graded=not_graded,
        oracle=0,
        staleness_s=late_s * (of + not_graded),
        at_request={name: Share(hits=requested, of=of) for name in ("all", "f1")} if of else {},
        on_delivery={name: Share(hits=delivered, of=of) for name in ("all", "f1")} if of else {},
    )


def play(path, clock, *, outcomes="ssst", seconds=6.1, hz=5.0, suites=("libero_object",), **texts):
    """A run of so many episodes per suite, which took so long and queried so often."""
    run = RunBuilder.at(path, config={"clock": clock})
    said = texts or {"narration": narrations(98, 81), "memory": narrations(100, 89)}
    for suite in suites:
        for init_id, letter in enumerate(outcomes):
            outcome = {"s": "success", "t": "timeout", "e": "error"}[letter]
            timed = {"simulated_s": seconds, "steps": 200, "queries": round(hz * seconds), "held_steps": 25}
            result = episode(key(init_id, suite=suite), outcome, texts=said, **timed)
            run.add(result, query(action=12345.6, frame=12345.6))
    return summarize(run.path)


def printed(table, width=80):
    file = io.StringIO()
    Console(file=file, width=width).print(table)
    return file.getvalue().splitlines()


def row_of(lines, label):
    (row,) = [line.split() for line in lines if line.split()[:1] == [label]]
    return row


@pytest.mark.parametrize("suites", [("libero_object",), ("libero_object", "libero_goal")])
@pytest.mark.parametrize("counts", [{}, {"n_episodes": 4500, "n_errors": 12}])
@pytest.mark.parametrize("clock", ["paused", "profile:jetson-thor"])
def test_tables_of_every_clock_fit_80_columns(tmp_path, clock, counts, suites):
    modes = ("actions", "isolated", "shared", "parallel", "unified")
    results = play(tmp_path / "run", clock, suites=suites, seconds=999.9)
    for row in (results["overall"], *results["per_suite"].values(), *results["per_task"]):
        row.update(counts)
    for table in (
        variants_table(dict.fromkeys(modes, results), width=80),
        run_table("tiny", results, width=80),
    ):
        lines = printed(table)
        assert max(map(len, lines)) <= 80
        assert "…" not in "".join(lines)
    variants = printed(variants_table(dict.fromkeys(modes, results), width=80))
    assert all(len([line for line in variants if f" {mode} " in line]) == len(suites) for mode in modes)


def test_under_a_clock_a_row_shows_what_was_charged_and_not_what_the_machine_took(tmp_path):
    variants = {
        "isolated": play(tmp_path / "a", "profile:jetson-thor", outcomes="st", seconds=9.44, hz=1.2),
        "unified": play(tmp_path / "b", "profile:jetson-thor", memory=narrations(0, 0, of=0, not_graded=3)),
    }
    lines = printed(variants_table(variants, width=80))
    assert lines[1].split() == ["time", "query", "held", "stale", "narr.", "mem."]
    assert lines[2].split() == ["mode", "n", "success", "95", "%", "s", "Hz", "%", "ms", "%", "%"]
    assert row_of(lines, "isolated")[-6:] == ["9.4", "1.17", "12", "940", "98→81", "100→89"]
    assert row_of(lines, "unified")[-6:] == ["6.1", "4.92", "12", "940", "–", "–"]
    assert "12346" not in "".join(lines)


def test_under_clock_paused_a_row_shows_the_machines_latency_beside_the_time_to_success(tmp_path):
    lines = printed(variants_table({"unified": play(tmp_path / "run", "paused")}, width=80))
    headings = " ".join(lines[2].split())
    assert headings == "mode n success 95 % s ms ms tok/s % %"
    assert row_of(lines, "unified")[-6:] == ["6.1", "12346", "12346", "15", "98", "100"]


def test_what_has_no_room_beside_the_tasks_gives_way_in_order(tmp_path):
    results = play(tmp_path / "run", "paused", outcomes="se")
    headings = {
        width: [str(column.header).split("\n")[0] for column in run_table("", results, width=width).columns]
        for width in (120, 80, 70, 63)
    }
    dropped = {width: set(headings[120]) - set(shown) for width, shown in headings.items()}
    assert dropped == {
        120: set(),
        80: {"tok/s"},
        70: {"tok/s", "frame"},
        63: {"tok/s", "frame", "action"},
    }


def test_without_recorded_time_there_is_no_column_for_it(tmp_path):
    run = RunBuilder.at(tmp_path / "run").add_all("st")
    headings = [str(column.header) for column in run_table("", summarize(run.path), width=80).columns]
    assert not any("time" in heading for heading in headings)
    assert "simulated" not in " ".join(table_notes([summarize(run.path)]))


def test_nothing_solved_has_no_time_to_success(tmp_path):
    lines = printed(variants_table({"unified": play(tmp_path / "run", "measured", outcomes="tt")}, width=80))
    assert row_of(lines, "unified")[5:8] == ["–", "4.92", "12"]


def test_notes_say_the_clock_in_words(tmp_path):
    notes = table_notes([play(tmp_path / "run", "fixed:100,500")])
    assert notes[0] == (
        "Clock fixed:100,500: actions come 100 ms after the observation, and the next query can start after "
        "500 ms; until new actions arrive, the robot continues with the previous chunk."
    )
    assert "action, frame" not in " ".join(notes)
    paused = table_notes([play(tmp_path / "paused", "paused")])
    assert paused[0].startswith("time: median simulated seconds to success")
    assert "Clock" not in " ".join(paused)


@pytest.mark.parametrize(
    ("clock", "compared"),
    [("paused", "it finished; the same texts are"), ("fixed:100", "the texts that it finished.")],
)
def test_texts_are_the_same_only_where_modes_query_at_the_same_moments(tmp_path, clock, compared):
    run = play(tmp_path / "run", clock)
    assert compared in table_notes([run, run])[-1]


@pytest.mark.parametrize(
    ("task", "scores", "line"),
    [
        (
            "narration",
            narrations(4, 3, of=5),
            "5 of 5 texts graded; 80.0 % right when requested, 60.0 % on delivery, 940 ms (simulated) later.",
        ),
        (
            "memory",
            narrations(9, 8, of=10, not_graded=1, late_s=0.05),
            "10 of 11 texts graded; F1 90.0 % when requested, 80.0 % on delivery, 50 ms (simulated) later.",
        ),
        (
            "narration",
            narrations(1, 1, of=1, late_s=0.0),
            "1 of 1 text graded; 100.0 % right, delivered at once.",
        ),
        (
            "narration",
            narrations(0, 0, of=0, not_graded=2),
            "0 of 2 texts graded; what cannot be read is in no score (docs/language.md).",
        ),
    ],
)
def test_a_line_says_how_right_texts_were_and_how_stale(tmp_path, task, scores, line):
    results = play(tmp_path / "run", "measured", outcomes="s", **{task: scores})
    assert format_results(results["overall"]) == [f"{task}: {line}"]
