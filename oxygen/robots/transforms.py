"""Transforms between robots and the model: observations in, actions out. LIBERO and DROID as in openpi."""

import dataclasses
import enum
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from configs.droid import CONTROL_HZ, DAMPING, MAX_STEP, STIFFNESS
from contracts.errors import UsageError, check_has, unknown
from contracts.interface import Channels, Interface
from oxygen.model.config import ModelInput, Pi05Config
from oxygen.robots import conventions as specs
from oxygen.robots.images import camera_images
from oxygen.robots.norms import (
    MEASURED,
    QUANTILES,
    QuantileNorm,
    Statistics,
    checkpoint_norms,
    read_statistics,
)
from oxygen.robots.tokenizer import CompactStatePrompt, InstructionPrompt, StatePrompt, Tokenizer, fitted
from oxygen.typing import Float, Float32, Float64


class Prediction(enum.StrEnum):
    """What a policy's weights predict for the arm."""

    ACTIONS = "actions"
    """The robot's actions."""
    POSITION_DELTAS = "position deltas"
    """Differences of position targets from the state of the query, as with openpi's `DeltaActions`."""
    VELOCITIES = "velocities"
    """DROID's joint velocities, for a robot that takes joint positions: see `tracked`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Embodiment:
    """A kind of robot, with the conventions of the policies trained on it."""

    interface: Interface  # declared conventions; the environment's must match
    prompt: InstructionPrompt  # its format
    asset_id: str  # subfolder of a checkpoint's `assets` for its statistics
    closes_above: float | None = None  # threshold that makes gripper actions binary; else continuous
    clips: bool = False  # whether the transform clips actions to the interface's limits
    predicts: Prediction = Prediction.ACTIONS  # what the weights predict for the arm

    def origin(self, state: Float[np.ndarray, "*batch state"]) -> Float64[np.ndarray, "*batch action"]:
        """The action that the model's are differences from: zeros, but positions for position deltas."""
        read = self.interface.observation.read
        parts = [
            read(state, channels.state)
            if self.predicts is Prediction.POSITION_DELTAS and channels.state is not None
            else np.zeros((*state.shape[:-1], channels.size))
            for channels in self.interface.action.channels
        ]
        return np.concatenate(parts, axis=-1, dtype=np.float64)


LIBERO = Embodiment(
    interface=specs.LIBERO, prompt=InstructionPrompt(), asset_id="physical-intelligence/libero"
)
"""As `pi05_libero`: no state in the prompt; robosuite clips the actions."""

DROID = Embodiment(
    interface=specs.DROID, prompt=StatePrompt(), asset_id="droid", closes_above=0.5, clips=True
)
"""As `pi05_droid`. Binary gripper and clipping are part of openpi's robot loop; here the policy does both."""

_JOINT_POSITION = {
    # As `pi05_droid_jointpos_polaris`: joint positions, as differences from those of the query.
    "droid_jointpos": Prediction.POSITION_DELTAS,
    # A policy trained on `DROID` where joint positions are taken, as most simulators of DROID do.
    "droid_velocity_as_jointpos": Prediction.VELOCITIES,
}
_DROIDS = {
    "droid": DROID,
    **{
        name: dataclasses.replace(DROID, interface=specs.DROID_JOINT_POSITION, predicts=predicts)
        for name, predicts in _JOINT_POSITION.items()
    },
}

EMBODIMENTS = {
    "libero": LIBERO,
    "libero_state": dataclasses.replace(LIBERO, prompt=StatePrompt()),
    "libero_compact": dataclasses.replace(LIBERO, prompt=CompactStatePrompt(), asset_id="libero_compact"),
    **_DROIDS,
    **{
        f"{name}_compact": dataclasses.replace(droid, prompt=CompactStatePrompt())
        for name, droid in _DROIDS.items()
    },
}
"""Those with `_state` have the state in the prompt, as one fine-tuned from `pi05_base` does; those with
`_compact` are for small models, with one token per state channel."""


def embodiment(name: str) -> Embodiment:
    """The embodiment called `name`."""
    if name not in EMBODIMENTS:
        raise unknown("embodiment", name, EMBODIMENTS)
    return EMBODIMENTS[name]


def acting_as(trained: str) -> list[str]:
    """Names of the embodiments that weights trained with one can control.

    DROID's joint velocities can also be tracked by joint positions.
    """
    robot = embodiment(trained)
    robots = [robot]
    if robot.interface == specs.DROID:
        robots.append(
            dataclasses.replace(robot, interface=specs.DROID_JOINT_POSITION, predicts=Prediction.VELOCITIES)
        )
    return [name for name, known in EMBODIMENTS.items() if known in robots]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Transform:
    """Converts observations of a robot to model inputs, and model outputs to its actions."""

    embodiment: Embodiment
    state_norm: QuantileNorm  # as the weights were trained, like the next
    action_norm: QuantileNorm

    @classmethod
    def of(cls, embodiment: Embodiment, statistics: Statistics) -> "Transform":
        """The transform that normalises by some statistics."""
        state, actions = (QuantileNorm.of(statistics[name]) for name in ("state", "actions"))
        return cls(embodiment=embodiment, state_norm=state, action_norm=actions)

    def check_fits(self, config: Pi05Config) -> None:
        """Refuse a model with other cameras or too few action channels."""
        interface = self.embodiment.interface
        cameras = interface.observation.camera_names
        for name in config.cameras:
            if name not in cameras:
                raise unknown(f"camera of {config.name} for a {interface.name}:", name, cameras)
        actions = interface.action.size
        if actions > config.action_dim:
            raise UsageError(
                f"a {interface.name} has {actions} action channels, {config.name} {config.action_dim}"
            )

    def inputs(self, observation: Mapping[str, Any], tokenizer: Tokenizer, config: Pi05Config) -> ModelInput:
        """Convert an observation to a model input, a batch of one with an unpadded prompt.

        An observation has `images` (camera to [height, width, 3]), `state` (the interface's channels in one
        array, or by name) and `prompt` (the instruction, truncated with a warning to what the model can
        read). Refuses an incomplete or invalid observation.
        """
        check_has("the observation", observation, ("images", "state", "prompt"))
        state = self.state_norm.normalise(self.state(observation))
        images = camera_images(observation["images"], config.cameras, config.image_size, resize=config.resize)
        tokens = fitted(
            self.embodiment.prompt, observation["prompt"], state, tokenizer, longest=config.max_prompt
        )
        length = np.array([len(tokens)], np.int32)
        return ModelInput(images=images[None], prompt=tokens[None], length=length)

    def prompt_length(self, observation: Mapping[str, Any], tokenizer: Tokenizer) -> int:
        """The tokens of an observation's prompt, including those that `inputs` cuts."""
        state = self.state_norm.normalise(self.state(observation))
        return len(self.embodiment.prompt.encode(observation["prompt"], state, tokenizer))

    def state(self, observation: Mapping[str, Any]) -> Float64[np.ndarray, " state"]:
        """The state of an observation, in the robot's units; refuses one that is not the robot's."""
        return checked_state(observation["state"], self.embodiment.interface.observation.state)

    def targets(
        self,
        actions: Float[np.ndarray, "*batch horizon action"],
        state: Float[np.ndarray, "*batch state"],
        model_dim: int,
    ) -> Float64[np.ndarray, "*batch horizon model"]:
        """The model's training targets: chunks of actions normalised, then padded with zeros."""
        normalised = self.action_norm.normalise(actions - self.embodiment.origin(state)[..., None, :])
        padding = model_dim - normalised.shape[-1]
        return np.pad(normalised, [*[(0, 0)] * (normalised.ndim - 1), (0, padding)])

    def moved(
        self,
        chunk: Float[np.ndarray, "horizon model"],
        before: Float[np.ndarray, " state"],
        now: Float[np.ndarray, " state"],
    ) -> Float32[np.ndarray, "horizon model"]:
        """The normalised chunk of an earlier query as the model would predict it now.

        Takes the robot's states at its query and now.
        """
        earlier, later = (
            self.action_norm.normalise(self.embodiment.origin(state)) for state in (before, now)
        )
        moved = np.array(chunk, np.float32)
        moved[:, : self.action_norm.size] += earlier - later
        return moved

    def outputs(
        self, actions: Float[np.ndarray, "horizon model"], state: Float[np.ndarray, " state"]
    ) -> Float64[np.ndarray, "horizon action"]:
        """Convert normalised actions to the robot's channels and units. NaN and infinity are kept.

        Takes the robot's state at the query.
        """
        actions = self.action_norm.restore(actions[:, : self.action_norm.size])
        if self.embodiment.predicts is Prediction.POSITION_DELTAS:
            actions = actions + self.embodiment.origin(state)
        elif self.embodiment.predicts is Prediction.VELOCITIES:
            joints = len(STIFFNESS)
            actions[:, :joints] = tracked(actions[:, :joints].clip(-1.0, 1.0), state[:joints])
        spec, above = self.embodiment.interface.action, self.embodiment.closes_above
        for gripper in spec.grippers if above is not None else ():
            column = spec.channel(gripper.name)
            command = actions[:, column]
            binary = np.where(command > above, gripper.closed, gripper.open)
            actions[:, column] = np.where(np.isnan(command), command, binary)
        return actions.clip(*spec.limits) if self.embodiment.clips and spec.limits else actions


def tracked(
    velocities: Float64[np.ndarray, "horizon joint"], joints: Float64[np.ndarray, " joint"]
) -> Float64[np.ndarray, "horizon joint"]:
    """Joint position targets (rad) that move DROID's arm as joint velocities would.

    Under velocity control each target leads the *measured* joints. Here it leads where spring and damper of
    the controller are expected to have moved them since the query. Velocities are in units of 0.2 rad per
    control step, from -1 to 1, joints (at the query) in rad.
    """
    leads = MAX_STEP * velocities
    share = 1.0 - np.exp(-np.array(STIFFNESS) / np.array(DAMPING) / CONTROL_HZ)  # of its lead, per step
    return joints + share * (np.cumsum(leads, axis=0) - leads) + leads


def untrained(embodiment: Embodiment) -> Transform:
    """A transform without normalisation (to 1e-6), for untrained weights."""
    interface = embodiment.interface
    sizes = {"state": interface.observation.state_size, "actions": interface.action.size}
    return Transform.of(
        embodiment, {name: {"q01": [-1.0] * size, "q99": [1.0] * size} for name, size in sizes.items()}
    )


def of_checkpoint(embodiment: Embodiment, checkpoint: Path) -> Transform:
    """A transform with the statistics of a checkpoint, which must have some for this robot."""
    return Transform.of(embodiment, statistics_of(embodiment, checkpoint, QUANTILES))


def statistics_of(embodiment: Embodiment, checkpoint: Path, fields: Sequence[str] = MEASURED) -> Statistics:
    """A robot's statistics in a checkpoint: see `checkpoint_norms` and `read_statistics`."""
    path, interface = checkpoint_norms(checkpoint, embodiment.asset_id), embodiment.interface
    sizes = {"state": interface.observation.state_size, "actions": interface.action.size}
    return read_statistics(path, **sizes, fields=fields)


def checked_state(state: Any, layout: tuple[Channels, ...]) -> Float64[np.ndarray, " state"]:
    """Convert the state to one array of finite numbers, a copy; refuses anything else.

    Takes all channels in one array, in their order, or a mapping of their names to their numbers.
    """
    if isinstance(state, Mapping):
        check_has("the state", state, [part.name for part in layout])
        parts = [_finite(state[part.name], part.size, f"state {part.name!r}") for part in layout]
        return np.concatenate(parts)
    return _finite(state, sum(channels.size for channels in layout), "state")


def _finite(numbers: Any, size: int, what: str) -> Float64[np.ndarray, " number"]:
    try:
        array = np.array(numbers, dtype=np.float64)
        array = array[None] if array.ndim == 0 else array
    except (TypeError, ValueError):
        raise UsageError(f"{what} is {str(numbers)[:80]!r}; give {size} numbers") from None
    if array.shape != (size,):
        raise UsageError(f"{what} has shape {array.shape}; this policy takes ({size},)")
    if not np.isfinite(array).all():
        raise UsageError(f"{what} holds {array[~np.isfinite(array)][0]} at {np.argmin(np.isfinite(array))}")
    return array
