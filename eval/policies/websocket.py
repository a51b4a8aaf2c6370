"""Opens the policy of a server (openpi's, RoboArena's, OxyGen's or ours) by its address: `--policy ws://host:port`."""

import dataclasses
import functools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from websockets.exceptions import InvalidURI
from websockets.uri import parse_uri

from configs.errors import check
from configs.schema import Fields, read_prompt_fields
from contracts.episode import EpisodeKey
from contracts.errors import UsageError, unknown
from contracts.interface import Camera
from contracts.mode import Mode
from contracts.observation import Observation
from contracts.redaction import strip_url
from contracts.text import EpisodeEnd, Reply, Text, TextRequest
from eval.policies.addresses import refuse_address
from eval.policies.base import BadAnswerError, LoadedPolicy, PolicyLostError, do_nothing
from eval.policies.openpi import assumption, named, opened
from eval.policies.oxygen_release import OxygenReleasePolicy, read_release
from eval.policies.remote import PolicyClient, RemotePolicy, ServerOptions, check_modes, timings_of
from oxygen.robots.openpi_keys import ASSUMED, ROBOTS, OpenpiKeys, keys_of
from oxygen.server.metadata import EXTENSION, VERSION, Declaration

_ENGINE_STAGES = {"queue", "prefill", "denoise", "guided_denoise"}
_ROBOARENA_ACTIONS = {"joint_velocity": "droid", "joint_position": "droid_jointpos"}


def open_websocket(
    url: str,
    kwargs: Mapping[str, Any],
    *,
    notify: Callable[[str], None],
    modes: Sequence[Mode] = (),
    worlds: int = 1,
    assumed: OpenpiKeys = ASSUMED,
) -> LoadedPolicy:
    """Connect to the policy of a server.

    Our server declares its interface, a RoboArena server its cameras and actions. The metadata of others may
    have `embodiment`, one of openpi's, what `named` reads, and `feedback` (see `contracts.prompt`). Without
    the first, `embodiment` in `kwargs` counts; without both, the keys that are `assumed`.

    `kwargs` are fields of `ServerOptions`; `notify` is called with a line if the server cannot be reached at
    once, or if its address has a part that is not recorded. Our server runs in one of the run's `modes`, and
    each of the `worlds` has a connection of its own. Refuses a server that cannot be reached, has another
    protocol or does not fit the run, and invalid arguments.
    """
    try:
        parse_uri(url).host.encode("idna")  # refuses empty and long labels
        if re.search(r"\s", url) or urlsplit(url).port == 0:
            raise InvalidURI(url, "it has a space, or port 0")
    except (InvalidURI, ValueError) as error:
        refuse_address(url)
        raise UsageError(
            f"{url} is not a policy-server URL; write ws://host:port, or ws://[::1]:port for an IPv6 address"
        ) from error
    options = check(ServerOptions, kwargs, source="policy arguments")
    shown = strip_url(url)
    if shown != url:
        notify(
            f"Records name the server {shown}, without the user, password and query of its address. "
            "--policy-kwargs api_key_env=NAME sends a key that an environment variable has."
        )
    client = PolicyClient(url, options, notify=notify)
    try:
        client.reset()
        policy = _policy_of(client, shown, options, modes, worlds, assumed)
    except PolicyLostError as error:
        raise UsageError(str(error)) from error
    except UsageError:
        client.close()
        raise
    # Workers would repeat what it says.
    opener = functools.partial(open_websocket, url, kwargs, notify=do_nothing, assumed=assumed)
    return dataclasses.replace(policy, close=client.close, opener=opener)


def _policy_of(
    client: PolicyClient,
    url: str,
    options: ServerOptions,
    modes: Sequence[Mode],
    worlds: int,
    assumed: OpenpiKeys,
) -> LoadedPolicy:
    """The policy, by what the server's metadata say of it. The manifest records them."""
    metadata = client.metadata
    recorded = json.loads(json.dumps(metadata, default=str, skipkeys=True))  # as JSON types
    if "effective_infer_api" in metadata:
        release = read_release(metadata, url, modes)
        keys = named(_keys(url, None, options.embodiment) or assumed, url, metadata)
        charge_server = options.charge == "server"
        policy = OxygenReleasePolicy(client, keys, release, charge_server=charge_server)
        return opened(policy, server_metadata=recorded, charge=options.charge, remarks=release.remarks)
    if options.charge == "server":
        raise UsageError(f"charge=server is for OxyGen's own server, and {url} is another; leave it out")
    if EXTENSION in metadata:
        declared = _read_declaration(metadata, url, modes, worlds)
        _refuse_other(options.embodiment, declared.keys.robot, f"{url} declares its interface")
        keys = named(declared.keys, url, {"horizon": declared.horizon})
        return opened(OxygenServerPolicy(client, keys, declared), server_metadata=recorded)
    if metadata.keys() >= {"action_space", "n_external_cameras"}:
        roboarena = check(RoboArenaMetadata, metadata, source=f"metadata of {url}")
        why = f"{url} is a RoboArena server, which is for DROID"
        _refuse_other(options.embodiment, roboarena.keys.robot, why)
        keys = named(roboarena.keys, url, metadata)
        return opened(RoboArenaPolicy(client, keys, roboarena), server_metadata=recorded)
    keys = _keys(url, metadata.get("embodiment"), options.embodiment)
    fields = read_prompt_fields(metadata.get("feedback") or {}, f"feedback in the metadata of {url}")
    remedy = "for another robot, --policy-kwargs embodiment=NAME."
    remark = None if keys else assumption(url, assumed, fields, remedy)
    policy = RemotePolicy(client, named(keys or assumed, url, metadata), fields)
    return opened(policy, remark=remark, server_metadata=recorded)


def _keys(url: str, served: object, requested: str | None) -> OpenpiKeys | None:
    """The keys of the robot that the server or the user names; None if neither does."""
    if served in tuple(ROBOTS):
        _refuse_other(requested, served, f"{url} serves embodiment {served!r}")
    elif served is not None and requested is None:
        remedy = "Say which one it is with --policy-kwargs embodiment=NAME."
        raise unknown(f"embodiment in the metadata of {url}:", served, ROBOTS, remedy=remedy)
    name = served if requested is None else requested
    return None if name is None else keys_of(str(name))


def _refuse_other(requested: str | None, served: object, why: str) -> None:
    if requested not in (None, served):
        raise UsageError(f"{why}; leave out embodiment={requested}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RoboArenaMetadata:
    """A RoboArena server's metadata (`PolicyServerConfig` of robo-arena/roboarena), with its defaults."""

    action_space: str  # such as `joint_position`
    n_external_cameras: int  # exterior cameras, numbered from 0
    image_resolution: tuple[int, int] | None = (224, 224)  # read by `named`
    needs_wrist_camera: bool = True
    needs_stereo_camera: bool = False  # whether it needs the right image of each camera, too
    needs_session_id: bool = False  # whether it needs a name of the episode in every request

    @property
    def keys(self) -> OpenpiKeys:
        """The keys of its requests, and its interface.

        Actions that DROID does not take, or no camera, are a UsageError.
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class _ReceivedDeclaration(Declaration):
    """A declaration with the types that it is checked for on arrival."""

    mode: Mode
    feedback: dict[str, Fields] = dataclasses.field(default_factory=dict)


def _read_declaration(
    metadata: Mapping[str, Any], url: str, modes: Sequence[Mode], worlds: int
) -> _ReceivedDeclaration:
    """The declaration of our server; one of another version, or started for other runs, is a UsageError."""
    declared = metadata[EXTENSION]
    version = declared.get("version") if isinstance(declared, Mapping) else None
    if version != VERSION:
        raise UsageError(
            f"{url} speaks version {version!r} of this project's extension of openpi's protocol, and this "
            f"client version {VERSION}; install the same oxygen-eval on both sides"
        )
    server = check(_ReceivedDeclaration, declared, source=f"metadata of {url}")
    check_modes(url, server.mode, modes)
    if worlds > server.robots:
        raise UsageError(
            f"{url} serves {server.robots} robots at once, and --num-envs is {worlds}; give --num-envs "
            f"{server.robots}, or start the server with --robots {worlds}"
        )
    return server


class OxygenServerPolicy(RemotePolicy):
    """A policy behind our server. Sends episode and query; receives texts."""

    follows_mode = True

    def __init__(self, client: PolicyClient, keys: OpenpiKeys, declared: Declaration) -> None:
        super().__init__(client, keys, declared.feedback)
        self.writes_texts = bool(declared.language_tasks) and declared.mode != "actions"
        self._episode: dict[str, Any] = {}
        self._unfinished: dict[int, TextRequest] = {}

    def reset(self, key: EpisodeKey) -> None:
        """Connect if necessary. The first query announces the episode."""
        super().reset(key)
        self._episode = dataclasses.asdict(key)
        self._unfinished = {}

    def query(self, observation: Observation) -> dict[str, Any]:
        """The observation, with its place in the episode."""
        return {**super().query(observation), **self._about_query(reset=self.number == 0)}

    def stages(self, answer: Mapping[str, Any], answer_ms: float) -> Mapping[str, float]:
        """As `RemotePolicy`, and the engine's stages until the actions, milliseconds."""
        timing = timings_of(answer, "server_timing")
        engine = {stage: ms for stage, ms in timing.items() if stage in _ENGINE_STAGES}
        return {**super().stages(answer, answer_ms), **engine}

    def complete(self) -> Reply:
        """Wait for the query's language; an incomplete text is a BadAnswerError."""
        answers = [self.answer]
        timings_ms = dict(self.timings_ms)
        if self.writes_texts:
            answers.append(self.client.infer(self._about_query(poll=True)))
            decode = timings_of(answers[-1], "server_timing").get("decode")
            timings_ms |= {} if decode is None else {"decode": decode}
        timings_ms["frame"] = timings_ms["action"] + timings_ms.get("decode", 0.0)
        wire_ms = timings_ms.get("wire", 0.0)
        replies = [_language(answer) for answer in answers]
        finished = tuple(_received(text, wire_ms) for reply in replies for text in reply.finished)
        requested = tuple(each for reply in replies for each in reply.requested)
        dropped = tuple(each for reply in replies for each in reply.dropped)
        self._unfinished |= {each.request_id: each for each in requested}
        for ended in (*finished, *dropped):
            self._unfinished.pop(ended.request_id, None)
        return Reply(
            timings_ms=timings_ms,
            requested=requested,
            finished=finished,
            dropped=dropped,
            tokens=sum(reply.tokens for reply in replies),
            prompt_cut=replies[0].prompt_cut,
        )

    def finish(self) -> EpisodeEnd:
        """End the episode. The server cancels its texts when the next one starts."""
        return EpisodeEnd(cancelled=len(self._unfinished), requests=tuple(self._unfinished.values()))

    def _about_query(self, **flags: bool) -> dict[str, Any]:
        return {EXTENSION: {"episode": self._episode, "query": self.number, **flags}}


def _received(text: Text, wire_ms: float) -> Text:
    return text if text.after_ms is None else dataclasses.replace(text, after_ms=text.after_ms + wire_ms)


def _language(answer: Mapping[str, Any]) -> Reply:
    try:
        texts = [{**text, "requested_query": text["query"]} for text in answer.get("texts", ())]
        content = {**answer.get(EXTENSION, {}), "finished": texts, "timings_ms": {}}
        return check(Reply, content, source="reply")
    except (TypeError, KeyError, UsageError) as error:
        raise BadAnswerError(f"the policy server sent texts that cannot be read: {error}") from error
