"""The whole experiment: workload after workload, rows as they come, then tables and plots."""

import dataclasses
import datetime as dt
import itertools
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax

from eval.bench import memory, multi_process_service
from eval.bench.measurement import Turns, measure
from eval.bench.options import Options, command, default_output
from eval.bench.profile import save_profile
from eval.bench.row import Row, Setting, identity
from eval.bench.row_file import RowFile
from eval.bench.rows import Afterwards, rows
from eval.bench.schedule import longest_life
from eval.bench.serving import Bench
from eval.bench.subject import Subject
from eval.bench.terminal import Terminal
from eval.bench.workloads import Contender, Workload
from eval.records import provenance
from eval.rollout.interrupts import Interrupts
from oxygen.serving.scheduler import Mode


def run_experiment(options: Options, subject: Subject, *, began: float | None = None) -> int:
    """Measure everything that `options` names, and show it; returns the exit code.

    That is 1 where what must give the same actions does not, since its times then compare different things.

    Args:
        options: What to measure.
        subject: On which policy.
        began: When the command did, in seconds of `time.perf_counter`; now, if None.

    Raises:
        UsageError: The file of rows is none, or cannot be written.
        KeyboardInterrupt: Ctrl-C; the rows of finished workloads are in the file.
    """
    began = time.perf_counter() if began is None else began
    experiment = _Experiment(options, subject, began)
    planned = options.axes.workloads()
    asked = [experiment.identities(*group) for group in planned]
    file = RowFile(options.output or default_output(options.policy))
    before = len(file.rows)
    wanted = [
        group
        for group, identities in zip(planned, asked, strict=True)
        if not (options.resume and file.has(identities))
    ]
    with Terminal(experiment.setting, file.path) as terminal, Interrupts() as signals:
        terminal.announce(_count(wanted), skipped=_count(planned) - _count(wanted), there=before)
        if options.resume:
            there = file.of(itertools.chain.from_iterable(asked))
            terminal.compare_commits(there, experiment.provenance["commit"])
        terminal.expect(_count(wanted) * (options.repetitions + 1))

        def advance() -> None:
            terminal.turn()
            signals.check()

        try:
            for workload, contenders in wanted:
                terminal.workload(str(workload))
                file.append(experiment.measured(workload, contenders, advance))
        except KeyboardInterrupt:
            terminal.interrupted(len(file.rows) - before)
            raise
        shown = file.of(itertools.chain.from_iterable(asked))
        terminal.report(shown, _plots(shown, file.path), took_s=time.perf_counter() - began)
        if options.save_profile is not None:
            save_profile(options.save_profile, shown)
            terminal.saved(options.save_profile)
    return 1 if any(row.actions_equal is False for row in shown) else 0


class _Experiment:
    """Workloads of one policy, measured as the options say."""

    def __init__(self, options: Options, subject: Subject, began: float) -> None:
        self.setting = _setting(subject)
        self._subject = subject
        self._options = options
        self._began = began
        self._bench = Bench(subject)
        self.provenance = _provenance()
        on_gpu = jax.devices()[0].platform == "gpu"
        self._multi_process_service = multi_process_service.is_active(os.environ) if on_gpu else None

    def identities(self, workload: Workload, contenders: Sequence[Contender]) -> list[tuple[Any, ...]]:
        """The identities of a workload's rows, before it is measured."""
        common = {
            **dataclasses.asdict(self._setting_of(workload)),
            "denoise_steps": workload.denoise_steps,
            "text_tokens": workload.text_tokens,
            "robots": workload.robots,
            "arrivals": workload.spelled,
            "slots": workload.slots,
            "rows": workload.rows,
            "repetitions": self._options.repetitions,
            "queries": self._options.queries,
            **self.provenance,
        }
        every = [
            {
                **common,
                "mode": contender.mode.value,
                "tokens_per_frame": contender.tokens_per_frame,
                "deadline_ms": contender.deadline_ms,
            }
            for contender in contenders
        ]
        return [identity(one) for one in every]

    def measured(
        self, workload: Workload, contenders: Sequence[Contender], advance: Callable[[], None]
    ) -> list[Row]:
        """The rows of a workload."""
        life = max(longest_life(workload, contender) for contender in contenders)
        turns = Turns(repetitions=self._options.repetitions, queries=self._options.queries, warm_up=life + 1)
        with self._bench.open(workload, contenders, turns.total) as opened:
            measured = measure(opened.lanes, opened.stages.times, turns, advance)
            compiles = {lane.contender: lane.compiles_after_warm_up for lane in opened.lanes}
            taken = {
                contender: memory.in_use(programs, in_two_processes=contender.mode is Mode.PARALLEL)
                for contender, programs in opened.program_bytes.items()
            }
        afterwards = Afterwards(
            batches=opened.batches,
            compiles_after_warmup=compiles,
            memory=taken,
            multi_process_service=self._multi_process_service,
            took_s=time.perf_counter() - self._began,
            provenance={"written_at": _now(), **self.provenance},
        )
        return rows(self._setting_of(workload), workload, turns, measured, afterwards)

    def _setting_of(self, workload: Workload) -> Setting:
        return _setting(self._subject.with_cameras(workload.cameras))


def _count(workloads: Sequence[tuple[Workload, Sequence[Contender]]]) -> int:
    return sum(len(contenders) for _, contenders in workloads)


def _setting(subject: Subject) -> Setting:
    config = subject.config
    return Setting(
        policy=subject.name,
        weights=subject.weights_from,
        dtype=config.dtype,
        device=jax.devices()[0].device_kind,
        cameras=len(config.cameras),
        prompt_tokens=subject.bucket,
        prefix_tokens=config.image_tokens + subject.bucket,
        horizon=config.horizon,
    )


def _now() -> str:
    return dt.datetime.now(dt.UTC).isoformat(timespec="seconds")


def _provenance() -> dict[str, Any]:
    return {
        "command": command(),
        **provenance.git_state(),
        "versions": provenance.versions(),
        "hardware": provenance.hardware(),
    }


def _plots(shown: Sequence[Row], path: Path) -> list[Path]:
    """The figures beside the file of rows; none where matplotlib is not installed."""
    try:
        from eval.bench.plots import draw

        return draw(shown, path.with_suffix(""))
    except ModuleNotFoundError:
        return []
