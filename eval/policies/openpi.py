"""Policies that take observations in openpi's keys and return `{"actions": …}`, in process or remote."""

import dataclasses
import importlib
import time
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from configs.errors import UsageError, unknown
from configs.interface import Interface
from eval.policies.base import BadAnswerError, OpenPolicy
from oxygen.policy.reply import Reply, Tail
from oxygen.robots.conventions import DROID, DROID_JOINT_POSITION, LIBERO
from oxygen.robots.images import resize_with_pad, rgb
from sim_envs.world import EpisodeKey, Observation

PROMPT = "prompt"
"""The key of the instruction."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class OpenpiKeys:
    """openpi's names for what a robot observes.

    Attributes:
        interface: What the numbers mean.
        images: Key to the camera.
        state: Key to the state channels, joined in this order.
        image_size: Height and width that images are resized to, with padding; None for the camera's own.
        clips: Whether the client clips actions to the interface's limits, as openpi's DROID client does.
    """

    interface: Interface
    images: Mapping[str, str]
    state: Mapping[str, tuple[str, ...]]
    image_size: tuple[int, int] | None = (224, 224)
    clips: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """All keys of a query."""
        return (*self.images, *self.state, PROMPT)

    def query(self, observation: Observation) -> dict[str, Any]:
        """An observation as openpi's clients send it: padded images, state, `prompt`."""
        images = {key: self._resized(observation, camera) for key, camera in self.images.items()}
        read = self.interface.observation.read
        state = {
            key: np.concatenate([read(observation.state, channels) for channels in parts])
            for key, parts in self.state.items()
        }
        return {**images, **state, PROMPT: observation.language}

    def _resized(self, observation: Observation, camera: str) -> np.ndarray:
        if camera not in observation.images:
            raise unknown("camera", camera, observation.images)
        image = rgb(observation.images[camera], camera)
        return image if self.image_size is None else resize_with_pad(image, self.image_size)


def _droid(interface: Interface) -> OpenpiKeys:
    """The same observations for every action space."""
    return OpenpiKeys(
        interface=interface,
        images={
            "observation/exterior_image_1_left": "exterior_image_1_left",
            "observation/wrist_image_left": "wrist_image_left",
        },
        state={
            "observation/joint_position": ("joint_position",),
            "observation/gripper_position": ("gripper_position",),
        },
        clips=True,
    )


EMBODIMENTS = {
    "libero": OpenpiKeys(
        interface=LIBERO,
        images={"observation/image": "image", "observation/wrist_image": "wrist_image"},
        state={"observation/state": ("eef_position", "eef_rotation", "gripper_joints")},
    ),
    "droid": _droid(DROID),
    "droid_jointpos": _droid(DROID_JOINT_POSITION),
}
"""As openpi's `examples/libero` and `examples/droid` send them."""


def keys_of(embodiment: str) -> OpenpiKeys:
    """The keys of a published embodiment.

    Raises:
        UsageError: There is none of that name.
    """
    if embodiment not in EMBODIMENTS:
        raise unknown("embodiment", embodiment, EMBODIMENTS)
    return EMBODIMENTS[embodiment]


def keys_for(interface: Interface) -> OpenpiKeys:
    """The keys of a robot that openpi has none for: `observation/` and the names in its interface."""
    seen = interface.observation
    return OpenpiKeys(
        interface=interface,
        images={f"observation/{name}": name for name in seen.camera_names},
        state={f"observation/{part.name}": (part.name,) for part in seen.state},
    )


def named(keys: OpenpiKeys, name: str, horizon: object) -> OpenpiKeys:
    """The keys as those of one policy.

    Args:
        keys: The robot's.
        name: The policy's, for messages.
        horizon: The number of actions that it answers with; None if it does not say.

    Raises:
        UsageError: The horizon is no number of actions.
    """
    if horizon is not None and (type(horizon) is not int or horizon < 1):
        raise UsageError(f"policy {name}: its horizon is {horizon!r}; give a number of actions, at least 1")
    interface = keys.interface
    interface = dataclasses.replace(interface, name=name, horizon=horizon or interface.horizon)
    return dataclasses.replace(keys, interface=interface)


ASSUMED = EMBODIMENTS["libero"]
"""The keys of a policy that does not say which robot it is for."""


def assumption(name: str, remedy: str) -> str:
    """The line that tells a user of such a policy."""
    keys = ", ".join(ASSUMED.names)
    return f"{name} does not say which robot it is for and is shown LIBERO's keys ({keys}); {remedy}"


class Infers(Protocol):
    """openpi's two methods."""

    def infer(self, obs: dict[str, Any], /) -> Mapping[str, Any]:
        """Answer an observation with a mapping that has `actions` [horizon, action]."""

    def reset(self) -> None:
        """Begin an episode."""


class OpenpiPolicy:
    """A policy with openpi's two methods. It writes no texts.

    Attributes:
        keys: The keys of its observations.
        answer: What it returned for the last query.
        timings_ms: The stages of that query until its actions, milliseconds.
    """

    def __init__(self, policy: Infers, keys: OpenpiKeys) -> None:
        self._policy = policy
        self.keys = keys
        self.answer: Mapping[str, Any] = {}
        self.timings_ms: Mapping[str, float] = {}

    @property
    def interface(self) -> Interface:
        """Its conventions of observations and actions."""
        return self.keys.interface

    def reset(self, key: EpisodeKey) -> None:
        """Start an episode. openpi's policies get neither its key nor a seed."""
        del key
        self._policy.reset()

    def act(self, observation: Observation) -> np.ndarray:
        """Return a chunk of actions [horizon, action].

        Raises:
            BadAnswerError: The answer has no actions.
        """
        began = time.perf_counter()
        query = self.query(observation)
        asked = time.perf_counter()
        self.answer = self._policy.infer(query)
        actions = self._in_limits(_actions(self.answer))
        ended = time.perf_counter()
        self.timings_ms = {
            "preprocess": 1e3 * (asked - began),
            **self.stages(self.answer, 1e3 * (ended - asked)),
            "action": 1e3 * (ended - began),
        }
        return actions

    def query(self, observation: Observation) -> dict[str, Any]:
        """The argument of `infer` for an observation."""
        return self.keys.query(observation)

    def stages(self, answer: Mapping[str, Any], answer_ms: float) -> Mapping[str, float]:
        """Stages of an answer that took `answer_ms`, milliseconds; unknown in process."""
        del answer, answer_ms
        return {}

    def settle(self) -> Reply:
        """Complete the query: nothing is left to do once the actions are there."""
        return Reply(timings_ms={**self.timings_ms, "frame": self.timings_ms["action"]})

    def finish(self) -> Tail:
        """End the episode."""
        return Tail()

    def _in_limits(self, actions: np.ndarray) -> np.ndarray:
        limits = self.interface.action.limits
        return actions.clip(*limits) if self.keys.clips and limits else actions


def opened(policy: OpenpiPolicy, *, remark: str | None, **inputs: Any) -> OpenPolicy:
    """Such a policy for a run: one object for all episodes. The manifest keeps `inputs`."""
    importlib.import_module("PIL.Image")  # or the first query would be timed with it
    size = policy.keys.image_size
    inputs = {"keys": list(policy.keys.names), "image_size": size and list(size), **inputs}
    return OpenPolicy(
        interface=policy.interface,
        horizon=policy.interface.horizon,
        inputs=inputs,
        in_world=lambda *_: policy,
        remark=remark,
    )


def _actions(answer: Any) -> np.ndarray:
    if not isinstance(answer, Mapping):
        raise BadAnswerError(f"the policy answered with {type(answer).__name__}, not a dict with 'actions'")
    if "actions" not in answer:
        raise BadAnswerError(f"the policy's answer has no 'actions'; it has {', '.join(map(repr, answer))}")
    try:
        return np.asarray(answer["actions"]).astype(np.float64, casting="same_kind")
    except (TypeError, ValueError) as error:  # ragged, or not of real numbers
        what = f"{type(answer['actions']).__name__} ({error})"
        raise BadAnswerError(f"the policy's 'actions' are {what}; give numbers [horizon, action]") from error
