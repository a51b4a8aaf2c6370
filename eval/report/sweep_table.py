"""The table of a sweep, one row per cell, and its progress in the terminal."""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from rich import box
from rich.console import Group
from rich.markup import escape
from rich.table import Table

from configs.errors import pluralize
from configs.motion import format_motion
from configs.sweep import CONDITIONS
from eval.metrics.language import HEADLINES
from eval.metrics.noninferiority import Verdict
from eval.metrics.success import Results
from eval.report.console import EvaluationConsole, success_rate
from eval.report.labels import number
from eval.report.result_tables import TEXT_HEADINGS
from eval.report.table import Table as Cells
from eval.report.table import to_markdown as markdown
from sim_envs.world import EpisodeKey

Record = Mapping[str, Any]
"""A finished sweep's `sweep.json`."""
Row = Mapping[str, Any]
"""A cell's row in it."""

HEADINGS = {
    "clock": "clock",
    "mode": "mode",
    "text_every": "every",
    "tokens_per_frame": "k",
    "replan_steps": "replan",
    "while_waiting": "waiting",
}
"""Column headings of axes; others have their own names."""

_WORDS = {
    ("tokens_per_frame", ""): "k={}",
    ("text_every", ""): "text every {} queries",
    ("text_every", "1"): "text every query",
    ("text_every", "default"): "text as by default",
    ("replan_steps", ""): "replan every {} steps",
    ("replan_steps", "asap"): "replan asap",
    ("replan_steps", "default"): "replan as by default",
}
"""Values of axes in labels; an empty value stands for all others."""


def is_judged(record: Record) -> bool:
    """Whether a cell is compared with another one."""
    return any(row["success"] for row in record["cells"])


def is_identical(row: Row) -> bool:
    """Whether every episode took the same course as in the cell that it is compared with."""
    return bool(row["success"] and row["success"].get("identical"))


def group_by(rows: Sequence[Row], axes: Sequence[str]) -> list[list[Row]]:
    """Group rows by some options, in order of first appearance."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(str(row["options"].get(axis)) for axis in axes), []).append(row)
    return list(groups.values())


def format_value(axis: str, options: Mapping[str, Any]) -> str:
    """The value of an option in a cell; empty if it has no effect in the cell."""
    value, mode = options.get(axis), options["mode"]
    whole = mode not in ("interleaved", "unified")  # texts are decoded to their end, if there are any
    idle = (axis == "tokens_per_frame" and whole) or (axis == "text_every" and mode == "actions")
    if axis == "motion":
        return format_motion(str(value))
    return "" if idle else str("default" if value is None else value).removeprefix("profile:")


def format_condition(options: Mapping[str, Any], varied: Sequence[str]) -> str:
    """The condition of a cell: clock, motion and feedback, as far as they vary."""
    shown = [axis for axis in CONDITIONS if axis in varied] or list(CONDITIONS[:1])
    return ", ".join(filter(None, (format_value(axis, options) for axis in shown)))


def format_cell(options: Mapping[str, Any], varied: Sequence[str], *, with_mode: bool = True) -> str:
    """The mode, then other axes that vary except conditions, such as `unified, k=1, text every 4 queries`."""
    parts = [str(options["mode"])] if with_mode else []
    for axis in varied:
        text = format_value(axis, options)
        if axis not in (*CONDITIONS, "mode") and text:
            parts.append(_WORDS.get((axis, text)) or _WORDS.get((axis, ""), "{}").format(text))
    return ", ".join(parts)


def format_margins(record: Record) -> str:
    """The declared margins of a sweep."""
    config = record["config"]
    return f"{config['margin']:g} points of success, {config['time_margin']:g} % of time to success"


_SIGNS = {
    Verdict.SUPERIOR.value: ">",
    Verdict.NON_INFERIOR.value: "≥",
    Verdict.INFERIOR.value: "≪",
    Verdict.INCONCLUSIVE.value: "?",
    Verdict.TOO_MANY_ERRORS.value: "err",
}
_IDENTICAL, _WORSE = "=", "<"
SIGNS_NOTE = (
    "> superior, ≥ non-inferior, ? inconclusive, < worse by an inconclusive amount, ≪ inferior; a "
    "fact rather than a verdict: = every episode took the same course"
)
"""What the signs of verdicts mean."""
_RATE = "tok/s"
_VERDICTS = ("succ.", "time")
NOTE = (
    "solved: episodes. s: mean simulated seconds to success. act, busy: milliseconds that the clock "
    "charges until actions arrive and until the next query can start, mean. a, b: control steps until "
    "actions arrive and until the next query, median. held: control steps in which "
    "the robot is held still. tok/s: tokens decoded per simulated second."
)
_RESTRICTED, _JERK = "rmean", "jerk"
_CURRENT = {task: f"{heading} now" for task, heading in TEXT_HEADINGS.items()}
MEASURES_NOTE = (
    "rmean: restricted mean time, simulated seconds, where an unsolved episode counts as its limit, with its "
    "verdict. jerk: logarithm of the end effector's dimensionless jerk over solved episodes, less is "
    "smoother. narr. now, mem. now: share of simulated time (%) in which the text delivered last is true "
    "(memory: F1)."
)
TEXTS_NOTE = (
    "texts/s: texts delivered per simulated second. late: mean seconds from request to delivery. narration: "
    "texts that are right on delivery (%). memory: F1 of its items on delivery (%)."
)
JUDGED_NOTE = (
    "succ., time: verdicts on success and time to success compared with mode actions (of that mode itself: "
    f"compared with overlap skip): {SIGNS_NOTE}."
)


def sweep_table(record: Record) -> Group:
    """The cells of a finished sweep: a table, or one for every condition."""
    axes, numbers = columns_of(record), numbers_in(record)
    apart = not set(axes) & set(CONDITIONS)
    tables: list[str | Table] = [f"[italic]{_title(record)}"]
    for rows in group_by(record["cells"], CONDITIONS if apart else ()):
        title = f"[bold]{format_condition(rows[0]['options'], record['varied'])}" if apart else None
        table = Table(title=title, title_justify="left", title_style="", box=box.SIMPLE_HEAD, padding=0)
        for axis in axes:
            table.add_column(HEADINGS.get(axis, axis), no_wrap=True)
        for name in numbers:
            table.add_column(name, justify="right", no_wrap=True)
        for row in rows:
            table.add_row(*(format_value(axis, row["options"]) for axis in axes), *_cells(numbers, row))
        tables.append(table)
    return Group(*tables)


def columns_of(record: Record) -> list[str]:
    """The options that have a column: those that vary; conditions only if they differ in most rows."""
    varied, rows = record["varied"], record["cells"]
    apart = 2 * len(group_by(rows, CONDITIONS)) > len(rows)
    return [axis for axis in varied if apart or axis not in CONDITIONS] or ["mode"]


def numbers_in(record: Record) -> list[str]:
    """The headings of results that a cell has; the text rate only in records without other measures."""
    verdicts = _VERDICTS if is_judged(record) else ()
    rows = record["cells"]
    steps = ["a", "b"] if any(row.get("control_steps") for row in rows) else []
    restricted = [_RESTRICTED] if any(row.get("restricted_mean_s") is not None for row in rows) else []
    current = [_CURRENT[task] for task in current_tasks(record)]
    measures = [*current, *([_JERK] if any(map(_jerk, rows)) else [])]
    rate = [_RATE] if not measures and any(row["tokens_per_simulated_s"] for row in rows) else []
    return ["solved", "s", *restricted, *verdicts, "act", "busy", *steps, "held", *measures, *rate]


def current_tasks(record: Record) -> list[str]:
    """The language tasks of which a cell recorded for how long their texts were true."""
    return [task for task in HEADLINES if any(task in row.get("current", {}) for row in record["cells"])]


def has_measures(record: Record) -> bool:
    """Whether a column needs `MEASURES_NOTE`."""
    return not {_RESTRICTED, _JERK, *_CURRENT.values()}.isdisjoint(numbers_in(record))


def _jerk(row: Row) -> float | None:
    return row.get("motion", {}).get("log_dimensionless_jerk", {}).get("mean")


def text_columns(record: Record) -> dict[str, list[float | None]]:
    """Heading to values, a value per cell: texts per second, seconds until delivery, and what is right.

    Columns without a value, as in sweeps without texts, are absent.
    """
    rows = record["cells"]
    tasks = dict.fromkeys(task for row in rows for task in row.get("pc_right_on_delivery", {}))
    columns = {
        "texts/s": [row.get("texts_per_simulated_s") for row in rows],
        "late": [None if row["staleness_ms"] is None else row["staleness_ms"] / 1e3 for row in rows],
        **{task: [row.get("pc_right_on_delivery", {}).get(task) for row in rows] for task in tasks},
    }
    if not tasks and not any(columns["late"]):
        return {}
    return {name: values for name, values in columns.items() if any(value is not None for value in values)}


def _cells(headings: Sequence[str], row: Row) -> list[str]:
    times, charged = row["time_to_success_s"], row["charged_ms"] or {}
    steps = row.get("control_steps") or {}
    text = {
        "solved": f"{row['n_success']}/{row['n_episodes']}",
        "s": number(times and times["mean"], ".1f"),
        **dict(zip(_VERDICTS, verdicts_of(row), strict=True)),
        "act": number(charged.get("actions"), ".0f"),
        "busy": number(charged.get("busy"), ".0f"),
        **{name: number(steps[name]["median"] if name in steps else None, "g") for name in ("a", "b")},
        "held": number(row["pc_held"], ".0f", " %"),
        _RESTRICTED: number(row.get("restricted_mean_s"), ".1f") + _restricted_sign(row),
        _JERK: number(_jerk(row), ".1f"),
        **{
            name: number(row.get("current", {}).get(task, {}).get("pc"), ".0f")
            for task, name in _CURRENT.items()
        },
        _RATE: number(row["tokens_per_simulated_s"], ".0f"),
    }
    return [text[heading] for heading in headings]


def _title(record: Record) -> str:
    rows, policy = record["cells"], record["provenance"]["policy"]
    mode = "" if "mode" in record["varied"] else f", mode {rows[0]['options']['mode']}"
    return f"{policy}{mode}: {pluralize(len(rows), 'cell')}, {pluralize(episodes_of(record), 'episode')} each"


def episodes_of(record: Record) -> int:
    """Episodes of a cell, errors included."""
    return max(row["n_episodes"] + row["n_errors"] for row in record["cells"])


def verdicts_of(row: Row) -> list[str]:
    """The signs of a row's verdicts on success and on time."""
    return ["" if row[on] is None else _sign(row, on) for on in ("success", "time")]


def _restricted_sign(row: Row) -> str:
    return f" {_sign(row, 'restricted')}" if row.get("restricted") else ""


def _sign(row: Row, on: str) -> str:
    verdict, interval = row[on]["verdict"], row[on].get("ci95")
    if is_identical(row):
        return _IDENTICAL
    if verdict == Verdict.INCONCLUSIVE and interval:
        worse = interval[1] < 0 if on == "success" else interval[0] > 1
        return _WORSE if worse else _SIGNS[verdict]
    return _SIGNS[verdict]


def all_columns_of(record: Record) -> list[str]:
    """The options that have a column where conditions have no section of their own."""
    conditions = [axis for axis in CONDITIONS if axis in record["varied"]]
    return list(dict.fromkeys([*conditions, *columns_of(record)]))


def to_markdown(record: Record) -> str:
    """The table in Markdown."""
    axes, numbers, texts = all_columns_of(record), numbers_in(record), text_columns(record)
    heads = [*(HEADINGS.get(axis, axis) for axis in axes), *numbers, *texts]
    rows = [
        [
            *(format_value(axis, row["options"]) for axis in axes),
            *_cells(numbers, row),
            *(number(values[place], ".0f" if name in HEADLINES else ".1f") for name, values in texts.items()),
        ]
        for place, row in enumerate(record["cells"])
    ]
    return markdown(Cells.of_cells(heads, rows, left=len(axes)))


class SweepConsole(EvaluationConsole):
    """Shows progress and errors of a sweep."""

    def began(self, world: int, variant: int, key: EpisodeKey) -> None:
        """Show nothing: a sweep has too many cells to name the running ones."""

    def conclude(self, results: Sequence[Results]) -> None:
        """Print nothing: the results of a sweep are printed together."""

    def _heading(self) -> str:
        cells = pluralize(len(self._runs), "cell")
        episodes = pluralize(len(self._plan.keys), "episode")
        return f"{self._policy}: {cells} of {episodes} each → {escape(self._where())}"

    def _where(self) -> str:
        return str(self._runs[0].folder.path.parent)

    def _status(self) -> str:
        """Success rate over all cells so far, number of errors, episodes per hour."""
        rate = f"{success_rate(list(chain.from_iterable(self._results)))} solved"
        return ", ".join([rate, *self._errors_and_pace()])
