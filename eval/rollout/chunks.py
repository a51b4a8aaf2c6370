"""Chunks of actions: what may be executed, and what becomes of two that overlap in time."""

import enum

import numpy as np
from jaxtyping import Bool, Float64

from configs.errors import UsageError
from configs.interface import ActionSpec, Motion, Rotation


class ActionError(ValueError):
    """The policy answered with something that must not reach a simulator."""


class Overlap(enum.StrEnum):
    """How a chunk that has come begins, where the chunk before went on until then."""

    SKIP = "skip"
    """After as many of its actions as old ones were executed since its observation."""
    BLEND = "blend"
    """There, too; over the rest of the old chunk the two are averaged."""
    RTC = "rtc"
    """There, too; it was guided towards the old one as it was computed (real-time chunking)."""


def validated_actions(actions: object, *, least: int, width: int) -> Float64[np.ndarray, "horizon action"]:
    """`actions` as an array a simulator may be given.

    Raises:
        ActionError: Fewer than `least` actions, another width, or numbers that are not finite.
    """
    try:
        array = np.asarray(actions, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ActionError(f"actions are no array of numbers: {error}") from error
    if array.ndim != 2 or array.shape[1] != width or array.shape[0] < least:
        raise ActionError(f"actions have shape {array.shape}, should have (at least {least}, {width})")
    if not np.isfinite(array).all():
        row, column = np.argwhere(~np.isfinite(array))[0]
        raise ActionError(
            f"action {row} holds {array[row, column]} in dimension {column}; all must be finite"
        )
    return array


def averaged_channels(action: ActionSpec) -> Bool[np.ndarray, " action"]:
    """Which channels of an action are averaged where chunks are blended: all but the grippers'.

    Those are commands to open or to close in many robots (in LIBERO the sign alone counts), and the mean of
    both is neither.

    Raises:
        UsageError: The action holds a rotation that is none any more once it is averaged.
    """
    grippers = {gripper.name for gripper in action.grippers}
    arm = [part for part in action.channels if part.name not in grippers]
    small = action.rotation in (Rotation.AXIS_ANGLE, Rotation.EULER_XYZ) and all(
        part.motion is not Motion.ABSOLUTE for part in arm
    )
    if action.rotation is not Rotation.NONE and not small:
        raise UsageError(
            f"overlap 'blend' averages actions, and these hold a rotation ({action.rotation.value}) of which "
            "the mean is none; choose skip or rtc"
        )
    return np.concatenate([np.full(part.size, part.name not in grippers) for part in action.channels])


def blend_chunks(
    old: Float64[np.ndarray, "left action"],
    new: Float64[np.ndarray, "horizon action"],
    *,
    late: int,
    channels: Bool[np.ndarray, " action"],
) -> Float64[np.ndarray, "horizon action"]:
    """A new chunk that takes over from the old one little by little.

    The weight of the old one falls linearly, in equal steps: of n actions that both have from where the new
    one begins, it is n / (n + 1) at the first and 1 / (n + 1) at the last. A chunk that comes at once takes
    over at once.

    Args:
        old: What is left of the old chunk, from the action on that is executed as the observation is taken.
        new: The new chunk.
        late: Actions of the old one that are executed until the new one has come.
        channels: Those that are averaged; the others are the new chunk's.
    """
    end = min(len(old), len(new))
    if late == 0 or late >= end:
        return new
    weight = np.arange(end - late, 0, -1)[:, None] / (end - late + 1)
    mean = weight * old[late:end] + (1 - weight) * new[late:end]
    result = new.copy()
    result[late:end] = np.where(channels, mean, new[late:end])
    return result
