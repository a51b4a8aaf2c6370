"""Policies behind RoboArena's servers: openpi's protocol with resets, session ids and DROID's keys from 0."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from configs.errors import unknown
from configs.interface import Camera
from configs.validation import invalid
from eval.policies.remote import PolicyClient, RemotePolicy
from oxygen.robots.openpi_keys import OpenpiKeys, keys_of
from sim_envs.world import EpisodeKey, Observation

_ACTIONS = {"joint_velocity": "droid", "joint_position": "droid_jointpos"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class RoboArenaMetadata:
    """The metadata of a RoboArena server (`PolicyServerConfig` of robo-arena/roboarena), with its defaults.

    Attributes:
        action_space: Its action space, such as `joint_position`.
        n_external_cameras: Number of exterior cameras, numbered from 0.
        image_resolution: Height and width of the images; None for the camera's own.
        needs_wrist_camera: Whether it needs the wrist camera.
        needs_stereo_camera: Whether it needs the right image of each camera, too.
        needs_session_id: Whether it needs a name of the episode in every request.
    """

    action_space: str
    n_external_cameras: int
    image_resolution: tuple[int, int] | None = (224, 224)
    needs_wrist_camera: bool = True
    needs_stereo_camera: bool = False
    needs_session_id: bool = False

    @property
    def keys(self) -> OpenpiKeys:
        """The keys of its requests, and its interface.

        Raises:
            UsageError: The actions are not joint positions or velocities, or there is no camera.
        """
        if self.action_space not in _ACTIONS:
            what, remedy = "action space of a RoboArena server:", "DROID's suites take no others."
            raise unknown(what, self.action_space, _ACTIONS, remedy=remedy)
        keys = keys_of(_ACTIONS[self.action_space])
        cameras = tuple(Camera(name=name) for name in self._images.values())
        observation = dataclasses.replace(keys.interface.observation, cameras=cameras)
        return dataclasses.replace(
            keys,
            interface=dataclasses.replace(keys.interface, observation=observation),
            images=self._images,
            image_size=self.image_resolution,
        )

    @property
    def _images(self) -> Mapping[str, str]:
        """Key to camera. DROID numbers its exterior cameras from 1."""
        sides = ("left", "right") if self.needs_stereo_camera else ("left",)
        exterior = {
            f"observation/exterior_image_{number}_{side}": f"exterior_image_{number + 1}_{side}"
            for number in range(self.n_external_cameras)
            for side in sides
        }
        wrist = {f"observation/wrist_image_{side}": f"wrist_image_{side}" for side in sides}
        return exterior | wrist if self.needs_wrist_camera else exterior


def is_roboarena(metadata: Mapping[str, Any]) -> bool:
    """Whether metadata are those of a RoboArena server."""
    return metadata.keys() >= {"action_space", "n_external_cameras"}


def read_roboarena(metadata: Mapping[str, Any], url: str) -> RoboArenaMetadata:
    """The metadata of a RoboArena server.

    Raises:
        UsageError: A field has another type.
    """
    try:
        return TypeAdapter(RoboArenaMetadata).validate_python(dict(metadata))
    except ValidationError as error:
        raise invalid(error, f"metadata of {url}") from error


class RoboArenaPolicy(RemotePolicy):
    """A policy behind a RoboArena server. Sends a reset with every episode, and session ids if needed."""

    def __init__(self, client: PolicyClient, keys: OpenpiKeys, metadata: RoboArenaMetadata) -> None:
        super().__init__(client, keys)
        self._needs_session_id = metadata.needs_session_id
        self._session: dict[str, Any] = {}

    def reset(self, key: EpisodeKey) -> None:
        """Connect if necessary, and reset the policy."""
        super().reset(key)
        self._session = {"session_id": str(key)} if self._needs_session_id else {}
        self.client.notify_server({"endpoint": "reset", **self._session})

    def query(self, observation: Observation) -> dict[str, Any]:
        """The observation, to endpoint `infer`."""
        return {**super().query(observation), "endpoint": "infer", **self._session}
