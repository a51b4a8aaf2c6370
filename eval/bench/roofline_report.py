"""`--roofline`: times each stage of a policy alone, and compares it with its minimum time (floor)."""

import dataclasses
from pathlib import Path
from typing import Any

import jax

from configs.errors import UsageError
from configs.reading import read_json_object
from eval.bench import roofline
from eval.bench.costs import Peaks
from eval.bench.measurement import StageTimer
from eval.bench.model_under_test import ModelUnderTest
from eval.bench.options import Options, provenance_now
from eval.bench.peaks import find_peaks
from eval.bench.roofline import StageCost
from eval.bench.rows import Ratio, decode_growth
from eval.bench.schedule import StageTimes
from eval.bench.serving import SUFFIX, Bench
from eval.bench.table import open_console, print_growth, print_roofline
from eval.bench.workloads import Workload, robots_label
from eval.records.json_files import write_json
from oxygen.serving.runner import ProgramSizes


def report_roofline(options: Options, model: ModelUnderTest) -> int:
    """Print the time and floor of each stage; returns the exit code.

    Decoding is timed for one text of each robot, and for N of each: the number of unfinished texts if each
    query requests a text of N tokens, and a frame decodes one token of each.

    Raises:
        UsageError: The output file holds something else, peaks are unknown, or there are too many cameras.
    """
    if options.output is not None:
        _check_output(options.output)
    workloads = [(one, model.with_cameras(one.cameras)) for one, _ in options.grid.workloads()]
    device_peaks = find_peaks(options.peaks, model.config.dtype)
    bench, console, records = Bench(model), open_console(), []
    for workload, served in workloads:
        rows = workload.robots * workload.text_tokens
        sizes = ProgramSizes(
            robots=workload.robots,
            slots=rows,
            rows=tuple(sorted({workload.robots, rows})),
            forks=(workload.robots,),
            suffix=len(SUFFIX),
            limit=workload.text_tokens,
            guided=True,
        )
        stages, growth = _measured(bench, served, workload, sizes, device_peaks, options.repetitions)
        print_roofline(stages, device_peaks, _title(workload, served), console)
        record: dict[str, Any] = {
            "denoise_steps": workload.denoise_steps,
            "text_tokens": workload.text_tokens,
            "robots": workload.robots,
            "cameras": len(served.config.cameras),
            "prefix_tokens": served.config.image_tokens + served.bucket,
            "stages": [
                {**dataclasses.asdict(stage), "measured_over_floor": stage.over_floor} for stage in stages
            ],
        }
        if growth is not None:
            print_growth(sizes.rows, growth, console)
            record["decode_growth"] = {"rows": sizes.rows, **dataclasses.asdict(growth)}
        records.append(record)
    if options.output is not None:
        about = {
            "policy": model.name,
            "weights": model.weights_from,
            "dtype": model.config.dtype,
            "device": jax.devices()[0].device_kind,
            "peaks": dataclasses.asdict(device_peaks),
        }
        write_json(options.output, {**about, **provenance_now(), "rooflines": records})
    return 0


def _title(workload: Workload, model: ModelUnderTest) -> str:
    robots = robots_label(workload.robots, len(model.config.cameras))
    what = f"{workload.denoise_steps} denoise steps, N = {workload.text_tokens}, {robots}"
    return f"{model.name}, {model.config.dtype}: {what}"


def _measured(
    bench: Bench,
    model: ModelUnderTest,
    workload: Workload,
    sizes: ProgramSizes,
    peaks: Peaks,
    repetitions: int,
) -> tuple[list[StageCost], Ratio | None]:
    """The stages, and how a decode step grows from one text of each robot to N of each."""
    steps = workload.denoise_steps
    runner = bench.runners(steps, [sizes], cameras=workload.cameras)[sizes]
    inputs = runner.blank(model.bucket)
    programs = StageTimer(runner, inputs, SUFFIX)
    programs.times()  # the first calls are slower
    each = [programs.times() for _ in range(repetitions)]
    siglip_ms = roofline.siglip_ms(runner.config, bench.weights(steps), inputs, calls=repetitions)
    costs = roofline.stage_costs(runner.config, sizes, model.bucket)
    return roofline.stages(costs, peaks, StageTimes.median(each), siglip_ms), decode_growth(
        [times.decode for times in each]
    )


def _check_output(path: Path) -> None:
    """Refuse to replace a file that is not a roofline, before anything is measured."""
    try:
        known = not path.exists() or not path.stat().st_size or "rooflines" in read_json_object(path)
    except UsageError:
        known = False
    if not known:
        raise UsageError(f"{str(path)!r} is not a roofline and is not replaced; give --output another")
