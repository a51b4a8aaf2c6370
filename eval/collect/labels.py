"""Makes each frame's action chunk of the intended actions of consecutive queries.

The label of a frame has the actions intended at each of the next `horizon` control steps, in the states
then reached, for two reasons. An expert plans a chunk within one motion and stands still at its end, so the
second half of a chunk often differs from its later actions. And noise on executed actions leads to states
off the path; the actions intended there lead back, and a policy must learn them (DART, Laskey et al. 2017).
Labels have no noise. The first `replan_steps` actions of a chunk are those intended at the frame's own
state; later ones also respond to disturbances that could not be foreseen, with mean zero.

If a learner acts in turns with the demonstrator, a label ends with the demonstrator's turn.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float64


def action_labels(
    intended: Sequence[Float64[np.ndarray, "_ 7"]], steps: Sequence[int], *, horizon: int
) -> tuple[Float64[np.ndarray, "query horizon 7"], Bool[np.ndarray, "query horizon"]]:
    """The action chunk of each query, and a mask of its actions beyond the episode's end.

    Beyond the end the robot holds still, with the gripper's last command.

    Args:
        intended: Intended actions of each query; at least as many as were executed.
        steps: Executed control steps of each query.
        horizon: Control steps in a chunk.
    """
    executed = np.concatenate([chunk[:count] for chunk, count in zip(intended, steps, strict=True)])
    hold = np.zeros_like(executed[-1:])
    hold[:, -1] = executed[-1, -1]
    extended = np.concatenate([executed, np.repeat(hold, horizon, axis=0)])
    starts = np.cumsum([0, *steps[:-1]])
    index = starts[:, None] + np.arange(horizon)
    return extended[index.clip(max=len(executed))], index >= len(executed)


def learnable(
    by_expert: Sequence[bool], steps: Sequence[int], *, horizon: int
) -> Bool[np.ndarray, "query horizon"]:
    """A mask of the actions of each query's chunk that lie within the demonstrator's current turn.

    Args:
        by_expert: Whether the demonstrator acted, by query.
        steps: Executed control steps of each query.
        horizon: Control steps in a chunk.
    """
    by_step = np.repeat(by_expert, steps)
    ends = np.flatnonzero(np.diff(by_step, append=~by_step[-1:])) + 1
    starts = np.cumsum([0, *steps[:-1]])
    left = ends[np.searchsorted(ends, starts, side="right")] - starts
    return np.asarray(by_expert)[:, None] & (np.arange(horizon) < left[:, None])
