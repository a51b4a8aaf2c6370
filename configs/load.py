"""Reads presets by name or path, and merges command-line options over them."""

import functools
from collections.abc import Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, TypeVar

from configs.cli import format_option
from configs.errors import check
from configs.language_task import LanguageTaskConfig
from configs.paths import absolute, parse_yaml, read_text
from configs.profile import ProfileConfig
from configs.protocol import ProtocolConfig
from configs.published import PublishedConfig
from configs.schema import ExecutionConfig, PolicyConfig, Preset, SuiteConfig, SweepConfig, VariantsConfig
from configs.training import CollectConfig, TrainConfig
from contracts.errors import UsageError, unknown

PresetT = TypeVar("PresetT", bound=Preset)

_KINDS: dict[type[Preset], tuple[str, str]] = {
    SuiteConfig: ("suite", "suites"),
    LanguageTaskConfig: ("language task", "language_tasks"),
    PolicyConfig: ("policy", "policies"),
    VariantsConfig: ("config", "runs"),
    SweepConfig: ("config", "sweeps"),
    CollectConfig: ("config", "collections"),
    TrainConfig: ("config", "trainings"),
    ProfileConfig: ("profile", "profiles"),
    ProtocolConfig: ("protocol", "protocols"),
    PublishedConfig: ("table of published scores", "published"),
}
"""Schema to its name in messages and the folder of its presets."""

_ALTERNATIVES = {"num_trials_per_task": "init_ids", "init_ids": "num_trials_per_task"}
"""Options that both select initial states; one on the command line replaces either of a preset."""

_OF_COMMANDS = {*ExecutionConfig.model_fields, "output", "output_dir", "log", "workers", "minutes"}
"""Options of commands that no preset has, unless its schema says so."""


@functools.cache
def names(schema: type[Preset]) -> tuple[str, ...]:
    """Names of the bundled presets of one kind, sorted."""
    files = (Path(file.name) for file in _folder(schema).iterdir())
    return tuple(sorted(file.stem for file in files if file.suffix == ".yaml"))


def load(schema: type[PresetT], name: str) -> PresetT:
    """The preset of that name, or in the YAML file at that path; else a UsageError."""
    return check(schema, _read(schema, name), source=name)


def _read(schema: type[Preset], name: str) -> dict[str, Any]:
    if name.endswith((".yaml", ".yml")):
        path: Path | Traversable = absolute(name)
        if not path.is_file():
            raise UsageError(
                f"no such file {name!r}; give an existing YAML file or one of {', '.join(names(schema))}"
            )
    elif name in names(schema):
        path = _folder(schema) / f"{name}.yaml"
    else:
        raise unknown(_KINDS[schema][0], name, names(schema), remedy="Or give the path of a YAML file.")
    content = parse_yaml(read_text(path), name)
    if not isinstance(content, dict):
        raise UsageError(f"{name}: holds {type(content).__name__}, should hold `key: value` lines")
    return content


def overlay(schema: type[Preset], preset: str | None, flags: Mapping[str, Any]) -> dict[str, Any]:
    """Merge command-line options over a preset (a name or a YAML file), which is checked; the result is not.

    `init_ids` replaces `num_trials_per_task`, and vice versa; both in one place are a UsageError, as are a
    missing preset and one that does not fit the schema.
    """
    below = {} if preset is None else _read(schema, preset)
    for key, value in below.items():
        if key in _OF_COMMANDS and key not in schema.model_fields:
            raise UsageError(f"{preset}: {key} is given on the command line: {format_option(key, value)}")
    check(schema, below, source=preset or "")
    for given in (below, flags):
        if given.keys() >= _ALTERNATIVES.keys():
            trials, states = (given[key] for key in _ALTERNATIVES)
            raise UsageError(
                f"`num_trials_per_task` is {trials} and `init_ids` is {states}: a trial is an initial state; "
                "give --num-trials-per-task for the first ones, or --init-ids for those of your choice"
            )
    replaced = {_ALTERNATIVES[key] for key in flags if key in _ALTERNATIVES}
    return {**{key: value for key, value in below.items() if key not in replaced}, **flags}


def agrees(config: Preset, given: Mapping[str, Any]) -> bool:
    """Whether options on the command line are those of a configuration; False if they do not fit it."""
    try:
        return check(type(config), {**config.model_dump(), **given}, source="the command line") == config
    except UsageError:
        return False


def _folder(schema: type[Preset]) -> Traversable:
    return resources.files("configs") / _KINDS[schema][1]
