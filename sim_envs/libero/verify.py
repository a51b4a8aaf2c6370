"""`python -m sim_envs.libero.verify FILE.npz`: compares this machine's LIBERO with reference trajectories."""

from pathlib import Path

from cyclopts import App

from configs.cli import run_app
from sim_envs.gl import choose_backend

app = App(
    name="python -m sim_envs.libero.verify",
    help="Replay reference trajectories of LIBERO and print the largest error per episode."
    "\n\nExit code: 0 all episodes agree, 1 some differ, 2 the input is not usable.",
    version_flags=[],
)


@app.default
def verify(file: Path, /, *, assets: str | None = None) -> int:
    """Replay the reference; the exit code is 0 if all episodes agree.

    Args:
        file: Reference trajectories, .npz.
        assets: LIBERO's asset tree: a folder, or the name of a source (auto, download). Default: auto.
    """
    choose_backend()  # before anything imports MuJoCo, which answers a wrong MUJOCO_GL with a traceback
    from sim_envs.libero.assets import find_assets
    from sim_envs.libero.replay import read_reference, report

    reference = read_reference(file)
    return report(reference, find_assets(assets))


if __name__ == "__main__":
    run_app(app)
