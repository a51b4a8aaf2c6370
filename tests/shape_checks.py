"""Checks of shapes and types while tests run: of each function's first calls, since checks are slow."""

import dataclasses
import functools
import inspect
from collections import Counter
from collections.abc import Callable
from typing import Any

import jaxtyping

_jaxtyped = jaxtyping.jaxtyped
_checked = Counter[tuple[str, str]]()
"""Checked calls of every function in this process, by module and name."""

most = 20
"""Calls of a function that are checked."""


def checked_at_first(annotated: Any = None, *, typechecker: Callable[..., Any]) -> Any:
    """Decorates as `jaxtyping.jaxtyped` does, for as many calls as are checked."""
    if annotated is None:
        return functools.partial(checked_at_first, typechecker=typechecker)
    if dataclasses.is_dataclass(annotated) and "__init__" in vars(annotated):
        annotated.__init__ = checked_at_first(annotated.__init__, typechecker=typechecker)
    if not inspect.isfunction(annotated):
        return annotated
    name, check = (annotated.__module__, annotated.__qualname__), None
    if _checked[name] >= most:
        return annotated

    @functools.wraps(annotated)
    def sampled(*arguments: Any, **named: Any) -> Any:
        nonlocal check
        if _checked[name] >= most:
            return annotated(*arguments, **named)
        _checked[name] += 1
        check = check or _jaxtyped(annotated, typechecker=typechecker)
        return check(*arguments, **named)

    return sampled
