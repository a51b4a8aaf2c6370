"""Runs the experiment: measures each workload, appends its rows to a file, then shows tables and plots."""

import contextlib
import dataclasses
import datetime as dt
import multiprocessing
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
from rich.progress import Progress

from configs.exits import DeferredSignals
from contracts.errors import pluralize
from contracts.mode import Mode
from eval.bench.measurement import StageTimes, acting_ms, aggregate, decode_sizes, language_ms, measure
from eval.bench.options import Options, workloads_of
from eval.bench.row import Row, RowFile, identity, row_provenance
from eval.bench.serving import Bench, ModelUnderTest
from eval.bench.table import open_console, print_rows
from eval.bench.workloads import BenchConfiguration, Workload
from oxygen.serving.runner import Runner


def run_experiment(options: Options, model: ModelUnderTest, *, began: float | None = None) -> int:
    """Measure the workloads of `options` and show them; returns the exit code.

    It is 1 if configurations of a workload differ in their actions: their times are not comparable then.
    `began` is when the command started by `time.perf_counter`, in seconds; None for now.

    Raises:
        UsageError: The output file cannot be written, or does not hold rows.
        KeyboardInterrupt: Ctrl-C; the rows of finished workloads are in the file.
    """
    began = time.perf_counter() if began is None else began
    provenance = row_provenance()
    plans = []
    for asked, configurations in workloads_of(options):
        served = model.with_cameras(asked.cameras)
        workload = dataclasses.replace(asked, cameras=len(served.config.cameras))
        about: dict[str, Any] = {
            "policy": served.name,
            "weights": served.weights_from,
            "dtype": served.config.dtype,
            "device": jax.devices()[0].device_kind,
            "prompt_tokens": served.bucket,
            "shortest_prompt": served.shortest_prompt,
            "prefix_tokens": served.config.image_tokens + served.bucket,
            "horizon": served.config.horizon,
        }
        shared = {**vars(workload), **about, **provenance}
        identities = [identity({**shared, **vars(each)}) for each in configurations]
        plans.append((workload, configurations, shared, identities))
    name = f"{Path(options.policy).stem}_{dt.datetime.now(dt.UTC):%Y%m%d_%H%M%S}.jsonl"
    file = RowFile(options.output or Path("runs/bench") / name)
    before = len(file.rows)
    pending = [plan for plan in plans if not options.resume or len(file.of(plan[-1])) < len(plan[-1])]
    console, bench = open_console(), Bench(model)
    count = sum(len(identities) for *_, identities in pending)
    skipped = sum(len(identities) for *_, identities in plans) - count
    console.print(
        f"[bold]{model.name}[/], {model.config.dtype}, weights {model.weights_from}, "
        f"on {jax.devices()[0].device_kind}: {pluralize(count, 'configuration')} → {file.path}",
        soft_wrap=True,
    )
    if skipped:
        commits = {str(row.commit)[:10] for *_, identities in plans for row in file.of(identities)}
        others = sorted(commits - {str(provenance["commit"])[:10]})
        remedy = "without --resume all are measured again"
        of_others = f"; [red]of other code ({', '.join(others)}); {remedy}[/]" if others else ""
        console.print(
            f"Skipping {pluralize(skipped, 'configuration')} that the file already has{of_others}.",
            soft_wrap=True,
        )
    elif before:
        console.print(f"The file already has {pluralize(before, 'row')}; new ones are appended.")
    progress = Progress(console=console)
    bar = progress.add_task("", total=count * (options.repetitions + 1))
    with progress, DeferredSignals() as signals:

        def advance() -> None:
            progress.advance(bar)
            signals.check()

        try:
            for workload, configurations, shared, _ in pending:
                progress.update(bar, description=workload.work)
                measured = _measure(bench, model, workload, configurations, signals, advance)
                shared["took_s"] = time.perf_counter() - began
                shared["written_at"] = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
                file.append(Row(**shared, **vars(each), **measured[each]) for each in configurations)
        except KeyboardInterrupt:
            rows = pluralize(len(file.rows) - before, "row")
            console.print(f"Interrupted: {rows} of this run are in {file.path}.", soft_wrap=True)
            console.print("The same command with --output and --resume measures the rest.")
            raise
    shown = [row for *_, identities in plans for row in file.of(identities)]
    print_rows(shown, console)
    console.print(f"Rows: {file.path}", soft_wrap=True)
    try:
        from eval.bench.page import draw, write_bench_page
    except ModuleNotFoundError:
        console.print("No page and no plots: jinja2 or matplotlib is not installed.")
    else:
        stem = file.path.with_suffix("")
        pictures = [write_bench_page(shown, stem.with_name(f"{stem.name}_report")), *draw(shown, stem)]
        console.print(f"Page and plots: {', '.join(map(str, pictures))}", soft_wrap=True)
    console.print(f"It took {time.perf_counter() - began:.0f} s.")
    if (path := options.save_profile) is not None:
        save_profile(path, shown)
        console.print(f"Profile: {path}; `--clock profile:{path}` charges its latencies.", soft_wrap=True)
    return 1 if any(row.actions_equal is False for row in shown) else 0


def _measure(
    bench: Bench,
    model: ModelUnderTest,
    workload: Workload,
    configurations: Sequence[BenchConfiguration],
    signals: DeferredSignals,
    advance: Callable[[], None],
) -> dict[BenchConfiguration, dict[str, Any]]:
    """Measure a workload; returns the fields of each configuration's row that are measured."""
    with contextlib.ExitStack() as resources:
        with signals.suspended():  # it compiles
            runners = resources.enter_context(bench.prepare(workload, configurations))
            inputs = runners[0].programs.blank(model.bucket)

        def stages() -> dict[BenchConfiguration, StageTimes]:
            """Times the programs of all configurations, those that several share once."""
            acting = acting_ms(runners[0].programs, inputs)
            distinct = dict.fromkeys(runner.programs for runner in runners)
            times = {programs: acting | language_ms(programs, inputs) for programs in distinct}
            return {runner.configuration: times[runner.programs] for runner in runners}

        samples = measure(runners, stages, workload, advance)
        fields = aggregate(workload, samples, horizon=model.config.horizon)
        on_gpu = jax.devices()[0].platform == "gpu"
        for runner in runners:
            mode = runner.configuration.mode
            in_two_processes = mode is Mode.PARALLEL
            fields[runner.configuration] |= {
                "decode_batch": None if mode is Mode.ACTIONS else runner.programs.sizes.rows[-1],
                "compiles_after_warmup": runner.compiles_after_warm_up,
                **_memory(runner.programs, mode, bucket=model.bucket),
                "multi_process_service": mps_is_active(os.environ) if in_two_processes and on_gpu else None,
            }
    return fields


def mps_is_active(environment: Mapping[str, str]) -> bool:
    """Whether NVIDIA's multi-process service runs. Without it, kernels of two processes take turns on a GPU.

    Checks the PID file of its control daemon in the folder that `environment` names. CUDA connects to the
    service at start, so a daemon that starts later serves later processes only. (NVIDIA, Multi-Process
    Service, 5.2.2.)
    """
    pid_file = (
        Path(environment.get("CUDA_MPS_PIPE_DIRECTORY") or "/tmp/nvidia-mps") / "nvidia-cuda-mps-control.pid"
    )
    try:
        os.kill(int(pid_file.read_text(encoding="ascii")), 0)  # signal 0 only checks that the process exists
    except PermissionError:
        return True  # the process is another user's
    except (OSError, ValueError):
        return False
    return True


def _memory(runner: Runner, mode: Mode, *, bucket: int) -> dict[str, Any]:
    """A row's fields of memory, while all processes of its configuration are running.

    Programs count arguments (weights and pool included), results and temporary arrays; bytes that a result
    shares with an argument count once.
    """
    compiled, sizes, in_two_processes = runner.programs, runner.sizes, mode is Mode.PARALLEL
    programs = {"prefill": compiled.prefill[bucket], "denoise": compiled.denoise[bucket, False]}
    if mode is not Mode.ACTIONS:
        programs["fork"] = compiled.fork[bucket, sizes.forks[-1]]
        programs[f"decode_{sizes.rows[-1]}"] = compiled.decode[sizes.rows[-1]]
    analyses: dict[str, Any] = {name: program.memory_analysis() for name, program in programs.items()}
    by_program = None
    if None not in analyses.values():  # the backend reports them
        parts = ("argument", "temp", "output")
        by_program = {
            name: sum(getattr(each, f"{part}_size_in_bytes") for part in parts) - each.alias_size_in_bytes
            for name, each in analyses.items()
        }
    second = None
    if in_two_processes:  # from Linux's `VmHWM`
        with contextlib.suppress(OSError):
            statuses = [Path(f"/proc/{each.pid}/status") for each in multiprocessing.active_children()]
            lines = [line for path in statuses for line in path.read_text(encoding="utf-8").splitlines()]
            second = sum(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) or None
    statistics = jax.local_devices()[0].memory_stats() or {}
    if "peak_bytes_in_use" in statistics:
        peak, peak_of = int(statistics["peak_bytes_in_use"]), "device"
    else:
        unit = 1 if sys.platform == "darwin" else 1024
        peak = unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss + (second or 0)
        peak_of = "process"
    return {
        "program_bytes": by_program,
        "needed_memory_bytes": by_program and needed_bytes(by_program, in_two_processes=in_two_processes),
        "second_process_bytes": second,
        "peak_memory_bytes": peak,
        "peak_memory_of": peak_of,
    }


def needed_bytes(by_program: Mapping[str, int], *, in_two_processes: bool) -> int:
    """Bytes of the largest program, since programs run one after the other.

    In two processes, one runs prefill, fork and decode, another one prefill and denoise, each with its own
    weights: then the largest of either are added.
    """
    if not in_two_processes:
        return max(by_program.values())
    of_actions = max(by_program["prefill"], by_program["denoise"])
    return of_actions + max(size for name, size in by_program.items() if name != "denoise")


def save_profile(path: Path, rows: Sequence[Row]) -> None:
    """Write the profile of a workload's rows, named after the file."""
    import yaml

    content = yaml.safe_dump(profile(path.stem, rows), sort_keys=False, allow_unicode=True, width=120)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")


def profile(name: str, rows: Sequence[Row]) -> dict[str, Any]:
    """The fields of a `configs.profile.ProfileConfig`, from a workload's rows, which include `isolated`.

    A stage time is the median over rows. Host time is the action latency of `isolated` without prefill and
    denoising.
    """
    isolated = next(row for row in rows if row.mode == Mode.ISOLATED)
    stages = dict.fromkeys(stage for row in rows for stage in row.stage_ms)
    ms = {
        stage: statistics.median(row.stage_ms[stage] for row in rows if stage in row.stage_ms)
        for stage in stages
    }
    host_ms = max(0.0, isolated.action_ms_p50 - ms["prefill"] - ms["denoise"])
    decode = {size: ms[f"decode_{size}"] for size in decode_sizes(ms)}
    guided_ms = ms.get("guided_denoise")  # the recorded rows of `small` do not have it
    itself = f"by itself, median of {isolated.repetitions} repetitions"
    device, hardware, versions = isolated.device, isolated.hardware, isolated.versions
    if device == "cpu":
        device = f"{hardware['processor']}, {hardware['cores']} cores"
    packages = ", ".join(f"{package} {versions[package]}" for package in ("python", "jax", "numpy"))
    commit = f"commit {isolated.commit[:10]}" if isolated.commit else "no commit"
    slowdown, parallel = None, next((row for row in rows if row.mode == Mode.PARALLEL), None)
    if parallel is not None and parallel.request_ms_p50 is not None:
        language_ms = ms["prefill"] + ms["fork"] + isolated.text_tokens * decode[1]
        slowdown = {
            "action": _rounded(max(1.0, parallel.action_ms_p50 / isolated.action_ms_p50)),
            "decode": _rounded(max(1.0, parallel.request_ms_p50 / language_ms)),
            "kind": "measured",
            "source": "median action latency by that of isolated; a text's end-to-end latency by its own "
            "stages",
        }
    content = {
        "name": name,
        "device": device,
        "dtype": isolated.dtype,
        "model": isolated.policy,
        "source": f"`{isolated.command}` on {isolated.written_at}, {commit}; {packages}; load average "
        f"{hardware['load_average'][0]} at its start",
        "host": _measured(host_ms, "median action latency of isolated, less prefill and denoising"),
        "prefill": _measured(ms["prefill"], f"{itself}, {isolated.prefix_tokens} tokens"),
        "denoise": _measured(ms["denoise"], f"{itself}, {isolated.denoise_steps} steps"),
        "guided_denoise": guided_ms and _measured(guided_ms, f"{itself}, {isolated.denoise_steps} steps"),
        "fork": _measured(ms["fork"], itself),
        "decode": {batch: _measured(decode[batch], itself) for batch in sorted(decode)},
        "parallel": slowdown,
    }
    return {field: value for field, value in content.items() if value is not None}


def _measured(ms: float, how: str) -> dict[str, Any]:
    return {"ms": _rounded(ms), "kind": "measured", "source": how}


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
