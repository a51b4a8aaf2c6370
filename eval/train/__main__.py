"""`python -m eval.train`: train a policy on demonstrations; see on the way how often it solves its tasks."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from configs.cli import run_app, spelt, usable_folder
from configs.errors import UsageError
from configs.load import check, read_mapping
from configs.training import OUTPUT, WHAT, TrainConfig
from oxygen.training.recipe import RUN_FILE
from oxygen.training.run_folder import read_options
from sim_envs.gl import require_backend

app = App(
    name="python -m eval.train",
    help="Train a π0.5-shaped policy on demonstrations (`python -m eval.collect`), and see on the way how "
    "often it solves its tasks. Every checkpoint is a policy: `python -m eval.libero --policy FOLDER`.",
    default_parameter=Parameter(negative=""),
)


@app.default
def train(
    *,
    options: Annotated[TrainConfig, Parameter(name="*")] = TrainConfig(),  # noqa: B008 - it is frozen
    config: Annotated[str | None, WHAT] = None,
    output_dir: Annotated[Path, OUTPUT] = Path("runs/train/tiny"),
    minutes: Annotated[float | None, OUTPUT] = None,
    resume: Annotated[bool, OUTPUT] = False,
) -> int:
    """Train until the last step, the time limit or Ctrl-C; each leaves a checkpoint to go on from.

    Args:
        options: What to train and how.
        config: A YAML file with these options, or a preset's name (smoke). Flags override it.
        output_dir: The training's folder.
        minutes: Stop after so long, with a checkpoint.
        resume: Go on with the training in the output folder, as it was asked for; what is given besides and
            changes what comes out must be the same.
    """
    if minutes is not None and not minutes > 0:
        raise UsageError(f"--minutes is {minutes}; give more than 0")
    _check_folder(output_dir, resume=resume)
    preset = {} if config is None else read_mapping(TrainConfig, config)
    check(TrainConfig, preset, source=config or "")
    flags = options.model_dump(exclude_unset=True)
    before = read_options(output_dir) if resume else {}
    options = check(TrainConfig, {**before, **preset, **flags}, source="the command line")
    if not options.data:
        raise UsageError(f"{_early(output_dir) if resume else ''}give folders of demonstrations with --data")
    _refuse_idle(flags, options)
    if options.eval_suite:
        require_backend()  # before anything imports MuJoCo, which answers a wrong MUJOCO_GL with a traceback
    from eval.train.training import run_training  # slow: a simulator and JAX, which --help does not need

    return run_training(options, output_dir, minutes=minutes)


def _refuse_idle(flags: Mapping[str, Any], options: TrainConfig) -> None:
    """Refuse to be told how to roll out where nothing is to be rolled out."""
    idle = [option for option in flags if option.startswith("eval_") and option != "eval_suite"]
    if idle and not options.eval_suite:
        raise UsageError(
            f"{spelt(idle[0], flags[idle[0]])} is for rollouts, and none were asked for; leave it out, or "
            "say in which suites with --eval-suite"
        )


def _early(folder: Path) -> str:
    return f"{folder} was begun before its options were kept, so all are to be given again: "


def _check_folder(folder: Path, *, resume: bool) -> None:
    begun = (usable_folder(folder, "--output-dir") / RUN_FILE).is_file()
    if begun and not resume:
        raise UsageError(f"{folder} holds a training; go on with --resume, or give another --output-dir")
    if resume and not begun:
        raise UsageError(f"nothing to resume: {folder} holds no training; start one without --resume")


if __name__ == "__main__":
    run_app(app)
