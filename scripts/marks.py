"""(a, b) of each mode on the profiles of devices: a mark on the response surface.

The work of a query is that of the engine's own scheduler in its steady state, with a narration and a memory
requested in every query, as long as those of the bundled policy, and a query every 5 control steps or later.
"""

import itertools
from collections.abc import Sequence
from typing import get_args

from configs.latency import steps_in
from configs.load import load
from configs.profile import ProfileConfig
from configs.schema import Mode as ModeName
from eval.report.sweep_plots import Mark
from eval.rollout.latency_model import LatencyModel
from oxygen.serving.engine_config import texts_in_progress
from oxygen.serving.language import LanguageTask
from oxygen.serving.requests import DecodeJob, DecodeWork
from oxygen.serving.scheduler import Mode, Scheduler

TEXTS = {"narration": (24, 9), "memory": (48, 14)}
"""Token limit of each text, and its length with the stop token: means of `tiny` on libero_object."""
REPLAN_STEPS, CONTROL_HZ = 5, 20.0
KINDS = {
    "published": ("rtx4090", "jetson-thor", "oxygen-libero"),
    "roofline": ("rtx4090-roofline", "jetson-thor-roofline", "h200"),
}
"""Profiles as published, and of what the hardware could do: never in one figure."""
PRICES = (0.7, 1.0, 1.3)
"""Factors of all stage times: the bar of a mark."""
_BUDGETED = ("interleaved", "unified")
_STOP, _QUERIES = 1, 60


def marks_of(profiles: Sequence[str]) -> list[Mark]:
    """The marks of every profile, mode, and k of 1 and 5 tokens per query where that is an option."""
    shown = [
        name
        for name in ("actions", "isolated", "interleaved", "shared", "unified")
        if name in get_args(ModeName)
    ]
    marks = []
    for profile, mode in itertools.product((load(ProfileConfig, each) for each in profiles), shown):
        price = LatencyModel(profile, mode)
        for k in (1, 5) if mode in _BUDGETED else (None,):
            busy_ms = price.busy_ms(steady_work(Mode(mode), k or 1))
            mark = Mark(
                label=f"{profile.name} {mode}" + (f", k={k}" if k else ""),
                a=[steps_in(factor * price.action_ms, CONTROL_HZ) for factor in PRICES],
                b=[max(REPLAN_STEPS, steps_in(factor * busy_ms, CONTROL_HZ)) for factor in PRICES],
            )
            marks.append(mark)
    return marks


def steady_work(mode: Mode, k: int) -> list[DecodeWork]:
    """The decode jobs of a query once as many texts run as ever will."""
    tasks = [
        LanguageTask(name=name, prompt=name, suffix=(0,), stop_token=_STOP, max_tokens=limit)
        for name, (limit, _) in TEXTS.items()
    ]
    rows = texts_in_progress(tasks, k)
    scheduler = Scheduler(mode=mode, tasks=tasks, slots=rows, rows=rows)
    lengths = [length for _, length in TEXTS.values()]
    work: list[DecodeWork] = []
    for query in range(_QUERIES):
        jobs = scheduler.plan({0: query}).jobs
        work = [_work(job, lengths, k) for job in jobs]
        tokens = {}
        for job, done in zip(jobs, work, strict=True):
            for request in job.rows:
                written, length = len(request.tokens) + done.steps, lengths[request.task]
                tokens[request.slot] = [0] * min(written, length)
                if written >= length:
                    tokens[request.slot][-1] = _STOP
        scheduler.commit(tokens)
    return work


def _work(job: DecodeJob, lengths: Sequence[int], k: int) -> DecodeWork:
    """As the engine reports it."""
    if job.to_the_end:  # a stop token is noticed one step later
        steps = min(1 + max(lengths[request.task] for request in job.rows), job.steps)
    else:
        steps = min(k, job.steps)
    batch = 1 if job.own_prefill else max(job.batch, len(job.rows))
    new = int(bool(job.new))
    return DecodeWork(prefills=new * job.own_prefill, forks=new, steps=steps, batch=batch)
