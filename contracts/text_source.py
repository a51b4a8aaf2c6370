"""Sources of the texts in a prompt, read and written as `--feedback` spells them."""

import dataclasses

from contracts.errors import UsageError, unknown

_MAX_AGE_S = 60.0


@dataclasses.dataclass(frozen=True)
class Own:
    """The policy's own texts."""

    def __str__(self) -> str:
        return "own"


@dataclasses.dataclass(frozen=True)
class Nothing:
    """No text."""

    def __str__(self) -> str:
        return "none"


@dataclasses.dataclass(frozen=True)
class TrueText:
    """The simulator's truth, of some age."""

    age_s: float = 0.0  # seconds, at most 60

    def __str__(self) -> str:
        return f"truth:{self.age_s:g}" if self.age_s else "truth"


@dataclasses.dataclass(frozen=True)
class DelayedTruth:
    """The truth at each request, delivered when the policy's own text would have been."""

    def __str__(self) -> str:
        return "truth-delayed"


@dataclasses.dataclass(frozen=True)
class Frozen:
    """A constant."""

    text: str

    def __str__(self) -> str:
        return f"frozen:{self.text}"


OWN = Own()

TextSource = Own | Nothing | TrueText | DelayedTruth | Frozen

_FORMS = ("own", "none", "truth", "truth:SECONDS", "truth-delayed", "frozen:TEXT")


def parse_text_source(text: str) -> TextSource:
    """Parse `own`, `none`, `truth`, `truth:SECONDS`, `truth-delayed` or `frozen:TEXT`; else a UsageError."""
    kind, colon, rest = text.partition(":")
    for source in (OWN, Nothing(), TrueText(), DelayedTruth()):
        if text == str(source):
            return source
    if kind == "frozen" and colon:
        return Frozen(rest)
    if kind != "truth":
        raise unknown("source of feedback", text, _FORMS)
    try:
        age_s = float(rest)
    except ValueError as error:
        raise UsageError(f"{text!r}: give an age in seconds, such as truth:0.5 ({error})") from None
    if not 0.0 <= age_s <= _MAX_AGE_S:
        bounds = f"not between 0 and {_MAX_AGE_S:g}"
        raise UsageError(
            f"{text!r}: give an age in seconds, such as truth:0.5 (an age of {age_s:g} s is {bounds})"
        )
    return TrueText(age_s)
