"""Texts that a policy wrote, in its later prompts: which field holds which, and how prompts are composed.

The same functions compose the prompt in training, in rollouts and for policy servers.
"""

import dataclasses
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Literal

from contracts.errors import UsageError, unknown

FIELDS = ("memory", "subtask")
"""Fields of a prompt that may hold a text, also the keys of observations."""

INSTRUCTION = "instruction"
"""Key of the instruction in the fields of an observation."""

_TEXT, _GOAL = "{text}", "{instruction}"
_JOINERS = "\u200c\u200d"
"""Invisible characters inside words of Persian or Hindi, and inside emoji."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PromptField:
    """A field of the prompt that holds a text of the policy."""

    field: str  # its name: `memory` or `subtask`
    # The field with its text, such as `Memory: {text}`. With role `instruction` it needs no label, and may
    # have the suite's `{instruction}`.
    format: str
    # For a language task with several fields, the part of its answer that is this field's text, such as
    # `Subtask: {text}`; None if the answer is the text.
    answer: str | None = None
    # A text is in the prompt once it was delivered this many seconds before the observation.
    lookback_s: float = 0.0
    empty: str = ""  # the text at the start of an episode
    # `context` adds the field after the instruction; `instruction` replaces that, unless its text is empty.
    role: Literal["context", "instruction"] = "context"
    max_chars: int = 240  # longer texts are cut

    def __post_init__(self) -> None:
        if self.field not in FIELDS:
            raise ValueError(str(unknown("field of a prompt", self.field, FIELDS)))
        for name, pattern in (("format", self.format), ("answer", self.answer)):
            if pattern is None:
                continue
            is_instruction = (name, self.role) == ("format", "instruction")
            labelled = ":" in pattern.partition(_TEXT)[0] or is_instruction
            if pattern.count(_TEXT) != 1 or not labelled:
                example = f"{self.field.capitalize()}: {_TEXT}"
                raise ValueError(
                    f"`{name}` of {self.field} is {pattern!r}; give a label with a colon: {example!r}"
                )
            others = set(re.findall(r"{\w*}", pattern)) - {_TEXT, *([_GOAL] if is_instruction else [])}
            if others:
                allowed = f"{_TEXT} and {_GOAL}" if is_instruction else f"{_TEXT} alone"
                raise ValueError(
                    f"`{name}` of {self.field} has {', '.join(sorted(others))}; with role {self.role} give "
                    f"{allowed}"
                )
        if any("\n" in (pattern or "") for pattern in (self.format, self.answer)):
            raise ValueError(f"`format` or `answer` of {self.field} has a line break; give one line")
        if self.empty != cleaned(self.empty, None)[0]:
            raise ValueError(
                f"`empty` of {self.field} is {self.empty!r}; give {cleaned(self.empty, None)[0]!r}: colons, "
                "underscores and line breaks mark fields"
            )
        if not 0 <= self.lookback_s <= 3600:
            raise ValueError(f"`lookback_s` of {self.field} is {self.lookback_s:g}; give 0 to 3600 seconds")
        if not 1 <= self.max_chars <= 4000:
            raise ValueError(f"`max_chars` of {self.field} is {self.max_chars}; give 1 to 4000 characters")


FieldsByTask = Mapping[str, tuple[PromptField, ...]]
"""Language task to the fields that its answers fill."""


def prompt_fields(fields_by_task: FieldsByTask) -> tuple[PromptField, ...]:
    """All fields of a prompt, in the order in which they appear.

    Raises:
        UsageError: Two language tasks fill one field, two fields replace the instruction or have one label,
            or a task with several fields does not say which part of its answer is which.
    """
    filled: dict[str, str] = {}
    for task, fields in fields_by_task.items():
        for each in fields:
            if each.field in filled:
                raise UsageError(
                    f"language tasks {filled[each.field]!r} and {task!r} both fill field {each.field!r} of "
                    "the prompt; leave one of them out"
                )
            filled[each.field] = task
            if len(fields) > 1 and each.answer is None:
                raise UsageError(
                    f"language task {task!r} fills {len(fields)} fields; say in `answer` of {each.field!r} "
                    f"which part of its answer that is, such as '{each.field.capitalize()}: {_TEXT}'"
                )
    every = sorted(
        (each for fields in fields_by_task.values() for each in fields), key=lambda each: each.field
    )
    replacing = [each.field for each in every if each.role == "instruction"]
    if len(replacing) > 1:
        raise UsageError(f"fields {' and '.join(replacing)} both replace the instruction; give one of them")
    labels = [_label(each.format.partition(_TEXT)[0].casefold()) for each in every if each.role == "context"]
    if len(set(labels)) < len(labels):
        formats = " and ".join(repr(each.format) for each in every)
        raise UsageError(f"fields of the prompt have one label: {formats}; give each its own")
    return tuple(every)


def compose(instruction: str, fields: Sequence[PromptField], texts: Mapping[str, str]) -> str:
    """The prompt of a query: the suite's instruction or what replaces it, then a line for each other field.

    Takes the fields as `prompt_fields` orders them, and their texts from `cleaned`; others are empty.
    """
    head, lines = instruction, []
    for each in fields:
        text = texts.get(each.field) or each.empty
        filled = text.join(part.replace(_GOAL, instruction) for part in each.format.split(_TEXT)).strip()
        if each.role == "context":
            lines.append(filled)
        elif text:
            head = filled
    return "\n".join([head, *lines])


def cleaned(text: str, max_chars: int | None) -> tuple[str, int]:
    """A text as it may stand in a prompt, and the number of characters that were cut from its end.

    Compatibility forms are normalised. Colons, which mark fields, underscores, line breaks, and control and
    format characters except joiners become spaces, so that no text can imitate a field. Without
    `max_chars`, none are cut.
    """
    letters = unicodedata.normalize("NFKC", text)
    spaced = "".join(
        " " if each in ":_" or (each not in _JOINERS and unicodedata.category(each)[0] in "CZ") else each
        for each in letters
    )
    plain = " ".join(filter(None, (word.strip(_JOINERS) for word in spaced.split())))
    short = plain[:max_chars].rstrip(f" {_JOINERS}")
    return short, len(plain) - len(short)


def true_tasks(task: str, fields: Sequence[PromptField]) -> dict[str, str]:
    """Field to the language task whose truth may fill it: the task itself, if it has a truth.

    For tasks of other names, and those with several fields: a memory is the one of preset `memory`, a subtask
    what preset `narration` says.
    """
    if len(fields) == 1 and task in ("narration", "memory", "textual_memory"):
        return {fields[0].field: task}
    return {each.field: "narration" if each.field == "subtask" else "memory" for each in fields}


def parse_answer(answer: str, fields: Sequence[PromptField]) -> dict[str, str] | None:
    """Field to text of a language task's answer; None unless every field has a text."""
    if len(fields) == 1 and fields[0].answer is None:
        found = {fields[0].field: answer}
    else:
        labels = [[_label(part) for part in str(each.answer).split(_TEXT)] for each in fields]
        parts = (f"{before} ?(.*?) ?{after}" for before, after in labels)
        match = re.fullmatch(" ".join(parts), " ".join(answer.split()))
        if match is None or any(re.search(before, part) for before, _ in labels for part in match.groups()):
            return None
        found = {each.field: part for each, part in zip(fields, match.groups(), strict=True)}
    return found if all(cleaned(text, 1)[0] for text in found.values()) else None


def write_answer(texts: Mapping[str, str], fields: Sequence[PromptField]) -> str:
    """The answer that `parse_answer` reads."""
    return "\n".join((each.answer or _TEXT).replace(_TEXT, texts[each.field]) for each in fields)


def instruction_at(instructions: Mapping[int, str], step: int) -> str:
    """The instruction that holds at a control step, of instructions by the step from which they hold."""
    return instructions[max(start for start in instructions if start <= step)]


def _label(text: str) -> str:
    """A pattern of the text around a field, with any spaces between its words."""
    return " ?".join(map(re.escape, text.split()))
