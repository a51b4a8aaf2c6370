"""Parses arrivals from the command line: `every:1`, `burst:4:8`, `poisson:0.5@8-30`."""

import re
from collections.abc import Mapping

from configs.errors import UsageError, unknown
from oxygen.serving.arrivals import Arrivals, Burst, EveryN, Poisson, RandomLength

_SEED = 7
_FORMS: Mapping[str, str] = {
    "every": "every:QUERIES",
    "burst": "burst:TEXTS:QUERIES",
    "poisson": "poisson:TEXTS_PER_QUERY",
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
        raise unknown("arrivals", text, _FORMS.values())
    body, _, lengths = rest.partition("@")
    try:
        arrivals = _parse(kind, body.split(":"))
        return _with_lengths(arrivals, lengths) if "@" in rest else arrivals
    except UsageError as error:
        raise UsageError(f"arrivals {text!r}: {error}") from None
    except ValueError:
        raise UsageError(
            f"arrivals {text!r}: {body!r} has something that is no number of its kind; write {_FORMS[kind]}"
        ) from None


def _parse(kind: str, numbers: list[str]) -> Arrivals:
    match kind, numbers:
        case "every", [n]:
            return EveryN(n=int(n))
        case "burst", [n, every]:
            return Burst(n=int(n), every=int(every))
        case "poisson", [rate]:
            return Poisson(rate=float(rate), seed=_SEED)
    raise UsageError(f"write {_FORMS[kind]}, or {_FORMS[kind]}@LEAST-MOST")


def _with_lengths(arrivals: Arrivals, lengths: str) -> Arrivals:
    match = re.fullmatch(r"(\d+)-(\d+)", lengths)
    if match is None:
        raise UsageError(f"{lengths!r} is no range of lengths; write @8-30")
    return RandomLength(arrivals=arrivals, min_tokens=int(match[1]), max_tokens=int(match[2]), seed=_SEED)
