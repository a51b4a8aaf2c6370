"""The tables at the end of a run have room for what they show in 80 columns."""

import io

import pytest
from rich.console import Console

from eval.metrics.success import summarize
from eval.records.schema import Share, TextScores
from eval.report.tables import run_table, tasks_table
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
        staleness_ms=0.0,
        staleness_s=0.0,
        born={"all": Share(hits=1, of=1)},
        arrived={"all": Share(hits=1, of=1)},
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
