"""Attributes decode work to one of several robots, as if it were served alone."""

from collections.abc import Sequence

from oxygen.serving.engine import CompletedStep
from oxygen.serving.requests import DecodeJob, DecodeWork
from oxygen.serving.runner import ProgramSizes


def jobs_of_robot(jobs: Sequence[DecodeJob], robot: int) -> list[DecodeJob]:
    """The decode jobs with texts of a robot, in order."""
    return [job for job in jobs if any(request.robot == robot for request in job.rows)]


def work_of_robot(texts: CompletedStep, robot: int, alone: ProgramSizes) -> tuple[DecodeWork, ...]:
    """The work of each decode job of a robot if there were no other robot.

    Args:
        texts: A completed engine step.
        robot: The robot.
        alone: Program shapes for serving it alone.
    """
    return tuple(_work(job, texts, robot, alone) for job in jobs_of_robot(texts.step.plan.jobs, robot))


def _work(job: DecodeJob, texts: CompletedStep, robot: int, alone: ProgramSizes) -> DecodeWork:
    rows = [request for request in job.rows if request.robot == robot]
    new = sum(request.robot == robot for request in job.new)
    if job.to_the_end:  # a stop token is noticed one step later, a limit at once
        steps = min(1 + max(len(request.tokens) for request in rows), max(each.limit for each in rows))
        batch = alone.batch_of(1 if job.own_prefill else len(rows))
    else:
        before = {request: len(request.tokens) - texts.new_tokens.get(request, 0) for request in rows}
        steps = min(texts.step.decode_steps, max(each.limit - before[each] for each in rows))
        batch = alone.rows[-1]
    fork = alone.forks[0] if job.own_prefill else alone.forks[-1]
    return DecodeWork(prefills=int(job.own_prefill), forks=-(-new // fork), steps=steps, batch=batch)
