"""`python -m eval.train`: train a policy on demonstrations; see on the way how often it solves its tasks."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Group, Parameter

from configs.cli import Names, Numbers, run_app
from configs.errors import UsageError, unknown
from configs.load import check
from configs.schema import RunConfig, Wordings
from oxygen.training.recipe import RUN_FILE, Augmentation, Recipe
from sim_envs.libero.gl import require_backend

app = App(
    name="python -m eval.train",
    help="Train a π0.5-shaped policy on demonstrations (`python -m eval.collect`), and see on the way how "
    "often it solves its tasks. Every checkpoint is a policy: `python -m eval.libero --policy FOLDER`.",
)
_WHAT = Group("What to train", sort_key=1)
_HOW = Group("How (changes what comes out)", sort_key=2)
_ROLLOUTS = Group("Rollouts at every checkpoint", sort_key=3)
_OUTPUT = Group("Output", sort_key=4)


@app.default
def train(  # noqa: PLR0913 - one parameter per option of the command line
    *,
    data: Annotated[Names, Parameter(group=_WHAT)],
    model: Annotated[str, Parameter(group=_WHAT)] = "tiny",
    embodiment: Annotated[str, Parameter(group=_WHAT)] = "libero",
    language_tasks: Annotated[Names, Parameter(group=_WHAT)] = ("narration", "memory"),
    start_from: Annotated[str | None, Parameter(group=_WHAT)] = None,
    wordings: Annotated[str, Parameter(group=_WHAT)] = "training",
    tokenizer: Annotated[str | None, Parameter(group=_WHAT)] = None,
    steps: Annotated[int, Parameter(group=_HOW)] = 20_000,
    batch: Annotated[int, Parameter(group=_HOW)] = 64,
    seed: Annotated[int, Parameter(group=_HOW)] = 0,
    draws: Annotated[int, Parameter(group=_HOW)] = 4,
    text_rows: Annotated[int | None, Parameter(group=_HOW)] = None,
    optimiser: Annotated[str, Parameter(group=_HOW)] = "muon",
    learning_rate: Annotated[float, Parameter(group=_HOW)] = 2e-3,
    image_shift: Annotated[float, Parameter(group=_HOW)] = Augmentation.shift,
    eval_suite: Annotated[Names, Parameter(group=_ROLLOUTS)] = (),
    eval_task_ids: Annotated[Numbers, Parameter(group=_ROLLOUTS)] = (),
    eval_init_ids: Annotated[Numbers, Parameter(group=_ROLLOUTS)] = (49,),
    eval_mode: Annotated[str, Parameter(group=_ROLLOUTS)] = "actions",
    eval_wordings: Annotated[str, Parameter(group=_ROLLOUTS)] = "benchmark",
    eval_assets: Annotated[str, Parameter(group=_ROLLOUTS)] = "auto",
    output_dir: Annotated[Path, Parameter(group=_OUTPUT)] = Path("runs/train/tiny"),
    save_every: Annotated[int, Parameter(group=_OUTPUT)] = 2000,
    log_every: Annotated[int, Parameter(group=_OUTPUT)] = 50,
    minutes: Annotated[float | None, Parameter(group=_OUTPUT)] = None,
    resume: Annotated[bool, Parameter(group=_OUTPUT, negative="")] = False,
) -> int:
    """Train until the last step, the time limit or Ctrl-C; each leaves a checkpoint to go on from.

    Args:
        data: Folders of demonstrations; several are mixed, each by its number of frames.
        model: The model configuration: tiny (default), small, pi05_libero, pi05_base, ….
        embodiment: The robot: what it sees and does (libero, libero_state, libero_compact, droid).
        language_tasks: Texts to learn beside actions, or `none`. Default: narration and memory.
        start_from: A checkpoint to begin with. Default: parameters drawn from the seed.
        wordings: In which words LIBERO's instructions are given: training (default; every sample in one of
            several, drawn anew in every batch) or benchmark (as they are).
        tokenizer: A SentencePiece model. Default: the one of the policy preset named as the model.
        steps: Batches until the learning rate has run out.
        batch: Samples in a batch.
        seed: Of everything random: parameters, order, augmentation, noise.
        draws: Noises and flow times per sample; they share the reading of its images.
        text_rows: Samples of a batch whose texts are learnt. Default: a quarter.
        optimiser: muon (default) or adamw.
        learning_rate: The highest; it rises to it at first and then falls along a cosine.
        image_shift: Images are moved by up to this share of their side, each way.
        eval_suite: Suites to roll out in at every checkpoint. Default: none.
        eval_task_ids: Tasks of those suites. Default: all.
        eval_init_ids: Initial states; keep them out of the demonstrations. Default: 49.
        eval_mode: The mode of those rollouts.
        eval_wordings: In which words the policy is told its tasks there: benchmark (default), training or
            held_out.
        eval_assets: Their asset tree.
        output_dir: The training's folder. Default: runs/train/tiny.
        save_every: Steps between two checkpoints.
        log_every: Steps between two lines of the log.
        minutes: Stop after so long, with a checkpoint.
        resume: Go on with the training in the output folder; the other options must be the same.
    """
    _refuse_nonsense(save_every=save_every, log_every=log_every, minutes=minutes)
    _check_folder(output_dir, resume=resume)
    learnt = () if language_tasks == ("none",) else language_tasks
    rollouts = {
        "suites": eval_suite,
        "task_ids": eval_task_ids,
        "init_ids": eval_init_ids,
        "mode": eval_mode,
        "wordings": eval_wordings,
        "assets": eval_assets,
        "language_tasks": learnt,
        "video": "none",
    }
    recipe = Recipe(
        steps=steps,
        batch=batch,
        seed=seed,
        draws=draws,
        text_rows=max(1, batch // 4) if text_rows is None else text_rows,
        optimiser=optimiser,
        peak_rate=learning_rate,
        augmentation=Augmentation(shift=image_shift),
    )
    if eval_suite:
        require_backend()  # before anything imports MuJoCo, which answers a wrong MUJOCO_GL with a traceback
    from eval.training import (
        Assignment,
        run_training,
    )  # slow: a simulator and JAX, which --help does not need

    return run_training(
        Assignment(
            folder=output_dir,
            data=data,
            model=model,
            embodiment=embodiment,
            language_tasks=learnt,
            start_from=start_from,
            wordings=_wordings(wordings),
            tokenizer=tokenizer,
            recipe=recipe,
            rollouts=check(RunConfig, rollouts, source="the command line") if eval_suite else None,
            save_every=save_every,
            log_every=log_every,
            minutes=minutes,
        )
    )


def _refuse_nonsense(**numbers: float | None) -> None:
    for name, number in numbers.items():
        if number is not None and not number > 0:
            raise UsageError(f"--{name.replace('_', '-')} is {number}; give more than 0")


def _wordings(name: str) -> Wordings:
    """What training may be told; what is held out is not among it."""
    if name == "training":
        return "training"
    if name == "benchmark":
        return "benchmark"
    raise unknown("wordings", name, ("training", "benchmark"))


def _check_folder(folder: Path, *, resume: bool) -> None:
    begun = (folder / RUN_FILE).is_file()
    if begun and not resume:
        raise UsageError(f"{folder} holds a training; go on with --resume, or give another --output-dir")
    if resume and not begun:
        raise UsageError(f"nothing to resume: {folder} holds no training; start one without --resume")


if __name__ == "__main__":
    run_app(app)
