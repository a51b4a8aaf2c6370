"""`--roofline`: times each stage of a policy alone, and compares it with its minimum time (floor).

The floor is the longer of arithmetic and memory traffic. Times are medians over repetitions.
"""

import dataclasses
import statistics
import time
from pathlib import Path
from typing import Any

import jax

from configs.errors import UsageError
from configs.reading import read_json_object
from eval.bench import costs
from eval.bench.aggregation import decode_growth, median_stages
from eval.bench.costs import Cost
from eval.bench.measurement import StageTimer
from eval.bench.model_under_test import ModelUnderTest
from eval.bench.options import Options
from eval.bench.peaks import find_peaks
from eval.bench.row import provenance_of, robots_label
from eval.bench.serving import SUFFIX, Bench
from eval.bench.table import open_console, print_roofline
from eval.records.json_files import write_json
from oxygen.model import pi05
from oxygen.model.config import Pi05Config
from oxygen.model.inputs import ModelInput
from oxygen.model.pi05 import Weights
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
    workloads = [(one, model.with_cameras(one.cameras)) for one, _ in options.workloads()]
    peaks = find_peaks(options.peaks, model.config.dtype)
    bench, console, records = Bench(model), open_console(), []
    for workload, served in workloads:
        texts = workload.robots * workload.text_tokens
        sizes = ProgramSizes(
            robots=workload.robots,
            slots=texts,
            rows=tuple(sorted({workload.robots, texts})),
            forks=(workload.robots,),
            suffix=len(SUFFIX),
            limit=workload.text_tokens,
            guided=True,
        )
        runner = bench.runners(workload.denoise_steps, [sizes], cameras=workload.cameras)[sizes]
        inputs = runner.blank(served.bucket)
        timer = StageTimer(runner, inputs, SUFFIX)
        each = [timer.acting_ms() | timer.language_ms() for _ in range(1 + options.repetitions)]
        times = each[1:]  # the first calls are slower
        weights = bench.weights(workload.denoise_steps)
        measured = {name.replace("_", " "): ms for name, ms in median_stages(times).items()} | {
            "siglip": _siglip_ms(runner.config, weights, inputs, calls=options.repetitions)
        }
        stages: list[dict[str, Any]] = []
        for name, cost in stage_costs(runner.config, sizes, served.bucket).items():
            floor_ms, ms = peaks.floor_ms(cost), measured.get(name)
            of_compute = cost.flops / peaks.flops_per_s >= cost.bytes / peaks.bytes_per_s
            stages.append(
                {
                    "name": name,
                    **dataclasses.asdict(cost),
                    "floor_ms": floor_ms,
                    "bound": "compute" if of_compute else "memory",
                    "measured_ms": ms,
                    "measured_over_floor": None if ms is None else ms / floor_ms,
                }
            )
        cameras = len(served.config.cameras)
        robots = robots_label(workload.robots, cameras)
        work = f"{workload.denoise_steps} denoise steps, N = {workload.text_tokens}, {robots}"
        print_roofline(stages, peaks, f"{model.name}, {model.config.dtype}: {work}", console)
        record: dict[str, Any] = {
            "denoise_steps": workload.denoise_steps,
            "text_tokens": workload.text_tokens,
            "robots": workload.robots,
            "cameras": cameras,
            "prefix_tokens": served.config.image_tokens + served.bucket,
            "stages": stages,
        }
        if (growth := decode_growth(times)) is not None:
            smallest, largest = sizes.rows
            bounds = growth.ci95
            interval = "" if bounds is None else f" (95 %: {bounds.low:.2f}–{bounds.high:.2f})"
            console.print(
                f"decode {largest} takes {growth.value:.2f} times as long as decode {smallest}{interval}."
            )
            record["decode_growth"] = {"rows": sizes.rows, **dataclasses.asdict(growth)}
        records.append(record)
    if options.output is not None:
        about = {
            "policy": model.name,
            "weights": model.weights_from,
            "dtype": model.config.dtype,
            "device": jax.devices()[0].device_kind,
            "peaks": dataclasses.asdict(peaks),
        }
        write_json(options.output, {**about, **provenance_of("eval.bench"), "rooflines": records})
    return 0


def stage_costs(config: Pi05Config, sizes: ProgramSizes, prompt: int) -> dict[str, Cost]:
    """The cost of each stage, for prompts padded to `prompt` tokens and half-decoded texts.

    `siglip` and `trunk` make up `prefill`; `decode N` is one token for each of N texts.
    """
    robots, prefix = sizes.robots, config.image_tokens + prompt
    context = prefix + sizes.suffix + sizes.limit // 2
    siglip = costs.siglip(config, images=robots * len(config.cameras))
    trunk = costs.trunk_prefill(config, tokens=prefix, robots=robots)
    return {
        "siglip": siglip,
        "trunk": trunk,
        "prefill": siglip + trunk,
        "denoise": costs.denoise(config, prefix=prefix, robots=robots),
        "guided denoise": costs.guided_denoise(config, prefix=prefix, robots=robots),
        "fork": costs.fork(config, prefix=prefix, suffix=sizes.suffix - 1, requests=sizes.forks[-1]),
        **{f"decode {rows}": costs.decode(config, context=context, rows=rows) for rows in sizes.rows},
    }


def _siglip_ms(config: Pi05Config, weights: Weights, inputs: ModelInput, *, calls: int) -> float:
    """Median milliseconds of the vision tower and the prompt's embedding, compiled alone."""
    program = jax.jit(lambda weights, images, prompt: pi05.embed_prefix(weights, config, images, prompt))
    jax.block_until_ready(program(weights, inputs.images, inputs.prompt))
    taken = []
    for _ in range(calls):
        began = time.perf_counter()
        jax.block_until_ready(program(weights, inputs.images, inputs.prompt))
        taken.append(1e3 * (time.perf_counter() - began))
    return statistics.median(taken)


def _check_output(path: Path) -> None:
    """Refuse to replace a file that is not a roofline, before anything is measured."""
    try:
        known = not path.exists() or not path.stat().st_size or "rooflines" in read_json_object(path)
    except UsageError:
        known = False
    if not known:
        raise UsageError(f"{str(path)!r} is not a roofline and is not replaced; give --output another")
