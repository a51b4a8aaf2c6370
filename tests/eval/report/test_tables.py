"""The tables at the end of a run have room for what they show in 80 columns."""

import io

import pytest
from rich.console import Console

from eval.metrics.success import summarize
from eval.report.tables import tasks_table
from sim_envs.libero.tasks import list_tasks
from tests.eval.factory import RunBuilder, episode, key


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
