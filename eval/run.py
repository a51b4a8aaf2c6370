"""`oxygen-eval run`: run a policy on a suite and leave records, videos and a success table behind."""

import dataclasses
import functools
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from configs.cli import Names, Words, brief_app, read_kwargs, run_app
from configs.load import names, overlay
from configs.paths import usable_folder
from configs.schema import OUTPUT, WHAT, ExecutionConfig, Preset, VariantsConfig
from contracts.errors import UsageError, pluralize

if TYPE_CHECKING:
    from eval.rollout.evaluation import MonitorFactory

_DEMO_OPTIONS = {
    *("mode", "against", "margin", "time_margin", "clock", "while_waiting", "overlap", "batch_size"),
    *("language_tasks", "text_every", "tokens_per_frame", "deadline_ms", "video", "video_every"),
}
"""Options that change the demo. With any other the command runs the published protocol instead."""


_MEANS = {"isolated": "ends its texts before it acts again", "unified": "writes them while it acts"}
"""The modes of the demo, in words."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Demo:
    """What runs if no option says what to run."""

    preset: str
    plays: str  # its episodes in words
    episodes: int  # their number in one mode
    minutes: float  # what they take in one mode, on two cores without a GPU

    def announce(self, modes: Sequence[str]) -> str:
        """What will run, and for how long."""
        episodes = pluralize(self.episodes * len(modes), "episode")
        minutes = pluralize(math.ceil(self.minutes * len(modes)), "minute")
        meanings = "".join(f"{mode} {_MEANS[mode]}.\n" for mode in modes if mode in _MEANS)
        return (
            f"The demo: {episodes}, about {minutes} on two cores; no GPU is needed.\n"
            f"The bundled policy plays {self.plays}, modes {' and '.join(modes)}.\n"
            f"{meanings}"
            "With --policy or --suite the published protocol is played instead.\n\n"
        )


class WorldOptions(Preset):
    """Options that only one command's suites have."""

    def as_flags(self, suites: Sequence[str]) -> dict[str, Any]:  # noqa: ARG002
        """What they stand for among the options of all suites; a UsageError if these `suites` refuse them."""
        return {}


_CONFIG = (
    "A YAML file with options of the groups What to run, Modes and texts, and Protocol, and batch_size, "
    f"shard, video and video_every; or the name of a preset ({', '.join(names(VariantsConfig))}). "
    "Flags override it."
)

_COMMON = (
    *("policy", "policy-kwargs", "suite", "task-ids", "num-trials-per-task", "smoke", "mode", "assets"),
    *("replan-steps", "perturb", "clock", "num-envs", "video", "output-dir", "resume"),
)
"""The options that `--help` shows."""


def build_app(
    command: str,
    about: str,
    *,
    defaults: Mapping[str, Any] | None = None,
    demo: Demo | None = None,
    smoke_preset: str = "smoke",
    worlds: type[WorldOptions] = WorldOptions,
) -> App:
    """The command line of an evaluation, `oxygen-eval COMMAND`; `about` is the head of its help.

    Flags and presets override the `defaults`. `demo` runs if no option selects what to run; None if a suite
    is required. `worlds` has the options that only this command's suites have.
    """
    app = brief_app(command, about, *_COMMON)

    @app.default
    def evaluate(
        *,
        options: Annotated[VariantsConfig, Parameter(name="*")] = VariantsConfig(),  # noqa: B008 - frozen
        policy_kwargs: Annotated[Words, WHAT] = (),
        config: Annotated[str | None, WHAT, Parameter(help=_CONFIG)] = None,
        smoke: Annotated[bool, WHAT, Parameter(show_default=False)] = False,
        of_worlds: Annotated[worlds, Parameter(name="*")] = worlds(),  # noqa: B008 - frozen
        execution: Annotated[ExecutionConfig, Parameter(name="*")] = ExecutionConfig(),  # noqa: B008 - frozen
        output_dir: Annotated[Path, OUTPUT] = Path("runs"),
        report: Annotated[bool, OUTPUT, Parameter(negative="--no-report")] = True,
        log: Annotated[Names, OUTPUT] = (),
        resume: Annotated[bool, OUTPUT, Parameter(show_default=False)] = False,
        verbose: Annotated[bool, OUTPUT, Parameter(show_default=False)] = False,
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
            verbose: Also print tasks, latency and texts, and comparisons in full.
        """
        output_dir = usable_folder(output_dir, "--output-dir")
        flags = options.model_dump(exclude_unset=True) | of_worlds.as_flags(options.suites)
        flags |= {"policy_kwargs": read_kwargs(policy_kwargs)} if policy_kwargs else {}
        if smoke and config is not None:
            raise UsageError(f"--smoke and --config {config!r} are both presets: give one of them")
        preset = smoke_preset if smoke else config
        is_demo = demo is not None and preset is None and not resume and flags.keys() <= _DEMO_OPTIONS
        if is_demo:
            preset = demo.preset
        from eval.monitors.console import EvaluationConsole  # slow; --help needs none of these
        from eval.monitors.loggers import with_log

        monitor = with_log(functools.partial(EvaluationConsole, report=report, verbose=verbose), log)
        where = {"output_dir": output_dir, "resume": resume, "defaults": defaults}
        return _play(preset, flags, execution, monitor, demo if is_demo else None, **where)

    return app


def _play(
    preset: str | None,
    flags: Mapping[str, Any],
    execution: ExecutionConfig,
    monitor: "MonitorFactory",
    demo: Demo | None,
    **where: Any,
) -> int:
    """Prepare an evaluation and play it, the `demo` with an announcement; returns the exit code."""
    from eval.rollout.evaluation import exit_code, run_evaluation  # slow
    from eval.rollout.prepare import prepare_options

    asked = overlay(VariantsConfig, preset, flags)
    evaluation = prepare_options(asked, given=flags, execution=execution, **where)
    if demo is not None:
        sys.stdout.write(demo.announce([variant.mode for variant in evaluation.configs]))
        sys.stdout.flush()
    return exit_code(run_evaluation(evaluation, monitor=monitor, max_errors=execution.max_errors))


app = build_app(
    "run",
    "Run a policy on any suite in one mode or several, and record success rates, latency, texts and videos."
    "\n\nDefaults are the suite's published protocol.",
)

if __name__ == "__main__":
    run_app(app)
