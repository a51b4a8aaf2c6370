"""`python -m eval.libero`: run a policy on LIBERO and leave records, videos and a success table behind."""

import sys
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Group, Parameter

from configs.arms import ArmsConfig
from configs.cli import Names, Numbers, run_app, usable_folder
from configs.errors import UsageError
from configs.load import check
from configs.overlay import overlay
from sim_envs.libero.gl import require_backend

app = App(
    name="python -m eval.libero",
    help="Run a policy on LIBERO in one mode or several, and record success rates, latency, texts and videos."
    "\n\nDefaults are the published protocol. Without any option of `What to run` or `Protocol`, the small "
    "`demo` preset runs instead: the bundled policy, every task of one suite once, in the mode given and, to "
    "be compared with, in mode isolated. `--config demo` with such options is the demo, changed by them.",
)
_WHAT = Group("What to run", sort_key=1)
_SERVING = Group("How it is served (the demo, too)", sort_key=2)
_PROTOCOL = Group("Protocol (changes what may be compared)", sort_key=3)
_OUTPUT = Group("Output (of the demo, too)", sort_key=4)

_KEEPS_THE_DEMO = {"mode", "against", "language_tasks", "tokens_per_frame", "deadline_ms", "video"}
"""What may be said of the demo. Whatever says which episodes are played, by whom or how, means a run of one's
own, with the defaults that its help names."""

_DEMO = """\
The demo: preset `demo`, since no option says what to run. Any that does, such as
--policy, --suite or --assets, runs the published protocol instead; see --help.
"""


@app.default
def evaluate(  # noqa: PLR0913 - one parameter per option of the command line
    *,
    suite: Annotated[Names | None, Parameter(group=_WHAT)] = None,
    task_ids: Annotated[Numbers | None, Parameter(group=_WHAT)] = None,
    num_trials_per_task: Annotated[int | None, Parameter(group=_WHAT)] = None,
    init_ids: Annotated[Numbers | None, Parameter(group=_WHAT)] = None,
    policy: Annotated[str | None, Parameter(group=_WHAT)] = None,
    random_weights: Annotated[bool | None, Parameter(group=_WHAT, negative="")] = None,
    dtype: Annotated[str | None, Parameter(group=_WHAT)] = None,
    config: Annotated[str | None, Parameter(group=_WHAT)] = None,
    smoke: Annotated[bool, Parameter(group=_WHAT, negative="")] = False,
    mode: Annotated[Names | None, Parameter(group=_SERVING)] = None,
    against: Annotated[str | None, Parameter(group=_SERVING)] = None,
    language_tasks: Annotated[Names | None, Parameter(group=_SERVING)] = None,
    tokens_per_frame: Annotated[int | None, Parameter(group=_SERVING)] = None,
    deadline_ms: Annotated[float | None, Parameter(group=_SERVING)] = None,
    assets: Annotated[str | None, Parameter(group=_PROTOCOL)] = None,
    replan_steps: Annotated[int | None, Parameter(group=_PROTOCOL)] = None,
    num_steps_wait: Annotated[int | None, Parameter(group=_PROTOCOL)] = None,
    max_steps: Annotated[int | None, Parameter(group=_PROTOCOL)] = None,
    wordings: Annotated[str | None, Parameter(group=_PROTOCOL)] = None,
    seed: Annotated[int | None, Parameter(group=_PROTOCOL)] = None,
    output_dir: Annotated[Path, Parameter(group=_OUTPUT)] = Path("runs"),
    video: Annotated[str | None, Parameter(group=_OUTPUT)] = None,
    resume: Annotated[bool, Parameter(group=_OUTPUT, negative="")] = False,
) -> int:
    """Run the episodes and print the table.

    Args:
        suite: Task suites, several if you like: libero_spatial, libero_object, libero_goal, libero_10,
            libero_90. Default: the four that papers report.
        task_ids: Tasks of every suite, as `0 3 7`, `0,3,7` or `0-4`. Default: all.
        num_trials_per_task: Episodes per task, one per stored initial state. Default: 50, as published.
        init_ids: Which stored initial states, instead of `num_trials_per_task`, the first ones; from 1000
            on, states that LIBERO's placement draws, as many as you like.
        policy: tiny (default), small, pi05_libero, pi05_base, expert, noop or random; the folder of a
            checkpoint that `eval.train` wrote; or a YAML file.
        random_weights: Random weights instead of the policy's checkpoint: latency without a download.
        dtype: What the policy computes in: float32 or bfloat16. Default: the policy's own.
        config: A YAML file with these options, or the name of a preset (demo, smoke). Flags override it.
        smoke: The whole chain on one short episode, in a minute on a laptop.
        mode: How actions and language are scheduled: actions, isolated, shared, unified (default)
            or parallel. Several are compared: each is an arm, a run of its own, and all play every episode in
            turns.
        against: One more arm, which the others are compared with. Default: the first in `mode`; in the demo,
            isolated.
        language_tasks: Texts wanted beside actions, or `none`. Default: those that the policy has learnt.
        tokens_per_frame: In mode unified, tokens decoded per query for every text under way. Default: 5.
        deadline_ms: In mode unified, decode what fits between the actions and so many milliseconds after the
            query, by measured costs. The batch is made for tokens_per_frame. Default: no deadline.
        assets: LIBERO's asset tree: a folder, or the name of a source (auto, standins, download). Default:
            auto.
        replan_steps: Control steps between two queries. Default: 5.
        num_steps_wait: Settle steps before the first query. Default: 10.
        max_steps: Step limit of an episode. Default: the suite's published limit.
        wordings: In which words the policy is told its task: benchmark (default), training (several, which
            `eval.train` shows), or held_out (others, which it never shows).
        seed: The environment is seeded with it before every episode. Default: 7.
        output_dir: Where the run's folder is made.
        video: Which episodes leave a video: none, failures (default) or all (the demo's default).
        resume: Complete the newest unfinished run that these options describe, and retry its errors.
    """
    given: dict[str, Any] = {
        "mode": mode,
        "against": against,
        "suites": suite,
        "task_ids": task_ids,
        "num_trials_per_task": num_trials_per_task,
        "init_ids": init_ids,
        "policy": policy,
        "language_tasks": () if language_tasks == ("none",) else language_tasks,
        "tokens_per_frame": tokens_per_frame,
        "deadline_ms": deadline_ms,
        "random_weights": random_weights,
        "dtype": dtype,
        "assets": assets,
        "replan_steps": replan_steps,
        "num_steps_wait": num_steps_wait,
        "max_steps": max_steps,
        "wordings": wordings,
        "seed": seed,
        "video": video,
    }
    usable_folder(output_dir, "--output-dir")
    require_backend()  # before anything imports MuJoCo, which answers a wrong MUJOCO_GL with a traceback
    from eval.policies.given import refuse_idle
    from eval.records.run_folders import find_unfinished, new_run
    from eval.rollout.evaluation import (  # slow: a simulator and JAX; --help needs neither
        exit_code,
        run_evaluation,
    )

    flags = {key: value for key, value in given.items() if value is not None}
    preset = _preset_name(config, smoke=smoke)
    if resume:
        unfinished = find_unfinished(output_dir, overlay(ArmsConfig, preset, flags))
        return exit_code(run_evaluation(*unfinished))
    demo = preset is None and flags.keys() <= _KEEPS_THE_DEMO
    asked = overlay(ArmsConfig, "demo" if demo else preset, flags)
    arms = check(ArmsConfig, asked, source="the command line").arms()
    refuse_idle(flags, arms)
    if demo:
        sys.stdout.write(_DEMO)
    return exit_code(run_evaluation(*(new_run(output_dir, arm) for arm in arms)))


def _preset_name(config: str | None, *, smoke: bool) -> str | None:
    if smoke and config is not None:
        raise UsageError(f"--smoke and --config {config!r} are both presets: give one of them")
    return "smoke" if smoke else config


if __name__ == "__main__":
    run_app(app)
