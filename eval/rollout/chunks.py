"""Action chunks: validation, and how overlapping chunks are combined."""

import enum

import numpy as np
from jaxtyping import Bool, Float64

from configs.errors import UsageError
from configs.interface import ActionSpec, Motion, Rotation
from eval.policies.base import BadAnswerError


class ActionError(ValueError):
    """The policy returned actions that cannot be executed."""


class Overlap(enum.StrEnum):
    """How a new chunk replaces the one that was executed during its computation."""

    SKIP = "skip"
    """Skip the actions of the time steps that the old chunk executed since the observation."""
    BLEND = "blend"
    """As `skip`, and average both chunks over the rest of the old one."""
    RTC = "rtc"
    """As `skip`, and guide denoising towards the old chunk (real-time chunking)."""


def validated_actions(
    actions: object, *, min_actions: int, width: int
) -> Float64[np.ndarray, "horizon action"]:
    """`actions` as an array that can be executed.

    Raises:
        BadAnswerError: They are not numbers.
        ActionError: Fewer than `min_actions` actions, another width, or numbers that are not finite.
    """
    try:
        array = np.asarray(actions).astype(np.float64, casting="same_kind")
    except (TypeError, ValueError) as error:
        what = f"{type(actions).__name__} ({error})"
        raise BadAnswerError(f"the policy's actions are {what}; give numbers [horizon, action]") from error
    if array.ndim != 2 or array.shape[1] != width or array.shape[0] < min_actions:
        raise ActionError(f"actions have shape {array.shape}, should have (at least {min_actions}, {width})")
    if not np.isfinite(array).all():
        row, column = np.argwhere(~np.isfinite(array))[0]
        raise ActionError(
            f"action {row} holds {array[row, column]} in dimension {column}; all must be finite"
        )
    return array


def averaged_channels(action: ActionSpec) -> Bool[np.ndarray, " action"]:
    """Mask of the action channels that are averaged when chunks are blended: all but the grippers'.

    Many robots take gripper channels as open/close commands (LIBERO reads only the sign), whose mean is
    neither.

    Raises:
        UsageError: The action has a rotation whose mean is not a rotation.
    """
    grippers = {gripper.name for gripper in action.grippers}
    arm = [part for part in action.channels if part.name not in grippers]
    small = action.rotation in (Rotation.AXIS_ANGLE, Rotation.EULER_XYZ) and all(
        part.motion is not Motion.ABSOLUTE for part in arm
    )
    if action.rotation is not Rotation.NONE and not small:
        raise UsageError(
            f"overlap 'blend' averages actions, and the mean of rotations ({action.rotation.value}) is not a "
            "rotation; choose skip or rtc"
        )
    return np.concatenate([np.full(part.size, part.name not in grippers) for part in action.channels])


def blend_chunks(
    old: Float64[np.ndarray, "left action"],
    new: Float64[np.ndarray, "horizon action"],
    *,
    late: int,
    channels: Bool[np.ndarray, " action"],
) -> Float64[np.ndarray, "horizon action"]:
    """Blend a new chunk with the rest of the old one.

    The weight of the old chunk falls linearly over the n actions that both have, from n / (n + 1) to
    1 / (n + 1). Without delay the new chunk is returned unchanged.

    Args:
        old: The rest of the old chunk, from the action executed when the observation was taken.
        new: The new chunk.
        late: Actions of the old chunk executed before the new one is available.
        channels: Mask of averaged channels; the others are taken from the new chunk.
    """
    end = min(len(old), len(new))
    if late == 0 or late >= end:
        return new
    weight = np.arange(end - late, 0, -1)[:, None] / (end - late + 1)
    mean = weight * old[late:end] + (1 - weight) * new[late:end]
    result = new.copy()
    result[late:end] = np.where(channels, mean, new[late:end])
    return result
