"""The schema of a training: what is learnt from what, and how."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from configs.schema import Mode, Preset, Wordings, refuse_doubles


class TrainConfig(Preset):
    """Everything that a training is asked for. What is None is what the recipe, or the model, has of itself.

    Attributes:
        data: Folders of demonstrations.
        model: The model configuration.
        embodiment: The robot; the one that suits the model if None.
        language_tasks: Names of the language tasks to learn.
        start_from: The policy or the checkpoint to begin with; parameters drawn from the seed if None.
        texts_only: Whether to train what texts alone pass through, so that actions stay as they are.
        norm_stats: Where the robot's statistics come from: `measured` over the demonstrations, `from-start`,
            or a checkpoint or `norm_stats.json` of that name. If None, measured; `from-start` where only
            texts are learnt.
        wordings: In which words instructions are given: those of training, or the benchmark's.
        tokenizer: A SentencePiece model; that of the policy preset named as the model if None.
        steps: Batches until the learning rate has run out.
        batch: Samples in a batch.
        seed: Of everything random.
        draws: Noises and flow times per sample.
        text_rows: Samples of a batch whose texts are learnt; a quarter if None, all if only texts are.
        text_weight: Of a language task's loss, where the flow's is 1.
        optimiser: `muon` or `adamw`.
        learning_rate: The highest.
        last_rate: What it falls to, as a share of the highest.
        warm_up: Batches in which it rises from 0.
        weight_decay: On matrices.
        clip: The gradient's global norm is cut to this.
        ema: Decay of the average of parameters that is served.
        image_shift: Images are moved by up to this share of their side, each way.
        brightness: Added to all pixels, up to this share of the range.
        contrast: Distance from the image's mean, scaled by 1 ± up to this.
        saturation: Distance from grey, scaled likewise.
        state_noise: Standard deviation of the noise on a normalised state.
        eval_suite: Suites to roll out in at every checkpoint.
        eval_task_ids: Tasks of those suites; all of them when empty.
        eval_init_ids: Initial states.
        eval_mode: The mode of those rollouts.
        eval_wordings: In which words the policy is told its tasks there.
        eval_assets: Their asset tree.
        eval_num_envs: Worlds that are rolled out in at once; their number changes no record.
        save_every: Steps between two checkpoints.
        log_every: Steps between two lines of the log.
    """

    data: tuple[str, ...] = ()
    model: str = "tiny"
    embodiment: str | None = None
    language_tasks: tuple[str, ...] = ("narration", "memory")
    start_from: str | None = None
    texts_only: bool = False
    norm_stats: str | None = None
    wordings: Literal["training", "benchmark"] = "training"
    tokenizer: str | None = None
    steps: int = 20_000
    batch: int = 64
    seed: int | None = None
    draws: int | None = None
    text_rows: int | None = None
    text_weight: float | None = None
    optimiser: str | None = None
    learning_rate: float | None = None
    last_rate: float | None = None
    warm_up: int | None = None
    weight_decay: float | None = None
    clip: float | None = None
    ema: float | None = None
    image_shift: float | None = None
    brightness: float | None = None
    contrast: float | None = None
    saturation: float | None = None
    state_noise: float | None = None
    eval_suite: tuple[str, ...] = ()
    eval_task_ids: tuple[int, ...] = ()
    eval_init_ids: tuple[Annotated[int, Field(ge=0)], ...] = (49,)
    eval_mode: Mode = "actions"
    eval_wordings: Wordings = "benchmark"
    eval_assets: str = "auto"
    eval_num_envs: int = Field(default=1, gt=0)
    save_every: int = Field(default=2000, gt=0)
    log_every: int = Field(default=50, gt=0)

    @model_validator(mode="after")
    def _heeds_what_it_names(self) -> "TrainConfig":
        if self.texts_only and self.draws is not None:
            raise ValueError(f"`draws` is {self.draws}, but where only texts are learnt no flow is drawn")
        if self.texts_only and self.norm_stats not in (None, "from-start"):
            raise ValueError(
                f"`norm_stats` is {self.norm_stats!r}, but where only texts are learnt it is from-start"
            )
        return self

    @model_validator(mode="after")
    def _names_each_thing_once(self) -> "TrainConfig":
        refuse_doubles(self, "data", "language_tasks", "eval_suite", "eval_task_ids", "eval_init_ids")
        return self
