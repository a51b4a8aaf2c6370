"""Reads observations in openpi's keys: `observation/…` for images and state, `prompt`."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from configs.errors import UsageError, unknown
from configs.interface import Interface
from oxygen.robots.conventions import DROID, LIBERO
from oxygen.robots.images import rgb
from oxygen.robots.transforms import checked_state
from oxygen.typing import Float64

LONGEST_PROMPT = 10_000
"""Characters of an instruction; no model reads as many."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RequestKeys:
    """The keys of a robot's requests.

    Attributes:
        robot: openpi's name of the robot; None if it has none.
        interface: The robot's conventions.
        images: Camera to its key.
        state: Key to the state channels it holds, in order.
    """

    robot: str | None
    interface: Interface
    images: Mapping[str, str]
    state: Mapping[str, tuple[str, ...]]

    def read(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The observation of a request, checked: `images`, `state` and `prompt`.

        As openpi does, takes images with channels first, and a prompt in UTF-8 bytes. A request with
        `exterior_image_0_left` numbers its exterior cameras from 0, as RoboArena's do.

        Raises:
            UsageError: A key is missing, or its value does not fit the interface.
        """
        from_zero = "observation/exterior_image_0_left" in request
        images = {
            camera: _image(request, key.replace("exterior_image_1", "exterior_image_0") if from_zero else key)
            for camera, key in self.images.items()
        }
        parts = [self._state(request, key) for key in self.state]
        return {"images": images, "state": np.concatenate(parts), "prompt": _prompt(request)}

    def _state(self, request: Mapping[str, Any], key: str) -> Float64[np.ndarray, " state"]:
        layout = tuple(self.interface.observation.channels(name) for name in self.state[key])
        try:
            return checked_state(_value(request, key), layout)
        except UsageError as error:
            raise UsageError(f"{key}: {error}") from error


def keys_of_policy(interface: Interface, cameras: tuple[str, ...]) -> RequestKeys:
    """The keys of a policy's requests: openpi's for LIBERO and DROID, else the names in its interface.

    Args:
        interface: The policy's conventions.
        cameras: The cameras it uses.
    """
    state = {f"observation/{part.name}": (part.name,) for part in interface.observation.state}
    robot = None
    if interface.observation.state == LIBERO.observation.state:
        robot = "libero"
        state = {"observation/state": tuple(part.name for part in interface.observation.state)}
    elif (interface.observation.state, interface.action) == (DROID.observation.state, DROID.action):
        robot = "droid"
    images = {camera: f"observation/{camera}" for camera in cameras}
    return RequestKeys(robot=robot, interface=interface, images=images, state=state)


def _value(request: Mapping[str, Any], key: str) -> Any:
    if key not in request:
        raise unknown("observation: it lacks", key, map(str, request))
    return request[key]


def _image(request: Mapping[str, Any], key: str) -> np.ndarray:
    image = _value(request, key)
    if isinstance(image, np.ndarray) and image.ndim == 3 and image.shape[0] == 3 != image.shape[2]:
        image = np.moveaxis(image, 0, 2)
    return rgb(image, key)


def _prompt(request: Mapping[str, Any]) -> str:
    prompt = _value(request, "prompt")
    if isinstance(prompt, bytes):
        prompt = prompt.decode(errors="replace")
    if not isinstance(prompt, str) or len(prompt) > LONGEST_PROMPT:
        what = f"{len(prompt)} characters" if isinstance(prompt, str) else type(prompt).__name__
        raise UsageError(f"prompt is {what}; give a text of at most {LONGEST_PROMPT}")
    return prompt
