"""Between a robot and the model: what goes in is undone on the way out. LIBERO and DROID as in openpi."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from configs.errors import UsageError, unknown
from configs.interface import Channels, Interface
from oxygen.model.config import Pi05Config
from oxygen.model.inputs import ModelInput
from oxygen.robots import conventions as specs
from oxygen.robots.images import camera_images
from oxygen.robots.norms import RobotNorms, checkpoint_norms, read_norms, unit_norms
from oxygen.robots.prompts import CompactStatePrompt, InstructionPrompt, Prompt, StatePrompt, fitted
from oxygen.robots.tokenizer import Tokenizer
from oxygen.typing import Float, Float64


@dataclasses.dataclass(frozen=True, kw_only=True)
class Embodiment:
    """A kind of robot, as a published policy was trained on it.

    Attributes:
        interface: What its numbers mean; the environment's must be the same.
        prompt: How the policy is told the instruction and the state.
        asset_id: Where a checkpoint keeps its statistics.
        closes_above: Above this the gripper is told to close fully and else to open fully; None leaves it.
        clips: Whether actions are brought within the interface's limits, rather than by the robot.
    """

    interface: Interface
    prompt: Prompt
    asset_id: str
    closes_above: float | None = None
    clips: bool = False


LIBERO = Embodiment(
    interface=specs.LIBERO, prompt=InstructionPrompt(), asset_id="physical-intelligence/libero"
)
"""As `pi05_libero`: no state in the prompt; actions go out as they are, robosuite clips them."""

LIBERO_STATE = dataclasses.replace(LIBERO, prompt=StatePrompt())
"""LIBERO for a π0.5 that reads the state in its prompt, such as one trained on from `pi05_base`."""

LIBERO_COMPACT = dataclasses.replace(LIBERO, prompt=CompactStatePrompt(), asset_id="libero_compact")
"""LIBERO for small models: the state in the prompt, one token for each of its numbers."""

DROID = Embodiment(
    interface=specs.DROID, prompt=StatePrompt(), asset_id="droid", closes_above=0.5, clips=True
)
"""As `pi05_droid`. openpi's robot loop makes the gripper binary and clips; here the policy has done it."""

DROID_COMPACT = dataclasses.replace(DROID, prompt=CompactStatePrompt())
"""DROID for small models: the state in the prompt, one token for each of its numbers."""

EMBODIMENTS = {
    "libero": LIBERO,
    "libero_state": LIBERO_STATE,
    "libero_compact": LIBERO_COMPACT,
    "droid": DROID,
    "droid_compact": DROID_COMPACT,
}


def embodiment(name: str) -> Embodiment:
    """The embodiment called `name`."""
    if name not in EMBODIMENTS:
        raise unknown("embodiment", name, EMBODIMENTS)
    return EMBODIMENTS[name]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Transform:
    """A robot's way into the model and out of it.

    Attributes:
        embodiment: The kind of robot.
        norms: The statistics of its numbers, those that the weights were trained with.
    """

    embodiment: Embodiment
    norms: RobotNorms

    def __post_init__(self) -> None:
        interface = self.embodiment.interface
        sizes = self.norms.state.size, self.norms.actions.size
        if sizes != (interface.observation.state_size, interface.action.size):
            raise UsageError(
                f"norms of {sizes[0]} states and {sizes[1]} actions do not fit {interface.name!r}, which has "
                f"{interface.observation.state_size} and {interface.action.size}"
            )

    def check_fits(self, config: Pi05Config) -> None:
        """Refuse a model that looks through other cameras or has too few action channels.

        Raises:
            UsageError: Names the two numbers, or the camera.
        """
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
        """An observation as the model takes it, in a batch of one; its prompt is not padded.

        Args:
            observation: `images` (camera to [height, width, 3]), `state` (the interface's channels in one
                array, or by name), `prompt` (the instruction).
            tokenizer: The vocabulary the weights were trained with.
            config: Which cameras the model looks through, the side of its images, and the longest prompt; a
                prompt that is longer is cut, with a warning.

        Raises:
            UsageError: The observation lacks something, or holds what the policy cannot take.
        """
        for key in ("images", "state", "prompt"):
            if key not in observation:
                raise unknown(
                    "observation: it lacks", key, observation, remedy="Give images, state and prompt."
                )
        layout = self.embodiment.interface.observation.state
        state = self.norms.state.normalise(checked_state(observation["state"], layout))
        images = camera_images(observation["images"], config.cameras, config.image_size, resize=config.resize)
        tokens = fitted(
            self.embodiment.prompt, observation["prompt"], state, tokenizer, longest=config.max_prompt
        )
        length = np.array([len(tokens)], np.int32)
        return ModelInput(images=images[None], prompt=tokens[None], length=length)

    def outputs(self, actions: Float[np.ndarray, "horizon model"]) -> Float64[np.ndarray, "horizon action"]:
        """The robot's actions among the model's channels, in its units, ready to be sent.

        Numbers that are not finite stay so, for whoever checks the actions to see.
        """
        restored = self.norms.actions.restore(actions[:, : self.norms.actions.size])
        return self._commanded(restored)

    def targets(
        self, actions: Float[np.ndarray, "horizon action"], model_dim: int
    ) -> Float64[np.ndarray, "horizon model"]:
        """The robot's actions as the model is trained to give them: normalised, then padded with zeros."""
        normalised = self.norms.actions.normalise(actions)
        return np.pad(normalised, ((0, 0), (0, model_dim - normalised.shape[1])))

    def _commanded(
        self, actions: Float64[np.ndarray, "horizon action"]
    ) -> Float64[np.ndarray, "horizon action"]:
        spec, above = self.embodiment.interface.action, self.embodiment.closes_above
        for gripper in spec.grippers if above is not None else ():
            column = spec.channel(gripper.name)
            asked = actions[:, column]
            binary = np.where(asked > above, gripper.closed, gripper.open)
            actions[:, column] = np.where(np.isnan(asked), asked, binary)
        return actions.clip(*spec.limits) if self.embodiment.clips and spec.limits else actions


def untrained(embodiment: Embodiment) -> Transform:
    """For weights that were trained on no robot: numbers go in and out as they are (to 1e-6)."""
    interface = embodiment.interface
    norms = unit_norms(interface.observation.state_size, interface.action.size)
    return Transform(embodiment=embodiment, norms=norms)


def of_checkpoint(embodiment: Embodiment, checkpoint: Path) -> Transform:
    """With the statistics that lie beside a checkpoint's weights.

    Raises:
        UsageError: There are none for this robot, or the file is damaged.
    """
    interface = embodiment.interface
    norms = read_norms(
        checkpoint_norms(checkpoint, embodiment.asset_id),
        state=interface.observation.state_size,
        actions=interface.action.size,
    )
    return Transform(embodiment=embodiment, norms=norms)


def checked_state(state: Any, layout: tuple[Channels, ...]) -> Float64[np.ndarray, " state"]:
    """The state as one array of finite numbers.

    Args:
        state: All channels in one array, or a mapping of their names to their numbers.
        layout: The channels, in order.

    Raises:
        UsageError: Says what it is instead.
    """
    if isinstance(state, Mapping):
        return np.concatenate([_part(state, channels) for channels in layout])
    return _finite(state, sum(channels.size for channels in layout), "state")


def _part(state: Mapping[str, Any], channels: Channels) -> Float64[np.ndarray, " channel"]:
    if channels.name not in state:
        raise unknown("state: it lacks", channels.name, state)
    return _finite(state[channels.name], channels.size, f"state {channels.name!r}")


def _finite(numbers: Any, size: int, what: str) -> Float64[np.ndarray, " number"]:
    try:
        array = np.asarray(numbers, dtype=np.float64)
        array = array[None] if array.ndim == 0 else array
    except (TypeError, ValueError):
        raise UsageError(f"{what} is {str(numbers)[:80]!r}; give {size} numbers") from None
    if array.shape != (size,):
        raise UsageError(f"{what} has shape {array.shape}; this policy takes ({size},)")
    if not np.isfinite(array).all():
        raise UsageError(f"{what} holds {array[~np.isfinite(array)][0]} at {np.argmin(np.isfinite(array))}")
    return array
