"""`python -m eval.collect`: play episodes and keep the successful ones, or all, as demonstrations."""

from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Group, Parameter

from configs.cli import Names, Numbers, run_app, usable_folder
from configs.load import check
from configs.overlay import overlay
from configs.schema import CollectConfig
from sim_envs.gl import require_backend

app = App(
    name="python -m eval.collect",
    help="Collect demonstrations: play episodes in several processes, keep those that succeed, and write "
    "them as a dataset in LeRobot's layout (v3.0).\n\n"
    "Interrupted or killed, the same command completes the rest. More tasks, initial states, seeds or noise "
    "levels may be added to a dataset by naming its folder again.",
)
_WHAT = Group("What to play", sort_key=1)
_PROTOCOL = Group("How it is played", sort_key=2)
_OUTPUT = Group("How it is written", sort_key=3)


@app.default
def collect(  # noqa: PLR0913 - one parameter per option of the command line
    *,
    suite: Annotated[Names | None, Parameter(group=_WHAT)] = None,
    task_ids: Annotated[Numbers | None, Parameter(group=_WHAT)] = None,
    num_trials_per_task: Annotated[int | None, Parameter(group=_WHAT)] = None,
    init_ids: Annotated[Numbers | None, Parameter(group=_WHAT)] = None,
    seeds: Annotated[Numbers | None, Parameter(group=_WHAT)] = None,
    policy: Annotated[str | None, Parameter(group=_WHAT)] = None,
    random_weights: Annotated[bool | None, Parameter(group=_WHAT, negative="")] = None,
    dtype: Annotated[str | None, Parameter(group=_WHAT)] = None,
    expert_noise: Annotated[float | None, Parameter(group=_WHAT)] = None,
    learner: Annotated[str | None, Parameter(group=_WHAT)] = None,
    keep_failures: Annotated[bool | None, Parameter(group=_OUTPUT, negative="")] = None,
    config: Annotated[str | None, Parameter(group=_WHAT)] = None,
    assets: Annotated[str | None, Parameter(group=_PROTOCOL)] = None,
    replan_steps: Annotated[int | None, Parameter(group=_PROTOCOL)] = None,
    num_steps_wait: Annotated[int | None, Parameter(group=_PROTOCOL)] = None,
    max_steps: Annotated[int | None, Parameter(group=_PROTOCOL)] = None,
    variation: Annotated[float | None, Parameter(group=_PROTOCOL)] = None,
    motion: Annotated[str | None, Parameter(group=_PROTOCOL)] = None,
    output: Annotated[Path, Parameter(group=_OUTPUT)] = Path("demonstrations"),
    image_size: Annotated[int | None, Parameter(group=_OUTPUT)] = None,
    images: Annotated[str | None, Parameter(group=_OUTPUT)] = None,
    horizon: Annotated[int | None, Parameter(group=_OUTPUT)] = None,
    workers: Annotated[int | None, Parameter(group=_OUTPUT)] = None,
) -> int:
    """Play, keep, write.

    Args:
        suite: Task suites, several if you like, by name or as YAML files.
        task_ids: Tasks of every suite, as `0 3 7`, `0,3,7` or `0-4`. Default: all.
        num_trials_per_task: Episodes per task and seed, one per stored initial state. Default: 50.
        init_ids: Which initial states, instead of the first `num_trials_per_task` stored ones. A suite may
            have drawn ones beyond those.
        seeds: Every task and initial state is played once with each. Default: 7.
        policy: Who acts: expert (default), tiny, pi05_libero, …; a checkpoint's folder; or a YAML file.
        random_weights: Random weights instead of the policy's checkpoint.
        dtype: What the policy computes in: float32 or bfloat16.
        expert_noise: How much pace and path of the expert vary and how often something goes wrong, 0 to 1.
            The actions written down are those it meant. Default: 0.
        learner: A policy that takes turns with the expert (DAgger): it leads into mistakes of its own, the
            expert out of them, and actions are learnt from the expert's turns alone. Default: none.
        keep_failures: Keep episodes that fail, too, to learn from them what there is to say; none of their
            actions is to be learnt.
        config: A YAML file with these options, or the name of a preset (smoke). Flags override it.
        assets: Where the suites' assets come from: a folder, or the name of a source (auto, standins,
            download). Default: auto.
        replan_steps: Control steps between two queries, 1 to 10; every query is a frame. Default: 5.
        num_steps_wait: Settle steps before the first query. Default: 10.
        max_steps: Step limit of an episode. Default: the suite's published limit.
        variation: How much scenes vary between episodes, from 0 (not at all) to 1, where a suite has such
            variation. Default: the suite's.
        motion: How what is to be grasped moves until it is touched: none, shuttle:SPEED[,PERIOD] (to
            and fro) or drift:SPEED (along a line), in cm/s and s, such as shuttle:3. Default: the
            suite's, none.
        output: The dataset's folder.
        image_size: Height of the images, pixels. Default: the suite's own.
        images: How they are stored: png (default, lossless) or video (smaller).
        horizon: Control steps in an action chunk. Default: 10.
        workers: Processes that play, each with a simulator of its own. Default: one per core.
    """
    given: dict[str, Any] = {
        "suites": suite,
        "task_ids": task_ids,
        "num_trials_per_task": num_trials_per_task,
        "init_ids": init_ids,
        "seeds": seeds,
        "policy": policy,
        "random_weights": random_weights,
        "dtype": dtype,
        "expert_noise": expert_noise,
        "learner": learner,
        "keep_failures": keep_failures,
        "assets": assets,
        "replan_steps": replan_steps,
        "num_steps_wait": num_steps_wait,
        "max_steps": max_steps,
        "variation": variation,
        "motion": motion,
        "image_size": image_size,
        "images": images,
        "horizon": horizon,
    }
    usable_folder(output, "--output")
    require_backend()  # before anything imports MuJoCo, which answers a wrong MUJOCO_GL with a traceback
    from eval.collect.collection import collect_demonstrations, worker_count  # slow: a simulator and JAX
    from eval.policies.given import refuse_without_a_model

    flags = {key: value for key, value in given.items() if value is not None}
    resolved = check(CollectConfig, overlay(CollectConfig, config, flags), source="the command line")
    players = [resolved.policy, *([resolved.learner] if resolved.learner else [])]
    refuse_without_a_model(flags, players)
    return collect_demonstrations(resolved, output, workers=worker_count(workers))


if __name__ == "__main__":
    run_app(app)
