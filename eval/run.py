"""`python -m eval.run`: run a policy on a suite and leave records, videos and a success table behind."""

import functools
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Group, Parameter

from configs.cli import Names, Numbers, Steps, Words, run_app, usable_folder
from configs.errors import UsageError
from configs.load import check
from configs.overlay import overlay
from configs.variants import VariantsConfig
from eval.policies.kwargs import read_kwargs
from eval.records.run_folders import find_unfinished, new_run

_WHAT = Group("What to run", sort_key=1)
_SERVING = Group("How it is served (the demo, too)", sort_key=2)
_PROTOCOL = Group("Protocol (changes what may be compared)", sort_key=3)
_SCALE = Group("How many at once (of the demo, too)", sort_key=4)
_OUTPUT = Group("Output (of the demo, too)", sort_key=5)

_KEEPS_THE_DEMO = {
    "mode",
    "against",
    "margin",
    "time_margin",
    "language_tasks",
    "text_every",
    "tokens_per_frame",
    "deadline_ms",
    "clock",
    "while_waiting",
    "overlap",
    "batch_size",
    "video",
}
"""Options of the demo. Any other means a run of one's own, with the defaults that its help names."""

_DEMO = """\
The demo: preset `{preset}`, since no option says what to run. Any that does, such as
--policy, --suite or --assets, runs the published protocol instead; see --help.
"""


def build_app(
    module: str, about: str, *, defaults: Mapping[str, Any] | None = None, demo: str | None = None
) -> App:
    """The command line of an evaluation.

    Args:
        module: How the command is called: `python -m MODULE`.
        about: The head of its help.
        defaults: Options that hold unless a flag or a preset says otherwise.
        demo: The preset that runs if no option says what to run; None if one must.
    """
    app = App(name=f"python -m {module}", help=about)

    @app.default
    def evaluate(  # noqa: PLR0913 - one parameter per option of the command line
        *,
        suite: Annotated[Names | None, Parameter(group=_WHAT)] = None,
        task_ids: Annotated[Numbers | None, Parameter(group=_WHAT)] = None,
        num_trials_per_task: Annotated[int | None, Parameter(group=_WHAT)] = None,
        init_ids: Annotated[Numbers | None, Parameter(group=_WHAT)] = None,
        policy: Annotated[str | None, Parameter(group=_WHAT)] = None,
        policy_kwargs: Annotated[Words | None, Parameter(group=_WHAT)] = None,
        random_weights: Annotated[bool | None, Parameter(group=_WHAT, negative="")] = None,
        dtype: Annotated[str | None, Parameter(group=_WHAT)] = None,
        config: Annotated[str | None, Parameter(group=_WHAT)] = None,
        smoke: Annotated[bool, Parameter(group=_WHAT, negative="")] = False,
        mode: Annotated[Names | None, Parameter(group=_SERVING)] = None,
        against: Annotated[str | None, Parameter(group=_SERVING)] = None,
        margin: Annotated[float | None, Parameter(group=_SERVING)] = None,
        time_margin: Annotated[float | None, Parameter(group=_SERVING)] = None,
        language_tasks: Annotated[Names | None, Parameter(group=_SERVING)] = None,
        text_every: Annotated[int | None, Parameter(group=_SERVING)] = None,
        tokens_per_frame: Annotated[int | None, Parameter(group=_SERVING)] = None,
        deadline_ms: Annotated[float | None, Parameter(group=_SERVING)] = None,
        clock: Annotated[str | None, Parameter(group=_PROTOCOL)] = None,
        while_waiting: Annotated[str | None, Parameter(group=_PROTOCOL)] = None,
        overlap: Annotated[str | None, Parameter(group=_PROTOCOL)] = None,
        replan_steps: Annotated[Steps | None, Parameter(group=_PROTOCOL)] = None,
        assets: Annotated[str | None, Parameter(group=_PROTOCOL)] = None,
        num_steps_wait: Annotated[int | None, Parameter(group=_PROTOCOL)] = None,
        max_steps: Annotated[int | None, Parameter(group=_PROTOCOL)] = None,
        variation: Annotated[float | None, Parameter(group=_PROTOCOL)] = None,
        motion: Annotated[str | None, Parameter(group=_PROTOCOL)] = None,
        wordings: Annotated[str | None, Parameter(group=_PROTOCOL)] = None,
        seed: Annotated[int | None, Parameter(group=_PROTOCOL)] = None,
        num_envs: Annotated[int, Parameter(group=_SCALE)] = 1,
        executor: Annotated[str | None, Parameter(group=_SCALE)] = None,
        batch_size: Annotated[int | None, Parameter(group=_SCALE)] = None,
        episode_timeout: Annotated[float | None, Parameter(group=_SCALE)] = None,
        ray_address: Annotated[str | None, Parameter(group=_SCALE)] = None,
        shard: Annotated[str | None, Parameter(group=_SCALE)] = None,
        output_dir: Annotated[Path, Parameter(group=_OUTPUT)] = Path("runs"),
        video: Annotated[str | None, Parameter(group=_OUTPUT)] = None,
        max_errors: Annotated[int, Parameter(group=_OUTPUT)] = 5,
        report: Annotated[bool, Parameter(group=_OUTPUT)] = True,
        resume: Annotated[bool, Parameter(group=_OUTPUT, negative="")] = False,
    ) -> int:
        """Run the episodes and print the results.

        Args:
            suite: Task suites, by name or as YAML files.
            task_ids: Tasks of each suite, as `0 3 7`, `0,3,7` or `0-4`. Default: all.
            num_trials_per_task: Episodes per task, one per stored initial state. Default: the suite's
                published number.
            init_ids: Initial states, instead of the first `num_trials_per_task` stored ones. A suite may
                offer drawn states beyond the stored ones.
            policy: tiny (default; for eval.droid tiny_droid), expert, noop, random or another preset; a YAML
                file; the folder of a checkpoint written by `eval.train`; a class, as package.module:Class
                or file.py:Class; or a server, ws://host:port.
            policy_kwargs: Keyword arguments of a class or a server: key=value.
            random_weights: Use random weights: measures latency without a download.
            dtype: Data type of the policy's computation: float32 or bfloat16. Default: the policy's.
            config: A YAML file with these options, or the name of a preset (demo, demo_droid, smoke).
                Flags override it.
            smoke: Run one short episode as an end-to-end check, in a minute on a laptop.
            mode: How actions and language are scheduled: actions, isolated, shared, unified (default) or
                parallel. Each of several modes is a variant: a run of its own. All variants play each
                episode before the next, and are compared.
            against: Another variant, the reference of the comparison. Default: the first in `mode`; in the
                demo, isolated.
            margin: Non-inferiority margin of the success rate against the reference, percentage points.
                Default: 5.
            time_margin: Non-inferiority margin of the time to success, percent. Default: 10.
            language_tasks: Texts to generate beside actions, or `none`. Default: those the policy was
                trained on.
            text_every: Request a text of each language task at every N-th query. Default: as in its preset.
            tokens_per_frame: In mode unified, tokens decoded per query for each running text. Default: 5.
            deadline_ms: In mode unified, latency budget of a query: decode as many tokens as fit, by
                measured costs. The batch is sized for tokens_per_frame. Default: none.
            clock: How simulated time passes while the policy computes: paused (default: not at all),
                fixed:A,B (milliseconds until the actions, until the next query), profile:NAME or
                profile:FILE.yaml (a device profile), measured (this machine), or replay:RUN (a recorded run).
            while_waiting: Until new actions are available, continue (default) the previous chunk, or hold
                still.
            overlap: How a new chunk replaces the previous one. All skip as many of its actions as old ones
                were executed: skip (default) does only that; blend also averages it with the rest of the
                old chunk; rtc guides denoising towards that (real-time chunking).
            replan_steps: Control steps between two queries, or asap: as soon as the policy is free.
                Default: the suite's.
            assets: Source of the suite's assets: a folder, or auto, standins or download. Default: auto.
            num_steps_wait: Settle steps before the first query. Default: the suite's.
            max_steps: Step limit of an episode. Default: the suite's published limit.
            variation: Variation of scenes between episodes, from 0 to 1, for suites that support it.
                Default: the suite's.
            motion: Motion of the object to grasp until it is touched: none, shuttle:SPEED[,PERIOD] (to and
                fro) or drift:SPEED (along a line), in cm/s and s, such as shuttle:3. Default: the suite's.
            wordings: Wording of instructions: benchmark (default), training (as used by `eval.train`), or
                held_out (never used in training).
            seed: Seed of the environment in every episode, and of action noise. Default: 7.
            num_envs: Parallel worlds, each in its own process. Does not affect records, except timings.
            executor: serial (default for one world): in this process; processes (default for several); or
                ray: on a Ray cluster (extra [ray]).
            batch_size: Robots per batch of the model, padded; affects the last bits of its results.
                Default: half of num_envs, rounded up, so that two groups of worlds alternate.
            episode_timeout: Seconds after which an episode's process is replaced and the episode retried
                once. Default: 3600.
            ray_address: Cluster of executor ray: auto (default; the one of this machine), local (started
                for this run), or host:port.
            shard: Play a share of the episodes, such as 3/16; eval.merge joins the shares.
            output_dir: Parent of the run's folder.
            video: Episodes to record: none, failures (default) or all (default of the demo).
            max_errors: Stop after this many consecutive errors.
            report: Write a page of the results into the first run's folder (docs/reports.md).
            resume: Complete the newest unfinished run with these options, and retry its errors.
        """
        given: dict[str, Any] = {
            "mode": mode,
            "against": against,
            "margin": margin,
            "time_margin": time_margin,
            "suites": suite,
            "task_ids": task_ids,
            "num_trials_per_task": num_trials_per_task,
            "init_ids": init_ids,
            "policy": policy,
            "policy_kwargs": None if policy_kwargs is None else read_kwargs(policy_kwargs),
            "language_tasks": () if language_tasks == ("none",) else language_tasks,
            "text_every": text_every,
            "tokens_per_frame": tokens_per_frame,
            "deadline_ms": deadline_ms,
            "random_weights": random_weights,
            "dtype": dtype,
            "assets": assets,
            "clock": clock,
            "while_waiting": while_waiting,
            "overlap": overlap,
            "batch_size": batch_size,
            "shard": shard,
            "replan_steps": replan_steps,
            "num_steps_wait": num_steps_wait,
            "max_steps": max_steps,
            "variation": variation,
            "motion": motion,
            "wordings": wordings,
            "seed": seed,
            "video": video,
        }
        usable_folder(output_dir, "--output-dir")
        from eval.policies.unused_options import refuse_unused_options  # slow: JAX; --help needs none
        from eval.report.console import EvaluationConsole
        from eval.rollout.evaluation import exit_code, run_evaluation
        from eval.rollout.executors.choice import batch_size_for, choose_executor

        flags = {key: value for key, value in given.items() if value is not None}
        preset = _preset_name(config, smoke=smoke)
        playing = choose_executor(
            num_envs=num_envs,
            executor=executor,
            episode_timeout=episode_timeout,
            ray_address=ray_address,
        )
        monitor = functools.partial(EvaluationConsole, report=report)
        how: Any = {"monitor": monitor, "max_errors": max_errors, "executor": playing}
        if resume:
            unfinished = find_unfinished(output_dir, overlay(VariantsConfig, preset, flags))
            return exit_code(run_evaluation(*unfinished, **how))
        is_demo = demo is not None and preset is None and flags.keys() <= _KEEPS_THE_DEMO
        defaults_here = {**(defaults or {}), "batch_size": batch_size_for(num_envs)}
        asked = {**defaults_here, **overlay(VariantsConfig, demo if is_demo else preset, flags)}
        variants = check(VariantsConfig, asked, source="the command line").variants()
        refuse_unused_options(flags, variants)
        if is_demo:
            sys.stdout.write(_DEMO.format(preset=demo))
        return exit_code(run_evaluation(*(new_run(output_dir, each) for each in variants), **how))

    return app


def _preset_name(config: str | None, *, smoke: bool) -> str | None:
    if smoke and config is not None:
        raise UsageError(f"--smoke and --config {config!r} are both presets: give one of them")
    return "smoke" if smoke else config


app = build_app(
    "eval.run",
    "Run a policy on any suite in one mode or several, and record success rates, latency, texts and videos."
    "\n\nDefaults are the suite's published protocol.",
)

if __name__ == "__main__":
    run_app(app)
