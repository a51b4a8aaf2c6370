"""Opens the policy of a server (openpi's, RoboArena's, OxyGen's or ours) by its address: `--policy ws://host:port`."""

import dataclasses
import functools
import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError
from websockets.exceptions import InvalidURI
from websockets.uri import parse_uri

from configs.errors import UsageError, unknown
from configs.interface import Camera
from configs.schema import Mode, Preset, read_feedback
from configs.validation import check, invalid
from eval.policies.base import LoadedPolicy, PolicyLostError
from eval.policies.openpi import assumption, named, opened
from eval.policies.oxygen_release import OxygenReleasePolicy, read_release
from eval.policies.oxygen_server import OxygenServerPolicy, check_run, read_declaration
from eval.policies.remote import PolicyClient, RemotePolicy
from oxygen.robots.openpi_keys import ASSUMED, ROBOTS, OpenpiKeys, keys_of
from oxygen.serve.metadata import EXTENSION
from sim_envs.world import EpisodeKey, Observation

Seconds = Annotated[float, Field(strict=True, gt=0, le=86400)]
_ROBOARENA_ACTIONS = {"joint_velocity": "droid", "joint_position": "droid_jointpos"}


class ServerOptions(Preset):
    """Options of a policy server, the values of `--policy-kwargs`."""

    embodiment: str | None = None  # its robot, if its metadata names none
    # The environment variable with the key to send as `Authorization: Api-Key …`.
    api_key_env: str | None = None
    # What clock `measured` charges: the `round_trip`, or what OxyGen's `server` reports.
    charge: Literal["round_trip", "server"] = "round_trip"
    timeout_s: Seconds = 120.0  # timeout of an answer, seconds; the first one compiles on many servers
    connect_timeout_s: Seconds = 60.0  # timeout of connecting, seconds

    @property
    def headers(self) -> dict[str, str]:
        """HTTP headers of the handshake."""
        if self.api_key_env is None:
            return {}
        key = os.environ.get(self.api_key_env)
        if not key:
            raise UsageError(f"policy argument 'api_key_env': the environment has no {self.api_key_env}")
        return {"Authorization": f"Api-Key {key}"}


def open_websocket(
    url: str,
    kwargs: Mapping[str, Any],
    *,
    notify: Callable[[str], None],
    modes: Sequence[Mode] = (),
    worlds: int = 1,
) -> LoadedPolicy:
    """Connect to the policy of a server.

    Our server declares its interface, a RoboArena server its cameras and actions. The metadata of others may
    have `embodiment`, one of openpi's, `horizon`, and `feedback` (see `configs.feedback`). Without the first,
    `embodiment` in `kwargs` counts; without both, LIBERO's keys are assumed.

    Args:
        url: `ws://host:port`, or `wss://`, with or without a path.
        kwargs: Fields of `ServerOptions`.
        notify: Called with one line if the server cannot be reached at once.
        modes: The modes of the run's variants; our server runs in one.
        worlds: Number of simultaneous episodes, each with a connection of its own.

    Raises:
        UsageError: The server cannot be reached, has another protocol or does not fit the run, or an
            argument is invalid.
    """
    try:
        parse_uri(url)
    except (InvalidURI, ValueError) as error:
        raise UsageError(f"{url} is not a policy-server URL; write ws://host:port") from error
    options = check(ServerOptions, kwargs, source="policy arguments")
    client = PolicyClient(
        url,
        headers=options.headers,
        answer_s=options.timeout_s,
        connect_s=options.connect_timeout_s,
        notify=notify,
    )
    try:
        client.reset()
        policy = _policy_of(client, url, options, modes, worlds)
    except PolicyLostError as error:
        raise UsageError(str(error)) from error
    except UsageError:
        client.close()
        raise
    opener = functools.partial(open_websocket, url, kwargs, notify=ignore)
    return dataclasses.replace(policy, close=client.close, opener=opener)


def _policy_of(
    client: PolicyClient, url: str, options: ServerOptions, modes: Sequence[Mode], worlds: int
) -> LoadedPolicy:
    """The policy, by what the server's metadata say of it. The manifest records them."""
    metadata = client.metadata
    horizon = metadata.get("horizon")
    recorded = json.loads(json.dumps(metadata, default=str, skipkeys=True))  # as JSON types
    if "effective_infer_api" in metadata:
        release = read_release(metadata, url, modes)
        keys = named(_keys(url, None, options.embodiment) or ASSUMED, url, horizon)
        charge_server = options.charge == "server"
        policy = OxygenReleasePolicy(client, keys, release, charge_server=charge_server)
        return opened(policy, server_metadata=recorded, charge=options.charge, remarks=release.remarks)
    if options.charge == "server":
        raise UsageError(f"charge=server is for OxyGen's own server, and {url} is another; leave it out")
    if EXTENSION in metadata:
        declared = read_declaration(metadata, url)
        _refuse_other(options.embodiment, declared.keys.robot, f"{url} declares its interface")
        check_run(declared, url, modes, worlds)
        keys = named(declared.keys, url, declared.horizon)
        return opened(OxygenServerPolicy(client, keys, declared), server_metadata=recorded)
    if metadata.keys() >= {"action_space", "n_external_cameras"}:
        try:
            roboarena = TypeAdapter(RoboArenaMetadata).validate_python(dict(metadata))
        except ValidationError as error:
            raise invalid(error, f"metadata of {url}") from error
        why = f"{url} is a RoboArena server, which is for DROID"
        _refuse_other(options.embodiment, roboarena.keys.robot, why)
        keys = named(roboarena.keys, url, horizon)
        return opened(RoboArenaPolicy(client, keys, roboarena), server_metadata=recorded)
    keys = _keys(url, metadata.get("embodiment"), options.embodiment)
    remark = None if keys else assumption(url, "for another robot, --policy-kwargs embodiment=NAME.")
    feedback = read_feedback(metadata.get("feedback") or {}, f"feedback in the metadata of {url}")
    policy = RemotePolicy(client, named(keys or ASSUMED, url, horizon), feedback)
    return opened(policy, remark=remark, server_metadata=recorded)


def ignore(line: str) -> None:
    """Print nothing: in workers, which would repeat the main process."""
    del line


def _keys(url: str, served: object, requested: str | None) -> OpenpiKeys | None:
    """The keys of the robot that the server or the user names; None if neither does."""
    if served in tuple(ROBOTS):
        _refuse_other(requested, served, f"{url} serves embodiment {served!r}")
    name = served if requested is None else requested
    return None if name is None else keys_of(str(name))


def _refuse_other(requested: str | None, served: object, why: str) -> None:
    if requested not in (None, served):
        raise UsageError(f"{why}; leave out embodiment={requested}")


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
        if self.action_space not in _ROBOARENA_ACTIONS:
            what, remedy = "action space of a RoboArena server:", "DROID's suites take no others."
            raise unknown(what, self.action_space, _ROBOARENA_ACTIONS, remedy=remedy)
        keys = keys_of(_ROBOARENA_ACTIONS[self.action_space])
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
