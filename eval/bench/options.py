"""The options of `python -m eval.bench`; by argparse, so that it needs no more packages than the policy."""

import argparse
import dataclasses
import datetime as dt
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from configs.errors import UsageError, unknown
from eval.bench import spelling
from eval.bench.profile import check_profile
from eval.bench.workloads import Axes
from oxygen.serving.scheduler import Mode

T = TypeVar("T")

_DEFAULTS: dict[str, Any] = {
    "policy": "small",
    "modes": tuple(Mode),
    "denoise_steps": (10,),
    "text_tokens": (30,),
    "tokens_per_frame": (1, 2, 5, 10, 30),
    "robots": (1,),
    "arrivals": ("every:1",),
    "repetitions": 8,
    "queries": 10,
    "peaks": "auto",
}
_NOT_FOR_ROOFLINE = (
    "modes",
    "tokens_per_frame",
    "deadline_ms",
    "arrivals",
    "slots",
    "rows",
    "queries",
    "resume",
    "save_profile",
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
    """What was asked for.

    Attributes:
        policy: Name of a policy preset, a YAML file, or the folder of a checkpoint.
        random_weights: Random weights instead of its checkpoint.
        dtype: What it computes in; its own if None.
        axes: What is varied.
        repetitions: Turns of every configuration.
        queries: Queries in a turn.
        prompt_tokens: Tokens in the prompt, before it is padded to one of the policy's lengths.
        output: The file of rows; plots stand beside it. For a roofline, its JSON file; None writes none.
        resume: Whether workloads that the file has already are left out.
        roofline: Whether stages are held against their floors, and no mode is run.
        peaks: What the device can do at most: `published`, `measured` or `auto`.
        save_profile: Where to write a latency profile of the device; nowhere if None.
    """

    policy: str
    random_weights: bool
    dtype: str | None
    axes: Axes
    repetitions: int
    queries: int
    prompt_tokens: int
    output: Path | None
    resume: bool
    roofline: bool
    peaks: str
    save_profile: Path | None


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, as every command line here does."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}. See --help.")


def read(arguments: Sequence[str]) -> Options:
    """The options in `arguments`.

    Raises:
        UsageError: They make no sense.
    """
    parser = _parser()
    given, stray = parser.parse_known_args(arguments)
    if stray:
        flags = [flag for action in parser._actions for flag in action.option_strings]
        raise unknown("option", stray[0].split("=")[0], flags, remedy="See --help.")
    _refuse_what_is_ignored(given)
    chosen = _QUICK if given.quick else _DEFAULTS
    chosen = chosen | {name: value for name, value in vars(given).items() if value is not None}
    if given.deadline_ms and given.tokens_per_frame:
        raise UsageError("--deadline-ms decides the tokens of a frame; leave out --tokens-per-frame")
    axes = Axes(
        modes=_once(chosen["modes"], "mode", str),
        denoise_steps=_once(chosen["denoise_steps"], "denoise steps", int),
        text_tokens=_once(chosen["text_tokens"], "text tokens", int),
        tokens_per_frame=_once(chosen["tokens_per_frame"], "tokens per frame", int),
        robots=_once(chosen["robots"], "robots", int),
        arrivals=tuple((text, spelling.parse(text)) for text in _once(chosen["arrivals"], "arrivals", str)),
        deadline_ms=_once(chosen.get("deadline_ms", ()), "deadline ms", float),
        cameras=_once(chosen.get("cameras", ()), "cameras", int),
        slots=given.slots,
        rows=given.rows,
    )
    _refuse_frames_without_unified(given, axes.modes)
    if given.save_profile is not None:
        check_profile(given.save_profile, axes)
    for name in ("repetitions", "queries", "prompt_tokens"):
        if chosen[name] < 1:
            raise UsageError(f"--{name.replace('_', '-')} {chosen[name]}: at least 1")
    names = {field.name for field in dataclasses.fields(Options)} - {"axes"}
    values: dict[str, Any] = {name: chosen.get(name) for name in names}
    return Options(axes=axes, **values)


def _refuse_what_is_ignored(given: argparse.Namespace) -> None:
    """What a roofline has no use for, and what nothing else has; and to go on with a file that is new."""
    ignored = [name for name in _NOT_FOR_ROOFLINE if getattr(given, name)]
    if given.roofline and ignored:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in ignored)
        raise UsageError(f"--roofline times every stage and runs no mode; leave out {flags}")
    if given.peaks and not given.roofline:
        raise UsageError(f"--peaks {given.peaks} is for --roofline, which was not asked for")
    if given.resume and not given.output:
        raise UsageError("--resume goes on with a file of rows; name it with --output FILE")


def _refuse_frames_without_unified(given: argparse.Namespace, modes: Sequence[str]) -> None:
    for name in ("tokens_per_frame", "deadline_ms"):
        values = getattr(given, name)
        if values and Mode.UNIFIED not in modes:
            raise UsageError(
                f"--{name.replace('_', '-')} {' '.join(values)} is for mode unified, and --modes is "
                f"{' '.join(modes)}; leave it out, or add unified"
            )


def command() -> str:
    """What was typed, for the record."""
    return shlex.join(["python", "-m", "eval.bench", *sys.argv[1:]])


def default_output(policy: str) -> Path:
    """A new file under `runs/bench`, by policy and time."""
    now = dt.datetime.now(dt.UTC)
    return Path("runs/bench") / f"{Path(policy).stem}_{now:%Y%m%d_%H%M%S}.jsonl"


def _once(values: Sequence[Any], what: str, kind: Callable[[str], T]) -> tuple[T, ...]:
    """A list given as several values, several options, with commas, or any mix; doubles count once."""
    pieces = [piece.strip() for value in values for piece in str(value).split(",")]
    return tuple(dict.fromkeys(_one(piece, what, kind) for piece in pieces))


def _one(piece: str, what: str, kind: Callable[[str], T]) -> T:
    try:
        return kind(piece)
    except ValueError:
        number = "whole number" if kind is int else "number"
        raise UsageError(f"{what}: {piece!r} is no {number}") from None


def _parser() -> _Parser:
    parser = _Parser(
        prog="python -m eval.bench",
        description="OxyGen's experiment on any policy: the same work in every mode, timed in turns. "
        "No simulator. Options that take several values measure every combination.",
        allow_abbrev=False,
    )
    what = parser.add_argument_group("what is measured")
    what.add_argument("--policy", help=_help("policy preset, YAML file, or folder of a checkpoint", "policy"))
    what.add_argument(
        "--random-weights", action="store_true", help="instead of its checkpoint: latency without a download"
    )
    what.add_argument("--dtype", choices=("float32", "bfloat16"), help="default: the policy's own")
    _add_lists(what)
    what.add_argument(
        "--deadline-ms",
        nargs="+",
        action="extend",
        metavar="MS",
        help="in mode unified, decode what fits before the deadline instead of --tokens-per-frame",
    )
    what.add_argument(
        "--cameras",
        nargs="+",
        action="extend",
        metavar="N",
        help="images in an observation, to twice as many as the policy has; default: as many as it has",
    )
    what.add_argument(
        "--slots",
        type=int,
        metavar="N",
        help="texts alive at once; one too many drops another; default: as many as are asked for",
    )
    what.add_argument(
        "--rows",
        type=int,
        metavar="N",
        help="texts decoded in one batch, the others wait in their slots; default: all that are alive",
    )
    what.add_argument(
        "--prompt-tokens",
        type=int,
        default=24,
        metavar="N",
        help="tokens in the prompt, padded to one of the policy's lengths; default: 24",
    )
    how = parser.add_argument_group("how")
    how.add_argument("--repetitions", type=int, metavar="N", help=_help("turns of each", "repetitions"))
    how.add_argument("--queries", type=int, metavar="N", help=_help("queries in a turn", "queries"))
    how.add_argument(
        "--quick", action="store_true", help="`tiny`, and less of everything: two minutes on a CPU"
    )
    how.add_argument("--roofline", action="store_true", help="each stage against its floor, instead of modes")
    how.add_argument(
        "--peaks",
        choices=("auto", "published", "measured"),
        help="where the device's come from; default: auto, published ones where there are any",
    )
    where = parser.add_argument_group("where to")
    where.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="rows, plots beside it; default: runs/bench/…; with --roofline a JSON file; default: none",
    )
    where.add_argument("--resume", action="store_true", help="leave out workloads that FILE has already")
    where.add_argument(
        "--save-profile",
        type=Path,
        metavar="NAME.yaml",
        help="write the stage times as a latency profile, which `--clock profile:` takes",
    )
    return parser


def _add_lists(group: argparse._ArgumentGroup) -> None:
    """The axes. Each takes `a b`, `a,b` or the option several times."""
    axes = {
        "modes": ("MODE", "ways of scheduling"),
        "denoise_steps": ("N", "Euler steps of the flow"),
        "text_tokens": ("N", "tokens of a text"),
        "tokens_per_frame": ("K", "tokens a frame decodes in mode unified"),
        "robots": ("N", "robots served at once"),
        "arrivals": ("WHEN", "when texts are born: every:1, burst:4:8, poisson:0.5, any with @8-30"),
    }
    for name, (metavar, text) in axes.items():
        flag = f"--{name.replace('_', '-')}"
        group.add_argument(flag, nargs="+", action="extend", metavar=metavar, help=_help(text, name))


def _help(text: str, name: str) -> str:
    default = _DEFAULTS[name]
    shown = " ".join(map(str, default)) if isinstance(default, tuple) else default
    return f"{text}; default: {shown}"
