"""Resolves the name of a policy: preset, entry point, YAML file, checkpoint, class or server."""

import dataclasses
import hashlib
import os
from collections.abc import Mapping, Sequence, Set
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from configs.errors import UsageError, unknown
from configs.load import load, names
from configs.schema import LanguageTaskConfig, PolicyConfig, RunConfig
from eval.policies.checkpoints import check_sizes, no_checkpoint
from eval.records.run_folders import policy_name
from oxygen.weights import fetch
from oxygen.weights.card import CARD
from oxygen.weights.loading import SINGLE_FILE

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
    own = _of_ones_own(name)
    if own is not None:
        return own.model_copy(update={"kwargs": dict(kwargs or {})})
    is_place = name not in names(PolicyConfig) and _is_a_place(name)
    preset = _of_checkpoint(name) if is_place else _preset(name)
    if kwargs:
        preset = _with_kwargs(preset, kwargs)
    if preset.checkpoint is None:
        return preset
    named = {"name": preset.name, "description": preset.description}
    return _of_checkpoint(preset.checkpoint).model_copy(update=named)


def _of_ones_own(name: str) -> PolicyConfig | None:
    """A server, a class, or a policy of an entry point; None for other names."""
    if name.startswith(_A_URL):
        return PolicyConfig(name=policy_name(name), kind="websocket", target=name)
    if ":" in name and "://" not in name:
        return PolicyConfig(name=policy_name(name), kind="python", target=name)
    if name not in names(PolicyConfig):
        for point in entry_points(group=ENTRY_POINTS):
            if point.name == name:
                return PolicyConfig(name=name, kind="python", target=point.value)
    return None


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


_OF_ANY_POLICY = ("narration", "memory")
"""Default language tasks of scripted policies and random weights."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RequestedTexts:
    """The language tasks of a run.

    Attributes:
        names: Names of presets, or YAML files.
        remark: One line about them for the user; None if there is nothing to say.
    """

    names: tuple[str, ...]
    remark: str | None = None


def requested_texts(policy: PolicyConfig, config: RunConfig) -> RequestedTexts:
    """The language tasks of a run. Default: those the policy was trained on."""
    asked = config.language_tasks
    if policy.kind in ("python", "websocket"):
        return RequestedTexts(names=() if asked is None else asked)
    if policy.weights is None or config.random_weights:
        return RequestedTexts(names=_OF_ANY_POLICY if asked is None else asked)
    learnt = policy.language_tasks or {}
    if asked is not None:
        noise = f"{policy.name} has learnt no texts: what it says is noise, and nothing but a load."
        return RequestedTexts(names=asked, remark=noise if asked and not learnt else None)
    names = tuple(name for name, prompt in learnt.items() if _asks_alike(name, prompt))
    return RequestedTexts(names=names, remark=_left_out(policy.name, set(learnt) - set(names), learnt))


def _asks_alike(name: str, prompt: str) -> bool:
    """Whether a preset of that name has the prompt that the policy was trained with."""
    return name in names(LanguageTaskConfig) and load(LanguageTaskConfig, name).prompt == prompt


def _left_out(policy: str, missing: Set[str], learnt: Mapping[str, str]) -> str | None:
    if not learnt:
        return (
            f"{policy} has learnt no texts, so none are asked for; "
            f"--language-tasks {' '.join(_OF_ANY_POLICY)} asks for noise, as a load."
        )
    if missing:
        return f"{policy} has also learnt {', '.join(sorted(missing))}: name its file with --language-tasks."
    return None


def check_learnt(policy: PolicyConfig, tasks: Sequence[LanguageTaskConfig]) -> None:
    """Reject language tasks and prompts that the policy was not trained on.

    A policy trained on none accepts all: its texts are noise, useful as a load.

    Raises:
        UsageError: A task or prompt was not in its training.
    """
    if not policy.language_tasks:
        return
    for task in tasks:
        if policy.language_tasks.get(task.name) != task.prompt:
            learnt = [f"{name} ({prompt!r})" for name, prompt in policy.language_tasks.items()]
            raise UsageError(
                f"policy {policy.name!r} has not learnt language task {task.name!r} with prompt "
                f"{task.prompt!r}; it has learnt {', '.join(learnt)}. Choose with --language-tasks"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Start:
    """What a training starts from: a checkpoint and the normalization statistics of its training."""

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


def weights_sha256(policy: PolicyConfig) -> str | None:
    """SHA-256 of the weights; None if they are random or not a file in our format."""
    if policy.weights is None:
        return None
    file = fetch(policy.weights) / SINGLE_FILE
    if not file.is_file():
        return None
    with file.open("rb") as weights:
        return hashlib.file_digest(weights, "sha256").hexdigest()


def _is_a_place(name: str) -> bool:
    """Whether this looks like a folder, existing or not."""
    of_a_file = name.endswith((".yaml", ".yml"))
    return Path(name).is_dir() or (os.sep in name and "://" not in name and not of_a_file)


def _of_checkpoint(source: str) -> PolicyConfig:
    folder = fetch(source)
    card = folder / CARD
    if not card.is_file():
        raise no_checkpoint(source, folder)
    policy = load(PolicyConfig, str(card))
    check_sizes(folder, policy.model or policy.name)
    beside = {"tokenizer": policy.tokenizer, "norm_stats": policy.norm_stats}
    found = {key: _seen_from(folder, place) for key, place in beside.items()}
    return policy.model_copy(update={"weights": source, **found})


def _seen_from(folder: Path, place: str | None) -> str | None:
    """Resolve a path of a card relative to its folder; URLs are kept."""
    return place if place is None or "://" in place else str(folder / place)
