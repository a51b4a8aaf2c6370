"""Prints the results of checks."""

from typing import TYPE_CHECKING

from rich.text import Text

from configs.console import TextConsole

if TYPE_CHECKING:
    from sim_envs.preflight import CheckResult

_COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}


def print_result(console: TextConsole, result: "CheckResult") -> None:
    """Print a check in a line, and its remedy, if there is one, in another."""
    line = Text.assemble((f"{result.status:4}", _COLOURS[result.status]), f"  {result.name}: {result.detail}")
    console.print(line, soft_wrap=True)
    if result.remedy:
        console.print(Text(f"      → {result.remedy}"), soft_wrap=True)
