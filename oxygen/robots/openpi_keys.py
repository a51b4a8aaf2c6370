"""openpi's keys of observations: `observation/…` for images and state, and `prompt`."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from contracts.errors import UsageError, check_has, unknown
from contracts.interface import Interface
from oxygen.robots.conventions import DROID, DROID_JOINT_POSITION, LIBERO
from oxygen.robots.images import resized, rgb
from oxygen.robots.transforms import checked_state

PROMPT = "prompt"
"""The key of the instruction."""

ACTION_PREFIX = "observation/action_prefix"
"""The key of the actions [action, width] of its last chunk that are executed until its answer arrives."""

DELAY_STEPS = "observation/delay_steps"
"""The key of the number of control steps until then."""

LONGEST_PROMPT = 10_000
"""Limit on the characters of an instruction."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class OpenpiKeys:
    """The keys of a robot's observations, as its client writes and a server reads them."""

    interface: Interface  # the robot's conventions
    images: Mapping[str, str]  # key to the camera
    state: Mapping[str, tuple[str, ...]]  # key to the state channels, joined in this order
    robot: str | None = None  # openpi's name of the robot; None if it has none
    # Height and width to which the client resizes images, with padding; None for the camera's own.
    image_size: tuple[int, int] | None = (224, 224)
    # Camera to the height and width that the policy declares for it, which count instead.
    declared_sizes: Mapping[str, tuple[int, int]] = dataclasses.field(default_factory=dict)
    resize: str = "pad"  # one of `oxygen.robots.images.RESIZES`
    # Whether the client clips actions to the interface's limits, as openpi's DROID client does.
    clips: bool = False
    # Whether the policy asks for what the robot executes until its answer arrives.
    action_prefix: bool = False
    history: int = 0  # control steps before a query whose observations it has

    @property
    def names(self) -> tuple[str, ...]:
        """All keys of a request."""
        asked = (ACTION_PREFIX, DELAY_STEPS) if self.action_prefix else ()
        return (*self.images, *self.state, PROMPT, *asked)

    def write(self, images: Mapping[str, np.ndarray], state: np.ndarray, prompt: str) -> dict[str, Any]:
        """An observation as openpi's clients send it; refuses one without a camera.

        Takes RGB images [height, width, 3] by camera and the interface's state vector.
        """
        check_has("the observation", images, self.images.values())
        pixels = {}
        for key, camera in self.images.items():
            image = rgb(images[camera], camera)
            size = self.declared_sizes.get(camera, self.image_size)
            pixels[key] = image if size is None else resized(image, size, self.resize)
        read = self.interface.observation.read
        parts = {
            key: np.concatenate([read(state, channels) for channels in names])
            for key, names in self.state.items()
        }
        return {**pixels, **parts, PROMPT: prompt}

    def read(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The observation of a request, checked: `images`, `state` and `prompt`.

        As openpi does, takes images with channels first, and a prompt in UTF-8 bytes. A request with
        `exterior_image_0_left` numbers its exterior cameras from 0, as RoboArena's do. Refuses a missing key,
        or a value that does not fit the interface.
        """
        cameras = self.images
        if "observation/exterior_image_0_left" in request:
            cameras = {key.replace("image_1", "image_0"): camera for key, camera in cameras.items()}
        check_has("the observation", request, (*cameras, *self.state, PROMPT))
        images, parts = {}, []
        for key, camera in cameras.items():
            image = request[key]
            if isinstance(image, np.ndarray) and image.ndim == 3 and image.shape[0] == 3 != image.shape[2]:
                image = np.moveaxis(image, 0, 2)
            images[camera] = rgb(image, key)
        for key, names in self.state.items():
            layout = tuple(self.interface.observation.channels(name) for name in names)
            try:
                parts.append(checked_state(request[key], layout))
            except UsageError as error:
                raise UsageError(f"{key}: {error}") from error
        prompt = request[PROMPT]
        if isinstance(prompt, bytes):
            prompt = prompt.decode(errors="replace")
        if not isinstance(prompt, str) or len(prompt) > LONGEST_PROMPT:
            what = f"{len(prompt)} characters" if isinstance(prompt, str) else type(prompt).__name__
            raise UsageError(f"prompt is {what}; give a text of at most {LONGEST_PROMPT}")
        return {"images": images, "state": np.concatenate(parts), "prompt": prompt}


def keys_for(interface: Interface) -> OpenpiKeys:
    """Default keys of a robot: `observation/` and the names in its interface."""
    seen = interface.observation
    return OpenpiKeys(
        interface=interface,
        images={f"observation/{name}": name for name in seen.camera_names},
        state={f"observation/{part.name}": (part.name,) for part in seen.state},
    )


_DROID_KEYS = dataclasses.replace(keys_for(DROID), clips=True)

ROBOTS = {
    "libero": dataclasses.replace(
        keys_for(LIBERO),
        state={"observation/state": tuple(part.name for part in LIBERO.observation.state)},
        robot="libero",
    ),
    "droid": dataclasses.replace(_DROID_KEYS, robot="droid"),
    "droid_jointpos": dataclasses.replace(
        _DROID_KEYS, interface=DROID_JOINT_POSITION, robot="droid_jointpos"
    ),
}
"""As openpi's `examples/libero` and `examples/droid` send them."""

ASSUMED = ROBOTS["libero"]
"""The keys of a policy that does not declare its robot, where no suite is known."""


def keys_of(robot: str) -> OpenpiKeys:
    """The keys of a robot in openpi's examples."""
    if robot not in ROBOTS:
        raise unknown("embodiment", robot, ROBOTS)
    return ROBOTS[robot]


def keys_of_policy(interface: Interface) -> OpenpiKeys:
    """The keys of a policy's requests: openpi's for its robot, if any, else the default ones."""
    keys = keys_for(interface)
    known = _known(interface)
    return keys if known is None else dataclasses.replace(known, interface=interface, images=keys.images)


def keys_of_suite(interface: Interface) -> OpenpiKeys:
    """The keys of a policy that declares no robot: openpi's for the suite's, or the suite's names."""
    return _known(interface) or sized_keys(interface)


def sized_keys(interface: Interface) -> OpenpiKeys:
    """Default keys of a robot, with images of the sizes that its cameras declare."""
    return dataclasses.replace(keys_for(interface), declared_sizes=interface.observation.camera_sizes)


def _known(interface: Interface) -> OpenpiKeys | None:
    """openpi's keys for a robot with this state, these actions and these cameras, if any."""
    cameras = {*interface.observation.camera_names}
    for known in ROBOTS.values():
        of_known, given = (
            (robot.observation.state, robot.action.channels) for robot in (known.interface, interface)
        )
        if of_known == given and cameras <= {*known.images.values()}:
            return known
    return None
