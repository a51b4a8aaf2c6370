"""The options of collections of demonstrations and of trainings."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from cyclopts import Group, Parameter
from pydantic import Field, model_validator

from configs.cli import Names, NamesOrNone, Numbers, RepeatableNames
from configs.schema import (
    OUTPUT,
    PROTOCOL,
    WHAT,
    Count,
    EnvSeedOption,
    ImageStorage,
    MotionOption,
    Pixels,
    PlayedConfig,
    Preset,
    Robots,
    Seed,
    TextSourceOption,
    Whole,
    Wordings,
)
from contracts.env_seed import BY_EPISODE
from contracts.mode import Mode

WHAT_TO_TRAIN = Parameter(group=Group("What to train", sort_key=1))
HOW = Parameter(group=Group("How (changes the result)", sort_key=2))
ROLLOUTS = Parameter(group=Group("Rollouts at every checkpoint", sort_key=3))

Steps = Annotated[Whole, Field(gt=0, le=100_000_000)]
UpTo1024 = Annotated[Whole, Field(gt=0, le=1024)]
Rate = Annotated[float, Field(ge=0, le=1_000_000)]
BelowOne = Annotated[float, Field(ge=0, lt=1)]


class CollectConfig(PlayedConfig):
    """The options of `oxygen-eval collect`, on its command line or in a YAML file.

    Attributes:
        policy: The policy that acts: expert, tiny, pi05_libero, …; a checkpoint's folder; or a YAML file.
        expert_noise: Variation of the expert's pace and path, and frequency of its mistakes, 0 to 1. The
            recorded actions are the intended ones, without noise.
        learner: A policy that acts in turns with the expert (DAgger); only the expert's actions are training
            targets. Default: none.
        replan_steps: Control steps between two queries, 1 to 10. Every query is a frame with the action
            intended there; the default, 1, is what LeRobot's trainers expect.
        motion: Motion of the object to grasp until it is touched, as for `run`. Default: the suite's.
        env_seed: Seeding of the environment in stored initial states, as for `run`. Default: fixed, so
            that a state has other draws with another seed.
        keep_failures: Also keep failed episodes, for their texts; their actions are not training targets.
        image_size: Height of the images, pixels. Default: the suite's own.
        images: Image storage: png (lossless) or video (smaller).
        feedback: For a policy or learner that reads its own texts, their origin, as for `run`; they are
            recorded. Default: it must not read any. With truth:SECONDS the expert acts on memory of that age.
        horizon: Control steps in an action chunk; `oxygen-eval train` needs at least the model's horizon.
    """

    policy: Annotated[str, WHAT] = "expert"
    expert_noise: Annotated[float, WHAT, Field(ge=0, le=1)] = 0.0
    learner: Annotated[str | None, WHAT] = None
    replan_steps: Annotated[int, PROTOCOL, Field(gt=0, le=10)] = 1
    motion: Annotated[MotionOption | None, PROTOCOL] = None
    env_seed: Annotated[EnvSeedOption | None, PROTOCOL] = BY_EPISODE
    feedback: Annotated[TextSourceOption | None, PROTOCOL] = None
    keep_failures: Annotated[bool, OUTPUT] = False
    image_size: Annotated[Pixels | None, OUTPUT] = None
    images: Annotated[ImageStorage, OUTPUT] = "png"
    horizon: Annotated[int, OUTPUT, Field(gt=0, le=1000)] = 10


def _default_text_rows(given: Mapping[str, Any]) -> int:
    whole = given["texts_only"] or given["adapter"] is not None
    return int(given["batch"] if whole else max(1, given["batch"] // 4))


class TrainConfig(Preset):
    """The options of `oxygen-eval train`, on its command line or in a YAML file.

    Options that are None take the defaults of the model. The others train a few million parameters from
    scratch.

    Attributes:
        data: Folders of demonstrations, mixed by their numbers of frames. One named twice counts twice.
        model: The model configuration: tiny, tiny_droid, small, pi05_libero, pi05_base, ….
        embodiment: The robot: its observations and actions (libero, libero_state, libero_compact, droid,
            droid_compact, droid_jointpos, droid_jointpos_compact). Default: libero_compact and droid_compact
            for tiny, tiny_memory and tiny_droid, which read their state in the prompt; droid for pi05_droid
            and small_droid; libero for others.
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
        seed: Seed of the initial parameters, sample order, augmentation, noise and flow times.
        draws: Noises and flow times per sample, which share one prefix. None with --texts-only.
        text_rows: Samples of a batch whose texts are trained. Default: a quarter; all with --texts-only.
        text_weight: Loss weight of a language task (nats per token), relative to the flow's.
        optimiser: muon (default) or adamw; --adapter takes adamw.
        learning_rate: Peak of the learning rate: linear warm-up, then cosine decay. Default: 0.002; with
            --adapter 0.001.
        last_rate: Final learning rate, relative to the peak.
        warm_up: Warm-up, in batches.
        weight_decay: Weight decay of matrices.
        clip: Global norm that gradients are clipped to.
        ema: Decay of the parameters' moving average, which is served.
        start_share: Share of the initial weights in those that are served; the rest is the moving average
            (WiSE-FT, arXiv 2109.01903). Keeps more of what was known before.
        image_shift: Maximum shift of images, relative to their side; the border is replicated.
        brightness: Maximum change of brightness, relative to the range.
        contrast: Maximum relative change of contrast.
        saturation: Maximum relative change of saturation.
        state_noise: Standard deviation of the noise on normalised states, whose range is [-1, 1].
        actions_reach_prefix: Whether gradients of the flow loss reach the trunk and the vision tower. False
            is knowledge insulation (arXiv 2505.23705). Not an option of the command line.
        texts_reach_prefix: Whether gradients of the text loss reach the trunk through the prefix. If False,
            they still do through the text's own tokens. Not an option of the command line.
        feedback_delay_s: Maximum age of true texts in the prompt, s, where a language task feeds back.
        feedback_none: Share of prompts without texts.
        feedback_own: Share of prompts with the policy's own texts, where `collect --feedback` recorded
            them.
        eval_suite: Suites of rollouts at every checkpoint. Default: none.
        eval_task_ids: Tasks of those suites. Default: all.
        eval_init_ids: Initial states; keep them out of the demonstrations. Default: 49.
        eval_mode: Scheduling mode of the rollouts.
        eval_wordings: Wordings of the rollouts' instructions.
        eval_assets: Assets of the suites: a folder, or the name of a source (auto, standins, download).
        eval_feedback: Texts in the prompt of the rollouts, as for `run`. Default: the policy's own.
        eval_num_envs: Parallel worlds of the rollouts, each in its own process.
        save_every: Steps between two checkpoints.
        log_every: Steps between two lines of the log.
    """

    data: Annotated[RepeatableNames, WHAT_TO_TRAIN] = ()
    model: Annotated[str, WHAT_TO_TRAIN] = "tiny"
    embodiment: Annotated[str | None, WHAT_TO_TRAIN] = None
    language_tasks: Annotated[NamesOrNone, WHAT_TO_TRAIN] = ("narration", "memory")
    start_from: Annotated[str | None, WHAT_TO_TRAIN, Parameter(name=("--start-from", "--policy"))] = None
    adapter: Annotated[UpTo1024 | None, WHAT_TO_TRAIN] = None
    texts_only: Annotated[bool, WHAT_TO_TRAIN] = False
    norm_stats: Annotated[str | None, WHAT_TO_TRAIN] = None
    wordings: Annotated[Literal["training", "benchmark"], WHAT_TO_TRAIN] = "training"
    tokenizer: Annotated[str | None, WHAT_TO_TRAIN] = None
    steps: Annotated[Steps, HOW] = 20_000
    batch: Annotated[Count, HOW] = 64
    seed: Annotated[Seed, HOW] = 0
    draws: Annotated[UpTo1024, HOW] = 4
    text_rows: Annotated[Count, HOW] = Field(default_factory=_default_text_rows)
    text_weight: Annotated[Rate, HOW] = 0.1
    optimiser: Annotated[Literal["muon", "adamw"], HOW] = Field(
        default_factory=lambda given: "muon" if given["adapter"] is None else "adamw"
    )
    learning_rate: Annotated[Rate, HOW, Field(gt=0)] = Field(
        default_factory=lambda given: 2e-3 if given["adapter"] is None else 1e-3
    )
    last_rate: Annotated[float, HOW, Field(ge=0, le=1)] = 0.02
    warm_up: Annotated[Whole, HOW, Field(ge=0, le=100_000_000)] = 200
    weight_decay: Annotated[Rate, HOW] = 0.01
    clip: Annotated[Rate, HOW] = 1.0
    ema: Annotated[BelowOne, HOW] = 0.998
    start_share: Annotated[BelowOne, HOW] = 0.0
    image_shift: Annotated[BelowOne, HOW] = 0.01
    brightness: Annotated[BelowOne, HOW] = 0.15
    contrast: Annotated[BelowOne, HOW] = 0.2
    saturation: Annotated[BelowOne, HOW] = 0.2
    state_noise: Annotated[BelowOne, HOW] = 0.02
    actions_reach_prefix: Annotated[bool, Parameter(parse=False)] = True
    texts_reach_prefix: Annotated[bool, Parameter(parse=False)] = True
    feedback_delay_s: Annotated[float, HOW, Field(ge=0, le=3600)] = 1.5
    feedback_none: Annotated[BelowOne, HOW] = 0.1
    feedback_own: Annotated[BelowOne, HOW] = 0.4
    eval_suite: Annotated[Names, ROLLOUTS] = ()
    eval_task_ids: Annotated[Numbers, ROLLOUTS] = ()
    eval_init_ids: Annotated[Numbers, ROLLOUTS] = (49,)
    eval_mode: Annotated[Mode, ROLLOUTS] = Mode.ACTIONS
    eval_wordings: Annotated[Wordings, ROLLOUTS] = "benchmark"
    eval_assets: Annotated[str, ROLLOUTS] = "auto"
    eval_feedback: Annotated[TextSourceOption | None, ROLLOUTS] = None
    eval_num_envs: Annotated[Robots, ROLLOUTS] = 1
    save_every: Annotated[Steps, OUTPUT] = 2000
    log_every: Annotated[Steps, OUTPUT] = 50

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.start_share and (self.start_from is None or self.adapter is not None):
            raise ValueError(
                f"`start_share` is {self.start_share:g}, a share of the weights of `start_from`: give that, "
                "and no `adapter`"
            )
        if self.adapter is not None:
            if self.start_from is None:
                raise ValueError(
                    f"`adapter` {self.adapter} is for the texts of a policy: give --policy, such as tiny"
                )
            if not self.language_tasks:
                raise ValueError("`adapter` trains texts: name them with --language-tasks")
            if self.optimiser != "adamw":
                raise ValueError(f"`optimiser` is {self.optimiser!r}: an adapter takes adamw")
        if not self.trains_actions:
            fixed = {"norm_stats": (None, "from-start"), "draws": (4,), "texts_only": (self.adapter is None,)}
            option = "`texts_only`" if self.adapter is None else "`adapter`"
            for name, allowed in fixed.items():
                if (value := getattr(self, name)) not in allowed:
                    raise ValueError(
                        f"`{name}` is {value!r}, but it has no effect with {option}; leave it out"
                    )
        return self

    @property
    def trains_actions(self) -> bool:
        """Whether there is a flow loss."""
        return not self.texts_only and self.adapter is None

    def recipe(self) -> dict[str, Any]:
        """The hyperparameters, which distinguish a training from others."""
        names = [*TrainConfig.model_fields]
        chosen = {"texts_only", "adapter", *names[names.index("steps") : names.index("eval_suite")]}
        return self.model_dump(mode="json", include=chosen)
