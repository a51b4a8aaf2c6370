"""The options of `python -m eval.bench`. Uses argparse, to need no more packages than the policy does."""

import argparse
import dataclasses
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from configs.errors import UsageError, unknown
from configs.exits import OneLineParser
from configs.paths import refuse_home
from eval.bench.profile import check_profile
from eval.bench.workloads import (
    ADAPTERS,
    BUDGETED,
    OFF,
    BenchConfiguration,
    Workload,
    max_queries_per_text,
    parse_arrivals,
)
from oxygen.serving.budget import Deadline
from oxygen.serving.scheduler import Mode

_MAX = 100_000
"""Limit of every whole number."""


def _whole(text: str) -> int:
    if re.fullmatch(r"\+?[0-9]{1,18}", text) is None or not 1 <= int(text) <= _MAX:
        raise UsageError(f"{text!r}: give a whole number, at least 1 and at most {_MAX}")
    return int(text)


def _deadline_ms(text: str) -> float:
    try:
        milliseconds = float(text)
    except ValueError:
        raise UsageError(f"{text!r} is not a number") from None
    Deadline(milliseconds)  # checks itself
    return milliseconds


def _one_of(what: str, known: Sequence[str], make: Callable[[str], Any] = str) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        if text not in known:
            raise unknown(what, text, known)
        return make(text)

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


def _option(default: Any, text: str, read: Callable[[str], Any] = str, **settings: Any) -> Any:
    """A field of `Options`: its default, its help, the reader of its text, and more for argparse."""

    def convert(given: str) -> Any:
        try:
            return [read(piece.strip()) for piece in given.split(",")] if "nargs" in settings else read(given)
        except UsageError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    shown = " ".join(map(str, default)) if isinstance(default, tuple) else default
    described = f"{text}; default: {shown}" if shown else text
    return dataclasses.field(default=default, metadata={"help": described, "type": convert, **settings})


def _axis(default: tuple[Any, ...], text: str, read: Callable[[str], Any], metavar: str) -> Any:
    """An option with several values: takes `a b`, `a,b` or the option several times."""
    return _option(default, text, read, nargs="+", action="extend", metavar=metavar)


def _number(default: int | None, text: str) -> Any:
    return _option(default, text, _whole, metavar="N")


def _switch(text: str) -> Any:
    return dataclasses.field(default=False, metadata={"help": text, "action": "store_true"})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """The options of a benchmark. Those with several values are axes: all combinations are measured."""

    policy: str = _option("small", "policy preset, YAML file, or folder of a checkpoint", _policy)
    random_weights: bool = _switch("instead of its checkpoint: latency without a download")
    dtype: str | None = _option(None, "default: the policy's own", choices=("float32", "bfloat16"))
    modes: tuple[Mode, ...] = _axis(
        tuple(Mode), "ways of scheduling", _one_of("mode", list(Mode), Mode), "MODE"
    )
    denoise_steps: tuple[int, ...] = _axis((10,), "Euler steps of the flow", _whole, "N")
    text_tokens: tuple[int, ...] = _axis((30,), "tokens of a text", _whole, "N")
    tokens_per_frame: tuple[int, ...] = _axis(
        (1, 2, 5, 10, 30), "tokens of each text per frame in modes unified and interleaved", _whole, "K"
    )
    robots: tuple[int, ...] = _axis((1,), "robots served at once", _whole, "N")
    arrivals: tuple[str, ...] = _axis(
        ("every:1",),
        "when texts are requested: every:1, burst:4:8, poisson:0.5, any with @8-30",
        _arrivals,
        "WHEN",
    )
    deadline_ms: tuple[float, ...] = _axis(
        (), "in mode unified, decode what fits before it instead of --tokens-per-frame", _deadline_ms, "MS"
    )
    adapter: tuple[str, ...] = _axis(
        (OFF,),
        "suffix adapter of texts: off, exact, published; random without its own",
        _one_of("adapter", ADAPTERS),
        "MASK",
    )
    cameras: tuple[int, ...] = _axis(
        (), "images in an observation, at most twice the policy's number; default: that number", _whole, "N"
    )
    slots: int | None = _number(
        None, "unfinished texts at once; one more drops another; default: all requested"
    )
    rows: int | None = _number(
        None, "texts decoded in one batch, the others wait; default: all unfinished ones"
    )
    prompt_tokens: int = _number(24, "tokens in the prompt, padded to one of the policy's lengths")
    shortest_prompt: int | None = _number(
        None, "prompts grow from N tokens to --prompt-tokens, as with texts in them; default: none grows"
    )
    repetitions: int = _number(8, "runs of each configuration")
    queries: int = _number(10, "queries in a run")
    quick: bool = _switch("`tiny`, and less of everything: two minutes on a CPU")
    roofline: bool = _switch("compare stages with their minimum times instead of modes")
    peaks: str = _option(
        "auto",
        "source of the device's peaks, published if known, else measured",
        choices=("auto", "published", "measured"),
    )
    output: Path | None = _option(  # noqa: RUF009 - a field
        None,
        "rows, plots beside it; default: in runs/bench; with --roofline a JSON file; default: none",
        _path,
        metavar="FILE",
    )
    resume: bool = _switch("skip workloads that FILE already has")
    save_profile: Path | None = _option(  # noqa: RUF009 - a field
        None,
        "write the stage times as a latency profile for `--clock profile:`",
        _path,
        metavar="NAME.yaml",
    )

    def configurations(self, text_tokens: int) -> list[BenchConfiguration]:
        """The modes in order; those with a token budget once for each k of at most `text_tokens`.

        If there are deadlines, `unified` once for each instead.
        """
        ks = sorted({min(k, text_tokens) for k in self.tokens_per_frame})
        found = []
        for mode in self.modes:
            if mode is Mode.UNIFIED and self.deadline_ms:
                found += [BenchConfiguration(mode=mode, deadline_ms=ms) for ms in self.deadline_ms]
            elif mode in BUDGETED:
                found += [BenchConfiguration(mode=mode, tokens_per_frame=k) for k in ks]
            else:
                found.append(BenchConfiguration(mode=mode))
        return [
            dataclasses.replace(configuration, adapter=adapter)
            for configuration in found
            for adapter in (self.adapter if configuration.mode is not Mode.ACTIONS else (OFF,))
        ]

    def workloads(self) -> list[tuple[Workload, list[BenchConfiguration]]]:
        """All workloads with their configurations.

        Raises:
            UsageError: A text is longer than `text_tokens`, or there are fewer slots than robots.
        """
        axes = ("denoise_steps", "text_tokens", "cameras", "robots", "arrivals")
        fixed = {name: getattr(self, name) for name in ("slots", "rows", "repetitions", "queries")}
        found = []
        for values in itertools.product(*(getattr(self, axis) or (None,) for axis in axes)):
            varied: dict[str, Any] = dict(zip(axes, values, strict=True))
            workload = Workload(**varied, **fixed)
            configurations = self.configurations(workload.text_tokens)
            fill = max(max_queries_per_text(workload, each) for each in configurations)
            found.append((dataclasses.replace(workload, warm_up_queries=1 + fill), configurations))
        return found


_QUICK: Mapping[str, Any] = {
    "policy": "tiny",
    "text_tokens": (20,),
    "tokens_per_frame": (1, 5),
    "repetitions": 5,
    "queries": 8,
}
_NOT_FOR_ROOFLINE = (
    *("modes", "tokens_per_frame", "deadline_ms", "arrivals", "slots", "rows", "adapter"),
    "shortest_prompt",
    *("queries", "resume", "save_profile"),
)
_GROUPS = {"policy": "what is measured", "repetitions": "how", "output": "output"}
"""First options of the groups in the help."""


def read(arguments: Sequence[str]) -> Options:
    """The options in `arguments`.

    Raises:
        UsageError: An option is unknown, invalid, or would have no effect.
    """
    parser = OneLineParser(
        prog="python -m eval.bench",
        description="OxyGen's experiment on any policy: the same work in every mode, timed in turns. "
        "No simulator. Options that take several values measure every combination.",
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    group: argparse._ActionsContainer = parser
    for field in dataclasses.fields(Options):
        if field.name in _GROUPS:
            group = parser.add_argument_group(_GROUPS[field.name])
        group.add_argument(_flag(field.name), **field.metadata)
    found, unrecognised = parser.parse_known_args(arguments)
    if unrecognised:
        flags = [_flag(field.name) for field in dataclasses.fields(Options)]
        raise unknown("option", unrecognised[0].split("=")[0], flags, remedy="See --help.")
    given: dict[str, Any] = {
        name: tuple(dict.fromkeys(itertools.chain.from_iterable(value))) if isinstance(value, list) else value
        for name, value in vars(found).items()
    }
    options = Options(**{**(_QUICK if "quick" in given else {}), **given})
    _refuse_ignored(given, options.modes)
    workloads = [workload for workload, _ in options.workloads()]  # each checks itself
    if options.save_profile is not None:
        check_profile(options.save_profile, options.modes, workloads, options.adapter)
    return options


def _refuse_ignored(given: Mapping[str, Any], modes: Sequence[Mode]) -> None:
    """Reject given options that have no effect beside the others, or with these modes."""
    ignored = [name for name in _NOT_FOR_ROOFLINE if name in given]
    if "roofline" in given and ignored:
        raise UsageError(
            f"--roofline times stages and runs no mode; leave out {', '.join(map(_flag, ignored))}"
        )
    if "peaks" in given and "roofline" not in given:
        raise UsageError(
            f"--peaks {given['peaks']} has no effect without --roofline; leave it out, or add that"
        )
    if "resume" in given and "output" not in given:
        raise UsageError("--resume continues a file of rows; name it with --output FILE")
    if {"deadline_ms", "tokens_per_frame"} <= given.keys():
        raise UsageError("--deadline-ms sets the tokens of a frame; leave out --tokens-per-frame")
    of_texts = ("text_tokens", "arrivals", "adapter", "slots", "rows")
    effective = {"deadline_ms": (Mode.UNIFIED,), "tokens_per_frame": BUDGETED}
    effective |= dict.fromkeys(of_texts, tuple(mode for mode in Mode if mode is not Mode.ACTIONS))
    for name in effective.keys() & given.keys():
        if not set(effective[name]) & set(modes):
            values = given[name] if isinstance(given[name], tuple) else [given[name]]
            raise UsageError(
                f"{_flag(name)} {' '.join(map(str, values))} is for mode "
                f"{' or '.join(effective[name])}, and --modes is {' '.join(modes)}; "
                "leave it out, or add unified"
            )


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
