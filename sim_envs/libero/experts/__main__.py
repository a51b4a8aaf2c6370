"""`python -m sim_envs.libero.experts`: success rates of the scripted policies on LIBERO."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from configs.cli import Names, Numbers, run_app
from configs.paths import usable_file
from sim_envs.gl import choose_backend

app = App(
    name="python -m sim_envs.libero.experts",
    help="Measure success rates of the scripted policies on LIBERO, under the published protocol.",
    version_flags=[],
)


@app.default
def main(  # noqa: PLR0913 - one parameter per option of the command line
    *,
    suite: Annotated[Names, Parameter(show_default=False)] = ("libero_object", "libero_spatial"),
    task_ids: Annotated[Numbers, Parameter(show_default=False)] = (),
    init_ids: Annotated[Numbers, Parameter(show_default=False)] = tuple(range(10)),
    policy: str = "expert",
    expert_noise: float = 0.0,
    motion: str = "none",
    assets: str | None = None,
    num_envs: int = 1,
    output: Path | None = None,
    results: Path | None = None,
) -> None:
    """Play episodes, print a line per task, and write the requested files.

    Args:
        suite: Task suites: libero_spatial, libero_object, libero_goal, libero_10, libero_90. Default:
            libero_object and libero_spatial.
        task_ids: Tasks of every suite, as `0 3 7`, `0,3,7` or `0-4`. Default: all.
        init_ids: Initial states: stored ones, or sampled ones from 1000 on. Default: 0-9.
        policy: expert, noop or random.
        expert_noise: Variation and mistakes of the expert, from 0 to 1.
        motion: Motion of objects to be grasped, until they are touched: none, shuttle:SPEED[,PERIOD] or
            drift:SPEED, in cm/s and s.
        assets: LIBERO's asset tree: a folder, or the name of a source (auto, standins, download). Default:
            auto.
        num_envs: Number of worlds in parallel, each in its own process.
        output: Append one JSON line per episode to this file.
        results: Write the table as JSON to this file.
    """
    for option, file in {"--output": output, "--results": results}.items():
        if file is not None:
            usable_file(file, option)
    choose_backend()  # before MuJoCo is imported, which fails with a traceback if MUJOCO_GL is wrong
    from sim_envs.libero.experts.report import (  # slow: a simulator, which --help does not need
        Measurement,
        measure,
    )

    measure(
        Measurement(
            suites=suite,
            task_ids=task_ids,
            init_ids=init_ids,
            policy=policy,
            noise=expert_noise,
            motion=motion,
            assets=assets,
            num_envs=num_envs,
            output=output,
            results=results,
        )
    )


if __name__ == "__main__":
    run_app(app)
