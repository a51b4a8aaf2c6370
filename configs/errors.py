"""Checks content against schemas. What pydantic finds becomes an error of one line."""

import functools
import reprlib
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, TypeAdapter, ValidationError

from contracts.errors import UsageError, unknown

ValueT = TypeVar("ValueT")

_adapter = functools.cache(TypeAdapter)


def check(schema: type[ValueT], content: Any, *, source: str) -> ValueT:
    """Check `content` against a schema: a model, a dataclass, or any other type that pydantic validates.

    Raises:
        UsageError: Names the first key or value that is wrong, the allowed ones and the source.
    """
    try:
        valid: ValueT = _adapter(schema).validate_python(
            dict(content) if isinstance(content, Mapping) else content
        )
        return valid
    except ValidationError as error:
        raise invalid(error, source, schema) from error


def invalid(error: ValidationError, source: str, schema: Any = None) -> UsageError:
    """The first problem that pydantic found, in one line: the value, what is allowed, and the source.

    With a `schema`, it names the keys nearest to an unknown one.
    """
    problems = error.errors()
    problem = next((each for each in problems if each["type"] == "extra_forbidden"), problems[0])  # misspelt
    where = ".".join(str(part) for part in problem["loc"])
    has_keys = isinstance(schema, type) and issubclass(schema, BaseModel)
    holder = _schema_at(schema, problem["loc"][:-1]) if has_keys else None
    if problem["type"] == "extra_forbidden" and holder:
        *path, key = problem["loc"]
        place = f"{'.'.join(map(str, path))} of {source}" if path else source
        return unknown("key", key, holder.model_fields, remedy=f"In {place}.")
    if problem["type"] in ("literal_error", "enum"):
        where = ".".join(part for part in problem["loc"] if isinstance(part, str))
        allowed = problem["ctx"]["expected"].replace("'", "").replace(" or ", ", ").split(", ")
        return unknown(where, problem["input"], allowed, remedy=f"In {source}.")
    if problem["type"] == "union_tag_invalid":
        allowed = problem["ctx"]["expected_tags"].replace("'", "").split(", ")
        return unknown(f"{where}: kind", problem["ctx"]["tag"], allowed, remedy=f"In {source}.")
    if problem["type"] == "value_error":
        message = problem["msg"].removeprefix("Value error, ")
        place = f"{where}: " if where and f"`{where}`" not in message else ""
        return UsageError(f"{source}: {place}{message}")
    if problem["type"] == "missing":
        return UsageError(f"{source}: {where} is missing: give it")
    where = where or "the whole"
    complaint = problem["msg"][:1].lower() + problem["msg"][1:]
    return UsageError(f"{source}: {where} is {reprlib.repr(problem['input'])}: {complaint}")


def _schema_at(schema: type[BaseModel], path: Sequence[int | str]) -> type[BaseModel] | None:
    """The schema at a path in a preset; None if it is one of several."""
    for key in path:
        if isinstance(key, str):
            nested = _models_in(schema.model_fields[key].annotation) if key in schema.model_fields else []
            if len(nested) != 1:
                return None
            schema = nested[0]
    return schema


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models_in(part)]
