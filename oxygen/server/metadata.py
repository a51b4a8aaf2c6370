"""The metadata of this project's policy server."""

import dataclasses
import functools
import json
from collections.abc import Mapping
from typing import Any

from contracts.interface import Interface, Motion
from contracts.prompt import FieldsByTask
from oxygen.robots.openpi_keys import OpenpiKeys, keys_of_policy

VERSION = 1
"""Version of the `oxygen_eval` fields in metadata, requests and replies."""
EXTENSION = "oxygen_eval"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Declaration:
    """The served policy."""

    interface: Interface  # conventions of observations and actions
    horizon: int  # actions per query
    model: str  # the policy's name
    # SHA-256 of the weights; None if they are random or not a file in our format.
    weights_sha256: str | None = None
    mode: str  # how actions and language are scheduled
    language_tasks: tuple[str, ...]
    robots: int  # maximal number of concurrent robots
    # Language task to the fields of later prompts that hold its texts; clients compose these.
    feedback: FieldsByTask = dataclasses.field(default_factory=dict)
    # Other options that change texts or actions, unless they have their default; SHA-256 and mask of the
    # adapter.
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def keys(self) -> OpenpiKeys:
        """openpi's keys if it has this robot, else `observation/` and the interface's names.

        The server resizes images and clips actions itself, so that it computes the same bits as in process.
        """
        return dataclasses.replace(keys_of_policy(self.interface), image_size=None, clips=False)

    def metadata(self) -> dict[str, Any]:
        """The first message to openpi's clients."""
        robot = {} if self.keys.robot is None else {"embodiment": self.keys.robot}
        declared = {"version": VERSION, **json.loads(json.dumps(dataclasses.asdict(self)))}
        for name in ("feedback", "options"):
            if not declared[name]:
                del declared[name]
        return {**robot, "horizon": self.horizon, EXTENSION: declared}

    def roboarena(self) -> dict[str, Any]:
        """The first message to RoboArena's clients, which accept no other fields."""
        cameras = tuple(self.keys.images.values())
        velocity = self.interface.action.channels[0].motion is Motion.VELOCITY
        return {
            "image_resolution": [224, 224],
            "needs_wrist_camera": any("wrist" in camera for camera in cameras),
            "n_external_cameras": sum("exterior" in camera for camera in cameras),
            "needs_stereo_camera": False,
            "needs_session_id": True,
            "action_space": "joint_velocity" if velocity else "joint_position",
        }
