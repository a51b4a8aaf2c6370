"""(a, b) of each mode on the profiles of devices: a mark on the response surface.

The work of a query is that of the engine in its steady state, with a narration and a memory requested in
every query, as long as those of the bundled policy, and a query every 5 control steps or later.
"""

import itertools
import math
from collections.abc import Sequence

from configs.latency import steps_in
from configs.load import load
from configs.profile import ProfileConfig
from configs.schema import Mode as ModeName
from eval.report.sweep_plots import Mark
from eval.rollout.clock import LatencyModel
from oxygen.serving.requests import DecodeWork
from oxygen.serving.scheduler import Mode

LIMITS, LENGTHS = (24, 48), (9, 14)
"""Token limits of a narration and a memory, and their lengths with the stop token: means of `tiny` on
libero_object."""
REPLAN_STEPS, CONTROL_HZ = 5, 20.0
KINDS = {
    "published": ("rtx4090", "jetson-thor", "oxygen-libero"),
    "roofline": ("rtx4090-roofline", "jetson-thor-roofline", "h200"),
}
"""Profiles as published, and of what the hardware could do: never in one figure."""
PRICES = (0.7, 1.0, 1.3)
"""Factors of all stage times: the bar of a mark."""
_BUDGETED = ("interleaved", "unified")


def marks_of(profiles: Sequence[str]) -> list[Mark]:
    """The marks of every profile, mode, and k of 1 and 5 tokens per query where that is an option."""
    marks = []
    modes: tuple[ModeName, ...] = ("actions", "isolated", "interleaved", "shared", "unified")
    for profile, mode in itertools.product((load(ProfileConfig, each) for each in profiles), modes):
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
    """The decode jobs of a query once as many texts run as ever will.

    Whole texts take one step more, in which the stop token is noticed. The batch of `unified` has room for
    texts of any length.
    """
    match mode:
        case Mode.ISOLATED:
            return [DecodeWork(prefills=1, forks=1, steps=length + 1, batch=1) for length in LENGTHS]
        case Mode.SHARED:
            return [DecodeWork(prefills=0, forks=1, steps=max(LENGTHS) + 1, batch=len(LENGTHS))]
        case Mode.UNIFIED:
            rows = sum(math.ceil(limit / k) for limit in LIMITS)
            return [DecodeWork(prefills=0, forks=1, steps=k, batch=rows)]
        case Mode.INTERLEAVED:
            running = sum(math.ceil(length / k) for length in LENGTHS)
            ages = [1] * len(LENGTHS) + [0] * (running - len(LENGTHS))
            return [DecodeWork(prefills=new, forks=new, steps=k, batch=1) for new in ages]
        case _:
            return []
