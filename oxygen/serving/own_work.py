"""What the language of one robot costs in an engine step of several: the work as it would be done alone."""

from collections.abc import Sequence

from oxygen.serving.engine import StepTexts
from oxygen.serving.requests import DecodeJob, DecodeWork
from oxygen.serving.runner import Sizes


def own_jobs(jobs: Sequence[DecodeJob], robot: int) -> list[DecodeJob]:
    """The decode jobs that have texts of a robot, in order."""
    return [job for job in jobs if any(request.robot == robot for request in job.rows)]


def own_work(texts: StepTexts, robot: int, alone: Sizes) -> tuple[DecodeWork, ...]:
    """What each decode job of a robot would have computed if there were no other robot.

    Args:
        texts: The language of an engine step that is over.
        robot: The robot.
        alone: The shapes that would serve it by itself.
    """
    return tuple(_work(job, texts, robot, alone) for job in own_jobs(texts.step.plan.jobs, robot))


def _work(job: DecodeJob, texts: StepTexts, robot: int, alone: Sizes) -> DecodeWork:
    rows = [request for request in job.rows if request.robot == robot]
    new = sum(request.robot == robot for request in job.new)
    if job.to_the_end:  # the end is noticed one step after the last token, unless the limit told it before
        steps = min(1 + max(len(request.tokens) for request in rows), max(each.limit for each in rows))
        batch = alone.batch_of(1 if job.own_prefill else len(rows))
    else:
        before = {request: len(request.tokens) - texts.new_tokens.get(request, 0) for request in rows}
        steps = min(texts.step.decode_steps, max(each.limit - before[each] for each in rows))
        batch = alone.rows[-1]
    fork = alone.forks[0] if job.own_prefill else alone.forks[-1]
    return DecodeWork(prefills=int(job.own_prefill), forks=-(-new // fork), steps=steps, batch=batch)
