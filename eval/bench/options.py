"""The options of `oxygen-eval bench`. Uses argparse, to need no more packages than the policy does."""

import argparse
import dataclasses
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from configs.exits import OneLineParser
from configs.paths import refuse_home
from contracts.errors import UsageError, unknown
from contracts.mode import BUDGETED, Mode
from eval.bench.workloads import (
    ADAPTERS,
    OFF,
    BenchConfiguration,
    Workload,
    max_queries_per_text,
    parse_arrivals,
)
from oxygen.serving.scheduler import Deadline

Options = argparse.Namespace
"""Named like the flags. Those with several values are axes: all combinations are measured."""

_MAX = 100_000  # limit of every whole number


def _whole(text: str) -> int:
    if re.fullmatch(r"\+?[0-9]{1,18}", text) is None or not 1 <= int(text) <= _MAX:
        raise UsageError(f"{text!r}: give a whole number, at least 1 and at most {_MAX}")
    return int(text)


def _deadline_ms(text: str) -> float:
    try:
        milliseconds = float(text)
    except ValueError:
        raise UsageError(f"{text!r} is not a number") from None
    return Deadline(milliseconds).ms  # checks itself


def _one_of(what: str, known: Sequence[str]) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in known:
            raise unknown(what, text, known)
        return text

    return read


def _arrivals(text: str) -> str:
    parse_arrivals(text)
    return text


def _policy(text: str) -> str:
    if text.startswith("~"):
        refuse_home(f"{text!r}", text, literal=False)
    return text


def _path(text: str) -> Path:
    if not text.strip() or text.startswith("~"):
        raise UsageError(f"path {text!r}: give a whole path")
    return Path(text)


class _Axis(argparse.Action):
    """Collects the values of an option with several: `a b`, `a,b`, or the option several times."""

    def __call__(
        self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: str | None = None
    ) -> None:
        del parser, option_string
        before = getattr(namespace, self.dest)
        given = itertools.chain(() if before is self.default else before, *values)
        setattr(namespace, self.dest, tuple(dict.fromkeys(given)))


@dataclasses.dataclass(frozen=True)
class _Option:
    """An option, with several values if its default is a tuple, and none if it is False."""

    flag: str
    metavar: str
    read: Callable[[str], Any]
    default: Any
    help: str

    def add_to(self, group: Any) -> None:
        if self.default is False:
            group.add_argument(self.flag, action="store_true", help=self.help)
            return
        several = isinstance(self.default, tuple)
        shown = " ".join(map(str, self.default)) if several else self.default
        group.add_argument(
            self.flag,
            help=f"{self.help}; default: {shown}" if shown else self.help,
            metavar=self.metavar,
            type=self._several if several else self._one,
            default=self.default,
            **({"nargs": "+", "action": _Axis} if several else {}),
        )

    def _one(self, text: str) -> Any:
        try:
            return self.read(text)
        except UsageError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    def _several(self, text: str) -> list[Any]:
        return [self._one(each.strip()) for each in text.split(",")]


def _switch(flag: str, what: str) -> _Option:
    return _Option(flag, "", str, default=False, help=what)


_dtype, _mode = _one_of("dtype", ("float32", "bfloat16")), _one_of("mode", [*Mode])
_adapter = _one_of("adapter", ADAPTERS)
_WORK = (
    _Option("--policy", "NAME", _policy, "small", "policy preset, YAML file, or folder of a checkpoint"),
    _switch("--random-weights", "instead of its checkpoint: latency without a download"),
    _Option("--dtype", "TYPE", _dtype, None, "float32 or bfloat16; default: the policy's own"),
    _Option("--modes", "MODE", _mode, tuple(Mode), "ways of scheduling"),
    _Option("--denoise-steps", "N", _whole, (10,), "Euler steps of the flow"),
    _Option("--text-tokens", "N", _whole, (30,), "tokens of a text"),
    _Option("--tokens-per-frame", "K", _whole, (1, 2, 5, 10, 30), "of a text, in unified and interleaved"),
    _Option("--robots", "N", _whole, (1,), "robots served at once"),
    _Option("--arrivals", "WHEN", _arrivals, ("every:1",), "of texts: every:1, burst:4:8, poisson:0.5@8-30"),
    _Option("--deadline-ms", "MS", _deadline_ms, (), "of a frame in unified, instead of --tokens-per-frame"),
    _Option("--adapter", "MASK", _adapter, (OFF,), "of texts: off, exact, published; random without its own"),
    _Option("--prompt-tokens", "N", _whole, 24, "of the prompt, padded to one of the policy's lengths"),
)
_HOW = (
    _Option("--repetitions", "N", _whole, 8, "runs of each configuration"),
    _Option("--queries", "N", _whole, 10, "queries in a run"),
    _switch("--quick", "`tiny`, and less of everything: two minutes on a CPU"),
)
_OUTPUT = (
    _Option("--output", "FILE", _path, None, "rows, the figure beside it; default: in runs/bench"),
    _switch("--resume", "skip workloads that FILE already has"),
    _Option("--save-profile", "NAME.yaml", _path, None, "stage times as a profile for `--clock profile:`"),
)
_QUICK: Mapping[str, Any] = {
    "policy": "tiny",
    "text_tokens": (20,),
    "tokens_per_frame": (1, 5),
    "repetitions": 5,
    "queries": 8,
}
_FOR_PROFILE = (Mode.ISOLATED, Mode.UNIFIED)  # the modes with a decode step for one text, and for many


def _parser() -> OneLineParser:
    parser = OneLineParser(
        prog="oxygen-eval bench",
        description="OxyGen's experiment on any policy: the same work in every mode, timed in turns. "
        "No simulator. Options that take several values measure every combination.",
        allow_abbrev=False,
    )
    for title, options in {"what is measured": _WORK, "how": _HOW, "output": _OUTPUT}.items():
        group = parser.add_argument_group(title)
        for option in options:
            option.add_to(group)
    return parser


def read(arguments: Sequence[str]) -> Options:
    """The options in `arguments`; refuses those that are unknown, invalid, or would have no effect."""
    parser = _parser()
    if "--quick" in arguments:
        parser.set_defaults(**_QUICK)
    options, unrecognised = parser.parse_known_args(arguments)
    if unrecognised:
        raise unknown(
            "option", unrecognised[0].split("=")[0], map(_flag, vars(options)), remedy="See --help."
        )
    changed = {name: value for name, value in vars(options).items() if value != parser.get_default(name)}
    _refuse_ignored(changed, options.modes)
    workloads = [workload for workload, _ in workloads_of(options)]  # each checks itself
    if options.save_profile is not None:
        _check_profile(options.save_profile, options.modes, workloads, options.adapter)
    return options


def _check_profile(
    path: Path, modes: Sequence[Mode], workloads: Sequence[Workload], adapters: Sequence[str]
) -> None:
    """Check before the benchmark runs that a profile can be made of it and written to `path`."""
    flag = f"--save-profile {path}"
    if re.fullmatch(r"[A-Za-z0-9_.-]+\.yaml", path.name) is None:
        raise UsageError(f"{flag}: name it NAME.yaml, of letters, digits and `_.-`; it names the profile")
    if path.exists():
        raise UsageError(f"{flag}: the file exists and is not replaced; name another")
    if missing := [mode.value for mode in _FOR_PROFILE if mode not in modes]:
        raise UsageError(f"{flag}: a profile needs mode {' and '.join(missing)}; add it to --modes")
    if (count := len(workloads) * len(adapters)) > 1:
        raise UsageError(f"{flag}: a profile is of one workload, not {count}; give one value of each option")
    (workload,) = workloads
    if workload.robots > 1 or workload.arrivals != "every:1":
        raise UsageError(
            f"{flag}: a profile is of 1 robot and a text per query, not of {workload.robots} and "
            f"{workload.arrivals}; leave out --robots and --arrivals"
        )


def workloads_of(options: Options) -> list[tuple[Workload, list[BenchConfiguration]]]:
    """All workloads with their configurations; refuses texts longer than `text_tokens`."""
    axes = ("denoise_steps", "text_tokens", "robots", "arrivals")
    found = []
    for values in itertools.product(*(getattr(options, axis) for axis in axes)):
        varied: dict[str, Any] = dict(zip(axes, values, strict=True))
        workload = Workload(**varied, repetitions=options.repetitions, queries=options.queries)
        configurations = _configurations(options, workload.text_tokens)
        fill = max(max_queries_per_text(workload, each) for each in configurations)
        found.append((dataclasses.replace(workload, warm_up_queries=1 + fill), configurations))
    return found


def _configurations(options: Options, text_tokens: int) -> list[BenchConfiguration]:
    """The modes in order, with a token budget once per k ≤ `text_tokens`, or `unified` once per deadline."""
    ks = sorted({min(k, text_tokens) for k in options.tokens_per_frame})
    found = []
    for mode in map(Mode, options.modes):
        if mode is Mode.UNIFIED and options.deadline_ms:
            found += [BenchConfiguration(mode=mode, deadline_ms=ms) for ms in options.deadline_ms]
        elif mode in BUDGETED:
            found += [BenchConfiguration(mode=mode, tokens_per_frame=k) for k in ks]
        else:
            found.append(BenchConfiguration(mode=mode))
    return [
        dataclasses.replace(each, adapter=adapter)
        for each in found
        for adapter in (options.adapter if each.mode is not Mode.ACTIONS else (OFF,))
    ]


def _refuse_ignored(changed: Mapping[str, Any], modes: Sequence[str]) -> None:
    if "resume" in changed and "output" not in changed:
        raise UsageError("--resume continues a file of rows; name it with --output FILE")
    if {"deadline_ms", "tokens_per_frame"} <= changed.keys():
        raise UsageError("--deadline-ms sets the tokens of a frame; leave out --tokens-per-frame")
    effective: dict[str, Sequence[Mode]] = {"deadline_ms": (Mode.UNIFIED,), "tokens_per_frame": BUDGETED}
    texts = tuple(mode for mode in Mode if mode is not Mode.ACTIONS)
    effective |= dict.fromkeys(("text_tokens", "arrivals", "adapter"), texts)
    for name in effective.keys() & changed.keys():
        if not set(effective[name]) & set(modes):
            raise UsageError(
                f"{_flag(name)} {' '.join(map(str, changed[name]))} is for mode "
                f"{' or '.join(effective[name])}, and --modes is {' '.join(modes)}; "
                "leave it out, or add unified"
            )


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
