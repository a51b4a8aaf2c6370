"""Reads presets by name or path; errors in them are one line."""

import functools
from collections.abc import Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, TypeVar

import pydantic

from configs.collection import CollectConfig
from configs.errors import UsageError, unknown
from configs.language_task import LanguageTaskConfig
from configs.pipeline import PipelineConfig
from configs.profile import ProfileConfig
from configs.reading import parse_yaml, read_text
from configs.schema import PolicyConfig, Preset, SuiteConfig
from configs.sweep import SweepConfig
from configs.training import TrainConfig
from configs.validation import invalid
from configs.variants import VariantsConfig

PresetT = TypeVar("PresetT", bound=Preset)

_FOLDER_OF: dict[type[Preset], str] = {
    SuiteConfig: "suites",
    LanguageTaskConfig: "language_tasks",
    PolicyConfig: "policies",
    VariantsConfig: "runs",
    SweepConfig: "sweeps",
    CollectConfig: "collections",
    TrainConfig: "trainings",
    PipelineConfig: "pipelines",
    ProfileConfig: "profiles",
}
_KIND_OF: dict[type[Preset], str] = {
    SuiteConfig: "suite",
    LanguageTaskConfig: "language task",
    PolicyConfig: "policy",
    VariantsConfig: "config",
    SweepConfig: "config",
    CollectConfig: "config",
    TrainConfig: "config",
    PipelineConfig: "pipeline",
    ProfileConfig: "profile",
}


@functools.cache
def names(schema: type[Preset]) -> tuple[str, ...]:
    """Names of the bundled presets of one kind, sorted."""
    return tuple(
        sorted(
            file.name.removesuffix(".yaml")
            for file in _folder(schema).iterdir()
            if file.name.endswith(".yaml")
        )
    )


def load(schema: type[PresetT], name: str) -> PresetT:
    """The preset of that name, or the one in the YAML file at that path.

    Raises:
        UsageError: No such preset, or its content does not fit the schema.
    """
    return check(schema, read_mapping(schema, name), source=name)


def read_mapping(schema: type[Preset], name: str) -> dict[str, Any]:
    """The unchecked content of a preset, by name or path."""
    if name.endswith((".yaml", ".yml")):
        path: Path | Traversable = Path(name)
        if not path.is_file():
            raise UsageError(
                f"no such file {name!r}; give an existing YAML file or one of {', '.join(names(schema))}"
            )
    elif name in names(schema):
        path = _folder(schema) / f"{name}.yaml"
    else:
        raise unknown(_KIND_OF[schema], name, names(schema), remedy="Or give the path of a YAML file.")
    content = parse_yaml(read_text(path), name)
    if not isinstance(content, dict):
        raise UsageError(f"{name}: holds {type(content).__name__}, should hold `key: value` lines")
    return content


def check(schema: type[PresetT], content: Mapping[str, Any], *, source: str) -> PresetT:
    """Check `content` against a schema.

    Raises:
        UsageError: Names the first key or value that is wrong, the allowed ones and the source.
    """
    try:
        return schema.model_validate(dict(content))
    except pydantic.ValidationError as error:
        raise invalid(error, source, schema) from error


def _folder(schema: type[Preset]) -> Traversable:
    return resources.files("configs") / _FOLDER_OF[schema]
