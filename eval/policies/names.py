"""Resolves the name of a policy: preset, entry point, YAML file, checkpoint, class or server."""

import dataclasses
from collections.abc import Mapping, Set
from importlib.metadata import entry_points
from typing import Any

from configs.errors import UsageError, unknown
from configs.load import check, load, names
from configs.schema import PolicyConfig, RunConfig
from eval.records.run_folders import policy_name
from oxygen.presets.policies import completed, is_a_place, of_checkpoint, trained_tasks
from oxygen.weights import fetch
from oxygen.weights.card import CARD

ENTRY_POINTS = "oxygen_eval.policies"
"""Entry-point group of policies of other packages: policy name to class."""

_A_URL = ("ws://", "wss://")


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
    own = _custom(name)
    if own is not None:
        return own.model_copy(update={"kwargs": dict(kwargs or {})})
    preset = of_checkpoint(name) if is_a_place(name) else _preset(name)
    if kwargs:
        preset = _with_kwargs(preset, kwargs)
    return completed(preset)


def _custom(name: str) -> PolicyConfig | None:
    """A policy that is a server, a class or an entry point; None for other names."""
    if name.startswith(_A_URL):
        return _of_target(name, "websocket")
    if ":" in name and "://" not in name:
        return _of_target(name, "python")
    if name not in names(PolicyConfig):
        for point in entry_points(group=ENTRY_POINTS):
            if point.name == name:
                return PolicyConfig(name=name, kind="python", target=point.value)
    return None


def _of_target(name: str, kind: str) -> PolicyConfig:
    given = {"name": policy_name(name), "kind": kind, "target": name}
    return check(PolicyConfig, given, source=f"policy {name!r}")


def _preset(name: str) -> PolicyConfig:
    known = (*names(PolicyConfig), *(point.name for point in entry_points(group=ENTRY_POINTS)))
    if name not in known and not name.endswith((".yaml", ".yml")):
        remedy = "Or give a YAML file, a checkpoint's folder, a class (module:Class) or a server (ws://…)."
        raise unknown("policy", name, known, remedy=remedy)
    return load(PolicyConfig, name)


def _with_kwargs(preset: PolicyConfig, kwargs: Mapping[str, Any]) -> PolicyConfig:
    if preset.kind not in ("python", "websocket"):
        given = " ".join(f"{key}={value}" for key, value in kwargs.items())
        raise UsageError(
            f"--policy-kwargs {given} is for a class or a server; {preset.name} is of kind {preset.kind}, "
            "so leave it out"
        )
    return preset.model_copy(update={"kwargs": {**preset.kwargs, **kwargs}})


_DEFAULT_TASKS = ("narration", "memory")
"""Default language tasks of scripted policies and random weights."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RequestedTexts:
    """The language tasks of a run.

    Attributes:
        names: Names of presets, or YAML files.
        remark: One line about them for the user, or None.
    """

    names: tuple[str, ...]
    remark: str | None = None


def requested_texts(policy: PolicyConfig, config: RunConfig) -> RequestedTexts:
    """The language tasks of a run. Default: those the policy was trained on."""
    requested = config.language_tasks
    if policy.kind in ("python", "websocket"):
        return RequestedTexts(names=() if requested is None else requested)
    if policy.weights is None or config.random_weights:
        return RequestedTexts(names=_DEFAULT_TASKS if requested is None else requested)
    trained = policy.language_tasks or {}
    if policy.adapter is not None and policy.language_tasks is None:
        remark = "The adapter has no card that names its texts: choose them with --language-tasks."
        return RequestedTexts(names=requested or (), remark=None if requested else remark)
    if requested is not None:
        noise = f"{policy.name} was not trained on texts: they will be noise, useful only as a load."
        return RequestedTexts(names=requested, remark=noise if requested and not trained else None)
    names = trained_tasks(policy)
    return RequestedTexts(names=names, remark=_remark(policy.name, set(trained) - set(names), trained))


def _remark(policy: str, missing: Set[str], trained: Mapping[str, str]) -> str | None:
    if not trained:
        return (
            f"{policy} was not trained on texts, so none are requested; "
            f"--language-tasks {' '.join(_DEFAULT_TASKS)} requests noise, as a load."
        )
    if missing:
        tasks = ", ".join(sorted(missing))
        return f"{policy} was also trained on {tasks}: name its file with --language-tasks."
    return None


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
