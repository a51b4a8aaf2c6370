"""Runs the experiment: measures each workload, appends its rows to a file, then shows them."""

import contextlib
import dataclasses
import datetime as dt
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
from rich.console import Console
from rich.progress import Progress

from configs.exits import DeferredSignals
from contracts.errors import pluralize
from contracts.mode import Mode
from eval.bench.measurement import StageTimes, acting_ms, aggregate, language_ms, measure, needed_bytes
from eval.bench.options import Options, workloads_of
from eval.bench.profile import save_profile
from eval.bench.row import Row, RowFile, identity, row_provenance
from eval.bench.serving import Bench, ModelUnderTest
from eval.bench.table import open_console, print_rows
from eval.bench.workloads import BenchConfiguration, Workload


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Plan:
    """A workload to be measured, and what its rows have in common."""

    workload: Workload
    configurations: Sequence[BenchConfiguration]
    shared: Mapping[str, Any]  # fields of every row

    def rows_in(self, file: RowFile) -> Sequence[Row]:
        """The latest row of each configuration that the file has, in order."""
        return file.of(identity({**self.shared, **vars(each)}) for each in self.configurations)


def run_experiment(options: Options, model: ModelUnderTest) -> int:
    """Measure the workloads of `options` and show them; returns the exit code.

    It is 1 if configurations of a workload differ in their actions: their times are not comparable then.
    After Ctrl-C, the rows of finished workloads are in the file.
    """
    plans, console = _plans(options, model), open_console()
    name = f"{Path(options.policy).stem}_{dt.datetime.now(dt.UTC):%Y%m%d_%H%M%S}.jsonl"
    file = RowFile(options.output or Path("runs/bench") / name)
    recorded = [plan for plan in plans if len(plan.rows_in(file)) == len(plan.configurations)]
    skipped = recorded if options.resume else []
    pending = [plan for plan in plans if plan not in skipped]
    _announce(model, pending, skipped, file, console)
    _measure_all(Bench(model), pending, file, console)
    rows = [row for plan in plans for row in plan.rows_in(file)]
    _show(rows, file.path, console)
    if (path := options.save_profile) is not None:
        save_profile(path, rows)
        console.print(f"Profile: {path}; `--clock profile:{path}` charges its latencies.", soft_wrap=True)
    return 1 if any(row.actions_equal is False for row in rows) else 0


def _plans(options: Options, model: ModelUnderTest) -> list[_Plan]:
    about = {
        "policy": model.name,
        "weights": model.weights_from,
        "dtype": model.config.dtype,
        "device": jax.devices()[0].device_kind,
        "cameras": len(model.config.cameras),
        "prompt_tokens": model.bucket,
        "prefix_tokens": model.config.image_tokens + model.bucket,
        "horizon": model.config.horizon,
        **row_provenance(),
    }
    return [
        _Plan(workload=workload, configurations=configurations, shared=vars(workload) | about)
        for workload, configurations in workloads_of(options)
    ]


def _announce(
    model: ModelUnderTest, pending: Sequence[_Plan], skipped: Sequence[_Plan], file: RowFile, console: Console
) -> None:
    """Say what is measured, on what, and what the file already has."""
    console.print(
        f"[bold]{model.name}[/], {model.config.dtype}, weights {model.weights_from}, "
        f"on {jax.devices()[0].device_kind}: {_count(pending)} → {file.path}",
        soft_wrap=True,
    )
    if skipped:
        commits = {str(row.commit)[:10] for plan in skipped for row in plan.rows_in(file)}
        others = sorted(commits - {str(plan.shared["commit"])[:10] for plan in skipped})
        remedy = "without --resume all are measured again"
        of_others = f"; [red]of other code ({', '.join(others)}); {remedy}[/]" if others else ""
        console.print(f"Skipping {_count(skipped)} that the file already has{of_others}.", soft_wrap=True)
    elif file.rows:
        console.print(f"The file already has {pluralize(len(file.rows), 'row')}; new ones are appended.")


def _count(plans: Sequence[_Plan]) -> str:
    return pluralize(sum(len(plan.configurations) for plan in plans), "configuration")


def _measure_all(bench: Bench, plans: Sequence[_Plan], file: RowFile, console: Console) -> None:
    """Append the rows of each plan once it is measured, under a progress bar."""
    before, progress = len(file.rows), Progress(console=console)
    runs = sum(len(plan.configurations) * (1 + plan.workload.repetitions) for plan in plans)
    bar = progress.add_task("", total=runs)
    with progress, DeferredSignals() as signals:

        def advance() -> None:
            progress.advance(bar)
            signals.check()

        try:
            for plan in plans:
                progress.update(bar, description=plan.workload.work)
                measured = _measure(bench, plan.workload, plan.configurations, signals, advance)
                now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
                file.append(
                    Row(**plan.shared, **vars(each), **fields, written_at=now)
                    for each, fields in measured.items()
                )
        except KeyboardInterrupt:
            rows = pluralize(len(file.rows) - before, "row")
            console.print(f"Interrupted: {rows} of this run are in {file.path}.", soft_wrap=True)
            console.print("The same command with --output and --resume measures the rest.")
            raise


def _measure(
    bench: Bench,
    workload: Workload,
    configurations: Sequence[BenchConfiguration],
    signals: DeferredSignals,
    advance: Callable[[], None],
) -> dict[BenchConfiguration, dict[str, Any]]:
    """Measure a workload; returns the fields of each configuration's row that are measured."""
    bucket, on_gpu = bench.model.bucket, jax.devices()[0].platform == "gpu"
    with contextlib.ExitStack() as resources:
        with signals.suspended():  # it compiles
            runners = resources.enter_context(bench.prepare(workload, configurations))
            inputs = runners[0].programs.blank(bucket)

        def stages() -> dict[BenchConfiguration, StageTimes]:
            """Times the programs of all configurations, those that several share once."""
            acting = acting_ms(runners[0].programs, inputs)
            distinct = dict.fromkeys(runner.programs for runner in runners)
            times = {programs: acting | language_ms(programs, inputs) for programs in distinct}
            return {runner.configuration: times[runner.programs] for runner in runners}

        samples = measure(runners, stages, workload, advance)
        fields = aggregate(workload, samples, horizon=bench.model.config.horizon)
        for runner in runners:
            mode = runner.configuration.mode
            fields[runner.configuration] |= {
                "compiles_after_warmup": runner.compiles_after_warm_up,
                "needed_memory_bytes": needed_bytes(runner.programs, mode, bucket),
                "multi_process_service": mps_is_active(os.environ)
                if mode is Mode.PARALLEL and on_gpu
                else None,
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


def _show(rows: Sequence[Row], path: Path, console: Console) -> None:
    """Print the tables of rows, draw their figure beside their file, and name both."""
    print_rows(rows, console)
    console.print(f"Rows: {path}", soft_wrap=True)
    try:
        from eval.bench.figure import draw

        drawn = draw(rows, path.with_suffix(""))
    except ModuleNotFoundError:
        console.print("No figure: matplotlib is not installed.")
    else:
        if drawn:
            console.print(f"Figure: {', '.join(map(str, drawn))}", soft_wrap=True)
