"""Every command of the project, called in this process, and the rule that all of them keep."""

import contextlib
import dataclasses
import hashlib
import importlib
import io
import os
import traceback
from collections.abc import Sequence
from pathlib import Path

from configs.cli import run_app

CYCLOPTS = {
    "eval.run": "eval.run",
    "eval.libero": "eval.libero",
    "eval.droid": "eval.droid",
    "eval.sweep": "eval.sweep",
    "eval.compare": "eval.compare",
    "eval.leaderboard": "eval.leaderboard",
    "eval.media": "eval.media",
    "eval.merge": "eval.merge",
    "eval.results": "eval.results",
    "eval.bundle": "eval.bundle.__main__",
    "eval.collect": "eval.collect.__main__",
    "eval.pipeline": "eval.pipeline.__main__",
    "eval.train": "eval.train.__main__",
    "eval.export": "eval.export",
    "eval.preflight": "eval.preflight",
    "eval.report": "eval.report.__main__",
    "eval.watch": "eval.watch",
    "oxygen.serve": "oxygen.serve.__main__",
    "sim_envs.contact_sheet": "sim_envs.contact_sheet",
}
"""Command to the module of its cyclopts `app`."""

ARGPARSE = {
    "eval.bench": "eval.bench.__main__",
    "oxygen.tools.convert": "oxygen.tools.convert",
    "oxygen.tools.parity": "oxygen.tools.parity",
    "oxygen.tools.train_tokenizer": "oxygen.tools.train_tokenizer",
}
"""Command to the module of its `main`."""

COMMANDS = (*CYCLOPTS, *ARGPARSE)

LONGEST_LINE = 1000
"""Characters of an error: it names a value and never prints a file."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answer:
    """What a command did.

    Attributes:
        code: Exit code; None if it raised.
        out: Its standard output.
        err: Its standard error, or the traceback.
        wrote: Files and folders that it created, changed or removed.
    """

    code: int | None
    out: str
    err: str
    wrote: Sequence[str]

    def broken_rules(self, *, refused: bool | None = None) -> list[str]:
        """The parts of the rule that the command broke; `refused` is whether it had to refuse, if known."""
        if self.code is None:
            return [f"traceback: {self.err}"]
        lines = [line for line in self.err.splitlines() if not line.startswith("skipped ")]
        broken = [] if self.code in (0, 1, 2) else [f"exit code {self.code}"]
        broken += [f"{len(lines)} lines on stderr: {self.err[:2000]}"] if len(lines) > 1 else []
        broken += [f"a line of {len(line)} characters" for line in lines if len(line) > LONGEST_LINE]
        broken += (
            [f"control characters: {self.err!r}"] if any(c < " " and c != "\n" for c in self.err) else []
        )
        if self.code == 2:
            broken += [f"refused, but wrote {', '.join(self.wrote)}"] if self.wrote else []
            broken += [] if lines else ["refused without a word"]
        if refused is not None and (self.code == 2) != refused:
            broken.append(
                f"exit code {self.code}, should {'be' if refused else 'not be'} refused: {self.err}"
            )
        return broken


def call(command: str, arguments: Sequence[str], folder: Path, *, encoding: str = "utf-8") -> Answer:
    """Call a command with its working directory's files in `folder`, in a terminal of an encoding."""
    before = _contents(folder)
    out = io.TextIOWrapper(io.BytesIO(), encoding)
    err = io.TextIOWrapper(io.BytesIO(), encoding, errors="backslashreplace")  # as Python opens them
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = _code(command, arguments)
    after = _contents(folder)
    wrote = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
    return Answer(code=code, out=_written(out), err=_written(err), wrote=wrote)


def _written(stream: io.TextIOWrapper) -> str:
    stream.flush()
    return stream.buffer.getvalue().decode(stream.encoding)


def _code(command: str, arguments: Sequence[str]) -> int | None:
    try:
        if command in ARGPARSE:
            return importlib.import_module(ARGPARSE[command]).main([*arguments])
        run_app(importlib.import_module(CYCLOPTS[command]).app, [*arguments])
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 1
    except Exception:  # noqa: BLE001 - whatever a command raises is what is looked for
        traceback.print_exc()
        return None


def _contents(folder: Path) -> dict[str, str]:
    """Path to digest of everything below the folder; locks do not count."""
    found = {}
    for above, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(above, name)
            if name != ".lock":
                regular = path.is_file() and not path.is_symlink()
                found[str(path.relative_to(folder))] = (
                    hashlib.sha256(path.read_bytes()).hexdigest() if regular else ""
                )
    return found
