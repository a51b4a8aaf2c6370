"""Quality of motion: smoothness of the end effector, and jumps of the executed actions at changes of chunk.

Dimensionless squared jerk is that of Hogan and Sternad (Journal of Motor Behavior 41:529, 2009): the integral
of squared jerk, times the duration to the fifth, over the squared amplitude, which is here the length of the
path. It depends on neither size nor duration of a movement; of a straight minimum-jerk movement it is 720.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float64, Int

from contracts.episode import EpisodeResult, MotionQuality, solved, states_of
from contracts.interface import ActionSpec
from contracts.query import QueryRecord
from eval.metrics.statistics import Interval, MeanDifference, mean_95, mean_difference

_HOLDING = -1  # stands for the query of a chunk while the robot holds still

MEASURES = tuple(field.name for field in dataclasses.fields(MotionQuality))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mean:
    """The mean of a measure over episodes."""

    mean: float
    ci95: Interval | None  # its 95 % bootstrap interval; None if undefined
    n: int  # episodes


def summarize_motion(graded: Sequence[EpisodeResult]) -> dict[str, Mean]:
    """Measure to its mean over the solved episodes that have it.

    Episodes that fail last until the limit, which measures of a whole movement depend on.
    """
    summary = {}
    for measure in MEASURES:
        known = [each for each in graded if solved(each) and getattr(each.motion, measure) is not None]
        if known:
            values = [getattr(each.motion, measure) for each in known]
            interval = mean_95(values, states_of(known))
            summary[measure] = Mean(mean=float(np.mean(values)), ci95=interval, n=len(values))
    return summary


def motion_differences(pairs: Sequence[tuple[EpisodeResult, EpisodeResult]]) -> dict[str, MeanDifference]:
    """Measure to its paired difference, over the pairs (A, B) that both solved and that both have."""
    both = [(a, b) for a, b in pairs if solved(a) and solved(b)]
    found = {}
    for measure in MEASURES:
        values = [(a, (getattr(a.motion, measure), getattr(b.motion, measure))) for a, b in both]
        known = [(a, pair) for a, pair in values if None not in pair]
        difference = mean_difference([pair for _, pair in known], states_of(a for a, _ in known))
        if difference is not None:
            found[measure] = difference
    return found


class EpisodeMotion:
    """Collects the executed actions and the end effector's path of one episode."""

    def __init__(self, action: ActionSpec) -> None:
        self._action = action
        self._executed: list[np.ndarray] = []
        self._chunks: list[int] = []
        self._path: list[np.ndarray] = []

    def add(self, query: QueryRecord) -> None:
        """Add a query and the control steps until the next one."""
        self._executed.extend(query.executed)
        for chunk, _, steps in query.spans:
            self._chunks.extend([_HOLDING if chunk is None else chunk] * steps)
        self._path.extend(query.end_effector[1 if self._path else 0 :])

    def quality(self) -> MotionQuality:
        """The measures of the control steps so far."""
        if not self._executed:
            return MotionQuality()
        path, actions = np.array(self._path).reshape(-1, 3), np.array(self._executed)
        return MotionQuality(
            log_dimensionless_jerk=log_dimensionless_jerk(path),
            path_length_m=path_length(path) if len(path) > 1 else None,
            chunk_jump_ratio=chunk_jump_ratio(actions, np.array(self._chunks), self._action),
            gripper_toggles=gripper_toggles(actions, self._action) if self._action.grippers else None,
        )

    def clipped_steps(self) -> int:
        """Control steps in which an action of the arm was beyond its limits, to which worlds clip it."""
        if self._action.limits is None or not self._executed:
            return 0
        low, high = self._action.limits
        arm = np.array(self._executed)[:, self._action.arm]
        return int(((arm < low) | (arm > high)).any(axis=1).sum())


def log_dimensionless_jerk(path: Float64[np.ndarray, "position 3"]) -> float | None:
    """Natural logarithm of the dimensionless squared jerk of positions at a constant rate; less is smoother.

    Jerk is the third difference, so the rate cancels. None with fewer than three steps, or if nothing moves
    or jerks.
    """
    steps, length = len(path) - 1, path_length(path)
    if steps < 3 or length == 0:
        return None
    squared = float((np.diff(path, n=3, axis=0) ** 2).sum())
    return math.log(squared * steps**5 / length**2) if squared else None


def path_length(path: Float64[np.ndarray, "position 3"]) -> float:
    """Length of the path through the positions, m."""
    return float(np.linalg.norm(np.diff(path, axis=0), axis=1).sum())


def chunk_jump_ratio(
    actions: Float64[np.ndarray, "step action"], chunks: Int[np.ndarray, " step"], spec: ActionSpec
) -> float | None:
    """Mean change of the action per control step at changes of chunk, over that inside chunks.

    The change is the Euclidean distance over all channels but the grippers', within the action's limits.
    Holding still counts as a chunk, whose inside is left out. None without a change of chunk, or if no action
    changes inside one.

    `chunks` is the query that each action is from; negative while the robot holds still.
    """
    arm = actions[:, spec.arm]
    if spec.limits is not None:
        arm = np.clip(arm, *spec.limits)
    jumps = np.linalg.norm(np.diff(arm, axis=0), axis=1)
    changes = chunks[1:] != chunks[:-1]
    inside = jumps[~changes & (chunks[1:] != _HOLDING)]
    if not changes.any() or not inside.any():
        return None
    return float(jumps[changes].mean() / inside.mean())


def gripper_toggles(actions: Float64[np.ndarray, "step action"], spec: ActionSpec) -> int:
    """Changes between commands nearer to open and nearer to closed, summed over the grippers."""
    toggles = 0
    for gripper in spec.grippers:
        commands = actions[:, spec.channel(gripper.name)]
        closing = np.abs(commands - gripper.closed) < np.abs(commands - gripper.open)
        toggles += int((closing[1:] != closing[:-1]).sum())
    return toggles
