"""Prints what was bundled."""

from pathlib import Path

from configs.cli import counted
from configs.console import TextConsole
from eval.bundle.bundling import MOST_BYTES, BundleSummary
from eval.bundle.card import CARD_FILE
from eval.bundle.provenance import unknowns
from oxygen.presets.checkpoints import read_record


def show(summary: BundleSummary, target: Path) -> None:
    """Print a bundle's sizes, what was left out, and what its card does not know."""
    manifest, console = summary.manifest, TextConsole()
    console.print(
        f"[bold]{manifest.name}[/]: {manifest.parameters:,} parameters after {manifest.step} steps, "
        f"{manifest.bytes:,} of at most {MOST_BYTES:,} bytes, {counted(len(summary.results), 'result')}",
        soft_wrap=True,
    )
    if summary.dropped:
        console.print(
            f"Left out, of the weights before: {counted(summary.dropped, 'result')}", soft_wrap=True
        )
    for unknown in unknowns(read_record(target), manifest):
        console.print(f"Not known, and the card says so: {unknown}", soft_wrap=True)
    console.print(f"The card: {target / CARD_FILE}", soft_wrap=True)
