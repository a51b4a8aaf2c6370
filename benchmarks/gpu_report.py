"""`python -m benchmarks.gpu_report [FOLDER]`: the results of `benchmarks/gpu.sh` as Markdown tables.

`--into docs/gpu.md` replaces what stands there between markers: these tables, and those of two cores.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from eval.bench.row import Row, RowFile
from eval.bench.workloads import BenchConfiguration
from eval.report.figures import OTHER_COLOURS, STYLE, new_figure
from eval.report.labels import number
from oxygen.serving.scheduler import Mode
from scripts.marked_block import MarkedBlock

RESULTS = Path(__file__).parent / "results/gpu"
ON_TWO_CORES = Path(__file__).parent / "results/two_cores"
_COMMAND = "python -m benchmarks.gpu_report"
_TABLES, _TABLES_OF_TWO_CORES = MarkedBlock("tables", _COMMAND), MarkedBlock("tables of two cores", _COMMAND)
NOT_MEASURED = "Not measured on a GPU yet."


def report(folder: Path) -> str:
    """All tables of a folder of results, or `NOT_MEASURED`."""
    sections = [
        *_sections(folder, "roofline_*.json", _roofline),
        *_modes(folder),
        *_sections(folder, "soak.json", _soak),
        *_sections(folder, "energy.json", _energy),
        *_sections(folder, "candidates.json", _candidates),
        *_sections(folder, "reference*.json", _reference),
        *_sections(folder, "opening_*.json", _opening),
    ]
    return "\n\n".join(sections) or NOT_MEASURED


def rendered(page: str, folder: Path) -> str:
    """The document with the tables of `folder` and of two cores."""
    return _TABLES_OF_TWO_CORES.replaced(_TABLES.replaced(page, report(folder)), report(ON_TWO_CORES))


def _sections(folder: Path, pattern: str, section: Any) -> Iterator[str]:
    for path in sorted(folder.glob(pattern)):
        yield section(json.loads(path.read_text(encoding="utf-8")))


def _modes(folder: Path) -> Iterator[str]:
    for prefix, with_service in (
        ("adapter", ""),
        ("modes", ""),
        ("service", ", with the multi-process service"),
    ):
        for path in sorted(folder.glob(f"{prefix}_*.jsonl")):
            workloads: dict[str, list[Row]] = {}
            for row in RowFile(path).rows:
                workloads.setdefault(row.work, []).append(row)
            for work, rows in workloads.items():
                title = f"{rows[0].policy}, {rows[0].dtype}, {rows[0].device}: {work}{with_service}"
                yield _table(
                    title,
                    ("mode", "action p50, ms", "frame p50, ms", "× isolated", "actions equal"),
                    ((row.label, *_cells(row)) for row in rows),
                )
                if prefix == "adapter":
                    yield _adapter(rows)


def _adapter(rows: Sequence[Row]) -> str:
    """What the adapter adds to a frame of `shared`, beside what OxyGen's authors measured on their device."""
    frames = {row.adapter: row for row in rows if row.mode == "shared"}
    without = frames.pop("off")
    added = [
        f"{row.frame_ms_p50 - without.frame_ms_p50:.2f} ms (mask {mask})" for mask, row in frames.items()
    ]
    said = (
        f"A text of {without.text_tokens} tokens takes {' and '.join(added)} longer with the adapter than "
        f"without; prefill takes {without.stage_ms['prefill']:.2f} ms."
    )
    if "4090" in without.device and without.text_tokens == 11:
        said += " OxyGen's authors measured 8.16 and 47.66 ms on this device."
    return said


def _cells(row: Row) -> tuple[str, ...]:
    equal = {True: "yes", False: "**no**", None: "–"}[row.actions_equal]
    speedup = _with_interval(row.speedup_over_isolated, row.speedup_ci95)
    return f"{row.action_ms_p50:.2f}", f"{row.frame_ms_p50:.2f}", speedup, equal


def _roofline(record: Mapping[str, Any]) -> str:
    title = f"{record['policy']}, {record['dtype']}, {record['device']}: stages against their floors"
    return _table(
        title,
        ("robots", "stage", "floor, ms", "measured, ms", "measured / floor"),
        (
            (
                str(one["robots"]),
                stage["name"],
                f"{stage['floor_ms']:.3f}",
                number(stage["measured_ms"], ".3f"),
                number(stage["measured_over_floor"], ".2f"),
            )
            for one in record["rooflines"]
            for stage in one["stages"]
        ),
    )


def _soak(record: Mapping[str, Any]) -> str:
    return _table(
        f"{record['policy']}, {record['device']}: many queries in a row",
        ("mode", "queries", "memory, first and last tenth, MB", "frame p50, first and last tenth, ms"),
        (
            (
                _label(row),
                str(row["queries"]),
                f"{row['memory_bytes'][0] / 1e6:,.1f}, {row['memory_bytes'][-1] / 1e6:,.1f}",
                f"{row['frame_ms_p50_first_tenth']:.2f}, {row['frame_ms_p50_last_tenth']:.2f}",
            )
            for row in record["rows"]
        ),
    )


def _energy(record: Mapping[str, Any]) -> str:
    return _table(
        f"{record['policy']}, {record['device']}: energy ({record['energy']})",
        ("mode", "joules per query", "mean power, W"),
        (
            (_label(row), number(row["joules_per_query"], ".2f"), number(row["mean_watts"], ".0f"))
            for row in record["rows"]
        ),
    )


def _reference(record: Mapping[str, Any]) -> str:
    about = record["published"]
    title = (
        f"{record['policy']}, {record['dtype']}, {about['device']}: OxyGen's published code "
        f"(JAX {about['versions']['jax']}) and ours, N = {record['text_tokens']}, "
        f"load average {record['hardware']['load_average'][0]}"
    )
    return _table(
        title,
        ("code", "mode", "frame, ms", "published / this"),
        (
            (
                _format_code(row),
                _label(row),
                f"{row['frame_ms_median']:.2f}",
                _with_interval(row["published_over_this"], row["published_over_this_ci95"]),
            )
            for row in record["rows"]
        ),
    )


def _candidates(record: Mapping[str, Any]) -> str:
    measured = [row for row in record["rows"] if "left_out" not in row]
    left_out: dict[str, list[str]] = {}
    for row in record["rows"]:
        if "left_out" in row:
            left_out.setdefault(row["left_out"], []).append(f"{row['stage']}, {row['alternative']}")
    table = _table(
        f"{record['policy']}, {record['dtype']}, {record['device']}: other ways to run each stage, in turns",
        ("stage", "how", "ms", "as served / this", "ms / floor", "result"),
        ((row["stage"], row["alternative"], *_candidate_cells(row)) for row in measured),
    )
    return "\n\n".join([table, *(f"Left out ({why}): {'; '.join(rows)}." for why, rows in left_out.items())])


def _candidate_cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    if row["equal_tokens"] is not None:
        result = f"{100 * row['equal_tokens']:.0f} % of tokens equal"
    elif row["equal_bits"]:
        result = "the same bits"
    else:
        result = f"differs by {row['difference']:.0e} of the largest"
    return (
        f"{row['ms_median']:.3f}",
        _with_interval(row["served_over_this"], row["served_over_this_ci95"]),
        f"{row['ms_median'] / row['floor_ms']:.2f}",
        result,
    )


def _opening(record: Mapping[str, Any]) -> str:
    gb = record["bf16_bytes"] / 1e9
    return _table(
        f"{record['size']}, {gb:.2f} GB in bfloat16: host memory of opening it",
        ("way", "peak, GB", "peak / size in bfloat16"),
        (
            (way, f"{row['peak_bytes'] / 1e9:.2f}", f"{row['peak_over_bf16_size']:.3f}")
            for way, row in record["ways"].items()
        ),
    )


def draw_reference(record: Mapping[str, Any], path: Path) -> None:
    """Plot frame times of the published code and ours: a bar at the median, a mark for every turn."""
    import matplotlib as mpl

    codes = list(dict.fromkeys(row["code"] for row in record["rows"]))
    labels = list(dict.fromkeys(map(_label, record["rows"])))
    width = 0.8 / len(codes)
    with mpl.rc_context(STYLE):
        figure = new_figure(7.6, 3.8)
        axes = figure.subplots()
        for row in record["rows"]:
            number = codes.index(row["code"])
            at = labels.index(_label(row)) + (number - (len(codes) - 1) / 2) * width
            name = _format_code(row) if _label(row) == labels[0] else None
            axes.bar(
                at, row["frame_ms_median"], 0.9 * width, color=OTHER_COLOURS[number], alpha=0.75, label=name
            )
            axes.plot([at] * len(row["frame_ms"]), row["frame_ms"], "o", color="#404654", markersize=3)
        axes.set_xticks(range(len(labels)), labels)
        axes.set_ylabel("frame (ms)")
        axes.set_title(f"{record['policy']} on {record['published']['device']}, N = {record['text_tokens']}")
        axes.legend(frameon=False)
        figure.savefig(path, bbox_inches="tight")


def _format_code(row: Mapping[str, Any]) -> str:
    return row["code"] if row["code"] == "published" else f"ours, {row['code']}"


def _label(row: Mapping[str, Any]) -> str:
    return str(BenchConfiguration(mode=Mode(row["mode"]), tokens_per_frame=row["tokens_per_frame"]))


def _with_interval(value: float | None, bounds: Sequence[float] | None) -> str:
    interval = "" if bounds is None else " ({:.2f}–{:.2f})".format(*bounds)
    return number(value, ".2f") + interval


def _table(title: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"**{title}**", "", f"| {' | '.join(header)} |", "|---" * len(header) + "|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, nargs="?", default=RESULTS)
    parser.add_argument("--into", type=Path, metavar="FILE", help="the document to put the tables into")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw reference.json as a PNG or SVG")
    options = parser.parse_args()
    if options.plot is not None:
        draw_reference(json.loads((options.folder / "reference.json").read_text()), options.plot)
    tables = report(options.folder)
    if options.into is None:
        sys.stdout.write(f"{tables}\n")
        return
    page = rendered(options.into.read_text(encoding="utf-8"), options.folder)
    options.into.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
