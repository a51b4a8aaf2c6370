"""Names of runs where several are shown: the policy, or whatever else tells them apart."""

import functools
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from contracts.perturbation import format_perturbations
from eval.records.reader import OVERRIDES, RunIdentity
from eval.report.table import clock_label

SEPARATOR = " · "


def protocol_label(run: RunIdentity) -> str:
    """The name of a run's protocol with what differs from it, such as `protocol openpi* (max steps 60)`.

    Without a name, what differs from the suites' own; empty if nothing does.
    """
    changes = ", ".join(run.protocol_changes)
    if not run.protocol_name:
        return changes
    return f"protocol {run.protocol_name}" + (f" ({changes})" if changes else "")


def named_policy(run: RunIdentity) -> str:
    """The name of a run's policy, with the mark of imported results."""
    return f"{run.policy} (imported)" if run.imported else run.policy


def _override(name: str, run: RunIdentity) -> str:
    value = run.overrides.get(name)
    words = " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    named = name.removesuffix("s") if isinstance(value, list | tuple) and len(value) == 1 else name
    return f"{named.replace('_', ' ')} {'as by default' if value in (None, (), []) else words}"


def _text_rate(run: RunIdentity) -> str:
    if run.text_every is None:
        return "texts as by default"
    return "a text every " + ("query" if run.text_every == 1 else f"{run.text_every} queries")


_PARTS: Mapping[str, Callable[[RunIdentity], str]] = {
    "policy": named_policy,
    "mode": lambda run: run.mode,
    "given": lambda run: run.given or run.policy,
    "policy_kwargs": lambda run: (
        ", ".join(f"{name}={value}" for name, value in run.policy_kwargs.items()) or "no arguments"
    ),
    "weights": lambda run: run.weights or "weights not known",
    "dtype": lambda run: run.dtype or "its own dtype",
    "text_every": _text_rate,
    "tokens_per_frame": lambda run: (
        "k unknown" if run.tokens_per_frame is None else f"k = {run.tokens_per_frame}"
    ),
    "deadline_ms": lambda run: "no deadline" if run.deadline_ms is None else f"{run.deadline_ms:g} ms",
    "clock": clock_label,
    "perturb": lambda run: format_perturbations(run.perturb) if run.perturb else "control",
    "protocol": lambda run: f"protocol {run.protocol_name}",
    "feedback": lambda run: str(run.feedback or "no texts in the prompt"),
    "assets": lambda run: f"assets {run.assets.name}",
    **{name: functools.partial(_override, name) for name in OVERRIDES},
    "run": lambda run: run.run_id,
}
"""What can tell runs apart, the most telling first."""


def differences(runs: Sequence[RunIdentity]) -> list[dict[str, str]]:
    """What tells each run apart from the others, by the names of `_PARTS`; empty for one run.

    A part is listed for runs that agree in all parts before it, and differ in it: the mode only where one
    policy was run in several.
    """
    found: list[dict[str, str]] = [{} for _ in runs]
    for name, part in _PARTS.items():
        alike = defaultdict[tuple[str, ...], list[int]](list)
        for number, parts in enumerate(found):
            alike[tuple(parts.values())].append(number)
        for numbers in alike.values():
            values = {number: part(runs[number]) for number in numbers}
            if len(set(values.values())) > 1:
                for number, value in values.items():
                    found[number][name] = value
    return found


def labels_of(runs: Sequence[RunIdentity], *, with_policy: bool = False) -> list[str]:
    """A label for each run: its policy; of several runs, what tells them apart, such as the mode.

    `policy · mode` if runs of several policies are shown, and one of these in several modes, or
    `with_policy`, where nothing beside the labels names the policy.
    """
    labels = [
        SEPARATOR.join((({"policy": named_policy(run)} if with_policy or not parts else {}) | parts).values())
        for run, parts in zip(runs, differences(runs), strict=True)
    ]
    if len(set(labels)) == len(labels):
        return labels
    return [f"{label} ({number})" for number, label in enumerate(labels, start=1)]  # a run given twice
