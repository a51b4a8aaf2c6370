"""The metadata of a policy server."""

import dataclasses
import json
from typing import Any

from configs.feedback import FeedbackByTask
from configs.interface import Interface, Motion
from oxygen.robots.openpi_keys import OpenpiKeys

VERSION = 1
"""Version of the `oxygen_eval` fields in metadata, requests and replies."""
EXTENSION = "oxygen_eval"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Declaration:
    """The served policy.

    Attributes:
        keys: Keys of the robot's requests.
        horizon: Actions per query.
        model: The policy's name.
        weights_sha256: SHA-256 of the weights; None if they are random or not a file in our format.
        mode: How actions and language are scheduled.
        language_tasks: The language tasks.
        robots: Maximal number of concurrent robots.
        feedback: Language task to the fields of later prompts that hold its texts; clients compose these.
    """

    keys: OpenpiKeys
    horizon: int
    model: str
    weights_sha256: str | None
    mode: str
    language_tasks: tuple[str, ...]
    robots: int
    feedback: FeedbackByTask = dataclasses.field(default_factory=dict)

    @property
    def interface(self) -> Interface:
        """The robot's conventions."""
        return dataclasses.replace(self.keys.interface, name=self.model, horizon=self.horizon)

    def metadata(self) -> dict[str, Any]:
        """The first message to openpi's clients."""
        robot = {} if self.keys.robot is None else {"embodiment": self.keys.robot}
        declared = {
            "version": VERSION,
            "interface": json.loads(json.dumps(dataclasses.asdict(self.interface))),
            "horizon": self.horizon,
            "model": self.model,
            "weights_sha256": self.weights_sha256,
            "mode": self.mode,
            "language_tasks": list(self.language_tasks),
            "robots": self.robots,
        }
        if self.feedback:
            fields = {task: [dataclasses.asdict(each) for each in own] for task, own in self.feedback.items()}
            declared["feedback"] = fields
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
