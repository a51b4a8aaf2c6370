"""Runs the experiment: measures each workload, appends its rows to a file, then shows tables and plots."""

import contextlib
import dataclasses
import datetime as dt
import itertools
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

from configs.signals import DeferredSignals
from eval.bench.measurement import Repetitions, measure
from eval.bench.memory import memory_use
from eval.bench.model_under_test import ModelUnderTest
from eval.bench.options import Options, default_output, provenance_now
from eval.bench.profile import save_profile
from eval.bench.row import Row, RowFile, WorkloadInfo, identity
from eval.bench.rows import RunInfo, rows
from eval.bench.schedule import max_queries_per_text
from eval.bench.serving import Bench
from eval.bench.table import Terminal
from eval.bench.workloads import BenchConfiguration, Workload
from oxygen.serving.scheduler import Mode


def run_experiment(options: Options, model: ModelUnderTest, *, began: float | None = None) -> int:
    """Measure the workloads of `options` and show them; returns the exit code.

    It is 1 if configurations of a workload differ in their actions: their times are not comparable then.

    Args:
        options: What to measure.
        model: The policy.
        began: Start of the command by `time.perf_counter`, in seconds; None for now.

    Raises:
        UsageError: The output file cannot be written, or does not hold rows.
        KeyboardInterrupt: Ctrl-C; the rows of finished workloads are in the file.
    """
    began = time.perf_counter() if began is None else began
    experiment = _Experiment(options, model, began)
    workloads = options.grid.workloads()
    identities = [experiment.identities(*group) for group in workloads]
    file = RowFile(options.output or default_output(options.policy))
    before = len(file.rows)
    pending = [
        group
        for group, of_workload in zip(workloads, identities, strict=True)
        if not (options.resume and file.has(of_workload))
    ]
    with Terminal(experiment.info, file.path) as terminal, DeferredSignals() as signals:
        terminal.announce(_count(pending), skipped=_count(workloads) - _count(pending), existing=before)
        if options.resume:
            existing = file.of(itertools.chain.from_iterable(identities))
            terminal.compare_commits(existing, experiment.provenance["commit"])
        terminal.start(_count(pending) * (options.repetitions + 1))

        try:
            for workload, configurations in pending:
                terminal.workload(str(workload))
                file.append(experiment.measure(workload, configurations, signals, terminal.advance))
        except KeyboardInterrupt:
            terminal.interrupted(len(file.rows) - before)
            raise
        shown = file.of(itertools.chain.from_iterable(identities))
        terminal.report(shown, _pictures(shown, file.path), took_s=time.perf_counter() - began)
        if options.save_profile is not None:
            save_profile(options.save_profile, shown)
            terminal.saved(options.save_profile)
    return 1 if any(row.actions_equal is False for row in shown) else 0


class _Experiment:
    """Measures workloads of one policy."""

    def __init__(self, options: Options, model: ModelUnderTest, began: float) -> None:
        self.info = _info(model)
        self._model = model
        self._options = options
        self._began = began
        self._bench = Bench(model)
        self.provenance = provenance_now()
        on_gpu = jax.devices()[0].platform == "gpu"
        self._multi_process_service = mps_is_active(os.environ) if on_gpu else None

    def identities(
        self, workload: Workload, configurations: Sequence[BenchConfiguration]
    ) -> list[tuple[Any, ...]]:
        """The identities of a workload's rows, before it is measured."""
        common = {
            **dataclasses.asdict(self._info_of(workload)),
            **workload.fields,
            "repetitions": self._options.repetitions,
            "queries": self._options.queries,
            **self.provenance,
        }
        return [identity({**common, **dataclasses.asdict(each)}) for each in configurations]

    def measure(
        self,
        workload: Workload,
        configurations: Sequence[BenchConfiguration],
        signals: DeferredSignals,
        advance: Callable[[], None],
    ) -> list[Row]:
        """Measure a workload; returns its rows."""

        def measured_one() -> None:
            advance()
            signals.check()

        fill = max(max_queries_per_text(workload, configuration) for configuration in configurations)
        repetitions = Repetitions(
            count=self._options.repetitions, queries=self._options.queries, warm_up=fill + 1
        )
        with contextlib.ExitStack() as resources:
            with signals.suspended():  # it compiles
                prepared = resources.enter_context(
                    self._bench.prepare(workload, configurations, repetitions.total_queries)
                )
            measured = measure(prepared.runners, prepared.stages.times, repetitions, measured_one)
            compiles = {runner.configuration: runner.compiles_after_warm_up for runner in prepared.runners}
            memory = {
                configuration: memory_use(programs, in_two_processes=configuration.mode is Mode.PARALLEL)
                for configuration, programs in prepared.program_bytes.items()
            }
        run_info = RunInfo(
            batches=prepared.batches,
            compiles_after_warmup=compiles,
            memory=memory,
            multi_process_service=self._multi_process_service,
            took_s=time.perf_counter() - self._began,
            provenance={
                "written_at": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
                **self.provenance,
            },
        )
        return rows(self._info_of(workload), workload, repetitions, measured, run_info)

    def _info_of(self, workload: Workload) -> WorkloadInfo:
        return _info(self._model.with_cameras(workload.cameras))


def _count(workloads: Sequence[tuple[Workload, Sequence[BenchConfiguration]]]) -> int:
    return sum(len(configurations) for _, configurations in workloads)


def _info(model: ModelUnderTest) -> WorkloadInfo:
    config = model.config
    return WorkloadInfo(
        policy=model.name,
        weights=model.weights_from,
        dtype=config.dtype,
        device=jax.devices()[0].device_kind,
        cameras=len(config.cameras),
        prompt_tokens=model.bucket,
        prefix_tokens=config.image_tokens + model.bucket,
        horizon=config.horizon,
        shortest_prompt=model.shortest_prompt,
    )


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


def _pictures(shown: Sequence[Row], path: Path) -> list[Path]:
    """Write the page and the figures next to the file of rows, if their packages are installed."""
    stem, written = path.with_suffix(""), []
    with contextlib.suppress(ModuleNotFoundError):
        from eval.bench.page import write_bench_page

        written.append(write_bench_page(shown, stem.with_name(f"{stem.name}_report")))
    with contextlib.suppress(ModuleNotFoundError):
        from eval.bench.plots import draw

        written += draw(shown, stem)
    return written
