"""`--roofline`: times every stage of a policy by itself, and holds it against its floor."""

import dataclasses
import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

from configs.errors import UsageError
from eval.bench import roofline
from eval.bench.costs import Peaks
from eval.bench.options import Options, command
from eval.bench.peaks import peaks
from eval.bench.ratios import Ratio, decode_growth
from eval.bench.roofline import Stage
from eval.bench.schedule import StageTimes
from eval.bench.serving import SUFFIX, Bench
from eval.bench.stages import Stages
from eval.bench.subject import Subject
from eval.bench.table import print_growth, print_roofline
from eval.bench.terminal import open_console
from eval.bench.workloads import Workload, robots_in_words
from eval.records import provenance
from eval.records.json_files import write_json
from oxygen.serving.runner import ProgramSizes


def report_floors(options: Options, subject: Subject) -> int:
    """Print every stage's time and floor; returns the exit code.

    Decoding is timed for one text of each robot, and for N of each: as many as are under way when a text of N
    tokens is born in every query, and a frame brings one token of each.

    Raises:
        UsageError: The options ask for what cannot be had.
    """
    if options.output is not None:
        _check_output(options.output)
    asked = [(one, subject.with_cameras(one.cameras)) for one, _ in options.axes.workloads()]
    most = peaks(options.peaks, subject.config.dtype)
    bench, console, records = Bench(subject), open_console(), []
    for workload, seen in asked:
        sizes = _sizes(workload.robots, workload.text_tokens)
        stages, growth = _measured(bench, seen, workload, sizes, most, options.repetitions)
        print_roofline(stages, most, _title(workload, seen), console)
        record: dict[str, Any] = {
            "denoise_steps": workload.denoise_steps,
            "text_tokens": workload.text_tokens,
            "robots": workload.robots,
            "cameras": len(seen.config.cameras),
            "prefix_tokens": seen.config.image_tokens + seen.bucket,
            "stages": _records(stages),
        }
        if growth is not None:
            print_growth(sizes.rows, growth, console)
            record["decode_growth"] = {"rows": sizes.rows, **dataclasses.asdict(growth)}
        records.append(record)
    if options.output is not None:
        _write(options.output, {**_about(subject, most), "rooflines": records})
    return 0


def _sizes(robots: int, text_tokens: int) -> ProgramSizes:
    rows = robots * text_tokens
    return ProgramSizes(
        robots=robots,
        slots=rows,
        rows=tuple(sorted({robots, rows})),
        forks=(robots,),
        suffix=len(SUFFIX),
        limit=text_tokens,
        guided=True,
    )


def _title(workload: Workload, subject: Subject) -> str:
    robots = robots_in_words(workload.robots, len(subject.config.cameras))
    what = f"{workload.denoise_steps} denoise steps, N = {workload.text_tokens}, {robots}"
    return f"{subject.name}, {subject.config.dtype}: {what}"


def _measured(
    bench: Bench, subject: Subject, workload: Workload, sizes: ProgramSizes, most: Peaks, repetitions: int
) -> tuple[list[Stage], Ratio | None]:
    """Every stage by itself, and how a decode step grows from a text of each robot to N of each."""
    steps = workload.denoise_steps
    runner = bench.runners(steps, [sizes], cameras=workload.cameras)[sizes]
    inputs = runner.blank(subject.bucket)
    programs = Stages(runner, inputs, SUFFIX)
    programs.times()  # the first calls are slower
    each = [programs.times() for _ in range(repetitions)]
    siglip_ms = roofline.siglip_ms(runner.config, bench.weights(steps), inputs, calls=repetitions)
    needs = roofline.needed(runner.config, sizes, subject.bucket)
    return roofline.stages(needs, most, _median(each), siglip_ms), decode_growth(
        [times.decode for times in each]
    )


def _median(times: Sequence[StageTimes]) -> StageTimes:
    return StageTimes(
        prefill=statistics.median(one.prefill for one in times),
        denoise=statistics.median(one.denoise for one in times),
        guided_denoise=statistics.median(one.guided_denoise for one in times),
        fork=statistics.median(one.fork for one in times),
        decode={batch: statistics.median(one.decode[batch] for one in times) for batch in times[0].decode},
    )


def _records(stages: Sequence[Stage]) -> list[dict[str, Any]]:
    return [{**dataclasses.asdict(stage), "measured_over_floor": stage.over_floor} for stage in stages]


def _about(subject: Subject, most: Peaks) -> dict[str, Any]:
    return {
        "policy": subject.name,
        "weights": subject.weights_from,
        "dtype": subject.config.dtype,
        "device": jax.devices()[0].device_kind,
        "peaks": dataclasses.asdict(most),
        "command": command(),
        **provenance.git_state(),
        "versions": provenance.versions(),
        "hardware": provenance.hardware(),
    }


def _check_output(path: Path) -> None:
    """Refuse to replace what is no roofline, before anything is measured."""
    try:
        written = path.read_text(encoding="utf-8") if path.exists() else ""
    except OSError as error:
        raise UsageError(f"cannot write {str(path)!r}: {error.strerror}; give --output another") from None
    except UnicodeDecodeError:
        written = "something else"
    if written and not _is_roofline(written):
        raise UsageError(
            f"{str(path)!r} holds something else than a roofline and is not replaced; give --output another"
        )


def _is_roofline(written: str) -> bool:
    try:
        content = json.loads(written)
    except ValueError:
        return False
    return isinstance(content, dict) and "rooflines" in content


def _write(path: Path, content: Mapping[str, Any]) -> None:
    try:
        write_json(path, content)
    except OSError as error:
        raise UsageError(f"cannot write {str(path)!r}: {error.strerror}; give --output another") from None
