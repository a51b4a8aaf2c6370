"""The options of a training: what is learnt from what, and how."""

from typing import Annotated, Literal

from cyclopts import Group, Parameter
from pydantic import AfterValidator, Field, model_validator

from configs.cli import Names, Numbers
from configs.schema import Mode, Preset, Wordings

WHAT = Parameter(group=Group("What to train", sort_key=1))
HOW = Parameter(group=Group("How (changes what comes out)", sort_key=2))
ROLLOUTS = Parameter(group=Group("Rollouts at every checkpoint", sort_key=3))
OUTPUT = Parameter(group=Group("Output", sort_key=4))


def _unless_none(names: tuple[str, ...]) -> tuple[str, ...]:
    return () if names == ("none",) else names


class TrainConfig(Preset):
    """The options of `python -m eval.train`, on its command line or in a YAML file.

    Options that are None are left to `oxygen.training.recipe.Recipe`, or to the model.

    Attributes:
        data: Folders of demonstrations; several are mixed, each by its number of frames.
        model: The model configuration: tiny, tiny_droid, small, pi05_libero, pi05_base, ….
        embodiment: The robot: what it sees and does (libero, libero_state, libero_compact, droid,
            droid_compact). Default: libero_compact and droid_compact for tiny and tiny_droid, which read
            their state in the prompt; droid for pi05_droid; libero for others.
        language_tasks: Texts to learn beside actions, or `none`. Default: narration and memory.
        start_from: What to begin with: a policy's name (tiny, pi05_base) or a checkpoint. Default: parameters
            drawn from the seed.
        texts_only: Of what it begins with (--start-from), train only what texts alone pass through: what it
            does stays as it is, bit for bit.
        norm_stats: How states and actions are scaled: measured (by these demonstrations), from-start (as what
            it begins with has learnt them), or another checkpoint or norm_stats.json. Default: measured; with
            --texts-only always from-start.
        wordings: In which words instructions are given: training (where a suite has several, every sample in
            one of them, drawn anew in every batch) or benchmark (as they are).
        tokenizer: A SentencePiece model. Default: the one of the policy preset named as the model.
        steps: Batches until the learning rate has run out.
        batch: Samples in a batch.
        seed: Of everything random: parameters, order, augmentation, noise. Default: 0.
        draws: Noises and flow times per sample; they share the reading of its images. Default: 4; none with
            --texts-only.
        text_rows: Samples of a batch whose texts are learnt. Default: a quarter; all where only texts are.
        text_weight: Of a language task's loss, where the flow's is 1.
        optimiser: muon (default) or adamw.
        learning_rate: The highest; it rises to it at first and then falls along a cosine. Default: 0.002.
        last_rate: What it falls to, as a share of the highest.
        warm_up: Batches in which it rises. Default: 200.
        weight_decay: On matrices.
        clip: The gradient's global norm is cut to this.
        ema: Decay of the average of parameters that is served. Default: 0.998.
        image_shift: Images are moved by up to this share of their side, each way. Default: 0.01.
        brightness: Added to all pixels, up to this share of the range.
        contrast: Distance from the image's mean, scaled by 1 ± up to this.
        saturation: Distance from grey, scaled likewise.
        state_noise: Standard deviation of the noise on a normalised state.
        eval_suite: Suites to roll out in at every checkpoint. Default: none.
        eval_task_ids: Tasks of those suites. Default: all.
        eval_init_ids: Initial states; keep them out of the demonstrations. Default: 49.
        eval_mode: The mode of those rollouts.
        eval_wordings: In which words the policy is told its tasks there.
        eval_assets: Their asset tree: a folder, or the name of a source (auto, standins, download).
        eval_num_envs: Worlds that are rolled out in at once, each in a process of its own.
        save_every: Steps between two checkpoints.
        log_every: Steps between two lines of the log.
    """

    data: Annotated[Names, WHAT] = ()
    model: Annotated[str, WHAT] = "tiny"
    embodiment: Annotated[str | None, WHAT] = None
    language_tasks: Annotated[Names, WHAT, AfterValidator(_unless_none)] = ("narration", "memory")
    start_from: Annotated[str | None, WHAT] = None
    texts_only: Annotated[bool, WHAT] = False
    norm_stats: Annotated[str | None, WHAT] = None
    wordings: Annotated[Literal["training", "benchmark"], WHAT] = "training"
    tokenizer: Annotated[str | None, WHAT] = None
    steps: Annotated[int, HOW] = 20_000
    batch: Annotated[int, HOW] = 64
    seed: Annotated[int | None, HOW] = None
    draws: Annotated[int | None, HOW] = None
    text_rows: Annotated[int | None, HOW] = None
    text_weight: Annotated[float | None, HOW] = None
    optimiser: Annotated[str | None, HOW] = None
    learning_rate: Annotated[float | None, HOW] = None
    last_rate: Annotated[float | None, HOW] = None
    warm_up: Annotated[int | None, HOW] = None
    weight_decay: Annotated[float | None, HOW] = None
    clip: Annotated[float | None, HOW] = None
    ema: Annotated[float | None, HOW] = None
    image_shift: Annotated[float | None, HOW] = None
    brightness: Annotated[float | None, HOW] = None
    contrast: Annotated[float | None, HOW] = None
    saturation: Annotated[float | None, HOW] = None
    state_noise: Annotated[float | None, HOW] = None
    eval_suite: Annotated[Names, ROLLOUTS] = ()
    eval_task_ids: Annotated[Numbers, ROLLOUTS] = ()
    eval_init_ids: Annotated[Numbers, ROLLOUTS] = (49,)
    eval_mode: Annotated[Mode, ROLLOUTS] = "actions"
    eval_wordings: Annotated[Wordings, ROLLOUTS] = "benchmark"
    eval_assets: Annotated[str, ROLLOUTS] = "auto"
    eval_num_envs: Annotated[int, ROLLOUTS, Field(gt=0)] = 1
    save_every: Annotated[int, OUTPUT, Field(gt=0)] = 2000
    log_every: Annotated[int, OUTPUT, Field(gt=0)] = 50

    @model_validator(mode="after")
    def _heeds_what_it_names(self) -> "TrainConfig":
        if self.texts_only and self.draws is not None:
            raise ValueError(f"`draws` is {self.draws}, but where only texts are learnt no flow is drawn")
        if self.texts_only and self.norm_stats not in (None, "from-start"):
            raise ValueError(
                f"`norm_stats` is {self.norm_stats!r}, but where only texts are learnt it is from-start"
            )
        return self
