"""Renders the numbers, tables and figures of the documentation from the records in `benchmarks/results`.

    python -m scripts.pages            # rewrites README, docs/results.md, docs/results/*.md and figures
    python -m scripts.pages --check    # names the pages that say other than the records

What stands between `<!--= EXPRESSION -->` and `<!--/-->` is the expression's value, and is replaced by it.
Expressions are Jinja's; they know the records by name (`sweep_modes.json` is `modes`) and the functions in
`FUNCTIONS`. Text outside is written by hand.
"""

import itertools
import json
import math
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from jinja2 import Environment, StrictUndefined
from matplotlib.figure import Figure

from configs.errors import UsageError
from configs.latency import steps_in
from configs.load import load
from configs.profile import ProfileConfig
from configs.schema import Mode as ModeName
from eval.metrics.statistics import holm, mcnemar_exact, paired_difference_95
from eval.report import sweep_table
from eval.report.figures import STYLE
from eval.report.sweep_plots import Mark, draw_surface
from eval.report.sweep_table import Record, Row, episodes_of, format_value
from eval.report.table import Table, to_markdown
from eval.rollout.clock import LatencyModel
from oxygen.serving.requests import DecodeWork
from oxygen.serving.scheduler import Mode

ROOT = Path(__file__).resolve().parents[1]
RECORDS = ROOT / "benchmarks/results"
STEP_S = 0.05
"""A control step of LIBERO."""
LEVEL = 0.05
"""Of the planned comparisons of a page, together."""
LIMITS, LENGTHS = (24, 48), (9, 14)
"""Token limits of a narration and a memory, and their lengths with the stop token: means of `tiny` on
libero_object."""
REPLAN_STEPS, CONTROL_HZ = 5, 20.0
KINDS = {
    "published": ("rtx4090", "jetson-thor", "oxygen-libero"),
    "roofline": ("rtx4090-roofline", "jetson-thor-roofline", "h200"),
}
"""Profiles as published, and of what the hardware could do: never in one figure."""
PRICES = (0.7, 1.0, 1.3)
"""Factors of all stage times: the bar of a mark."""
_BUDGETED = ("interleaved", "unified")
_SPAN = re.compile(r"(<!--= (.+?) -->)(.*?)(<!--/-->)", re.DOTALL)


def cell(record: Record, **options: Any) -> Row:
    """The one cell with these options, spelt as in its table; `a` and `b` are control steps."""

    def values(row: Row) -> dict[str, str]:
        steps = {name: f"{each['median']:g}" for name, each in (row.get("control_steps") or {}).items()}
        return {**{axis: format_value(axis, row["options"]) for axis in row["options"]}, **steps}

    found = [
        row
        for row in record["cells"]
        if {k: str(v) for k, v in options.items()}.items() <= values(row).items()
    ]
    if len(found) != 1:
        raise ValueError(f"{len(found)} cells have {options}; name one")
    return found[0]


def solved(row: Row) -> str:
    """Episodes solved: `172 of 200`."""
    return f"{row['n_success']} of {row['n_episodes']}"


def by_task(row: Row) -> str:
    """Episodes solved of each of two tasks, in their order: `29 + 17`."""
    return " + ".join(map(str, (np.array([*row["outcomes"]]).reshape(2, -1) == "1").sum(axis=1)))


def current(row: Row, task: str) -> str:
    """The share of time in which the task's last text is true."""
    share = row["current"][task]
    return f"{share['pc']:.0f} % ({share['ci95'][0]:.0f} to {share['ci95'][1]:.0f})"


def motion(row: Row, measure: str) -> str:
    """A mean over solved episodes with its interval."""
    mean = row["motion"][measure]
    return f"{mean['mean']:.1f} ({mean['ci95'][0]:.1f} to {mean['ci95'][1]:.1f})"


def _discordant(row: Row, other: Row) -> tuple[int, int, int]:
    """Episodes that only the first cell solved, that only the second solved, and all graded in both."""
    pairs = [pair for pair in zip(row["outcomes"], other["outcomes"], strict=True) if "-" not in pair]
    return pairs.count(("1", "0")), pairs.count(("0", "1")), len(pairs)


def difference(row: Row, other: Row) -> str:
    """Success of the first cell minus that of the second, in the same episodes."""
    only_row, only_other, graded = _discordant(row, other)
    interval = paired_difference_95(only_other, only_row, graded)
    assert interval is not None, "a finished sweep has graded episodes"
    points = 100 * (only_row - only_other) / graded
    found = f"{points:+.1f} points (95 %: {100 * interval.low:+.1f} to {100 * interval.high:+.1f}; "
    return f"{found}{only_row} and {only_other} of {graded} episodes solved by one alone)".replace("-", "−")


def _points(row: Row, other: Row) -> str:
    """`difference` without its unit and counts."""
    return difference(row, other).partition(";")[0].replace(" points (95 %: ", " (") + ")"


def held(row: Row) -> str:
    """The share of control steps in which the arm was held for lack of an action."""
    return f"{row['pc_held']:.0f} %"


def rate(row: Row) -> str:
    """Queries per simulated second."""
    return f"{row['query_hz']:.2f} Hz"


def delay(row: Row) -> str:
    """Restricted mean time of a cell minus that of `actions`, in the same episodes."""
    seconds = row["restricted"]["seconds"]
    low, high = seconds["ci95"]["low"], seconds["ci95"]["high"]
    return f"{seconds['difference']:+.2f} s ({low:+.2f} to {high:+.2f})".replace("-", "−")


def _mode(row: Row) -> str:
    """The mode, with k if it has one."""
    options = row["options"]
    k = f", k = {options['tokens_per_frame']}" if options["mode"] in _BUDGETED else ""
    return f"`{options['mode']}`{k}"


def modes_table(record: Record, clock: str) -> str:
    """Success of every mode on a device with static and drifting objects, and how true its narration is."""
    motions = {motion: [] for motion in ("static", "drifting at 1.5 cm/s")}
    for row in record["cells"]:
        if format_value("clock", row["options"]) == clock:
            motions[format_value("motion", row["options"])].append(row)
    header = ["mode", "b (range)", "held", "solved, static", "− `actions`", "solved, drifting", "− `actions`"]
    lines = []
    for static, drifting in zip(*motions.values(), strict=True):
        steps = static["control_steps"]["b"]
        cells = [_mode(static), f"{steps['median']:g} ({steps['least']}–{steps['most']})", held(static)]
        for row in (static, drifting):
            judged = row["success"]
            ends = judged and [f"{end:+.1f}" for end in (judged["difference"], *judged["ci95"])]
            cells += [str(row["n_success"]), f"{ends[0]} ({ends[1]} to {ends[2]})" if ends else ""]
        narrated = [row["current"].get("narration") for row in (static, drifting)]
        cells.append(", ".join(f"{share['pc']:.0f} %" for share in narrated if share))
        lines.append([cell.replace("-", "−") for cell in cells])
    shown = Table.of_cells([*header, "narration true, static, drifting"], lines, is_markdown=True)
    return f"\n\n{to_markdown(shown)}\n\n"


def age(row: Row) -> str:
    """The mean age of the texts in prompts."""
    return f"{row['prompt_age_steps'] * STEP_S:.1f} s"


def leaderboard_table(board: Record) -> str:
    """Success on the suites that papers average, of every ranked policy; ties share a rank."""
    header = ["rank", "policy", "spatial", "object", "goal", "long", "average", "95 %"]
    lines = []
    for row in board["suites"]["LIBERO, four suites"][0]["rows"]:
        results, suites = row["results"], row["pc_success_of_suites"].values()
        low, high = results["pc_success_ci95"]
        rates = [f"{pc:.1f}" for pc in (*suites, results["pc_success"])]
        lines.append([str(row["rank"]), f"`{row['run']['policy']}`", *rates, f"{low:.1f} to {high:.1f}"])
    return f"\n\n{to_markdown(Table.of_cells(header, lines, left=2, is_markdown=True))}\n\n"


def planned(*comparisons: tuple[Row, Row]) -> str:
    """Comparisons that were stated before the episodes were played: McNemar's exact tests, Holm-corrected."""
    counts = [_discordant(*pair) for pair in comparisons]
    p_values = [mcnemar_exact(only_first, only_second) for only_first, only_second, _ in counts]
    lines = []
    for (row, other), p, corrected in zip(comparisons, p_values, holm(p_values), strict=True):
        arms = [
            f"{format_value('clock', each['options'])}, `{each['options']['feedback']}`, {_mode(each)}: "
            f"{solved(each)}"
            for each in (row, other)
        ]
        numbers = ["< 0.0001" if each < 1e-4 else f"{each:.4f}" for each in (p, corrected)]
        lines.append([*arms, _points(row, other), *numbers, "shown" if corrected < LEVEL else "not shown"])
    header = ["clock, memory, mode: solved", "compared with", "difference (95 %)", "p", "p, Holm", "at 5 %"]
    return f"\n\n{to_markdown(Table.of_cells(header, lines, left=2, is_markdown=True))}\n\n"


def memory_table(record: Record, reference: Row) -> str:
    """Success by the origin of the memory in the prompt and by mode, and its difference from a cell's."""
    lines = []
    for row in record["cells"]:
        low, high = row["pc_success_ci95"]
        lines.append(
            [
                f"`{row['options']['feedback']}`",
                format_value("clock", row["options"]),
                _mode(row),
                "–" if row["prompt_age_steps"] is None else age(row),
                f"{row['control_steps']['b']['median']:g}" if row["control_steps"] else "5",
                f"{solved(row)} ({by_task(row)})",
                f"{low:.0f} to {high:.0f} %",
                "" if row is reference else _points(row, reference),
            ]
        )
    beside = f"− `{reference['options']['feedback']}`, {format_value('clock', reference['options'])}"
    if beside != "− `own`, paused":
        beside += f", {_mode(reference)}"
    header = ["memory in the prompt", "clock", "mode", "its age", "b", "solved (by task)", "95 %", beside]
    return f"\n\n{to_markdown(Table.of_cells(header, lines, left=3, is_markdown=True))}\n\n"


_LABELS = {
    ("rtx4090", "isolated"): (-44, -16),
    ("rtx4090", "shared"): (-36, -11),
    ("rtx4090", "unified k=10"): (3, 6),
    ("rtx4090", "unified k=5"): (6, -10),
    ("jetson-thor", "isolated"): (6, -9),
}
"""Offsets in points of labels that would cover others."""


def draw_memory(record: Record) -> Figure:
    """Success over the mean age of the memory in the prompt; a line through true memory on each clock."""
    figure = Figure(figsize=(8.5, 5.2), layout="constrained")
    axes = figure.subplots()
    marks = {"paused": "s", "rtx4090": "o", "jetson-thor": "^", "fixed:100,500": "D"}
    true, own, none = "#009e73", "#0080c8", "#7a8292"
    lines: dict[str, list[tuple[float, float]]] = {}
    for row in record["cells"]:
        source, clock = row["options"]["feedback"], format_value("clock", row["options"])
        low, high = row["pc_success_ci95"]
        if source == "none":
            axes.axhspan(low, high, color=none, alpha=0.3, label="no memory (95 %)")
            continue
        seconds, rate = row["prompt_age_steps"] * STEP_S, row["pc_success"]
        if is_true := source.startswith("truth"):
            lines.setdefault(clock, []).append((seconds, rate))
        else:
            label = _mode(row).replace("`", "").replace(", k = ", " k=")
            place = _LABELS.get((clock, label), (6, 4))
            axes.annotate(label, (seconds, rate), place, textcoords="offset points", fontsize=8)
        axes.errorbar(
            seconds,
            rate,
            yerr=[[rate - low], [high - rate]],
            fmt=marks[clock],
            color=true if is_true else own,
            mfc="white" if is_true else own,
            capsize=3,
        )
    for line in lines.values():
        axes.plot(*zip(*sorted(line), strict=True), color=true, linewidth=1, zorder=0)
    axes.plot([], [], "o", color=own, label="its own memory")
    axes.plot([], [], "o", color=true, mfc="white", label="true memory")
    for clock, mark in marks.items():
        axes.plot([], [], mark, color="black", mfc="white", label=clock)
    axes.set(xlabel="mean age of the memory in the prompt (s)", ylabel="episodes solved (%)", ylim=(-2, 100))
    axes.legend(fontsize=8, frameon=False, ncols=2, loc="upper right")
    return figure


def table(record: Record) -> str:
    """What was played, and a row for every cell."""
    config, states = record["config"], record["config"]["init_ids"]
    where = f"initial states {min(states)} to {max(states)}" if states else "stored initial states"
    policy, assets = record["provenance"]["policy"], record["provenance"]["assets"]["name"]
    return (
        f"\n\n{policy} on {', '.join(config['suites'])}, {where}, assets {assets}: "
        f"{len(record['cells'])} cells of {episodes_of(record)} episodes.\n\n"
        f"{sweep_table.to_markdown(record)}\n\n"
    )


def legend() -> str:
    """What the columns and signs of `table` mean."""
    notes = sweep_table.NOTE, sweep_table.MEASURES_NOTE, sweep_table.TEXTS_NOTE, sweep_table.JUDGED_NOTE
    return f"\n\n{' '.join(notes)}\n\n"


def marks_of(profiles: Sequence[str]) -> list[Mark]:
    """(a, b) of each mode on the profiles of devices, with k of 1 and 5 where that is an option.

    The work of a query is that of the engine in its steady state, with a narration and a memory requested in
    every query, as long as those of the bundled policy, and a query every 5 control steps or later.
    """
    marks = []
    modes: tuple[ModeName, ...] = ("actions", "isolated", "interleaved", "shared", "unified")
    for profile, mode in itertools.product((load(ProfileConfig, each) for each in profiles), modes):
        price = LatencyModel(profile, mode)
        for k in (1, 5) if mode in _BUDGETED else (None,):
            busy_ms = price.busy_ms(steady_work(Mode(mode), k or 1))
            mark = Mark(
                label=f"{profile.name} {mode}" + (f", k={k}" if k else ""),
                a=[steps_in(factor * price.action_ms, CONTROL_HZ) for factor in PRICES],
                b=[max(REPLAN_STEPS, steps_in(factor * busy_ms, CONTROL_HZ)) for factor in PRICES],
            )
            marks.append(mark)
    return marks


def steady_work(mode: Mode, k: int) -> list[DecodeWork]:
    """The decode jobs of a query once the number of concurrent texts no longer grows.

    Whole texts take one step more, in which the stop token is noticed. The batch of `unified` has room for
    texts of any length.
    """
    match mode:
        case Mode.ISOLATED:
            return [DecodeWork(prefills=1, forks=1, steps=length + 1, batch=1) for length in LENGTHS]
        case Mode.SHARED:
            return [DecodeWork(prefills=0, forks=1, steps=max(LENGTHS) + 1, batch=len(LENGTHS))]
        case Mode.UNIFIED:
            rows = sum(math.ceil(limit / k) for limit in LIMITS)
            return [DecodeWork(prefills=0, forks=1, steps=k, batch=rows)]
        case Mode.INTERLEAVED:
            running = sum(math.ceil(length / k) for length in LENGTHS)
            ages = [1] * len(LENGTHS) + [0] * (running - len(LENGTHS))
            return [DecodeWork(prefills=new, forks=new, steps=k, batch=1) for new in ages]
        case _:
            return []


def marks(kind: str) -> str:
    """(a, b) of every mode on the profiles of a kind, with prices 30 % lower and higher."""
    rows = [
        [
            mark.label,
            *(cell for low, mid, high in (mark.a, mark.b) for cell in (str(mid), f"{low} to {high}")),
        ]
        for mark in marks_of(KINDS[kind])
    ]
    shown = Table.of_cells(["profile and mode", "a", "a ± 30 %", "b", "b ± 30 %"], rows)
    return f"\n\n{to_markdown(shown)}\n\n"


_CELLS = (age, by_task, cell, current, delay, difference, held, motion, rate, solved)
_TABLES = (leaderboard_table, legend, marks, memory_table, modes_table, planned, table)
FUNCTIONS = {f.__name__: f for f in (*_CELLS, *_TABLES)}


def rendered(text: str, records: Mapping[str, Record]) -> str:
    """A page with the value of every expression."""
    environment = Environment(undefined=StrictUndefined, autoescape=False)

    def value(span: re.Match[str]) -> str:
        evaluate = environment.compile_expression(span[2], undefined_to_none=False)
        return f"{span[1]}{evaluate(**FUNCTIONS, **records)}{span[4]}"

    return _SPAN.sub(value, text)


def read_records() -> dict[str, Record]:
    """The records by name."""
    files = [*sorted(RECORDS.glob("sweep_*.json")), RECORDS / "leaderboard.json"]
    return {file.stem.removeprefix("sweep_"): json.loads(file.read_text(encoding="utf-8")) for file in files}


def replace_block(page: str, name: str, content: str) -> str:
    """The page with `content` between the comments `NAME: begin. …` and `NAME: end`.

    Raises:
        UsageError: The page does not have both comments once, in order.
    """
    begin, end = rf"<!-- {name}: begin\b[^\n]*-->", f"<!-- {name}: end -->"
    comments = re.findall(f"{begin}|{end}", page)
    if len(comments) != 2 or comments[0] == end or comments[1] != end:
        raise UsageError(f"the page needs the comments '{name}: begin' and '{name}: end' once, in order")
    return re.sub(
        f"({begin}).*({end})", lambda found: f"{found[1]}\n\n{content}\n\n{found[2]}", page, flags=re.DOTALL
    )


def main(*, check: bool) -> int:
    """Write or check all pages; returns the exit code."""
    records = read_records()
    pages = [ROOT / "README.md", ROOT / "docs/results.md", *sorted((ROOT / "docs/results").glob("*.md"))]
    texts = {page: page.read_text(encoding="utf-8") for page in pages}
    new = {page: text for page in pages if (text := rendered(texts[page], records)) != texts[page]}
    for page, text in new.items():
        sys.stdout.write(f"{page.relative_to(ROOT)}\n")
        if not check:
            page.write_text(text, encoding="utf-8")
    if check:
        return int(bool(new))
    surfaces = [record for name, record in records.items() if name.startswith("surface")]
    with mpl.rc_context(STYLE):
        for kind, profiles in KINDS.items():
            if figure := draw_surface(surfaces, marks_of(profiles)):
                figure.savefig(ROOT / f"docs/surface_{kind}.png", bbox_inches="tight")
        draw_memory(records["memory"]).savefig(ROOT / "docs/memory.png", bbox_inches="tight")
    return 0


if __name__ == "__main__":
    sys.exit(main(check="--check" in sys.argv[1:]))
