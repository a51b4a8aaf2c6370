"""A Markdown page of results from finished sweeps: design, figures, tables, how to reproduce it."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from configs.cli import counted
from configs.load import load
from configs.profile import ProfileConfig
from eval.report.sweep_plots import draw_sweep
from eval.report.sweep_table import JUDGED_NOTE, NOTE, frontier_lines, markdown_table

Record = Mapping[str, Any]
_NOTES = f"{NOTE} {JUDGED_NOTE}"

_HEAD = """\
# Latency and text rate: what acting loses

<!-- Written by python -m eval.results from records; edits are lost. -->

Latency costs little success where objects do not move: a robot that holds still loses time. So every table
has **success** and **time to success**, and the cost of a mode is given as a frontier: the largest text rate,
in tokens per second, at which actions are non-inferior.

## Design

- **Paired.** Every cell of a sweep plays the same episodes (task, initial state, seed), one cell after the
  other before the next episode.
- **Equal work.** All modes call the same compiled prefill and denoise programs on the same weights, with the
  same noise for the same query of the same episode. They differ in when actions and texts are available.
- **Time passes** in simulation while the policy computes: `fixed` latencies, or those of a device's profile
  for the work that the engine did ([clocks](clocks.md)).
- **Verdicts** are paired non-inferiority tests against mode `actions`, with margins set in advance:
  {margins} ([comparing](comparing.md)).
- **Frontier.** Schedules (text rate, tokens per query, replan steps, waiting rule) are chosen on one block of
  initial states and measured on another. Rates are tested in ascending order, up to the first that is not
  shown to be non-inferior.
- **Limits.** One small policy, simulated scenes, and tasks designed for objects at rest.

In the tables: {notes}
"""


def write_page(records: Sequence[Record], page: Path) -> list[Path]:
    """Write the page, and its figures beside it; returns what was written.

    Args:
        records: Of finished sweeps, as their `sweep.json` has them.
        page: A Markdown file.
    """
    page.parent.mkdir(parents=True, exist_ok=True)
    parts, written = [_HEAD.format(margins=_margins(records), notes=_NOTES), _profiles(records)], []
    for number, record in enumerate(records, start=1):
        figures = draw_sweep(record, page.parent, stem=f"{page.stem}_{number}")
        parts.append(_section(record, [figure.name for figure in figures]))
        written += figures
    page.write_text("\n".join(parts), encoding="utf-8")
    return [page, *written]


def _section(record: Record, figures: Sequence[str]) -> str:
    lines = [f"## {_heading(record)}", "", _say_episodes(record), ""]
    if record["frontier"]:
        lines += [*(f"- {line}" for line in frontier_lines(record)), ""]
    lines += [f"![{_heading(record)}]({name})\n" for name in figures]
    lines += [markdown_table(record), "", "```", _command(record), "```", ""]
    return "\n".join(lines)


def _heading(record: Record) -> str:
    if record["frontier"]:
        return "Text rate without a measurable loss"
    return "Modes" if "mode" in record["varied"] else "Success over latency"


def _say_episodes(record: Record) -> str:
    asked, cells = record["asked"], record["cells"]
    states = asked["init_ids"]
    where = f"initial states {states[0]} to {states[-1]}" if states else "stored initial states"
    chosen = f" Schedules were chosen by `{asked['chosen_on']}`." if asked["chosen_on"] else ""
    return (
        f"{record['provenance']['policy']} on {', '.join(asked['suites'])}, {where}, assets "
        f"{record['provenance']['assets']['name']}: {counted(len(cells), 'cell')} of "
        f"{counted(max(row['n_episodes'] for row in cells), 'episode')}.{chosen}"
    )


def _command(record: Record) -> str:
    """The command, without options of one machine or attempt."""
    words = [word for word in shlex.split(record["provenance"]["command"]) if word != "--resume"]
    if "--output-dir" in words:
        place = words.index("--output-dir")
        del words[place : place + 2]
    return shlex.join(words)


def _margins(records: Sequence[Record]) -> str:
    declared = [(record["asked"]["margin"], record["asked"]["time_margin"]) for record in records]
    return "; ".join(
        f"{points:g} points of success, {percent:g} % of time to success"
        for points, percent in dict.fromkeys(declared)
    )


def _profiles(records: Iterable[Record]) -> str:
    clocks = dict.fromkeys(row["options"]["clock"] for record in records for row in record["cells"])
    names = [clock.removeprefix("profile:") for clock in clocks if clock.startswith("profile:")]
    found = [load(ProfileConfig, name) for name in names]
    if not found:
        return ""
    lines = [f"| {each.name} | {each.device} | {each.source} |" for each in found]
    return "\n".join(["| profile | device | its numbers |", "|---|---|---|", *lines, ""])
