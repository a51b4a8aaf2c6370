"""The options of `python -m eval.bench`. Uses argparse, to need no more packages than the policy does."""

import argparse
import dataclasses
import datetime as dt
import functools
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from configs.errors import UsageError, unknown
from configs.exits import OneLineParser
from configs.paths import refuse_home
from eval.bench.profile import check_profile
from eval.bench.workloads import OFF, WorkloadGrid, parse_arrivals
from eval.records import provenance
from oxygen.serving.scheduler import Mode

T = TypeVar("T")

_MAX = 100_000
"""Limit of every whole number."""
_DEFAULTS: dict[str, Any] = {
    "policy": "small",
    "modes": tuple(Mode),
    "denoise_steps": (10,),
    "text_tokens": (30,),
    "tokens_per_frame": (1, 2, 5, 10, 30),
    "robots": (1,),
    "arrivals": ("every:1",),
    "adapter": (OFF,),
    "repetitions": 8,
    "queries": 10,
    "prompt_tokens": 24,
    "peaks": "auto",
}
_WHOLE_NUMBERS = ("denoise_steps", "text_tokens", "tokens_per_frame", "robots")
_NOT_FOR_ROOFLINE = (
    *("modes", "tokens_per_frame", "deadline_ms", "arrivals", "slots", "rows", "adapter"),
    "shortest_prompt",
    *("queries", "resume", "save_profile"),
)
_QUICK: dict[str, Any] = {
    **_DEFAULTS,
    "policy": "tiny",
    "text_tokens": (20,),
    "tokens_per_frame": (1, 5),
    "repetitions": 5,
    "queries": 8,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """The options of a benchmark.

    Attributes:
        policy: Name of a policy preset, a YAML file, or the folder of a checkpoint.
        random_weights: Random weights instead of its checkpoint.
        dtype: The compute type; None for the policy's own.
        grid: The workloads and configurations.
        repetitions: Runs of each configuration.
        queries: Queries in a run.
        prompt_tokens: Tokens in the prompt, before it is padded to one of the policy's lengths.
        shortest_prompt: Tokens in the shortest prompt; None if all have the same length.
        output: The file of rows, with plots beside it; None for a new one. For a roofline, its JSON file;
            None for no file.
        resume: Whether to skip workloads that the file already has.
        roofline: Whether to compare stages with their minimum times instead of running modes.
        peaks: Source of the device's peaks: `published`, `measured` or `auto`.
        save_profile: File for a latency profile of the device; None for no file.
    """

    policy: str
    random_weights: bool
    dtype: str | None
    grid: WorkloadGrid
    repetitions: int
    queries: int
    prompt_tokens: int
    shortest_prompt: int | None
    output: Path | None
    resume: bool
    roofline: bool
    peaks: str
    save_profile: Path | None


def read(arguments: Sequence[str]) -> Options:
    """The options in `arguments`.

    Raises:
        UsageError: An option is unknown, invalid, or would have no effect.
    """
    parser = _parser()
    given, unrecognised = parser.parse_known_args(arguments)
    if unrecognised:
        flags = [flag for action in parser._actions for flag in action.option_strings]
        raise unknown("option", unrecognised[0].split("=")[0], flags, remedy="See --help.")
    _refuse_ignored_options(given)
    chosen = _QUICK if given.quick else _DEFAULTS
    chosen = chosen | {name: value for name, value in vars(given).items() if value is not None}
    if given.deadline_ms and given.tokens_per_frame:
        raise UsageError("--deadline-ms sets the tokens of a frame; leave out --tokens-per-frame")
    grid = WorkloadGrid(
        modes=_once(chosen["modes"], "mode", str),
        arrivals=tuple((text, parse_arrivals(text)) for text in _once(chosen["arrivals"], "arrivals", str)),
        **{name: _once(chosen[name], name.replace("_", " "), int) for name in _WHOLE_NUMBERS},
        deadline_ms=_once(chosen.get("deadline_ms", ()), "deadline ms", float),
        cameras=_once(chosen.get("cameras", ()), "cameras", int),
        adapter=_once(chosen["adapter"], "adapter", str),
        slots=given.slots,
        rows=given.rows,
    )
    _refuse_frames_without_unified(given, grid.modes)
    if given.save_profile is not None:
        check_profile(given.save_profile, grid)
    for name in ("repetitions", "queries", "prompt_tokens"):
        if chosen[name] < 1:
            raise UsageError(f"{_flag(name)} {chosen[name]}: at least 1")
    names = {field.name for field in dataclasses.fields(Options)} - {"grid"}
    values: dict[str, Any] = {name: chosen.get(name) for name in names}
    return Options(grid=grid, **values)


def _refuse_ignored_options(given: argparse.Namespace) -> None:
    """Reject options that have no effect with, or without, --roofline, and --resume without a file."""
    ignored = [name for name in _NOT_FOR_ROOFLINE if getattr(given, name)]
    if given.roofline and ignored:
        raise UsageError(
            f"--roofline times stages and runs no mode; leave out {', '.join(map(_flag, ignored))}"
        )
    if given.peaks and not given.roofline:
        raise UsageError(f"--peaks {given.peaks} has no effect without --roofline; leave it out, or add that")
    if given.resume and not given.output:
        raise UsageError("--resume continues a file of rows; name it with --output FILE")


def _refuse_frames_without_unified(given: argparse.Namespace, modes: Sequence[str]) -> None:
    for name in ("tokens_per_frame", "deadline_ms"):
        values = getattr(given, name)
        effective = [Mode.UNIFIED] if name == "deadline_ms" else [Mode.UNIFIED, Mode.INTERLEAVED]
        if values and not set(effective) & set(modes):
            raise UsageError(
                f"{_flag(name)} {' '.join(values)} is for mode {' or '.join(effective)}, and --modes is "
                f"{' '.join(modes)}; leave it out, or add unified"
            )


def provenance_now() -> dict[str, Any]:
    """The command line, the code and the machine, for the record."""
    return {
        "command": shlex.join(["python", "-m", "eval.bench", *sys.argv[1:]]),
        **provenance.git_state(),
        "versions": provenance.versions(),
        "hardware": provenance.hardware(),
    }


def default_output(policy: str) -> Path:
    """A new file under `runs/bench`, named after policy and time."""
    now = dt.datetime.now(dt.UTC)
    return Path("runs/bench") / f"{Path(policy).stem}_{now:%Y%m%d_%H%M%S}.jsonl"


def _once(values: Sequence[Any], what: str, kind: Callable[[str], T]) -> tuple[T, ...]:
    """The distinct values of an option that was given several times, with several values, or with commas."""
    pieces = [piece.strip() for value in values for piece in str(value).split(",")]
    return tuple(dict.fromkeys(_converted(piece, what, kind) for piece in pieces))


def _converted(piece: str, what: str, kind: Callable[[str], T]) -> T:
    if not piece:
        raise UsageError(f"{what}: {piece!r} is empty; give a value")
    if kind is int and re.fullmatch(r"[+-]?[0-9]{1,18}", piece) is None:
        raise UsageError(f"{what}: {piece!r} is not a whole number")
    try:
        value = kind(piece)
    except ValueError:
        raise UsageError(f"{what}: {piece!r} is not a number") from None
    if isinstance(value, int) and value > _MAX:
        raise UsageError(f"{what}: {piece} is too large; at most {_MAX}")
    return value


def _policy(text: str) -> str:
    """A policy on the command line."""
    if text.startswith("~"):
        refuse_home(f"--policy {text!r}", text, literal=False)
    return text


def _path(text: str) -> Path:
    """A path on the command line."""
    if not text.strip() or text.startswith("~"):
        raise UsageError(f"path {text!r}: give a whole path")
    return Path(text)


def _parser() -> OneLineParser:
    parser = OneLineParser(
        prog="python -m eval.bench",
        description="OxyGen's experiment on any policy: the same work in every mode, timed in turns. "
        "No simulator. Options that take several values measure every combination.",
        allow_abbrev=False,
    )
    what = parser.add_argument_group("what is measured")
    policy = _help("policy preset, YAML file, or folder of a checkpoint", "policy")
    what.add_argument("--policy", type=_policy, help=policy)
    _add_switch(what, "random_weights", "instead of its checkpoint: latency without a download")
    what.add_argument("--dtype", choices=("float32", "bfloat16"), help="default: the policy's own")
    _add_lists(what)
    _add_number(what, "slots", "unfinished texts at once; one more drops another; default: all requested")
    _add_number(what, "rows", "texts decoded in one batch, the others wait; default: all unfinished ones")
    _add_number(what, "prompt_tokens", "tokens in the prompt, padded to one of the policy's lengths")
    shortest = "prompts grow from N tokens to --prompt-tokens, as with texts in them; default: none grows"
    _add_number(what, "shortest_prompt", shortest)
    how = parser.add_argument_group("how")
    _add_number(how, "repetitions", "runs of each configuration")
    _add_number(how, "queries", "queries in a run")
    _add_switch(how, "quick", "`tiny`, and less of everything: two minutes on a CPU")
    _add_switch(how, "roofline", "compare stages with their minimum times instead of modes")
    peaks = "source of the device's peaks; default: auto, published if known, else measured"
    how.add_argument("--peaks", choices=("auto", "published", "measured"), help=peaks)
    where = parser.add_argument_group("output")
    output = "rows, plots beside it; default: in runs/bench; with --roofline a JSON file; default: none"
    where.add_argument("--output", type=_path, metavar="FILE", help=output)
    _add_switch(where, "resume", "skip workloads that FILE already has")
    profile = "write the stage times as a latency profile for `--clock profile:`"
    where.add_argument("--save-profile", type=_path, metavar="NAME.yaml", help=profile)
    return parser


def _add_switch(group: argparse._ArgumentGroup, name: str, text: str) -> None:
    group.add_argument(_flag(name), action="store_true", help=text)


def _add_number(group: argparse._ArgumentGroup, name: str, text: str) -> None:
    whole = functools.partial(_converted, what="a number", kind=int)
    group.add_argument(_flag(name), type=whole, metavar="N", help=_help(text, name))


def _add_lists(group: argparse._ArgumentGroup) -> None:
    """The axes. Each takes `a b`, `a,b` or the option several times."""
    axes = {
        "modes": ("MODE", "ways of scheduling"),
        "denoise_steps": ("N", "Euler steps of the flow"),
        "text_tokens": ("N", "tokens of a text"),
        "tokens_per_frame": ("K", "tokens of each text per frame in modes unified and interleaved"),
        "robots": ("N", "robots served at once"),
        "arrivals": ("WHEN", "when texts are requested: every:1, burst:4:8, poisson:0.5, any with @8-30"),
        "deadline_ms": ("MS", "in mode unified, decode what fits before it instead of --tokens-per-frame"),
        "adapter": ("MASK", "suffix adapter of texts: off, exact, published; random without its own"),
        "cameras": ("N", "images in an observation, at most twice the policy's number; default: that number"),
    }
    for name, (metavar, text) in axes.items():
        group.add_argument(_flag(name), nargs="+", action="extend", metavar=metavar, help=_help(text, name))


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _help(text: str, name: str) -> str:
    default = _DEFAULTS.get(name)
    shown = " ".join(map(str, default)) if isinstance(default, tuple) else default
    return text if default is None else f"{text}; default: {shown}"
