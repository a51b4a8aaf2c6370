"""Results of finished sweeps in a Markdown page: figures, tables and the commands that repeat them."""

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from configs.cli import pluralize
from configs.errors import UsageError
from configs.load import load
from configs.profile import ProfileConfig
from configs.sweep import AXES, CONDITIONS
from eval.report.frontier import Record, Row, group_by
from eval.report.marked_block import MarkedBlock
from eval.report.plain_text import markdown_table
from eval.report.sweep_plots import draw_sweep
from eval.report.sweep_table import (
    JUDGED_NOTE,
    NOTE,
    SIGNS_NOTE,
    TEXTS_NOTE,
    episodes_of,
    frontier_lines,
    to_markdown,
    verdicts_of,
)
from eval.report.sweep_words import HEADINGS, format_cell, format_margins, format_value

_COMMAND = "python -m eval.results"
RESULTS = MarkedBlock("results", _COMMAND)
"""Tables and figures of all sweeps, with their commands."""
SUMMARY = MarkedBlock("summary of results", _COMMAND)
"""The frontier, or else a table, of each sweep of several modes."""


_SUMMARY_NOTE = (
    "A cell has the episodes solved and the mean simulated seconds to success, each with its verdict "
    f"compared with mode `actions` on the same device ({{margins}}): {SIGNS_NOTE}."
)


def write_page(records: Sequence[Record], page: Path) -> list[Path]:
    """Write the results into a page, and the figures beside it; returns what was written.

    A page that exists has to have one of the two blocks, `RESULTS` or `SUMMARY`, which is replaced.

    Args:
        records: Of finished sweeps, as their `sweep.json` has them.
        page: A Markdown file.

    Raises:
        UsageError: It exists and has neither block, or no sweep compares modes and it has `SUMMARY`.
    """
    text = page.read_text(encoding="utf-8") if page.exists() else f"# Results\n\n{RESULTS.written('')}\n"
    if SUMMARY.begin in text:
        page.write_text(SUMMARY.replaced(text, _summary(records)), encoding="utf-8")
        return [page]
    RESULTS.replaced(text, "")  # refused before anything is written
    page.parent.mkdir(parents=True, exist_ok=True)
    parts, written = [f"In the tables: {NOTE} {TEXTS_NOTE} {JUDGED_NOTE}\n", _profiles(records)], []
    for number, record in enumerate(records, start=1):
        figures = draw_sweep(record, page.parent, stem=f"{page.stem}_{number}")
        parts.append(_section(record, [figure.name for figure in figures]))
        written += figures
    page.write_text(RESULTS.replaced(text, "\n".join(parts).strip()), encoding="utf-8")
    return [page, *written]


def _summary(records: Sequence[Record]) -> str:
    """The cells that are in every condition: a row for each device and cell, a column for each motion."""
    compared = [record for record in records if "mode" in record["varied"]]
    if not compared:
        raise UsageError("none of these sweeps compares modes; a summary needs one that does")
    return "\n\n".join(
        _frontier_of(record) if record["frontier"] else _summary_of(record) for record in compared
    )


def _frontier_of(record: Record) -> str:
    lead = f"The largest text rate shown to be non-inferior to actions alone ({format_margins(record)}):"
    return "\n".join(
        [lead, "", *(f"- {line}" for line in frontier_lines(record)), "", _format_episodes(record)]
    )


def _summary_of(record: Record) -> str:
    conditions = group_by(record["cells"], CONDITIONS)
    cells = [{format_cell(row["options"], AXES): row for row in rows} for rows in conditions]
    shown = [row for rows in cells for cell, row in rows.items() if all(cell in others for others in cells)]
    varied = [axis for axis in AXES if len({format_value(axis, row["options"]) for row in shown} - {""}) > 1]
    motions = [format_value("motion", rows[0]["options"]) for rows in group_by(shown, ["motion"])]
    heads = ["device", "mode", *motions, "tokens/s"]
    table = []
    for rows in group_by(shown, [axis for axis in AXES if axis != "motion"]):
        what = [rows[0]["device"] or rows[0]["options"]["clock"], format_cell(rows[0]["options"], varied)]
        table.append([*what, *map(_format_outcome, rows), _format_rates(rows)])
    note = _SUMMARY_NOTE.format(margins=format_margins(record))
    return f"{markdown_table(heads, table)}\n\n{_format_episodes(record)} {note}"


def _format_rates(rows: Sequence[Row]) -> str:
    """Tokens per simulated second in several conditions."""
    rates = sorted({round(row["tokens_per_simulated_s"] or 0) for row in rows})
    return f"{rates[0]}–{rates[-1]}" if len(rates) > 1 else str(rates[0] or "none")


def _format_outcome(row: Row) -> str:
    """Episodes solved and seconds, each with its verdict."""
    times = row["time_to_success_s"]
    signs = verdicts_of(row)
    parts = [f"{row['n_success']}/{row['n_episodes']}", f"{times['mean']:.1f} s" if times else "–"]
    return ", ".join(f"{part} {sign}".strip() for part, sign in zip(parts, signs, strict=True))


def _section(record: Record, figures: Sequence[str]) -> str:
    lines = [f"## {_heading(record)}", "", _format_episodes(record), ""]
    if record["frontier"]:
        lines += [*(f"- {line}" for line in frontier_lines(record)), ""]
    lines += [f"![{_heading(record)}: {Path(name).stem.rpartition('_')[2]}]({name})\n" for name in figures]
    lines += [to_markdown(record), "", "```", _command(record), "```", ""]
    return "\n".join(lines)


def _heading(record: Record) -> str:
    varied = record["varied"]
    if record["frontier"]:
        subject = "Text rate without a measurable loss"
    elif "mode" in varied:
        subject = "Schedules" if "text_every" in varied else _modes_heading(record)
    elif "clock" in varied:
        subject = "Success over latency" + (" and overlap" if "overlap" in varied else "")
    elif "motion" in varied:
        subject = f"Motion, {Path(record['provenance']['policy']).name}"
    else:
        subject = ", ".join(HEADINGS.get(axis, axis) for axis in varied).capitalize()
    return f"{subject}, {', '.join(record['config']['suites'])}"


def _modes_heading(record: Record) -> str:
    motions = {format_value("motion", row["options"]): None for row in record["cells"]}
    return "Modes" if len(motions) == 1 else f"Modes by motion ({', '.join(motions)})"


def _format_episodes(record: Record) -> str:
    config, cells = record["config"], record["cells"]
    states = config["init_ids"]
    where = f"initial states {states[0]} to {states[-1]}" if states else "stored initial states"
    chosen = f" Schedules were chosen by `{config['chosen_on']}`." if config["chosen_on"] else ""
    return (
        f"{record['provenance']['policy']} on {', '.join(config['suites'])}, {where}, assets "
        f"{record['provenance']['assets']['name']}: {pluralize(len(cells), 'cell')} of "
        f"{pluralize(episodes_of(record), 'episode')}.{chosen}"
    )


def _command(record: Record) -> str:
    """The command, without options of one machine or attempt."""
    words = [word for word in shlex.split(record["provenance"]["command"]) if word != "--resume"]
    for option in ("--output-dir", "--shard"):
        if option in words:
            place = words.index(option)
            del words[place : place + 2]
    return shlex.join(words)


def _profiles(records: Iterable[Record]) -> str:
    clocks = dict.fromkeys(row["options"]["clock"] for record in records for row in record["cells"])
    names = [clock.removeprefix("profile:") for clock in clocks if clock.startswith("profile:")]
    found = [load(ProfileConfig, name) for name in names]
    if not found:
        return ""
    lines = [f"| {each.name} | {each.device} | {each.source} |" for each in found]
    return "\n".join(["| profile | device | its numbers |", "|---|---|---|", *lines, ""])
