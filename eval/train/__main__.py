"""`python -m eval.train`: train a policy on demonstrations; see on the way how often it solves its tasks."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Group, Parameter

from configs.cli import Names, Numbers, run_app, spelt, usable_folder
from configs.errors import UsageError
from configs.load import check, read_mapping
from configs.schema import RunConfig
from configs.training import TrainConfig
from oxygen.training.claim import asked_in
from oxygen.training.recipe import RUN_FILE, Augmentation, Recipe
from sim_envs.gl import require_backend

if TYPE_CHECKING:
    from eval.train.training import Assignment

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
    data: Annotated[Names | None, Parameter(group=_WHAT)] = None,
    model: Annotated[str | None, Parameter(group=_WHAT)] = None,
    embodiment: Annotated[str | None, Parameter(group=_WHAT)] = None,
    language_tasks: Annotated[Names | None, Parameter(group=_WHAT)] = None,
    start_from: Annotated[str | None, Parameter(group=_WHAT)] = None,
    texts_only: Annotated[bool | None, Parameter(group=_WHAT, negative="")] = None,
    norm_stats: Annotated[str | None, Parameter(group=_WHAT)] = None,
    wordings: Annotated[str | None, Parameter(group=_WHAT)] = None,
    tokenizer: Annotated[str | None, Parameter(group=_WHAT)] = None,
    config: Annotated[str | None, Parameter(group=_WHAT)] = None,
    steps: Annotated[int | None, Parameter(group=_HOW)] = None,
    batch: Annotated[int | None, Parameter(group=_HOW)] = None,
    seed: Annotated[int | None, Parameter(group=_HOW)] = None,
    draws: Annotated[int | None, Parameter(group=_HOW)] = None,
    text_rows: Annotated[int | None, Parameter(group=_HOW)] = None,
    optimiser: Annotated[str | None, Parameter(group=_HOW)] = None,
    learning_rate: Annotated[float | None, Parameter(group=_HOW)] = None,
    warm_up: Annotated[int | None, Parameter(group=_HOW)] = None,
    ema: Annotated[float | None, Parameter(group=_HOW)] = None,
    image_shift: Annotated[float | None, Parameter(group=_HOW)] = None,
    eval_suite: Annotated[Names | None, Parameter(group=_ROLLOUTS)] = None,
    eval_task_ids: Annotated[Numbers | None, Parameter(group=_ROLLOUTS)] = None,
    eval_init_ids: Annotated[Numbers | None, Parameter(group=_ROLLOUTS)] = None,
    eval_mode: Annotated[str | None, Parameter(group=_ROLLOUTS)] = None,
    eval_wordings: Annotated[str | None, Parameter(group=_ROLLOUTS)] = None,
    eval_assets: Annotated[str | None, Parameter(group=_ROLLOUTS)] = None,
    eval_num_envs: Annotated[int | None, Parameter(group=_ROLLOUTS)] = None,
    output_dir: Annotated[Path, Parameter(group=_OUTPUT)] = Path("runs/train/tiny"),
    save_every: Annotated[int | None, Parameter(group=_OUTPUT)] = None,
    log_every: Annotated[int | None, Parameter(group=_OUTPUT)] = None,
    minutes: Annotated[float | None, Parameter(group=_OUTPUT)] = None,
    resume: Annotated[bool, Parameter(group=_OUTPUT, negative="")] = False,
) -> int:
    """Train until the last step, the time limit or Ctrl-C; each leaves a checkpoint to go on from.

    Args:
        data: Folders of demonstrations; several are mixed, each by its number of frames.
        model: The model configuration: tiny (default), tiny_droid, small, pi05_libero, pi05_base, ….
        embodiment: The robot: what it sees and does (libero, libero_state, libero_compact, droid,
            droid_compact). Default:
            libero_compact and droid_compact for tiny and tiny_droid, which read their state in the prompt;
            droid for pi05_droid; libero for others.
        language_tasks: Texts to learn beside actions, or `none`. Default: narration and memory.
        start_from: What to begin with: a policy's name (tiny, pi05_base) or a checkpoint. Default: parameters
            drawn from the seed.
        texts_only: Of what it begins with (--start-from), train only what texts alone pass through: what it
            does stays as it is, bit for bit.
        norm_stats: How states and actions are scaled: measured (by these demonstrations), from-start (as what
            it begins with has learnt them), or another checkpoint or norm_stats.json. Default: measured; with
            --texts-only always from-start.
        wordings: In which words instructions are given: training (default; where a suite has several, every
            sample in one of them, drawn anew in every batch) or benchmark (as they are).
        tokenizer: A SentencePiece model. Default: the one of the policy preset named as the model.
        config: A YAML file with these options and others (text_weight, last_rate, weight_decay, clip,
            brightness, contrast, saturation, state_noise), or a preset's name (smoke). Flags override it.
        steps: Batches until the learning rate has run out. Default: 20000.
        batch: Samples in a batch. Default: 64.
        seed: Of everything random: parameters, order, augmentation, noise.
        draws: Noises and flow times per sample; they share the reading of its images. Default: 4;
            none with --texts-only.
        text_rows: Samples of a batch whose texts are learnt. Default: a quarter; all where only texts are.
        optimiser: muon (default) or adamw.
        learning_rate: The highest; it rises to it at first and then falls along a cosine. Default: 0.002.
        warm_up: Batches in which it rises. Default: 200.
        ema: Decay of the average of parameters that is served. Default: 0.998.
        image_shift: Images are moved by up to this share of their side, each way. Default: 0.01.
        eval_suite: Suites to roll out in at every checkpoint. Default: none.
        eval_task_ids: Tasks of those suites. Default: all.
        eval_init_ids: Initial states; keep them out of the demonstrations. Default: 49.
        eval_mode: The mode of those rollouts.
        eval_wordings: In which words the policy is told its tasks there: benchmark (default), training or
            held_out.
        eval_assets: Their asset tree: a folder, or the name of a source (auto, standins, download).
        eval_num_envs: Worlds that are rolled out in at once, each in a process of its own. Default: 1.
        output_dir: The training's folder. Default: runs/train/tiny.
        save_every: Steps between two checkpoints. Default: 2000.
        log_every: Steps between two lines of the log. Default: 50.
        minutes: Stop after so long, with a checkpoint.
        resume: Go on with the training in the output folder, as it was asked for; what is given besides and
            changes what comes out must be the same.
    """
    given: dict[str, Any] = {
        "data": data,
        "model": model,
        "embodiment": embodiment,
        "language_tasks": () if language_tasks == ("none",) else language_tasks,
        "start_from": start_from,
        "texts_only": texts_only,
        "norm_stats": norm_stats,
        "wordings": wordings,
        "tokenizer": tokenizer,
        "steps": steps,
        "batch": batch,
        "seed": seed,
        "draws": draws,
        "text_rows": text_rows,
        "optimiser": optimiser,
        "learning_rate": learning_rate,
        "warm_up": warm_up,
        "ema": ema,
        "image_shift": image_shift,
        "eval_suite": eval_suite,
        "eval_task_ids": eval_task_ids,
        "eval_init_ids": eval_init_ids,
        "eval_mode": eval_mode,
        "eval_wordings": eval_wordings,
        "eval_assets": eval_assets,
        "eval_num_envs": eval_num_envs,
        "save_every": save_every,
        "log_every": log_every,
    }
    if minutes is not None and not minutes > 0:
        raise UsageError(f"--minutes is {minutes}; give more than 0")
    _check_folder(output_dir, resume=resume)
    preset = {} if config is None else read_mapping(TrainConfig, config)
    check(TrainConfig, preset, source=config or "")
    flags = {key: value for key, value in given.items() if value is not None}
    before = asked_in(output_dir) if resume else {}
    options = check(TrainConfig, {**before, **preset, **flags}, source="the command line")
    if not options.data:
        raise UsageError(f"{_early(output_dir) if resume else ''}give folders of demonstrations with --data")
    _refuse_idle(flags, options)
    if options.eval_suite:
        require_backend()  # before anything imports MuJoCo, which answers a wrong MUJOCO_GL with a traceback
    from eval.train.training import run_training  # slow: a simulator and JAX, which --help does not need

    return run_training(assignment_of(options, output_dir, minutes))


def assignment_of(options: TrainConfig, folder: Path, minutes: float | None) -> "Assignment":
    """What `eval.train.training` is to do.

    Raises:
        UsageError: A number is out of its range, or rollouts that cannot be.
    """
    recipe = _recipe(options)
    rollouts = _rollouts(options) if options.eval_suite else None
    from eval.train.training import Assignment  # slow, as above

    return Assignment(
        folder=folder,
        data=options.data,
        model=options.model,
        embodiment=options.embodiment or _SUITING.get(options.model, "libero"),
        language_tasks=options.language_tasks,
        start_from=options.start_from,
        norm_stats=options.norm_stats or ("from-start" if options.texts_only else "measured"),
        wordings=options.wordings,
        tokenizer=options.tokenizer,
        recipe=recipe,
        rollouts=rollouts,
        num_envs=options.eval_num_envs,
        save_every=options.save_every,
        log_every=options.log_every,
        minutes=minutes,
        asked=options.model_dump(mode="json"),
    )


_SUITING = {"tiny": "libero_compact", "tiny_droid": "droid_compact", "pi05_droid": "droid"}
"""The robots of models that are not served as `libero`."""
_VARIED = {
    "image_shift": "shift",
    "brightness": "brightness",
    "contrast": "contrast",
    "saturation": "saturation",
    "state_noise": "state",
}
"""Options to what an `Augmentation` calls them."""
_RECIPE = {
    "steps": "steps",
    "batch": "batch",
    "seed": "seed",
    "draws": "draws",
    "text_weight": "text_weight",
    "optimiser": "optimiser",
    "learning_rate": "peak_rate",
    "last_rate": "last_rate",
    "warm_up": "warm_up",
    "weight_decay": "weight_decay",
    "clip": "clip",
    "ema": "ema",
}
"""Options to what a `Recipe` calls them."""


def _recipe(options: TrainConfig) -> Recipe:
    """The recipe, in which what nobody asked for is its own."""
    kept = {name: ours for name, ours in _RECIPE.items() if getattr(options, name) is not None}
    varied = {name: ours for name, ours in _VARIED.items() if getattr(options, name) is not None}
    rows = options.text_rows
    if rows is None:
        rows = options.batch if options.texts_only else max(1, options.batch // 4)
    return Recipe(
        texts_only=options.texts_only,
        text_rows=rows,
        augmentation=Augmentation(**{ours: getattr(options, name) for name, ours in varied.items()}),
        **{ours: getattr(options, name) for name, ours in kept.items()},
    )


def _rollouts(options: TrainConfig) -> RunConfig:
    asked = {
        "suites": options.eval_suite,
        "task_ids": options.eval_task_ids,
        "init_ids": options.eval_init_ids,
        "mode": options.eval_mode,
        "wordings": options.eval_wordings,
        "assets": options.eval_assets,
        "language_tasks": options.language_tasks,
        "video": "none",
    }
    return check(RunConfig, asked, source="the command line")


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
