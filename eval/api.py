"""`evaluate(policy, suite=…)`: an evaluation as a function call, which changes nothing of its caller."""

import contextlib
import dataclasses
import functools
import logging
import random
import re
import sys
import threading
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from configs.errors import check
from configs.load import overlay
from configs.paths import relative_to_here, usable_folder
from configs.progress import silent
from configs.schema import ExecutionConfig, VariantsConfig
from contracts.episode import EpisodeResult
from contracts.errors import UsageError, unknown
from contracts.monitor import Monitor
from contracts.perturbation import format_perturbations
from eval.metrics.rows import RunRows
from eval.monitors.loggers import with_log
from eval.policies.python import makes_policy
from eval.records.reader import RunIdentity
from eval.rollout.evaluation import MonitorFactory, print_line, run_evaluation
from eval.rollout.prepare import prepare_options

_SOURCE = "evaluate()"
_EXECUTION = set(ExecutionConfig.model_fields)
_OPTIONS = set(VariantsConfig.model_fields) - {"policy", "suites"}  # which are arguments
_ONE = threading.Lock()


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Results:
    """The results of an evaluation.

    Attributes:
        runs: The rows of each variant: `overall`, `suites`, `tasks`, and its `records`.
        remarks: What the command would have said, a line each.
    """

    runs: tuple[RunRows, ...]
    remarks: tuple[str, ...] = ()

    @property
    def by_mode(self) -> "Mapping[str, Results]":
        """The results of each mode."""
        return self._by(lambda run: run.mode)

    @property
    def by_perturbation(self) -> "Mapping[str, Results]":
        """The results under each of the perturbations, such as `camera:3+light:2`; `none` is the control."""
        return self._by(lambda run: format_perturbations(run.perturb))

    def _by(self, name: Callable[[RunIdentity], str]) -> "Mapping[str, Results]":
        found = defaultdict[str, list[RunRows]](list)
        for rows in self.runs:
            found[name(rows.records.identity)].append(rows)
        return {each: Results(runs=tuple(runs)) for each, runs in found.items()}

    @property
    def rows(self) -> RunRows:
        """The rows of the only variant; of several, a UsageError."""
        if len(self.runs) > 1:
            what, by = ("modes", "by_mode") if len(self.by_mode) > 1 else ("perturbations", "by_perturbation")
            first, *others = getattr(self, by)
            raise UsageError(
                f"these are results of {what} {', '.join([first, *others])}; choose one: {by}[{first!r}]"
            )
        return self.runs[0]

    @property
    def success(self) -> float | None:
        """The success rate, from 0 to 1; None if every episode was an error."""
        percent = self.rows.overall.pc_success
        return None if percent is None else percent / 100

    @property
    def folders(self) -> tuple[Path, ...]:
        """The folder of each variant's records, videos and `results.json`."""
        return tuple(rows.records.folder.path for rows in self.runs)

    def table(self) -> str:
        """The table of the last screen, in Markdown."""
        from eval.report.conclusion import conclude_runs
        from eval.report.labels import labels_of
        from eval.report.last_screen import results_table, with_controls  # slow; not for the first step
        from eval.report.table import to_markdown

        records = with_controls(self.runs)
        labels = labels_of([each.identity for each in records])
        conclusion = conclude_runs(labels, records)
        return to_markdown(results_table(self.runs, labels[-len(self.runs) :], conclusion))

    def frame(self) -> Any:
        """A pandas data frame with a row per episode."""
        try:
            import pandas as pd
        except ModuleNotFoundError as error:
            raise UsageError("frame() needs pandas: run uv pip install pandas") from error
        episodes = [
            {**vars(key), "mode": run.mode, "perturb": format_perturbations(run.perturb), **_plain(result)}
            for rows, run in ((each, each.records.identity) for each in self.runs)
            for key, result in sorted(rows.records.episodes.items())
        ]
        return pd.DataFrame(episodes)

    def __repr__(self) -> str:
        """See `table`."""
        return self.table()

    _repr_markdown_ = table  # which notebooks display


def _plain(result: EpisodeResult) -> dict[str, Any]:
    """The fields that fit into a cell."""
    plain = str | int | float | None
    fields = {name: value for name, value in vars(result).items() if isinstance(value, plain)}
    return {**fields, "outcome": result.outcome.value}


def _named(policy: Any, name: str | None) -> str:
    """How records name a policy: as given, or by module and `name`, else that of its class or function."""
    if isinstance(policy, str):
        if name is not None:
            raise UsageError(f"name={name!r} is for a policy that is an object or a class; leave it out")
        return policy
    made_by = getattr(policy, "func", policy)  # of functools.partial
    named = made_by if makes_policy(made_by) else type(made_by)
    label = re.sub(r"[^A-Za-z0-9_.-]+", "-", named.__name__ if name is None else name).strip("-")
    if not label:
        raise UsageError(f"name is {name!r}: give one with letters or digits, such as 'step 1000'")
    return f"{named.__module__}:{label}"


def _monitor(log: Sequence[str], *, verbose: bool) -> MonitorFactory:
    if not verbose:
        return with_log(lambda *_: Monitor(), log)
    from eval.monitors.console import EvaluationConsole  # slow

    return with_log(functools.partial(EvaluationConsole, report=True), log)


@contextlib.contextmanager
def _only_one() -> Iterator[None]:
    """Hold the lock of evaluations; a UsageError if another one runs in this process."""
    if not _ONE.acquire(blocking=False):
        raise UsageError("another evaluation runs in this process; wait for its end")
    try:
        yield
    finally:
        _ONE.release()


@contextlib.contextmanager
def _caller_unchanged() -> Iterator[None]:
    """Put back what policies, simulators and libraries change of the whole process."""
    torch, root = sys.modules.get("torch"), logging.getLogger()
    level, handlers, disabled = root.level, list(root.handlers), root.manager.disable
    drawn, drawn_by_numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 - the caller's
    with contextlib.ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        stack.enter_context(threadpool_limits())  # of BLAS: it restores what is set meanwhile
        if torch is not None:
            devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
            stack.enter_context(torch.random.fork_rng(devices))
            stack.callback(torch.set_default_dtype, torch.get_default_dtype())
            stack.callback(torch.set_num_threads, torch.get_num_threads())
            stack.callback(torch.set_grad_enabled, torch.is_grad_enabled())
        try:
            yield
        finally:
            random.setstate(drawn)
            np.random.set_state(drawn_by_numpy)  # noqa: NPY002
            logging.disable(disabled)
            root.setLevel(level)
            root.handlers[:] = handlers


def _options(
    policy: Any, name: str | None, suite: str | Sequence[str], options: Mapping[str, Any]
) -> tuple[dict[str, Any], ExecutionConfig]:
    """What is given of the options of `VariantsConfig`, and how the episodes are played."""
    given = {option: value for option, value in options.items() if value is not None}
    for wrong in given.keys() - _EXECUTION - _OPTIONS:
        raise unknown("option", wrong, sorted(_EXECUTION | _OPTIONS), remedy=f"In {_SOURCE}.")
    how = {option: given.pop(option) for option in _EXECUTION & given.keys()}
    if threading.current_thread() is not threading.main_thread():  # to which open worlds' renderers belong
        how.setdefault("executor", "processes")
    execution = check(ExecutionConfig, how, source=_SOURCE)
    given |= {"policy": _named(policy, name)} | ({"suites": suite} if suite else {})
    return check(VariantsConfig, given, source=_SOURCE).model_dump(exclude_unset=True), execution


def evaluate(
    policy: Any = "tiny",
    suite: str | Sequence[str] = (),
    *,
    name: str | None = None,
    config: str | None = None,
    output_dir: str | Path = "runs",
    log: Sequence[str] = (),
    resume: bool = False,
    verbose: bool = False,
    **options: Any,
) -> Results:
    """Evaluate a policy as `oxygen-eval run` does, with the same options and records.

    Worlds, and the processes of `num_envs`, stay open for the next call. Signal handlers, random number
    generators, logging, warnings and PyTorch's defaults are afterwards as they were before.

    Args:
        policy: An object with openpi's methods or this project's contract, a class or a function that makes
            one (docs/evaluate.md), or a name as on the command line.
        suite: One suite or several, by name or as YAML files.
        name: How records and tables call an object or a class, such as `step 1000`; default: as its class.
        config: A preset, or a YAML file, that the options override.
        output_dir: Parent of the runs' folders.
        log: Loggers: tensorboard, wandb, trackio.
        resume: Complete the newest unfinished run with these options.
        verbose: Print what the command prints.
        options: Any other option of `oxygen-eval run --help-all`, such as `task_ids`, `init_ids`,
            `max_steps`, `assets`, `video`, `num_envs`; None is as not given.

    Raises:
        UsageError: An option, the policy or this machine does not fit, in one line; or see `run_evaluation`.
        KeyboardInterrupt: All records are on disk.
    """
    flags, execution = _options(policy, name, suite, options)
    quiet = contextlib.nullcontext() if verbose else silent()
    with _only_one(), _caller_unchanged(), quiet, relative_to_here():
        evaluation = prepare_options(
            overlay(VariantsConfig, config, flags),
            given=flags,
            execution=execution,
            output_dir=usable_folder(Path(output_dir), "output_dir"),
            resume=resume,
            lasting=True,
            policy=None if isinstance(policy, str) else policy,
            source=_SOURCE,
        )
        remarks = list[str]()
        runs = run_evaluation(
            evaluation,
            monitor=_monitor(log, verbose=verbose),
            max_errors=execution.max_errors,
            notify=print_line if verbose else remarks.append,
        )
    return Results(runs=tuple(runs), remarks=tuple(remarks))
