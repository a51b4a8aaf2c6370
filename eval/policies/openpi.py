"""Policies that take observations in openpi's keys and answer with `{"actions": …}`, in process or remote."""

import dataclasses
import importlib
import time
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from configs.errors import UsageError, unknown
from configs.interface import Interface
from eval.policies.base import OpenPolicy
from oxygen.policy.reply import Reply, Tail
from oxygen.robots.conventions import DROID, DROID_JOINT_POSITION, LIBERO
from oxygen.robots.images import camera_images
from sim_envs.world import EpisodeKey, Observation

IMAGE_SIZE = 224
"""Height and width of the images, pixels."""

PROMPT = "prompt"
"""The key of the instruction."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class OpenpiKeys:
    """openpi's names for what a robot observes.

    Attributes:
        interface: What the numbers mean.
        images: Key to the camera.
        state: Key to the state channels, joined in this order.
    """

    interface: Interface
    images: Mapping[str, str]
    state: Mapping[str, tuple[str, ...]]

    @property
    def names(self) -> tuple[str, ...]:
        """All keys of a query."""
        return (*self.images, *self.state, PROMPT)

    def query(self, observation: Observation) -> dict[str, Any]:
        """An observation as openpi's robots send it: images padded into squares, state, `prompt`."""
        pixels = camera_images(observation.images, tuple(self.images.values()), IMAGE_SIZE)
        read = self.interface.observation.read
        state = {
            key: np.concatenate([read(observation.state, channels) for channels in parts])
            for key, parts in self.state.items()
        }
        return {**dict(zip(self.images, pixels, strict=True)), **state, PROMPT: observation.language}


def _droid(interface: Interface) -> OpenpiKeys:
    """What is shown is the same, whatever the actions are."""
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
    """What to tell a person of such a policy."""
    keys = ", ".join(ASSUMED.names)
    return f"{name} does not say which robot it is for and is shown LIBERO's keys ({keys}); {remedy}"


class BadAnswerError(ValueError):
    """A policy has answered a query with something else than actions."""


class Infers(Protocol):
    """openpi's two methods."""

    def infer(self, obs: dict[str, Any], /) -> Mapping[str, Any]:
        """Answer an observation with a mapping that has `actions` [horizon, action]."""

    def reset(self) -> None:
        """Begin an episode."""


class OpenpiPolicy:
    """A policy with openpi's two methods. It writes no texts."""

    def __init__(self, policy: Infers, keys: OpenpiKeys) -> None:
        self._policy = policy
        self.keys = keys
        self._timings_ms: Mapping[str, float] = {}

    @property
    def interface(self) -> Interface:
        """What it is shown and what actions it gives."""
        return self.keys.interface

    def reset(self, key: EpisodeKey) -> None:
        """Begin an episode. openpi's policies are told nothing of it, not even a seed."""
        del key
        self._policy.reset()

    def act(self, observation: Observation) -> np.ndarray:
        """Answer a query with a chunk of actions.

        Raises:
            BadAnswerError: It was not answered with actions.
        """
        began = time.perf_counter()
        query = self.keys.query(observation)
        asked = time.perf_counter()
        answer = self._policy.infer(query)
        actions = _actions(answer)
        ended = time.perf_counter()
        self._timings_ms = {
            "preprocess": 1e3 * (asked - began),
            **self.stages(answer, 1e3 * (ended - asked)),
            "action": 1e3 * (ended - began),
        }
        return actions

    def stages(self, answer: Mapping[str, Any], answer_ms: float) -> Mapping[str, float]:
        """What is known of the stages of an answer that took `answer_ms`: nothing, in process."""
        del answer, answer_ms
        return {}

    def settle(self) -> Reply:
        """Complete the query: nothing is left to do once the actions are there."""
        return _without_texts(self._timings_ms)

    def finish(self) -> Tail:
        """End the episode."""
        return Tail()


def opened(policy: OpenpiPolicy, *, remark: str | None, **inputs: Any) -> OpenPolicy:
    """Such a policy for a run: one for all episodes. `inputs` are kept in its record."""
    importlib.import_module("PIL.Image")  # or the first query would be timed with it
    inputs = {"keys": list(policy.keys.names), "image_size": IMAGE_SIZE, **inputs}
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


def _without_texts(timings_ms: Mapping[str, float]) -> Reply:
    frame = {**timings_ms, "frame": timings_ms["action"]}
    return Reply(timings_ms=frame)
