"""Finds policies with a model, by preset or checkpoint, and checks which texts they have learnt."""

import dataclasses
import json
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NotRequired

from typing_extensions import TypedDict

from configs.errors import check
from configs.language_task import LanguageTaskConfig
from configs.load import load, names
from configs.paths import absolute, found_near, read_json_object
from configs.schema import AdapterConfig, AdapterMask, PolicyConfig
from contracts.errors import UsageError, nearest_first, unknown
from contracts.hashing import hash_file
from contracts.prompt import prompt_fields
from oxygen.model.config import preset as model_config
from oxygen.robots.conventions import DROID, DROID_JOINT_POSITION, LIBERO
from oxygen.robots.transforms import acting_as, embodiment
from oxygen.training.run_folder import CHECKPOINTS
from oxygen.weights.remedies import SINGLE_FILE
from oxygen.weights.source import BUNDLED, CARD, RECORD, adapter_card, fetch

_NEARBY = ("*", *(f"{above}{CHECKPOINTS}/*" for above in ("", "*/", "*/*/", "*/*/*/")))
"""Patterns of checkpoints, relative to the nearest existing folder."""


class _Record(TypedDict):
    """Fields of a training's record; the last three are not in all."""

    step: int
    model: dict[str, Any]
    embodiment: str
    tasks: list[dict[str, Any]]
    recipe: dict[str, Any]
    data: list[str]
    start_from: NotRequired[str | None]
    norm_stats: NotRequired[str | None]
    wordings: NotRequired[dict[str, Any]]


_SERVED_ONLY = frozenset({"noise_scale"})  # settings of inference, which may change after training


def read_model_policy(name: str) -> PolicyConfig:
    """Find a policy by preset, YAML file or checkpoint; refuses one that has no model."""
    kind = ""
    if (preset := read_preset(name)) is not None:
        policy = completed(preset)
        if policy.kind == "oxygen":
            return policy
        kind = f" ({name} is of kind {policy.kind})"
    of_models = [preset for preset in names(PolicyConfig) if load(PolicyConfig, preset).kind == "oxygen"]
    remedy = "Or give a YAML file or a checkpoint's folder."
    raise unknown(f"policy with a model{kind}", name, of_models, remedy=remedy)


def read_preset(name: str) -> PolicyConfig | None:
    """The content of a preset, a YAML file or a checkpoint's card, checked; None for any other name."""
    if name in names(PolicyConfig):
        return load(PolicyConfig, name)
    is_file = name.endswith((".yaml", ".yml"))
    if absolute(name).is_dir() or (os.sep in name and "://" not in name and not is_file):
        return of_checkpoint(name)
    return load(PolicyConfig, name) if is_file else None


def completed(preset: PolicyConfig) -> PolicyConfig:
    """The preset with the fields of its checkpoint's card, if it refers to one."""
    if preset.checkpoint is None:
        return preset
    policy = of_checkpoint(preset.checkpoint)
    update = {"name": preset.name, "description": preset.description}
    if preset.embodiment is not None:
        possible = acting_as(str(policy.embodiment))
        if preset.embodiment not in possible:
            why = f"embodiment of {preset.name}, whose checkpoint was trained with {policy.embodiment}:"
            raise unknown(why, preset.embodiment, possible)
        update["embodiment"] = preset.embodiment
    policy = policy.model_copy(update=update)
    if preset.adapter is None:
        return policy
    return with_adapter(policy, preset.adapter).model_copy(
        update={} if preset.language_tasks is None else {"language_tasks": preset.language_tasks}
    )


def evaluation_command(policy: str, robot: str, suites: Sequence[str] = ()) -> str:
    """The command that plays a policy on these suites, by default its robot's."""
    command, default = {
        LIBERO: ("libero", ()),
        DROID: ("droid", ()),
        DROID_JOINT_POSITION: ("droid", ("droid_tabletop_jointpos",)),
    }[embodiment(robot).interface]
    named = suites or default
    options = ["--policy", policy, *(["--suite", *named] if named else [])]
    return f"oxygen-eval {command} {shlex.join(options)}"


def with_adapter(policy: PolicyConfig, adapter: AdapterConfig) -> PolicyConfig:
    """The policy, which needs a model, with an adapter; its texts are those of the adapter's card."""
    if policy.kind != "oxygen":
        raise UsageError(
            f"--adapter {adapter.file} is for a policy with a model, and {policy.name} is of kind "
            f"{policy.kind}; leave it out, or choose another, such as --policy tiny"
        )
    file = fetch(adapter.file)
    if not file.is_file():
        near = nearest_first(file.name, (sibling.name for sibling in file.parent.glob("*.npz")))[:3]
        raise UsageError(
            f"there is no adapter at {adapter.file}; {file.parent} holds {', '.join(near) or 'no .npz'}"
        )
    learnt = adapter_card(file).get("language_tasks")
    return policy.model_copy(update={"adapter": adapter, "language_tasks": learnt})


def chosen_adapter(policy: PolicyConfig, file: str | None, mask: AdapterMask | None) -> PolicyConfig:
    """The policy with the adapter and the mask of the command line; refuses a mask without an adapter."""
    if file is not None:
        return with_adapter(policy, AdapterConfig(file=file, mask=mask))
    if mask is None:
        return policy
    if policy.adapter is None:
        raise UsageError(
            f"--adapter-mask {mask} has no effect: policy {policy.name} has no adapter; give --adapter FILE"
        )
    return policy.model_copy(update={"adapter": policy.adapter.model_copy(update={"mask": mask})})


def trained_tasks(policy: PolicyConfig) -> tuple[str, ...]:
    """Names of the language task presets that a policy was trained on."""
    learnt = (policy.language_tasks or {}).items()
    known = names(LanguageTaskConfig)
    return tuple(
        name for name, prompt in learnt if name in known and load(LanguageTaskConfig, name).prompt == prompt
    )


def learnt_tasks(policy: PolicyConfig, names: Sequence[str]) -> tuple[LanguageTaskConfig, ...]:
    """The language tasks of these presets, with the fields of the prompt that the policy's card declares.

    Refuses two that fill one field of the prompt.
    """
    trained = policy.feedback or {}
    tasks = [load(LanguageTaskConfig, name) for name in names]
    tasks = [
        task if task.feedback else task.model_copy(update={"feedback": trained.get(task.name, ())})
        for task in tasks
    ]
    prompt_fields({task.name: task.feedback for task in tasks})
    return tuple(tasks)


def check_learnt(policy: PolicyConfig, tasks: Sequence[LanguageTaskConfig]) -> None:
    """Reject language tasks, prompts and fields of the prompt that the policy was not trained on.

    A policy trained on none accepts all prompts: its texts are noise, useful for measurements. One without
    weights accepts all fields, too, as does a class or a server, of which nothing is known.
    """
    is_trained = policy.weights is not None if policy.kind == "oxygen" else policy.target is None
    for task in tasks:
        if is_trained and task.feedback != (policy.feedback or {}).get(task.name, ()):
            fields = " and ".join(fed.field for fed in task.feedback)
            raise UsageError(
                f"policy {policy.name!r} was not trained with {fields} in its prompt as language task "
                f"{task.name!r} declares (`feedback`); leave that out, or train one: docs/memory.md"
            )
        learnt = policy.language_tasks or {task.name: task.prompt}
        if learnt.get(task.name) != task.prompt:
            known = ", ".join(f"{name} ({prompt!r})" for name, prompt in learnt.items())
            raise UsageError(
                f"policy {policy.name!r} has not learnt language task {task.name!r} with prompt "
                f"{task.prompt!r}; it has learnt {known}. Choose with --language-tasks"
            )


def weights_sha256(policy: PolicyConfig) -> str | None:
    """SHA-256 of the weights; None if they are random or not a file in our format."""
    if policy.weights is None:
        return None
    file = fetch(policy.weights) / SINGLE_FILE
    return hash_file(file) if file.is_file() else None


def adapter_identity(policy: PolicyConfig) -> dict[str, str | None] | None:
    """SHA-256 and mask of a policy's adapter, for records; None without one."""
    if policy.adapter is None:
        return None
    file = fetch(policy.adapter.file)
    mask = policy.adapter.mask or adapter_card(file).get("mask") or "exact"
    return {"sha256": hash_file(file), "mask": mask}


def of_checkpoint(source: str) -> PolicyConfig:
    """The policy of a checkpoint, by the card in its folder; refuses one whose model has changed."""
    folder = fetch(source)
    card = folder / CARD
    if not card.is_file():
        raise no_checkpoint(source, folder)
    policy = load(PolicyConfig, str(card))
    check_sizes(folder, policy.model or policy.name)

    def beside_card(place: str | None) -> str | None:
        if place is None or "://" in place:
            return place
        if source.startswith(f"{BUNDLED}://"):  # moves with the package
            return f"{source}/{place}"
        return str((folder if "://" in source else Path(source).expanduser()) / place)

    beside = {"tokenizer": beside_card(policy.tokenizer), "norm_stats": beside_card(policy.norm_stats)}
    if policy.adapter is None:
        return policy.model_copy(update={"weights": source, **beside})
    adapter = policy.adapter.model_copy(update={"file": beside_card(policy.adapter.file)})
    return policy.model_copy(update={"weights": beside_card(policy.weights), "adapter": adapter, **beside})


def read_record(folder: Path) -> dict[str, Any]:
    """Read a checkpoint's `training.json` and check it."""
    file = folder / RECORD
    if not file.is_file():
        raise UsageError(f"{folder} is not a training checkpoint: it has no {RECORD}")
    record = read_json_object(file)
    check(_Record, record, source=f"{file} is not what training writes")
    return record


def check_sizes(folder: Path, model: str) -> None:
    """Refuse a checkpoint whose model configuration, of that name, has changed since training.

    Shapes are checked when the weights are loaded; this also covers sizes that no shape shows, such as the
    number of denoising steps.
    """
    if not (folder / RECORD).is_file():
        return  # converted: only its shapes are known
    from flax.traverse_util import flatten_dict  # other policies do without flax

    ours = flatten_dict(json.loads(json.dumps(dataclasses.asdict(model_config(model)))), sep=".")
    theirs = flatten_dict(read_record(folder)["model"], sep=".")
    for size, value in ours.items():
        if size not in _SERVED_ONLY and theirs.get(size, value) != value:
            raise UsageError(
                f"{folder} was trained with {size} {theirs[size]}; {model!r} now has {value}. "
                "Train it again, or use the code that trained it"
            )


def no_checkpoint(source: str, folder: Path) -> UsageError:
    """The error for a source whose folder is not a checkpoint; it names the nearest folders that are."""
    if folder.is_file():
        return UsageError(f"{source} is a file; give the folder of a checkpoint, or a policy's YAML file")
    if not folder.is_dir():
        return UsageError(f"there is no checkpoint at {source}. {_nearest_to(folder)}")
    cards = (folder.glob(f"{inside}step_*[0-9]/{CARD}") for inside in (f"{CHECKPOINTS}/", ""))
    if newest := max((card.parent for found in cards for card in found), default=None):
        return UsageError(f"{source} is the folder of a training; give its newest checkpoint: {newest}")
    from oxygen.weights.formats import open_checkpoint  # imports JAX

    try:
        open_checkpoint(folder)
    except UsageError as error:
        if not _cards_near(folder):
            return error
    else:
        return UsageError(
            f"{source} has weights, but no {CARD}. Convert them "
            f"(python -m oxygen.tools.convert {source} TARGET --model pi05_libero) and give TARGET, or give "
            f"a YAML file with `weights: {source}`: docs/evaluate.md has an example"
        )
    lacks = f"{source} is not a training checkpoint: it has no {CARD}"
    return UsageError(f"{lacks}. {_nearest_to(folder)}")


def _cards_near(folder: Path) -> list[Path]:
    return [card.parent for card in found_near(folder, (f"{pattern}/{CARD}" for pattern in _NEARBY))]


def _nearest_to(folder: Path) -> str:
    known = _cards_near(folder)
    if not known:
        return f"Training writes checkpoints to {CHECKPOINTS}/step_… in its --output-dir"
    return f"Nearest: {', '.join(nearest_first(folder, known)[:3])}"
