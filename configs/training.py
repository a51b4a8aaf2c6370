"""The options of a training."""

from typing import Annotated, Literal

from cyclopts import Group, Parameter
from pydantic import Field, model_validator

from configs.cli import Names, NamesOrNone, Numbers, RepeatableNames
from configs.schema import Count, Mode, Preset, Robots, Seed, Source, Whole, Wordings

WHAT = Parameter(group=Group("What to train", sort_key=1))
HOW = Parameter(group=Group("How (changes the result)", sort_key=2))
ROLLOUTS = Parameter(group=Group("Rollouts at every checkpoint", sort_key=3))
OUTPUT = Parameter(group=Group("Output", sort_key=4))

Steps = Annotated[Whole, Field(gt=0, le=100_000_000)]
WarmUp = Annotated[Whole, Field(ge=0, le=100_000_000)]
Draws = Annotated[Whole, Field(gt=0, le=1024)]
Rank = Annotated[Whole, Field(gt=0, le=1024)]
Rate = Annotated[float, Field(ge=0, le=1_000_000)]
Fraction = Annotated[float, Field(ge=0, le=1)]


class TrainConfig(Preset):
    """The options of `python -m eval.train`, on its command line or in a YAML file.

    Options that are None take the defaults of `oxygen.training.recipe.Recipe`, or of the model.

    Attributes:
        data: Folders of demonstrations, mixed by their numbers of frames. One named twice counts twice.
        model: The model configuration: tiny, tiny_droid, small, pi05_libero, pi05_base, ….
        embodiment: The robot: its observations and actions (libero, libero_state, libero_compact, droid,
            droid_compact). Default: libero_compact and droid_compact for tiny and tiny_droid, which read
            their state in the prompt; droid for pi05_droid; libero for others.
        language_tasks: Texts to train beside actions, or `none`. Default: narration and memory.
        start_from: Initial weights, or the policy of an adapter: a policy's name (tiny, pi05_base) or a
            checkpoint. Default: random ones.
        adapter: Train a suffix adapter of this rank for the texts of --policy, in OxyGen's layout, and
            nothing else: its actions stay the same, bit for bit.
        texts_only: Train only weights of --start-from that do not affect actions, which stay the same, bit
            for bit.
        norm_stats: Normalisation of states and actions: measured (from these demonstrations), from-start (of
            the initial weights), or another checkpoint or norm_stats.json. Default: measured; with
            --texts-only always from-start.
        wordings: Wordings of instructions: training (a random one of the suite's for each sample of a batch)
            or benchmark (the original ones).
        tokenizer: A SentencePiece model. Default: the one of the policy preset named like the model.
        steps: Batches until the end of the learning rate schedule.
        batch: Samples in a batch.
        seed: Seed of parameters, order, augmentation and noise. Default: 0.
        draws: Noises and flow times per sample, which share one prefix. Default: 4; none with --texts-only.
        text_rows: Samples of a batch whose texts are trained. Default: a quarter; all with --texts-only.
        text_weight: Loss weight of a language task, relative to the flow's.
        optimiser: muon (default) or adamw; --adapter takes adamw.
        learning_rate: Peak of the learning rate: linear warm-up, then cosine decay. Default: 0.002; with
            --adapter 0.001.
        last_rate: Final learning rate, relative to the peak.
        warm_up: Warm-up, in batches. Default: 200.
        weight_decay: Weight decay of matrices.
        clip: Global norm that gradients are clipped to.
        ema: Decay of the parameters' moving average, which is served. Default: 0.998.
        image_shift: Maximum shift of images, relative to their side. Default: 0.01.
        brightness: Maximum change of brightness, relative to the range.
        contrast: Maximum relative change of contrast.
        saturation: Maximum relative change of saturation.
        state_noise: Standard deviation of the noise on normalised states.
        feedback_delay_s: Maximum age of true texts in the prompt, s, where a language task feeds back.
            Default: 1.5.
        feedback_none: Share of prompts without texts. Default: 0.1.
        feedback_own: Share of prompts with the policy's own texts, where eval.collect --feedback recorded
            them. Default: 0.4.
        eval_suite: Suites of rollouts at every checkpoint. Default: none.
        eval_task_ids: Tasks of those suites. Default: all.
        eval_init_ids: Initial states; keep them out of the demonstrations. Default: 49.
        eval_mode: Scheduling mode of the rollouts.
        eval_wordings: Wordings of the rollouts' instructions.
        eval_assets: Assets of the suites: a folder, or the name of a source (auto, standins, download).
        eval_feedback: Texts in the prompt of the rollouts, as for `eval.run`. Default: the policy's own.
        eval_num_envs: Parallel worlds of the rollouts, each in its own process.
        save_every: Steps between two checkpoints.
        log_every: Steps between two lines of the log.
    """

    data: Annotated[RepeatableNames, WHAT] = ()
    model: Annotated[str, WHAT] = "tiny"
    embodiment: Annotated[str | None, WHAT] = None
    language_tasks: Annotated[NamesOrNone, WHAT] = ("narration", "memory")
    start_from: Annotated[str | None, WHAT, Parameter(name=("--start-from", "--policy"))] = None
    adapter: Annotated[Rank | None, WHAT] = None
    texts_only: Annotated[bool, WHAT] = False
    norm_stats: Annotated[str | None, WHAT] = None
    wordings: Annotated[Literal["training", "benchmark"], WHAT] = "training"
    tokenizer: Annotated[str | None, WHAT] = None
    steps: Annotated[Steps, HOW] = 20_000
    batch: Annotated[Count, HOW] = 64
    seed: Annotated[Seed | None, HOW] = None
    draws: Annotated[Draws | None, HOW] = None
    text_rows: Annotated[Count | None, HOW] = None
    text_weight: Annotated[Rate | None, HOW] = None
    optimiser: Annotated[str | None, HOW] = None
    learning_rate: Annotated[Rate | None, HOW] = None
    last_rate: Annotated[Fraction | None, HOW] = None
    warm_up: Annotated[WarmUp | None, HOW] = None
    weight_decay: Annotated[Rate | None, HOW] = None
    clip: Annotated[Rate | None, HOW] = None
    ema: Annotated[float | None, HOW] = None
    image_shift: Annotated[float | None, HOW] = None
    brightness: Annotated[float | None, HOW] = None
    contrast: Annotated[float | None, HOW] = None
    saturation: Annotated[float | None, HOW] = None
    state_noise: Annotated[float | None, HOW] = None
    feedback_delay_s: Annotated[float | None, HOW] = None
    feedback_none: Annotated[float | None, HOW] = None
    feedback_own: Annotated[float | None, HOW] = None
    eval_suite: Annotated[Names, ROLLOUTS] = ()
    eval_task_ids: Annotated[Numbers, ROLLOUTS] = ()
    eval_init_ids: Annotated[Numbers, ROLLOUTS] = (49,)
    eval_mode: Annotated[Mode, ROLLOUTS] = "actions"
    eval_wordings: Annotated[Wordings, ROLLOUTS] = "benchmark"
    eval_assets: Annotated[str, ROLLOUTS] = "auto"
    eval_feedback: Annotated[Source, ROLLOUTS] = None
    eval_num_envs: Annotated[Robots, ROLLOUTS] = 1
    save_every: Annotated[Steps, OUTPUT] = 2000
    log_every: Annotated[Steps, OUTPUT] = 50

    @model_validator(mode="after")
    def _is_consistent(self) -> "TrainConfig":
        fixed: dict[str, tuple[object, ...]] = {"norm_stats": (None, "from-start"), "draws": (None,)}
        if self.adapter is not None:
            if self.start_from is None:
                raise ValueError(
                    f"`adapter` {self.adapter} is for the texts of a policy: give --policy, such as tiny"
                )
            if self.language_tasks in ((), ("none",)):
                raise ValueError("`adapter` trains texts: name them with --language-tasks")
            fixed["texts_only"] = (False,)
        for option, allowed in fixed.items() if self.texts_only or self.adapter is not None else ():
            if (value := getattr(self, option)) not in allowed:
                which = "`texts_only`" if self.adapter is None else "`adapter`"
                raise ValueError(f"`{option}` is {value!r}, but it has no effect with {which}; leave it out")
        return self
