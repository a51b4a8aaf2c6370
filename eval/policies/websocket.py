"""A policy behind openpi's WebSocket protocol, by the address of its server: `--policy ws://host:port`."""

import dataclasses
import functools
import json
import numbers
import os
from collections.abc import Callable, Mapping
from typing import Any

from websockets.exceptions import InvalidURI
from websockets.uri import parse_uri

from configs.errors import UsageError, unknown
from eval.policies.base import OpenPolicy, PolicyLostError
from eval.policies.openpi import (
    ASSUMED,
    EMBODIMENTS,
    OpenpiKeys,
    OpenpiPolicy,
    assumption,
    keys_of,
    named,
    opened,
)
from eval.policies.remote import PolicyClient

_DAY_S = 86400

_OF_ROBOARENA = {"action_space", "n_external_cameras"}
"""What tells the metadata of RoboArena's servers, which speak an extension of the protocol."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """What can be said of a policy server.

    Attributes:
        embodiment: The robot that it is for, if its metadata does not say.
        api_key_env: The environment variable with the key to send as `Authorization: Api-Key …`.
        timeout_s: How long an answer may take; the first one compiles on many servers.
        connect_timeout_s: How long to go on trying to connect.
    """

    embodiment: str | None = None
    api_key_env: str | None = None
    timeout_s: float = 120.0
    connect_timeout_s: float = 60.0

    def __post_init__(self) -> None:
        for name in ("timeout_s", "connect_timeout_s"):
            value = getattr(self, name)
            if type(value) not in (int, float) or not 0 < value <= _DAY_S:
                raise UsageError(f"policy argument {name!r} is {value!r}; give seconds, at most a day")

    @property
    def headers(self) -> dict[str, str]:
        """HTTP headers of the handshake."""
        if self.api_key_env is None:
            return {}
        key = os.environ.get(str(self.api_key_env))
        if not key:
            raise UsageError(f"policy argument 'api_key_env': the environment has no {self.api_key_env}")
        return {"Authorization": f"Api-Key {key}"}


def open_websocket(url: str, kwargs: Mapping[str, Any], *, notify: Callable[[str], None]) -> OpenPolicy:
    """The policy that a server serves.

    The server's metadata may name its `embodiment`, one of openpi's, and its `horizon`. So may
    `embodiment` in `kwargs`; else LIBERO's keys are assumed.

    Args:
        url: `ws://host:port`, or `wss://`, with or without a path.
        kwargs: Fields of `ServerOptions`.
        notify: Told in one line what is waited for, if the server cannot be reached at once.

    Raises:
        UsageError: It cannot be reached, it speaks another protocol, or an argument is wrong.
    """
    _check(url)
    options = _options(kwargs)
    client = PolicyClient(
        url,
        headers=options.headers,
        answer_s=options.timeout_s,
        connect_s=options.connect_timeout_s,
        notify=notify,
    )
    try:
        client.reset()
        return _opened(client, url, kwargs)
    except PolicyLostError as error:
        raise UsageError(str(error)) from error
    except UsageError:
        client.close()
        raise


class RemotePolicy(OpenpiPolicy):
    """A policy behind a server that may say how long it took."""

    def stages(self, answer: Mapping[str, Any], answer_ms: float) -> Mapping[str, float]:
        """The time in the server, and the time on the way there and back."""
        for timing in ("server_timing", "policy_timing"):
            told = answer.get(timing)
            infer_ms = told.get("infer_ms") if isinstance(told, Mapping) else None
            if isinstance(infer_ms, numbers.Real):
                server_ms = min(max(0.0, float(infer_ms)), answer_ms)
                return {"server": server_ms, "wire": answer_ms - server_ms}
        return {}


def _opened(client: PolicyClient, url: str, kwargs: Mapping[str, Any]) -> OpenPolicy:
    metadata, options = client.metadata, _options(kwargs)
    if metadata.keys() >= _OF_ROBOARENA:
        raise UsageError(
            f"{url} is a server of RoboArena's, whose extension of openpi's protocol is not supported yet; "
            "serve the policy with openpi's own server"
        )
    keys = _keys(url, metadata.get("embodiment"), options.embodiment)
    remark = None if keys else assumption(url, "for another robot, --policy-kwargs embodiment=NAME.")
    policy = RemotePolicy(client, named(keys or ASSUMED, url, metadata.get("horizon")))
    policy = opened(policy, remark=remark, server_metadata=_plain(metadata))
    opener = functools.partial(open_websocket, url, kwargs, notify=_unheard)
    return dataclasses.replace(policy, close=client.close, opener=opener)


def _unheard(line: str) -> None:
    """What every worker waits for has been told once, when the evaluation began."""
    del line


def _keys(url: str, served: object, said: str | None) -> OpenpiKeys | None:
    """The keys of the robot that the server or the person names; None if neither does."""
    if said is not None and served in tuple(EMBODIMENTS) and said != served:
        raise UsageError(f"{url} serves embodiment {served!r}; leave out embodiment={said}")
    name = served if said is None else said
    return None if name is None else keys_of(str(name))


def _options(kwargs: Mapping[str, Any]) -> ServerOptions:
    fields = [field.name for field in dataclasses.fields(ServerOptions)]
    for name in kwargs:
        if name not in fields:
            raise unknown("argument of a policy server", name, fields)
    return ServerOptions(**kwargs)


def _check(url: str) -> None:
    try:
        parse_uri(url)
    except (InvalidURI, ValueError) as error:
        raise UsageError(f"{url} is no address of a policy server; write ws://host:port") from error


def _plain(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """Metadata as a record keeps it: what JSON has no form for as its text."""
    plain: dict[str, Any] = json.loads(json.dumps(metadata, default=str, skipkeys=True))
    return plain
