"""`oxygen-eval collect`: play episodes and keep the successful ones, or all, as demonstrations."""

import os
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from configs.cli import brief_app, run_app
from configs.errors import check
from configs.load import overlay
from configs.paths import usable_folder
from configs.schema import OUTPUT, WHAT
from configs.training import CollectConfig
from sim_envs.gl import require_backend

app = brief_app(
    "collect",
    "Collect demonstrations: play episodes in several processes, keep those that succeed, and write "
    "them as a dataset in LeRobot's layout (v3.0).\n\n"
    "After an interruption, the same command resumes. Name a dataset's folder again to add tasks, initial "
    "states, seeds or noise levels.",
    *("policy", "expert-noise", "suite", "task-ids", "num-trials-per-task", "init-ids", "seeds"),
    *("config", "assets", "keep-failures", "output", "workers"),
)


@app.default
def collect(
    *,
    options: Annotated[CollectConfig, Parameter(name="*")] = CollectConfig(),  # noqa: B008 - it is frozen
    config: Annotated[str | None, WHAT] = None,
    output: Annotated[Path, OUTPUT] = Path("demonstrations"),
    workers: Annotated[int | None, OUTPUT, Parameter(validator=Number(gte=1, lte=4096))] = None,
) -> int:
    """Collect demonstrations.

    Args:
        config: A YAML file with these options, or the name of a preset (smoke). Flags override it.
        output: The dataset's folder.
        workers: Processes that play, each with its own simulator. Default: one per core.
    """
    output = usable_folder(output, "--output")
    require_backend()  # before anything imports MuJoCo, which answers a wrong MUJOCO_GL with a traceback
    from eval.collect.collection import collect_demonstrations  # slow: a simulator and JAX
    from eval.policies.unused_options import refuse_model_options

    flags = options.model_dump(exclude_unset=True)
    options = check(CollectConfig, overlay(CollectConfig, config, flags), source="the command line")
    players = [options.policy, *([options.learner] if options.learner else [])]
    refuse_model_options(flags, players)
    return collect_demonstrations(options, output, workers=workers or len(os.sched_getaffinity(0)))


if __name__ == "__main__":
    run_app(app)
