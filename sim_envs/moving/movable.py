"""Refuses tasks in which nothing can move."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from configs.errors import UsageError
from sim_envs.suite import Task

TaskT = TypeVar("TaskT", bound=Task)


def require_movable(
    tasks: Iterable[TaskT], motion: str, others: Sequence[TaskT], can_move: Callable[[TaskT], bool]
) -> None:
    """Check that every task has an object that can move.

    Args:
        tasks: The tasks to be run.
        motion: The motion, in the syntax of `--motion`.
        others: All tasks of the suite.
        can_move: Whether a task has one.

    Raises:
        UsageError: Some tasks have none; the message names the suite's tasks that do.
    """
    still = [task for task in tasks if not can_move(task)]
    if not still:
        return
    can = [str(task.task_id) for task in others if can_move(task)]
    numbers = ", ".join(str(task.task_id) for task in still)
    raise UsageError(
        f"motion {motion}: in {still[0].suite} task {numbers}, the object to be grasped cannot move: it is "
        "in or on another object, or nothing is grasped; "
        + (f"give --task-ids {' '.join(can)}" if can else "give another suite, or leave out --motion")
    )
