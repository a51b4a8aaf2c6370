"""`oxygen-eval COMMAND`: all commands as one program, which no folder of the same name can hide."""

import contextlib
import importlib
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from configs.cli import run_app

_COMMANDS = {
    "libero": ("eval.libero", "Run a policy on LIBERO."),
    "droid": ("eval.droid", "Run a policy on DROID's station."),
    "run": ("eval.run", "Run a policy on any suite."),
    "sweep": ("eval.sweep", "Run a policy over a grid of clocks, modes, text rates and schedules."),
    "serve": ("oxygen.server.__main__", "Serve a policy over WebSockets."),
    "bench": ("eval.bench.__main__", "Measure the modes without a simulator."),
    "compare": ("eval.compare", "Compare two runs of the same episodes."),
    "leaderboard": ("eval.leaderboard", "Rank recorded runs."),
    "report": ("eval.report.__main__", "Write a page about runs or a sweep."),
    "watch": ("eval.watch", "Show the report of a run while it goes on."),
    "media": ("eval.media", "Join one episode of several runs in one video."),
    "import": ("eval.import_results", "Import results of other programs."),
    "export": ("eval.export", "Export a run for another tool."),
    "merge": ("eval.merge", "Merge shards."),
    "collect": ("eval.collect.__main__", "Collect demonstrations (extra train)."),
    "train": ("eval.train.__main__", "Train a policy on demonstrations (extra train)."),
    "check": ("eval.check", "Check the tasks of a suite, such as your own."),
    "preflight": ("eval.preflight", "Check whether this machine is ready."),
    "setup": ("eval.setup", "Install LIBERO, LIBERO-plus or LIBERO-PRO."),
}
"""Name to module, imported only when its command runs, and help."""

app = App(
    name="oxygen-eval",
    help="Closed-loop evaluation of vision-language-action policies."
    "\n\n`oxygen-eval COMMAND --help` lists a command's options.",
)


def _add(name: str, module: str, about: str) -> None:
    @app.command(name=name, help=about, help_flags=(), version_flags=())
    def run(*arguments: Annotated[str, Parameter(allow_leading_hyphen=True)]) -> int:
        command = importlib.import_module(module)
        if hasattr(command, "app"):
            run_app(command.app, arguments)
        return int(command.main(arguments))  # eval.bench, which needs no cyclopts


for _name, (_module, _about) in _COMMANDS.items():
    _add(_name, _module, _about)


def main() -> None:
    """Run the command line of this process."""
    with contextlib.suppress(FileNotFoundError):  # `run_app` says so
        sys.path.append(str(Path.cwd()))  # after all others
    run_app(app)


if __name__ == "__main__":
    main()
