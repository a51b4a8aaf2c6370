"""Perturbations of an episode: `DIMENSION[:SEVERITY][@SECONDSs]`, several joined by `+`, or `none`."""

import dataclasses
import itertools
import re
from collections.abc import Callable, Iterable

from contracts.errors import UsageError, nearest_first, unknown

DIMENSIONS = (
    *("camera", "light", "background", "appearance", "noise"),
    *("robot", "layout", "swap", "wording"),
)
ENTRY_POINTS = "oxygen_eval.perturbations"  # the entry-point group for dimensions of other packages
SEVERITIES = (1, 2, 3, 4, 5)
_DEFAULT = 3
_EXCLUSIVE = (("layout", "swap"),)  # both say where objects are
_STARTS = ("robot",)  # dimensions of initial states, which cannot change later


@dataclasses.dataclass(frozen=True, order=True)
class Perturbation:
    """One change of an episode; the same episode without it is its control.

    Attributes:
        dimension: What changes.
        severity: How much, from 1 to 5.
        at_s: Simulated time (s) of the change; 0 if the episode starts with it.
    """

    dimension: str
    severity: int = _DEFAULT
    at_s: float = 0.0

    def __str__(self) -> str:
        return f"{self.dimension}:{self.severity}" + (f"@{self.at_s:g}s" if self.at_s else "")


Perturbations = tuple[Perturbation, ...]
"""The changes of an episode, in order of their spelling; none for a control."""

UNPERTURBED: Perturbations = ()


def format_perturbations(each: Iterable[Perturbation]) -> str:
    """The spelling that `parse_perturbations` reads."""
    return "+".join(map(str, each)) or "none"


def combined(each: Iterable[Perturbation]) -> Perturbations:
    """Several changes of one episode; a UsageError if two exclude each other."""
    given = sorted(each, key=str)
    names = [part.dimension for part in given]
    for one, other in _EXCLUSIVE:
        if one in names and other in names:
            raise UsageError(
                f"{one} and {other} exclude each other, as both say where objects are; give one of them, or "
                "compare them with --perturb-each"
            )
    for before, after in itertools.pairwise(given):
        if before.dimension == after.dimension:
            raise UsageError(
                f"{before} and {after} perturb the same dimension; give one of them, or compare severities "
                f"with --perturb-each {after.dimension} --severities {before.severity} {after.severity}"
            )
    return tuple(given)


def parse_perturbations(text: str, *, others: Callable[[], Iterable[str]] = tuple) -> Perturbations:
    """Parse `none`, or changes such as `camera:3+light:2@4s`; `others` lists dimensions beside ours.

    A severity that is left out is 3. Another spelling is a UsageError.
    """
    parts = [part for part in re.split(r"[\s,+]+", text.strip()) if part]
    return UNPERTURBED if parts in ([], ["none"]) else combined(_parsed(part, others) for part in parts)


def _parsed(text: str, others: Callable[[], Iterable[str]]) -> Perturbation:
    name, _, rest = text.partition("@")
    name, _, severity = name.partition(":")
    time, known = rest.removesuffix("s"), DIMENSIONS if name in DIMENSIONS else (*DIMENSIONS, *others())
    if name not in known:
        raise unknown("perturbation", name, known, remedy="Such as camera:3, or light:2@4s.")
    if "@" in text and not re.fullmatch(r"\d+(\.\d+)?", time):
        raise UsageError(f"perturbation {text!r}: no time; write it as {name}:{severity or _DEFAULT}@4s")
    if "@" in text and name in _STARTS:
        raise UsageError(f"perturbation {text!r}: {name} is where an episode starts; leave out its time")
    allowed = list(map(str, SEVERITIES))
    if ":" in text and severity not in allowed:
        nearest, *_ = nearest_first(severity, allowed)
        if re.fullmatch(r"-?\d+(\.\d+)?", severity):
            nearest = str(min(SEVERITIES, key=lambda each: abs(each - float(severity))))
        raise UsageError(
            f"perturbation {text!r}: severity {severity!r} is none of {', '.join(allowed)}; "
            f"did you mean {name}:{nearest}?"
        )
    return Perturbation(name, int(severity or _DEFAULT), float(f"{float(time or 0):g}"))
