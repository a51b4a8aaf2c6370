"""The table of bad options: for every option of every command, values that nothing can be done with."""

import argparse
import dataclasses
import importlib
import typing
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from configs.cli import kinds_of
from tests.attack.commands import CYCLOPTS

_EPISODE = "--policy noop --mode actions --task-ids 0 --init-ids 0 --video none"

BASE = {
    "eval.run": f"--suite libero_object {_EPISODE}",
    "eval.libero": f"--suite libero_object {_EPISODE}",
    "eval.droid": _EPISODE,
    "eval.sweep": "--suite libero_object --policy noop --mode actions unified --task-ids 0 --init-ids 0",
    "eval.compare": "runs/run_a runs/run_b",
    "eval.leaderboard": "runs",
    "eval.media": "runs/run_a",
    "eval.merge": "runs/shard_1 runs/shard_2",
    "eval.results": "",
    "eval.bundle": "",
    "eval.collect": "--suite libero_object --task-ids 0 --init-ids 0 --workers 1",
    "eval.pipeline": "tiny --dry-run",
    "eval.train": "--data folder",
    "eval.export": "runs/run_a --format csv",
    "eval.preflight": "",
    "eval.report": "runs/run_a",
    "eval.watch": "runs/run_a",
    "oxygen.serve": "--policy tiny",
    "eval.bench": "--policy tiny",
    "sim_envs.contact_sheet": "sheet.jpg",
    "oxygen.tools.convert": "folder target",
    "oxygen.tools.parity": "arrays.npz",
    "oxygen.tools.train_tokenizer": "tiny.model",
}
"""A good command line of every command, to which a bad option is added."""

INTEGERS = (
    "",
    "10.7",
    "1e3",
    "0x10",
    "-9",
    "99999999999",
    "9" * 30,
    "9" * 5000,
    "ten",
    "1_000",
    "nan",
    "true",
)
FLOATS = ("", "nan", "inf", "-inf", "1e999", "-3", "ten", "1,5", "9" * 400)
LISTS = ("", ",", "3-1", "-1", "0-99999999999", "1.5", "x", "9" * 30, "0x10")
NAMES = ("", "a,,b", "nonsense", "\x1b[31mred\x1b[0m", "n" * 5000, "../..", "\udcff", "<b>x</b>", "~nouser/x")
OUTPUTS = ("", "file/x", "dangling", "loop", "/proc/1/x", "n" * 300, "~nouser/x", "dangling/x", "loop/x")
INPUTS = ("", "nowhere", "file/x", "dangling", "loop", "n" * 300, "binary", "~nouser/x", "/proc/1/mem")
YAML_TEXTS = {
    "garbage": "\x01\x02",
    "binary": b"\xff\xfe\x00",
    "list": "[1, 2]",
    "scalar": "7",
    "empty": "",
    "tag": "a: !!python/object/apply:os.system ['true']",
    "unknown_tag": "seed: !mine 7",
    "odd_date": "seed: 2024-13-45",
    "date": "seed: 2024-01-01",
    "long_integer": f"seed: {'9' * 5000}",
    "nested": "seed: " + "[" * 3000 + "]" * 3000,
    "nested_maps": "".join(f"{' ' * n}a:\n" for n in range(3000)),
    "alias_bomb": "a: &a [x, x, x, x, x, x, x, x, x]\n"
    + "".join(f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join(['*' + chr(97 + n)] * 9)}]\n" for n in range(8)),
    "recursive": "&a seed: *a",
    "self": "seed: &a [*a]",
    "number_keys": "1: 2",
    "null_key": "null: 2",
    "list_key": "[1, 2]: 3",
    "unclosed": "seed: [1, 2",
    "tabs": "seed:\n\t- 1",
    "two_documents": "seed: 1\n---\nseed: 2",
    "true_number": "num_trials_per_task: true",
    "fraction": "seed: 1.5",
    "text_number": "seed: seven",
    "null_number": "num_envs: null",
    "infinity": "margin: .inf",
    "not_a_number": "margin: .nan",
    "unknown_key": "sed: 1",
    "surrogate": 'policy: "\\ud800"',
    "escape": 'policy: "\\e[31m"',
    "nul": 'policy: "a\\0b"',
}
"""Presets that nothing can be done with."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Option:
    """An option of a command, by the kind of its value."""

    command: str
    flag: str
    values: tuple[str, ...]
    kind: str

    def line(self, value: str) -> list[str]:
        """The good command line of its command, with this option."""
        return [*without(BASE[self.command].split(), self.flag), f"{self.flag}={value}"]


def thinned(cases: Sequence[Any], *, keep: int) -> list[Any]:
    """The cases; of every `keep` one belongs to `make test`, the others to `make test-all`."""
    return [
        pytest.param(*case, marks=[pytest.mark.slow] if number % keep else [])
        for number, case in enumerate(cases)
    ]


def without(words: list[str], flag: str) -> list[str]:
    """A command line without an option and its values."""
    if flag not in words:
        return words
    start = words.index(flag)
    stop = next((at for at in range(start + 1, len(words)) if words[at].startswith("--")), len(words))
    return words[:start] + words[stop:]


_NAMED_AS_PATHS = {"--config": "inputs", "--data": "inputs", "--results": "inputs"}
_REPORTED = {("eval.preflight", None), ("oxygen.serve", "--host")}
"""Options, or a whole command, whose bad values are found out later than the rule asks."""


def options() -> Iterator[Option]:
    """Every option that takes a value."""
    for command, module in CYCLOPTS.items():
        for argument in importlib.import_module(module).app.assemble_argument_collection():
            if _REPORTED & {(command, None), (command, argument.name)}:
                continue
            if argument.parse and argument.name.startswith("--") and argument.hint is not bool:
                kind, values = _values(argument.name, argument.hint)
                yield Option(command=command, flag=argument.name, values=values, kind=kind)
    yield from _of_bench()


def _values(flag: str, hint: typing.Any) -> tuple[str, tuple[str, ...]]:
    kinds = kinds_of(hint)
    if tuple[int, ...] in kinds:
        return "numbers", LISTS
    if int in kinds:
        return "numbers", INTEGERS
    if float in kinds:
        return "numbers", FLOATS
    if Path in kinds:
        return "paths", OUTPUTS
    return "names", INPUTS if flag in _NAMED_AS_PATHS else NAMES


def _of_bench() -> Iterator[Option]:
    from eval.bench.options import _parser

    for action in _parser()._actions:
        flag = action.option_strings[-1]
        if isinstance(action, argparse._HelpAction | argparse._StoreTrueAction):
            continue
        if action.dest in ("output", "save_profile"):
            kind, values = "paths", OUTPUTS
        elif action.metavar in ("N", "K"):
            kind, values = "numbers", INTEGERS
        elif action.metavar == "MS":
            kind, values = "numbers", tuple(value for value in FLOATS if "," not in value)  # a list
        else:
            kind, values = "names", NAMES
        yield Option(command="eval.bench", flag=flag, values=values, kind=kind)
