"""Renders the pages of results and their figures from `scripts/templates` and the records of sweeps.

    python -m scripts.results

Templates are Jinja's; they know each record by name (`sweep_modes.json` is `modes`) and the functions below.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from contracts.mode import BUDGETED
from eval.metrics.statistics import (
    Interval,
    MeanDifference,
    holm,
    mcnemar_exact,
    paired_difference_95,
    scaled,
)
from eval.metrics.sweep_rows import Cell, SuccessVerdict, SweepRecord, read_sweep
from eval.records.run_folders import SweepFolder
from eval.report.figures import COLOURS, OTHER_COLOURS, Line, draw_line, new_figure, save_figure
from eval.report.sweep_plots import draw_surface
from eval.report.sweep_table import format_value
from eval.report.table import NO_VALUE, Table, to_markdown

ROOT = Path(__file__).resolve().parents[1]
_PLAIN = "#555555"
_LATENCIES = ROOT / "benchmarks/published_latencies.yaml"
STEP_S = 0.05
"""A control step of LIBERO."""
DRIFTING = "drifting at 1.5 cm/s"


def cell(record: SweepRecord, **options: Any) -> Cell:
    """The one cell with these options, spelt as in its table; `a` and `b` are control steps."""

    def values(row: Cell) -> dict[str, str]:
        steps = {} if row.control_steps is None else vars(row.control_steps)
        known = {name: f"{each.median:g}" for name, each in steps.items() if each}
        return {**{axis: format_value(axis, row.options) for axis in row.options}, **known}

    wanted = {name: str(value) for name, value in options.items()}
    (found,) = (row for row in record.cells if wanted.items() <= values(row).items())
    return found


def difference(row: Cell, other: Cell) -> str:
    """Success of a cell minus that of another in the same episodes: `+5.0 (−1.7 to +11.8)`, points, 95 %."""
    only_row, only_other, graded = _discordant(row, other)
    interval = scaled(paired_difference_95(only_other, only_row, graded), 100)
    assert interval is not None, "a finished sweep has graded episodes"
    return _signed(100 * (only_row - only_other) / graded, interval)


def _signed(points: float, interval: Interval) -> str:
    return "{:+.1f} ({:+.1f} to {:+.1f})".format(points, *interval).replace("-", "−")


def _discordant(row: Cell, other: Cell) -> tuple[int, int, int]:
    """Episodes that only the first cell solved, that only the second solved, and all graded in both."""
    pairs = [pair for pair in zip(row.outcomes, other.outcomes, strict=True) if "-" not in pair]
    return pairs.count(("1", "0")), pairs.count(("0", "1")), len(pairs)


def age(row: Cell) -> str:
    """The mean age of the texts in prompts."""
    return NO_VALUE if row.prompt_age_steps is None else f"{_age_s(row):.1f} s"


def _mode(row: Cell) -> str:
    with_budget = row.mode in BUDGETED
    return f"`{row.mode}`" + (f", k = {row.options['tokens_per_frame']}" if with_budget else "")


def modes_table(record: SweepRecord, clock: str) -> str:
    """Success of every mode on a device, with static and drifting objects, and how true its narration is."""
    static, drifting = (
        [
            row
            for row in record.cells
            if (format_value("clock", row.options), format_value("motion", row.options)) == (clock, motion)
        ]
        for motion in ("static", DRIFTING)
    )
    lines = []
    for rows in zip(static, drifting, strict=True):
        line = [_mode(rows[0]), f"{_interval_ms(rows[0]):g} ms", f"{rows[0].pc_idle:.0f} %"]
        for row, actions in zip(rows, (static[0], drifting[0]), strict=True):
            line.append(str(row.n_success) + ("" if row is actions else f": {difference(row, actions)}"))
        narrated = [row.current.get("narration") for row in rows]
        lines.append([*line, ", ".join(f"{share.pc:.0f} %" for share in narrated if share)])
    header = ["mode", "query every", "idle", "solved, static", "solved, drifting", "narration true"]
    return to_markdown(Table.of_cells(header, lines, is_markdown=True))


def memory_table(record: SweepRecord) -> str:
    """Success by the origin of the memory in the prompt, clock and mode."""
    header = ["memory, clock, mode", "its age", "solved (95 %)"]
    lines = [
        [
            f"`{row.options['feedback']}`, {format_value('clock', row.options)}, {_mode(row)}",
            age(row),
            "{} ({:.0f}–{:.0f} %)".format(row.n_success, *_success(row)[1]),
        ]
        for row in record.cells
    ]
    return to_markdown(Table.of_cells(header, lines, is_markdown=True))


def perturbations_table(record: SweepRecord, clock: str) -> str:
    """Success of perturbed episodes and of their controls, how true their texts are, and differences."""
    header, lines = ["mode, perturbation", "solved", "difference (95 %)"], []
    for row in (row for row in record.cells if format_value("clock", row.options) == clock):
        line = [f"{_mode(row)}, {format_value('perturb', row.options)}", str(row.n_success)]
        line.append(in_points(row.success))
        for name, share in row.current.items():
            header += [f"{name} true", "difference (95 %)"] if f"{name} true" not in header else []
            line += [f"{share.pc:.0f} %", in_points(row.current_differences.get(name))]
        lines.append(line)
    return to_markdown(Table.of_cells(header, lines, is_markdown=True))


def in_points(of: SuccessVerdict | MeanDifference | None) -> str:
    """A difference from the control; a dash for the control's."""
    if of is None or of.difference is None or of.ci95 is None:
        return NO_VALUE
    return _signed(of.difference, of.ci95)


def planned(*comparisons: tuple[Cell, Cell]) -> str:
    """Comparisons that were stated before the episodes were played: McNemar's exact tests, Holm-corrected."""
    p_values = [
        mcnemar_exact([-1] * only_a + [1] * only_b)
        for only_a, only_b, _ in (_discordant(*pair) for pair in comparisons)
    ]
    lines = []
    for pair, p in zip(comparisons, holm(p_values), strict=True):
        sides = [
            f"{format_value('clock', row.options)}, `{row.options['feedback']}`, {_mode(row)}: "
            f"{row.n_success}"
            for row in pair
        ]
        shown = "< 0.0001" if p < 1e-4 else f"{p:.4f}"
        lines.append([*sides, difference(*pair), shown, "shown" if p < 0.05 else "not shown"])
    header = ["clock, memory, mode: solved", "compared with", "difference (95 %)", "p (Holm)", "at 5 %"]
    return to_markdown(Table.of_cells(header, lines, left=2, is_markdown=True))


def surface_table(*records: SweepRecord) -> str:
    """Episodes solved and mean seconds to success by delay and time between queries, a column per world."""
    headings, lines = ["actions after", "a query every"], dict[tuple[str, str], list[str]]()
    for record in records:
        (suite,) = record.config.suites
        for row in record.cells:
            motion = format_value("motion", row.options)
            heading = suite if motion == "static" else f"{suite}, {motion}"
            headings += [heading] if heading not in headings else []
            assert row.charged_ms is not None, "a clock that charges"
            assert row.time_to_success_s is not None, "an episode is solved"
            rtc = ", `rtc`" if row.options["overlap"] == "rtc" else ""
            delay = f"{row.charged_ms.actions:.0f} ms{rtc}", f"{_interval_ms(row):.0f} ms"
            lines.setdefault(delay, []).append(f"{row.n_success} ({row.time_to_success_s.mean:.1f})")
    rows = [[*delay, *cells] for delay, cells in lines.items()]
    return to_markdown(Table.of_cells(headings, rows, is_markdown=True))


def _success(row: Cell) -> tuple[float, Interval]:
    """The percentage solved, with its interval."""
    assert row.pc_success is not None, "a finished sweep has graded episodes"
    assert row.pc_success_ci95 is not None, "likewise"
    return row.pc_success, row.pc_success_ci95


def _intervals(rows: Sequence[Cell], x: Callable[[Cell], float], label: str, colour: str) -> Line:
    """The success of some cells over x."""
    rates = ((row, *_success(row)) for row in rows)
    points = [(x(row), rate, interval.low, interval.high) for row, rate, interval in rates]
    return Line(label=label, colour=colour, points=points)


def draw_delay(surface: SweepRecord, modes: SweepRecord) -> Figure:
    """Success over the time between queries, with 95 % bands, two modes of a device, published latencies."""
    figure = new_figure(8, 4.4)
    axes = figure.subplots()
    for motion, name, colour in (
        ("static", "objects stand still", "#333333"),
        (DRIFTING, "the object drifts at 1.5 cm/s", OTHER_COLOURS[2]),
    ):
        rows = [cell(surface, motion=motion, a=2, b=b) for b in (2, 5, 10, 15, 20)]
        line = _intervals(rows, _interval_ms, name, colour)
        draw_line(axes, line, "band")
        x, _, low, _ = line.points[0]
        axes.annotate(name, (x, low), (0, -15), textcoords="offset points", color=colour)
        for mode, mark, k in (("unified", "o", {"tokens_per_frame": 5}), ("isolated", "s", {})):
            row = cell(modes, clock="jetson-thor-oxygen-2603", motion=motion, mode=mode, **k)
            at = _interval_ms(row), _success(row)[0]
            axes.plot(*at, mark, color=COLOURS[mode], markersize=9)
            label = f"{mode}, Jetson Thor: {at[1]:.0f} %"
            place = (-60, -22 if (mode, motion) == ("unified", DRIFTING) else 12)
            axes.annotate(label, at, place, textcoords="offset points", color=COLOURS[mode])
    _mark_latencies(axes)
    axes.set(xlabel="time between queries (ms); actions arrive after 100 ms", ylabel="episodes solved (%)")
    axes.set(xlim=(0, 1020), ylim=(0, 101))
    return figure


def published_latencies() -> list[dict[str, Any]]:
    """What others published of π0.5, and our measurement."""
    rows: list[dict[str, Any]] = yaml.safe_load(_LATENCIES.read_text(encoding="utf-8"))
    return rows


def latencies_table() -> str:
    """The published latencies with their sources."""
    rows = [[str(value) for value in row.values()] for row in published_latencies()]
    return to_markdown(Table.of_cells(["device", "code", "type", "ms", "date", "source"], rows, left=6))


def _mark_latencies(axes: Axes) -> None:
    """A tick for each published latency, and the fastest and the slowest of each device in words."""
    of_devices: dict[str, list[float]] = {}
    for row in published_latencies():
        axes.plot(row["ms"], 1.5, "|", color=_PLAIN, markersize=9)
        of_devices.setdefault(row["device"], []).append(row["ms"])
    told = [
        f"{device} {'–'.join(f'{ms:g}' for ms in sorted({min(each), max(each)}))}"
        for device, each in of_devices.items()
    ]
    half = (len(told) + 1) // 2
    words = f"published for π0.5's actions alone (ms): {', '.join(told[:half])},\n{', '.join(told[half:])}"
    axes.annotate(words, (140, 5), color=_PLAIN, fontsize=8)


def _interval_ms(row: Cell) -> float:
    """The median time between two queries."""
    steps = row.control_steps
    assert steps is not None, "a clock that charges"
    assert steps.b is not None, "an episode has several queries"
    return 1e3 * STEP_S * steps.b.median


def draw_memory(record: SweepRecord) -> Figure:
    """Success over the age of the memory in the prompt: true memory, and the policy's own by mode."""
    figure = new_figure(8, 4.4)
    axes = figure.subplots()
    truth = [
        cell(record, clock="paused", feedback=each) for each in ("truth", "truth:1", "truth:2", "truth:4")
    ]
    own = [
        row
        for row in record.cells
        if row.options["feedback"] == "own" and format_value("clock", row.options) == "rtx4090-oxygen-2603"
    ]
    for rows, name, place, dashes in (
        (truth, "true memory, no latency", 2, "-"),
        (own, "its own memory, latency of an RTX 4090", 1, ""),
    ):
        draw_line(axes, _intervals(rows, _age_s, name, OTHER_COLOURS[place]), dashes=dashes)
    places = {
        "isolated": (-48, -14),
        "shared": (-6, -26),
        "unified, k = 10": (6, 8),
        "unified, k = 5": (8, -10),
    }
    for row in own:
        label = _mode(row).replace("`", "")
        at = _age_s(row), _success(row)[0]
        axes.annotate(label, at, places.get(label, (8, 2)), textcoords="offset points", fontsize=9)
    axes.set(xlabel="age of the memory in the prompt (s)", ylabel="episodes solved (%)", ylim=(0, 101))
    axes.legend(loc="upper right")
    return figure


def draw_perturbations(record: SweepRecord) -> Figure:
    """Differences of perturbed episodes from their controls: success, and in two modes also true texts."""
    figure = new_figure(11, 6.4)
    acting, speaking = figure.subplots(1, 2)
    perturbed = [row for row in record.cells if row.success]
    paused = [row for row in perturbed if row.options["clock"] == "paused"]
    heights = [place + place // 3 for place in range(len(paused))]  # a gap after each dimension
    for height, row in zip(heights, paused, strict=True):
        _forest(acting, height, row.success, OTHER_COLOURS[1])
    acting.set_yticks(heights, [row.options["perturb"] for row in paused])
    acting.set_title("what breaks acting (paused clock)")
    marks, modes = {"solved": "o", "narration": "s", "memory": "D"}, ("isolated", "unified")
    priced = [row for row in perturbed if row.options["clock"] != "paused"]
    changes = list(dict.fromkeys(row.options["perturb"] for row in priced))
    ticks = dict[float, str]()
    for row in priced:
        for place, (measure, mark) in enumerate(marks.items()):
            height = 7 * changes.index(row.options["perturb"]) + 2 * place
            of_row = row.success if measure == "solved" else row.current_differences[measure]
            _forest(speaking, height + 0.7 * modes.index(row.mode), of_row, COLOURS[row.mode], mark)
            ticks[height + 0.35] = f"{row.options['perturb']}, {measure}"
    speaking.set_yticks(list(ticks), list(ticks.values()))
    speaking.set_title("what breaks the words (latencies of a Jetson Thor)")
    for mode in modes:
        speaking.plot([], [], "o", color=COLOURS[mode], label=mode)
    speaking.legend(loc="lower left")
    for axes in (acting, speaking):
        axes.axvline(0, color=_PLAIN, linewidth=0.8)
        axes.invert_yaxis()
        axes.set_xlabel("difference from the control (points, 95 %)")
    return figure


def _forest(
    axes: Axes, height: float, of: SuccessVerdict | MeanDifference | None, colour: str, mark: str = "o"
) -> None:
    """A difference with its interval, at a height."""
    assert of is not None, "a cell that has a control"
    assert of.difference is not None, "a finished sweep has graded episodes"
    assert of.ci95 is not None, "likewise"
    ends = [[of.difference - of.ci95.low], [of.ci95.high - of.difference]]
    axes.errorbar(of.difference, height, xerr=ends, fmt=mark, color=colour, capsize=2, markersize=5)


def _age_s(row: Cell) -> float:
    """The mean age of the texts in prompts."""
    assert row.prompt_age_steps is not None, "texts fill the prompt"
    return row.prompt_age_steps * STEP_S


FUNCTIONS = (
    *(age, cell, difference, in_points, latencies_table, memory_table, modes_table),
    *(perturbations_table, planned, surface_table),
)


def render() -> dict[Path, str]:
    """Every page, by its path from the checkout."""
    records = _records()
    templates = ROOT / "scripts/templates"
    environment = Environment(
        loader=FileSystemLoader(templates), undefined=StrictUndefined, keep_trailing_newline=True
    )
    known: dict[str, Any] = {function.__name__: function for function in FUNCTIONS}
    known |= {**records, "drifting": DRIFTING}
    environment.globals.update(known)
    names: Sequence[str] = environment.list_templates()
    return {Path("docs", name): environment.get_template(name).render() for name in names}


def _records() -> dict[str, SweepRecord]:
    files = (ROOT / "benchmarks/results").glob("sweep_*.json")
    return {file.stem.removeprefix("sweep_"): read_sweep(SweepFolder.at(file)) for file in files}


def main() -> None:
    """Write all pages and figures."""
    for path, page in render().items():
        (ROOT / path).write_text(page, encoding="utf-8")
    of = _records()
    save_figure(ROOT / "docs/delay.png", lambda: draw_delay(of["surface"], of["modes"]))
    save_figure(ROOT / "docs/memory.png", lambda: draw_memory(of["memory"]))
    save_figure(ROOT / "docs/perturbations.png", lambda: draw_perturbations(of["perturbations"]))
    save_figure(ROOT / "docs/surface.png", lambda: draw_surface([of["surface"], of["surface_spatial"]]))


if __name__ == "__main__":
    main()
