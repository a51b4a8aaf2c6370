"""Recognises addresses of servers and models that people give for a policy, and says what evaluates them."""

import re

from configs.paths import absolute
from contracts.errors import UsageError

_PORT = 8000
"""Where openpi's servers listen."""
_HOST = r"(?:[^\s/@]*@)?(?:\[[0-9a-f:.]+\]|[\w.-]+)"
_SECURE = {"https", "wss", "grpcs"}
_HUB = re.compile(
    r"(?P<site>hf://|(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/)?(?P<id>[\w.-]+/[\w.-]+)"
    r"(?:@[\w.-]+|(?(site)[@:/].*))?",
    re.I,
)
_OTHERS = {
    "tcp": "; a GR00T server needs its bridge, examples/bridge_gr00t.py",
    "zmq": "; a GR00T server needs its bridge, examples/bridge_gr00t.py",
    "grpc": "; LeRobot's policies are --policy lerobot:FOLDER_OR_ID, or served by examples/serve_lerobot.py",
}
"""Scheme to the remedy for servers of other protocols."""


def refuse_address(given: str) -> None:
    """Reject a misspelt server address, or a model of another program, and say what to give instead.

    URLs of policy servers, existing paths, and all other names pass.
    """
    if absolute(given).exists():
        return
    scheme, separator, _ = given.partition("://")
    scheme = scheme.lower() if separator else ""
    hub = None if given.endswith((".yaml", ".yml", ".py")) else _HUB.fullmatch(given)
    if hub is not None and (hub["site"] or not absolute(given).parent.exists()):
        raise UsageError(
            f"there is no checkpoint at {given!r}. For a model of the Hugging Face Hub in LeRobot's format, "
            f"give --policy lerobot:{hub['id']}; others run behind a server (docs/evaluate.md)"
        )
    if url := _meant(given):
        remedy = _OTHERS.get(scheme.removesuffix("s"), "")
        raise UsageError(f"policy {given!r} is not the URL of a policy server; did you mean {url!r}?{remedy}")
    if scheme not in ("", "ws", "wss"):
        raise UsageError(
            f"policy {given!r} is not the URL of a policy server (ws://host:port); copy a checkpoint to a "
            "folder and give that, or a YAML file whose `weights` are its gs:// or https:// URL "
            "(docs/evaluate.md)"
        )


def _meant(given: str) -> str | None:
    """The URL of the server that is given in another spelling; None if none is."""
    schemed = re.fullmatch(r"(https?|wss?|tcp|zmq|grpcs?)(:/{0,3}|/{1,3})(.+)", given, re.I)
    scheme, slashes, rest = ("ws", "", given) if schemed is None else schemed.groups()
    if scheme.lower() in ("ws", "wss") and slashes == "://":
        return None
    address = re.fullmatch(rf"/{{0,2}}({_HOST})(:\d+)?([/?].*)?", rest, re.I)
    if address is None:
        return None
    host, port, path = address.groups(default="")
    if host.isdecimal():
        host, port = "localhost", f":{host}"
    is_address = re.fullmatch(r"(?:.*@)?(?:localhost|\[.*\]|\d+(?:\.\d+){3})", host, re.I)
    if not (port or is_address or "/" in slashes):
        return None
    if not (port or path or scheme.lower() in ("http", "https")):
        port = f":{_PORT}"
    return f"{'wss' if scheme.lower() in _SECURE else 'ws'}://{host}{port}{path}"
