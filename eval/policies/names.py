"""Finds a policy by its name: preset, entry point, YAML file, checkpoint, class or server."""

import contextlib
import dataclasses
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any

from configs.errors import UsageError, unknown
from configs.interface import Interface, compare
from configs.load import check, load, names
from configs.schema import PolicyConfig
from eval.records.run_folders import policy_name
from oxygen.presets.policies import completed, read_preset
from oxygen.robots.transforms import embodiment
from oxygen.weights import fetch
from oxygen.weights.card import CARD

ENTRY_POINTS = "oxygen_eval.policies"
"""Entry-point group of policies of other packages: policy name to class."""


def read_policy(name: str, kwargs: Mapping[str, Any] | None = None) -> PolicyConfig:
    """Find a policy by preset, entry point, YAML file, class, URL or checkpoint.

    A class is written `package.module:Class` or `path/to/file.py:Class`, a server `ws://host:port[/path]`.
    A preset may refer to a checkpoint, such as the bundled one; it then gives name and description, and the
    checkpoint's card the rest.

    Args:
        name: Value of `--policy`.
        kwargs: Keyword arguments of a class or a server.

    Raises:
        UsageError: The policy does not exist, its card is invalid, or its model has changed.
    """
    presets = names(PolicyConfig)
    plugins = {} if name in presets else {each.name: each.value for each in entry_points(group=ENTRY_POINTS)}
    is_server = name.startswith(("ws://", "wss://"))
    if is_server or (":" in name and "://" not in name):
        kind = "websocket" if is_server else "python"
        given = {"name": policy_name(name), "kind": kind, "target": name}
        policy = check(PolicyConfig, given, source=f"policy {name!r}")
    elif name in plugins:
        policy = PolicyConfig(name=name, kind="python", target=plugins[name])
    elif name.endswith(".py"):
        raise UsageError(f"policy {name!r} is a file; name a class in it, such as {name}:MyPolicy")
    elif (found := read_preset(name)) is not None:
        policy = found
    else:
        remedy = (
            "Or give a YAML file, a checkpoint's folder, a class (module:Class or file.py:Class) or a server "
            "(ws://…)."
        )
        raise unknown("policy", name, (*presets, *plugins), remedy=remedy)
    if kwargs:
        if policy.kind not in ("python", "websocket"):
            words = " ".join(f"{key}={value}" for key, value in kwargs.items())
            raise UsageError(
                f"--policy-kwargs {words} is for a class or a server; {policy.name} is of kind "
                f"{policy.kind}, so leave it out"
            )
        policy = policy.model_copy(update={"kwargs": {**policy.kwargs, **kwargs}})
    return completed(policy)


def policies_for(interface: Interface) -> list[str]:
    """The presets with a model whose conventions agree with an environment's."""
    fitting = []
    for name in names(PolicyConfig):
        if load(PolicyConfig, name).kind == "oxygen":
            robot = embodiment(str(read_policy(name).embodiment))
            with contextlib.suppress(UsageError):
                compare(robot.interface, interface)
                fitting.append(name)
    return fitting


@dataclasses.dataclass(frozen=True, kw_only=True)
class Start:
    """The checkpoint that a training starts from, and its normalization statistics."""

    weights: str
    norm_stats: str


def start_of(name: str) -> Start:
    """The starting point given by a policy's name, a YAML file, or a checkpoint.

    Raises:
        UsageError: The policy has no weights.
    """
    if not _is_policy(name):
        return Start(weights=name, norm_stats=name)
    policy = read_policy(name)
    if policy.weights is None:
        raise UsageError(f"policy {name!r} has no weights to start from; give one that has, or a checkpoint")
    return Start(weights=policy.weights, norm_stats=policy.norm_stats or policy.weights)


def policy_of(start: str) -> PolicyConfig | None:
    """The policy of a starting point; None for a checkpoint without a card.

    Raises:
        UsageError: The policy does not exist, or its card is damaged.
    """
    return read_policy(start) if _is_policy(start) or (fetch(start) / CARD).is_file() else None


def _is_policy(start: str) -> bool:
    """Whether this names a preset or a YAML file, not a checkpoint."""
    return start in names(PolicyConfig) or start.endswith((".yaml", ".yml"))
