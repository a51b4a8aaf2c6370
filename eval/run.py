"""`python -m eval.run`: run a policy on a suite and leave records, videos and a success table behind."""

import functools
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from configs.cli import ALL_OPTIONS, BriefHelp, Names, Words, read_kwargs, run_app
from configs.errors import UsageError
from configs.load import check, names, overlay
from configs.paths import usable_folder
from configs.schema import OUTPUT, WHAT, ExecutionConfig, VariantsConfig
from eval.records.run_folders import find_unfinished, new_run

_DEMO_OPTIONS = {
    *("mode", "against", "margin", "time_margin", "clock", "while_waiting", "overlap", "batch_size"),
    *("language_tasks", "text_every", "tokens_per_frame", "deadline_ms", "video", "video_every"),
}
"""Options that change the demo. With any other the command runs the published protocol instead."""

_DEMO = """\
The demo: preset `{preset}`, since no option says what to run. Any that does,
such as --policy or --suite, runs the published protocol instead (--help).
"""


_CONFIG = (
    "A YAML file with options of the groups What to run, How it is served and Protocol, and batch_size, "
    f"shard, video and video_every; or the name of a preset ({', '.join(names(VariantsConfig))}). "
    "Flags override it."
)

_COMMON = (
    *("policy", "policy-kwargs", "suite", "task-ids", "num-trials-per-task", "smoke", "mode", "assets"),
    *("clock", "num-envs", "video", "output-dir", "resume"),
)
"""The options that `--help` shows."""


def build_app(
    command: str,
    about: str,
    *,
    defaults: Mapping[str, Any] | None = None,
    demo: str | None = None,
    smoke_preset: str = "smoke",
) -> App:
    """The command line of an evaluation, `oxygen-eval COMMAND`; `about` is the head of its help.

    Flags and presets override the `defaults`. `demo` is the preset that runs if no option selects what to
    run; None if a suite is required.
    """
    app = App(
        name=f"oxygen-eval {command}",
        help=about,
        help_formatter=BriefHelp(*_COMMON),
        help_epilogue=ALL_OPTIONS,
        default_parameter=Parameter(negative=""),
    )

    @app.default
    def evaluate(
        *,
        options: Annotated[VariantsConfig, Parameter(name="*")] = VariantsConfig(),  # noqa: B008 - frozen
        policy_kwargs: Annotated[Words, WHAT] = (),
        config: Annotated[str | None, WHAT, Parameter(help=_CONFIG)] = None,
        smoke: Annotated[bool, WHAT, Parameter(show_default=False)] = False,
        execution: Annotated[ExecutionConfig, Parameter(name="*")] = ExecutionConfig(),  # noqa: B008 - frozen
        output_dir: Annotated[Path, OUTPUT] = Path("runs"),
        report: Annotated[bool, OUTPUT, Parameter(negative="--no-report")] = True,
        log: Annotated[Names, OUTPUT] = (),
        resume: Annotated[bool, OUTPUT, Parameter(show_default=False)] = False,
    ) -> int:
        """Run the episodes and print the results.

        Args:
            policy_kwargs: Keyword arguments of a class or a server: key=value.
            smoke: Run one short episode as an end-to-end check, in a minute on a laptop.
            output_dir: Parent of the run's folder.
            report: Write a page of the results into the first run's folder.
            log: Log success, latency and videos while the run goes on, to one or several of tensorboard (into
                the run's folder), wandb (extra [wandb]) and trackio (extra [trackio]).
            resume: Complete the newest unfinished run with these options, and retry its errors.
        """
        output_dir = usable_folder(output_dir, "--output-dir")
        from eval.loggers import with_log
        from eval.policies.unused_options import refuse_unused_options  # slow: JAX; --help needs none
        from eval.report.console import EvaluationConsole
        from eval.rollout.evaluation import exit_code, run_evaluation
        from eval.rollout.executors.executor import batch_size_for, choose_executor

        flags = options.model_dump(exclude_unset=True)
        if policy_kwargs:
            flags["policy_kwargs"] = read_kwargs(policy_kwargs)
        if smoke and config is not None:
            raise UsageError(f"--smoke and --config {config!r} are both presets: give one of them")
        preset = smoke_preset if smoke else config
        how: Any = {
            "monitor": with_log(functools.partial(EvaluationConsole, report=report), log),
            "max_errors": execution.max_errors,
            "executor": choose_executor(execution),
            "query_timeout_s": execution.query_timeout,
        }
        if resume:
            unfinished = find_unfinished(output_dir, overlay(VariantsConfig, preset, flags))
            return exit_code(run_evaluation(*unfinished, **how))
        is_demo = demo is not None and preset is None and flags.keys() <= _DEMO_OPTIONS
        defaults_here = {**(defaults or {}), "batch_size": batch_size_for(execution.num_envs)}
        merged = {**defaults_here, **overlay(VariantsConfig, demo if is_demo else preset, flags)}
        variants = check(VariantsConfig, merged, source="the command line").variants()
        refuse_unused_options(flags, variants)
        if is_demo:
            sys.stdout.write(_DEMO.format(preset=demo))
        runs = [new_run(output_dir, each) for each in variants]
        default_mode = merged.keys().isdisjoint({"mode", "against"})
        return exit_code(run_evaluation(*runs, **how, default_mode=default_mode))

    return app


app = build_app(
    "run",
    "Run a policy on any suite in one mode or several, and record success rates, latency, texts and videos."
    "\n\nDefaults are the suite's published protocol.",
)

if __name__ == "__main__":
    run_app(app)
