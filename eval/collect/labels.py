"""From what was meant at every query to what each frame's action chunk should be.

The label of a frame is what the demonstrator meant at each of the next `horizon` control steps, at the states
that it then was in. It is put together from consecutive queries, for two reasons. An expert plans its chunk
within one motion and stands still at its end, so the far half of a chunk is often not what it then does.
And where noise is added to what is carried out, the disturbed steps lead to states off the path; what was
meant there leads back, and is what a policy must learn (DART, Laskey et al. 2017). The noise itself is never
in a label. The first `replan_steps` of a chunk are exactly what was meant at the frame's own state; what
comes after also answers to disturbances that could not be foreseen, whose mean is zero.

Where a learner has turns between the demonstrator's, only what was meant within one turn is taught.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float64


def stitched(
    meant: Sequence[Float64[np.ndarray, "_ 7"]], steps: Sequence[int], *, horizon: int
) -> tuple[Float64[np.ndarray, "query horizon 7"], Bool[np.ndarray, "query horizon"]]:
    """Every query's action chunk, and where it reaches beyond the episode's end.

    Beyond the end the robot is told to stay where it is, with its gripper as it was.

    Args:
        meant: What was meant at every query: at least as many actions as were carried out.
        steps: How many control steps of each were carried out.
        horizon: Control steps in a chunk.
    """
    done = np.concatenate([chunk[:count] for chunk, count in zip(meant, steps, strict=True)])
    hold = np.zeros_like(done[-1:])
    hold[:, -1] = done[-1, -1]
    endless = np.concatenate([done, np.repeat(hold, horizon, axis=0)])
    starts = np.cumsum([0, *steps[:-1]])
    index = starts[:, None] + np.arange(horizon)
    return endless[index.clip(max=len(done))], index >= len(done)


def taught(
    teaching: Sequence[bool], steps: Sequence[int], *, horizon: int
) -> Bool[np.ndarray, "query horizon"]:
    """Which actions of every query's chunk lie in the turn of a demonstrator who teaches, without a break.

    Args:
        teaching: Whether it was the demonstrator's turn, query by query.
        steps: How many control steps of each query were carried out.
        horizon: Control steps in a chunk.
    """
    whose = np.repeat(teaching, steps)
    ends = np.flatnonzero(np.diff(whose, append=~whose[-1:])) + 1
    starts = np.cumsum([0, *steps[:-1]])
    left = ends[np.searchsorted(ends, starts, side="right")] - starts
    return np.asarray(teaching)[:, None] & (np.arange(horizon) < left[:, None])
