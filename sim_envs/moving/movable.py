"""Refuses tasks in which nothing can move."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from configs.errors import UsageError
from configs.motion import parse_motion
from sim_envs.suite import Task

TaskT = TypeVar("TaskT", bound=Task)


def require_movable(
    tasks: Iterable[TaskT], motion: str | None, others: Sequence[TaskT], can_move: Callable[[TaskT], bool]
) -> None:
    """Check that every task has an object that can move, if any has to.

    Args:
        tasks: The tasks to be run.
        motion: The motion, in the syntax of `--motion`; None for no motion.
        others: All tasks of the suite.
        can_move: Whether a task has one.

    Raises:
        UsageError: Some tasks have none; the message names the suite's tasks that do.
    """
    if motion is None or parse_motion(motion) is None:
        return
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
