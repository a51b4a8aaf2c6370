"""`python -m sim_envs.libero.experts`: how often the scripted policies solve LIBERO's tasks."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from configs.cli import Names, Numbers, run_app
from sim_envs.gl import choose_backend

app = App(
    name="python -m sim_envs.libero.experts",
    help="How often the scripted policies solve LIBERO's tasks, under the published protocol.",
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
    """Play, print a line per task, and write what is asked for.

    Args:
        suite: Task suites: libero_spatial, libero_object, libero_goal, libero_10, libero_90. Default:
            libero_object and libero_spatial.
        task_ids: Tasks of every suite, as `0 3 7`, `0,3,7` or `0-4`. Default: all.
        init_ids: Which stored initial states, or from 1000 on drawn ones. Default: 0-9.
        policy: expert, noop or random.
        expert_noise: How much the expert varies and errs, from 0 to 1.
        motion: How what is to be grasped moves until it is touched: none, shuttle:SPEED[,PERIOD] or
            drift:SPEED, in cm/s and s.
        assets: LIBERO's asset tree: a folder, or the name of a source (auto, standins, download). Default:
            auto.
        num_envs: Worlds that are played at once, each in a process of its own.
        output: Append one JSON line per episode to this file.
        results: Write the table as JSON to this file.
    """
    choose_backend()  # before anything imports MuJoCo, which answers a wrong MUJOCO_GL with a traceback
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
