"""`oxygen-eval train`: train a policy on demonstrations, with rollouts at every checkpoint."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from configs.cli import brief_app, format_option, run_app
from configs.errors import check
from configs.load import overlay
from configs.paths import usable_folder
from configs.schema import OUTPUT
from configs.training import WHAT_TO_TRAIN, TrainConfig
from contracts.errors import UsageError
from oxygen.training.run_folder import RUN_FILE, read_options
from sim_envs.gl import require_backend

app = brief_app(
    "train",
    "Train a π0.5-shaped policy on demonstrations (`oxygen-eval collect`), with rollouts at every "
    "checkpoint. Every checkpoint is a policy: `oxygen-eval libero --policy FOLDER`.",
    *("data", "model", "start-from", "adapter", "config", "steps", "batch", "learning-rate", "seed"),
    *("eval-suite", "eval-task-ids", "save-every", "output-dir", "minutes", "resume"),
)


@app.default
def train(
    *,
    options: Annotated[TrainConfig, Parameter(name="*")] = TrainConfig(),  # noqa: B008 - it is frozen
    config: Annotated[str | None, WHAT_TO_TRAIN] = None,
    output_dir: Annotated[Path, OUTPUT] = Path("runs/train/tiny"),
    minutes: Annotated[float | None, OUTPUT, Parameter(validator=Number(gt=0))] = None,
    resume: Annotated[bool, OUTPUT] = False,
) -> int:
    """Train until the last step, the time limit or Ctrl-C; each saves a checkpoint to resume from.

    Args:
        config: A YAML file with these options, or a preset's name (smoke). Flags override it.
        output_dir: The training's folder.
        minutes: Time limit; saves a checkpoint, whose rollouts are left to --resume.
        resume: Resume the training in the output folder with its options. Options that change the result may
            not differ.
    """
    folder = usable_folder(output_dir, "--output-dir")
    begun = (folder / RUN_FILE).is_file()
    if begun and not resume:
        raise UsageError(
            f"{output_dir} holds a training; continue it with --resume, or give another --output-dir"
        )
    if resume and not begun:
        raise UsageError(f"nothing to resume: {output_dir} holds no training; start one without --resume")
    flags = options.model_dump(exclude_unset=True)
    before = read_options(folder) if resume else {}
    given = {**before, **overlay(TrainConfig, config, flags)}
    options = check(TrainConfig, given, source="the command line")
    if not options.data:
        raise UsageError("give folders of demonstrations with --data")
    idle = [option for option in flags if option.startswith("eval_") and option != "eval_suite"]
    if idle and not options.eval_suite:
        raise UsageError(
            f"{format_option(idle[0], flags[idle[0]])} has no effect without rollouts; leave it out, or name "
            "suites with --eval-suite"
        )
    if options.eval_suite:
        require_backend()  # before anything imports MuJoCo, which answers a wrong MUJOCO_GL with a traceback
    from eval.train.training import run_training  # slow: a simulator and JAX, which --help does not need

    return run_training(options, folder, minutes=minutes)


if __name__ == "__main__":
    run_app(app)
