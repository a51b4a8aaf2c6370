"""`python -m benchmarks.modes RUN…`: the timeline of one episode in several modes, from their query logs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from cyclopts import App
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from configs.cli import run_app
from contracts.errors import UsageError
from contracts.query import QueryRecord
from eval.records.reader import RunRecords
from eval.records.schema import RunFolder
from eval.report.figures import COLOURS, STYLE, new_figure
from videos import theme

_LANES = ("actions", "language", "texts", "robot")
_LANE = 0.22  # height of a lane, where a mode has 1
_TEXT = "#4a5160"
_IDLE, _CONTINUED = "#{:02x}{:02x}{:02x}".format(*theme.IDLE), "#cdd2db"

Bar = tuple[float, float]
"""Start and length, seconds."""

app = App(name="python -m benchmarks.modes")


@app.default
def main(*runs: Path, seconds: float = 2.0, output: Path = Path("modes.svg")) -> None:
    """Draw the first episode that runs of several modes have in common.

    Args:
        runs: Folders of runs, one per mode, from top to bottom.
        seconds: Length of the timeline.
        output: SVG or PNG file.
    """
    found = [RunRecords(RunFolder(path)) for path in runs]
    common = set.intersection(*(set(run.episodes) for run in found)) if found else None
    if not common:
        raise UsageError("name runs with an episode in common: the variants of one evaluation")
    key = min(common)
    with mpl.rc_context(STYLE):
        figure = new_figure(9.6, 0.4 + 1.02 * len(runs))
        panel = figure.subplots()
        for place, run in enumerate(found):
            episode, queries = run.episodes[key], run.queries(key)
            if any(query.latency is None for query in queries) or episode.simulated_s is None:
                raise UsageError(f"{run.folder.path} ran on clock paused, on which queries take no time")
            mode, hz = run.identity.mode, episode.steps / episode.simulated_s
            _draw_mode(panel, place, mode, queries, hz=hz)
        panel.set_xlim(0, seconds)
        panel.set_ylim(len(runs) - 0.1, -0.15)
        panel.set_yticks([])
        panel.spines["left"].set_visible(False)
        panel.set_xlabel("simulated time (s)")
        legend = [
            Patch(color=_TEXT, label="until the actions"),
            Patch(color=_TEXT, alpha=0.4, label="language"),
            Line2D([], [], color=_TEXT, marker=">", linewidth=1, label="text, request to delivery"),
            Patch(color=_CONTINUED, label="robot: chunk before"),
            Patch(color=_IDLE, label="robot: idle"),
        ]
        figure.legend(handles=legend, loc="outside upper right", ncols=5, frameon=False, fontsize=9)
        output.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(output, metadata={"Date": None})


def _draw_mode(panel: Any, place: int, mode: str, queries: Sequence[QueryRecord], *, hz: float) -> None:
    """Draw four lanes: action latency, decoding, texts from request to delivery, executed chunks."""
    tops = {lane: place + number * _LANE for number, lane in enumerate(_LANES)}
    height, colour = 0.85 * _LANE, COLOURS[mode]
    acting, speaking = zip(*(_computed(query, mode, hz) for query in queries), strict=True)
    panel.broken_barh(acting, (tops["actions"], height), color=colour, edgecolor="white", linewidth=0.8)
    panel.broken_barh(speaking, (tops["language"], height), color=colour, alpha=0.4, linewidth=0)
    texts = [
        (queries[text.requested_query].step / hz, text.delivery_step / hz)
        for query in queries
        for text in query.delivered
    ]
    for number, (start, end) in enumerate(texts):
        row = tops["texts"] + height * (0.75 if number % 2 else 0.25)  # in turns, since texts overlap in time
        panel.plot([start, end], [row, row], color=colour, linewidth=1, solid_capstyle="butt")
        panel.plot(start, row, "|", color=colour, markersize=5)
        panel.plot(end, row, ">", color=colour, markersize=5)
    for kind, face in (("new", colour), ("continued", _CONTINUED), ("idle", _IDLE)):
        spans = [span for query in queries for span in query.executed_spans() if span[0] == kind]
        bars = [(start / hz, (end - start) / hz) for _, start, end in spans]
        panel.broken_barh(bars, (tops["robot"], height), color=face, alpha=0.75, linewidth=0)
    at_left = panel.get_yaxis_transform()  # x in axes coordinates, y in data coordinates
    panel.text(-0.01, place + 0.1, mode, ha="right", color=colour, weight="bold", transform=at_left)
    for lane in _LANES[1:]:
        low = tops[lane] + height / 2
        panel.text(-0.01, low, lane, ha="right", va="center", color=_TEXT, fontsize=8, transform=at_left)


def _computed(query: QueryRecord, mode: str, hz: float) -> tuple[Bar, Bar]:
    """Intervals in which a query's actions and its language are computed."""
    assert query.latency is not None
    start, until = query.step / hz, query.latency.actions_ms / 1e3
    first = 0.0 if mode == "parallel" else until
    spoken = 0.0 if mode == "actions" else query.latency.busy_ms / 1e3 - first
    return (start, until), (start + first, max(0.0, spoken))


if __name__ == "__main__":
    run_app(app)
