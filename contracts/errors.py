"""Errors of one line: the value, what is allowed (nearest first), and the remedy."""

import difflib
import re
import sysconfig
import traceback
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from contracts.redaction import redact_text

_LONGEST_WORD, _LONGEST_LINE = 300, 900  # limits of a message, characters; longer ones are cut
_MOST_NAMES = 8  # of those allowed
_OWN_PACKAGES = ("configs", "contracts", "eval", "oxygen", "sim_envs", "videos")


class UsageError(ValueError):
    """Invalid input by the user. Its message is one line without secrets, which commands print."""

    def __init__(self, message: str) -> None:
        one_line = redact_text(" ".join(message.split()))
        cut = re.sub(rf"(\S{{{_LONGEST_WORD // 3}}})\S{{{_LONGEST_WORD},}}", r"\1…", one_line)
        shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in cut)
        super().__init__(shown if len(shown) <= _LONGEST_LINE else f"{shown[: _LONGEST_LINE - 1]}…")


def one_line(error: BaseException) -> str:
    """An exception's class and message in one line: `ValueError: no number`."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def in_user_code(error: BaseException) -> str:
    """Where in the user's code an exception arose, as ` (my_policy.py, line 10)`; empty if in none."""
    paths = sysconfig.get_paths()
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        file, module = frame.f_code.co_filename, str(frame.f_globals.get("__name__"))
        is_library = file.startswith((paths["stdlib"], paths["purelib"], "<"))
        if not is_library and module.partition(".")[0] not in _OWN_PACKAGES:
            return f" ({Path(file).name}, line {line})"
    return ""


def nearest_first(value: object, allowed: Iterable[object]) -> list[str]:
    """The allowed values, most similar to `value` first: those that have its words, then by spelling."""
    text = str(value).lower()[:_LONGEST_WORD]
    words = set(re.findall(r"[a-z0-9]+", text))

    def distance(name: str) -> tuple[bool, float]:
        has_words = bool(words) and words <= set(re.findall(r"[a-z0-9]+", name.lower()))
        return not has_words, -difflib.SequenceMatcher(None, text, name.lower()).ratio()

    return sorted(map(str, allowed), key=distance)


def install_command(extra: str) -> str:
    """How to install an extra of this project."""
    return f"uv pip install -e '.[{extra}]' in a checkout, or with a wheel's file 'FILE.whl[{extra}]'"


def unknown(kind: str, value: object, allowed: Iterable[object], *, remedy: str = "") -> UsageError:
    """The error for a name that is not among the `allowed` ones.

    Args:
        kind: What the value names, in words ("suite", "policy").
        value: What was given.
        allowed: Every valid name; the eight nearest are printed.
        remedy: What to do, if naming the nearest one does not say it already.
    """
    names = nearest_first(value, allowed)
    if not names:
        return UsageError(f"unknown {kind} {str(value)!r}: there is none to choose from. {remedy}")
    return UsageError(
        f"unknown {kind} {str(value)!r}; did you mean {names[0]!r}? Allowed: {_listed(names)}. {remedy}"
    )


def check_has(what: str, given: Collection[object], needed: Iterable[str]) -> None:
    """Raise a UsageError if `what` ("the observation") lacks a needed name; it names the first one."""
    needed = list(needed)
    for name in needed:
        if name not in given:
            found = _listed(nearest_first(name, given)) or "none"
            raise UsageError(f"{what} lacks {name!r}. Allowed: {_listed(needed)}. Given: {found}.")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_MOST_NAMES]) + (f", … ({len(names)} in all)" if names[_MOST_NAMES:] else "")


def pluralize(number: int, noun: str) -> str:
    """`1 episode`, `2 episodes`, `3 queries`."""
    several = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number} {noun if number == 1 else several}"
