"""Parses arrivals from the command line: `every:1`, `burst:4:8`, `poisson:0.5@8-30`."""

import dataclasses
import re
from collections.abc import Callable, Mapping

from configs.errors import UsageError, unknown
from oxygen.serving.arrivals import Arrivals, Burst, EveryN, Poisson, RandomLength

_SEED = 7


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Form:
    """One kind of arrivals: its syntax, the types of its numbers, and its constructor."""

    syntax: str
    numbers: tuple[Callable[[str], float], ...]
    make: Callable[..., Arrivals]


_FORMS: Mapping[str, _Form] = {
    "every": _Form(syntax="every:QUERIES", numbers=(int,), make=EveryN),
    "burst": _Form(
        syntax="burst:TEXTS:QUERIES", numbers=(int, int), make=lambda n, every: Burst(n=n, every=every)
    ),
    "poisson": _Form(
        syntax="poisson:TEXTS_PER_QUERY",
        numbers=(float,),
        make=lambda rate: Poisson(rate=rate, seed=_SEED),
    ),
}


def parse_arrivals(text: str) -> Arrivals:
    """The arrivals that `text` describes.

    `every:2` is a text in every second query, `burst:4:8` four texts in every eighth, `poisson:0.5` one in
    two queries on average. `@8-30` after any of them draws each text's length from 8 to 30 tokens.

    Raises:
        UsageError: It does not describe arrivals.
    """
    kind, _, rest = text.partition(":")
    if kind not in _FORMS:
        raise unknown("arrivals", text, [form.syntax for form in _FORMS.values()])
    form = _FORMS[kind]
    body, _, lengths = rest.partition("@")
    parts = body.split(":")
    if len(parts) != len(form.numbers):
        raise UsageError(f"arrivals {text!r}: write {form.syntax}, or {form.syntax}@LEAST-MOST")
    try:
        arrivals = form.make(*(number(part) for number, part in zip(form.numbers, parts, strict=True)))
        return _with_lengths(arrivals, lengths) if "@" in rest else arrivals
    except UsageError as error:
        raise UsageError(f"arrivals {text!r}: {error}") from None
    except ValueError:
        raise UsageError(
            f"arrivals {text!r}: {body!r} has something that is no number of its kind; write {form.syntax}"
        ) from None


def _with_lengths(arrivals: Arrivals, lengths: str) -> Arrivals:
    match = re.fullmatch(r"(\d+)-(\d+)", lengths)
    if match is None:
        raise UsageError(f"{lengths!r} is no range of lengths; write @8-30")
    return RandomLength(arrivals=arrivals, least=int(match[1]), most=int(match[2]), seed=_SEED)
