"""Schemas of presets: suites, policies, language tasks, runs. Unknown keys are errors."""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from configs.motion import MotionText

Mode = Literal["actions", "isolated", "shared", "unified", "parallel"]
VideoChoice = Literal["none", "failures", "all"]
Wordings = Literal["benchmark", "training", "held_out"]
WhileWaiting = Literal["continue", "hold"]
OverlapRule = Literal["skip", "blend", "rtc"]
Dtype = Literal["float32", "bfloat16"]
ImageStorage = Literal["png", "video"]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+$")]


def _whole_or_asap(value: Any) -> Any:
    if value == "asap" or (type(value) is int and 0 < value <= 1_000_000):
        return value
    raise ValueError(f"`replan_steps` is {value!r}: give a whole number from 1 to 1000000, or asap")


ReplanSteps = Annotated[int | Literal["asap"], BeforeValidator(_whole_or_asap)]
"""Minimum control steps between two queries; `asap`: as soon as the policy is free."""


def _in_its_bounds(value: Any) -> Any:
    numbers = value.split("/") if isinstance(value, str) else ()
    if len(numbers) == 2 and all(map(str.isdecimal, numbers)) and 1 <= int(numbers[0]) <= int(numbers[1]):
        return value
    raise ValueError(f"`shard` is {value!r}: give a share such as 3/16, from 1/16 to 16/16")


Shard = Annotated[str, BeforeValidator(_in_its_bounds)]
"""A share of a run's episodes: `3/16` is the third of sixteen."""


def _no_truth_value(value: Any) -> Any:
    if value is True or value is False:
        raise ValueError(f"{str(value).lower()} is no number")
    return value


Whole = Annotated[int, BeforeValidator(_no_truth_value)]
"""A whole number, which `true` is not."""
Count = Annotated[Whole, Field(gt=0, le=1_000_000)]
"""Episodes, queries, steps: from 1 to a million."""
Tokens = Annotated[Whole, Field(gt=0, le=8192)]
"""Tokens of a text, or decoded in a query."""
Robots = Annotated[Whole, Field(gt=0, le=4096)]
"""Robots, worlds or worker processes at once."""
Pixels = Annotated[Whole, Field(gt=0, le=4096)]
"""The height of an image."""
Seed = Annotated[Whole, Field(ge=0, lt=2**32)]
"""The seed of a random number generator."""
SettleSteps = Annotated[Whole, Field(ge=0, le=1_000_000)]
"""Control steps before the first query."""


class Preset(BaseModel):
    """Base of all presets: frozen, unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class SuiteConfig(Preset):
    """The published protocol of one task suite.

    Attributes:
        name: Name of the suite.
        world: The class that opens it, as `package.module:Class`.
        max_steps: Control steps after settling until an episode is a timeout.
        settle_steps: Control steps of the hold action before the first query, while objects settle.
        trials_per_task: Episodes per task, one per stored initial state.
        control_hz: Control steps per simulated second.
        camera_size: Height of a camera image, pixels; its width, too, unless the world has other proportions.
        replan_steps: Control steps between two queries.
        variation: How much its scenes vary between episodes beyond their initial states, 0 to 1; None if they
            cannot.
        motion: How what is to be grasped moves until it is touched, as `configs.motion.parse_motion` reads
            it; None if nothing can.
        test_init_ids: The first and the last of the initial states that are kept for measuring a policy:
            demonstrations of them are not collected.
        environment: What else its class takes.
    """

    name: Name
    world: str
    max_steps: Count
    settle_steps: SettleSteps
    trials_per_task: Count
    control_hz: float = Field(gt=0, le=10_000)
    camera_size: Pixels
    replan_steps: Count
    variation: float | None = Field(default=None, ge=0, le=1)
    motion: MotionText | None = None
    test_init_ids: tuple[int, int] | None = None
    environment: dict[str, Any] = Field(default_factory=dict)


class EveryNConfig(Preset):
    """One text at every n-th query."""

    kind: Literal["every_n"] = "every_n"
    n: Count


class BurstConfig(Preset):
    """`n` texts at every `every`-th query."""

    kind: Literal["burst"]
    n: Count
    every: Count


class PoissonConfig(Preset):
    """A Poisson number of texts per query, with mean `rate`."""

    kind: Literal["poisson"]
    rate: float = Field(gt=0, le=1000)
    seed: Seed = 0


class RandomLengthConfig(Preset):
    """Texts arrive as in `arrivals`, each with a random limit of `least` to `most` tokens."""

    kind: Literal["random_length"]
    arrivals: EveryNConfig | BurstConfig | PoissonConfig = Field(discriminator="kind")
    least: Tokens
    most: Tokens
    seed: Seed = 0


ArrivalsConfig = EveryNConfig | BurstConfig | PoissonConfig | RandomLengthConfig


class SamplingConfig(Preset):
    """Sampling of tokens: greedy at temperature 0, else from the `top_k` best, or from all."""

    temperature: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    top_k: int | None = Field(default=None, gt=0)


class LanguageTaskConfig(Preset):
    """A kind of text generated beside actions.

    Attributes:
        name: Name of the language task.
        prompt: The suffix after the shared prefix that prompts the text.
        arrivals: When texts are requested.
        max_tokens: Maximum length of a text, tokens.
        priority: Queries of head start when not all fit in one batch: a text goes before those of lesser
            priority that are older by no more than the difference.
        sampling: How its tokens are chosen.
        stop: A text ends before this one, a single token of the vocabulary; with its end token if None.
    """

    name: Name
    prompt: str = Field(min_length=1, max_length=10_000)
    arrivals: ArrivalsConfig = Field(default=EveryNConfig(n=1), discriminator="kind")
    max_tokens: Tokens
    priority: Whole = Field(default=0, ge=-1_000_000, le=1_000_000)
    sampling: SamplingConfig = SamplingConfig()
    stop: str | None = Field(default=None, min_length=1)


class PolicyConfig(Preset):
    """A policy by name.

    Attributes:
        name: Name of the policy.
        kind: `oxygen` is a vision-language-action model served by the engine; `python` a class, `websocket` a
            server, both of one's own; the others are scripted.
        description: One line for tables.
        target: For `python` the class, as `package.module:Class` or `file.py:Class`; for `websocket` the URL.
        kwargs: Keyword arguments of `python` and `websocket`.
        speaks: For scripted policies, `truth`: writes texts from the ground truth. No texts if None.
        checkpoint: For `oxygen`, a checkpoint of training, a folder or a URL; its card has all fields below.
        model: For `oxygen` without `checkpoint`, the model configuration.
        embodiment: The robot it was trained on: prompt, state, actions.
        weights: Its checkpoint: a folder or a URL; random weights if None.
        weights_seed: The seed of random weights.
        norm_stats: Statistics of its robot, where the checkpoint has none: a `norm_stats.json` or its URL.
        tokenizer: The SentencePiece model its checkpoint was trained with: a file or a URL.
        language_tasks: The language tasks it has learnt, by name, with the suffix that asked for each; empty
            if none; None where nobody says.
    """

    name: Name
    kind: Literal["oxygen", "expert", "noop", "random", "python", "websocket"]
    description: str = ""
    target: str | None = None
    kwargs: dict[str, Any] = Field(default_factory=dict)
    speaks: Literal["truth"] | None = None
    checkpoint: str | None = None
    model: Name | None = None
    embodiment: Name | None = None
    weights: str | None = None
    weights_seed: Seed = 0
    norm_stats: str | None = None
    tokenizer: str | None = None
    language_tasks: dict[Name, str] | None = None

    @model_validator(mode="after")
    def _has_a_model_exactly_if_it_needs_one(self) -> Self:
        if (self.kind == "oxygen") != ((self.model or self.checkpoint) is not None):
            raise ValueError("`model` or `checkpoint` is for policies of kind `oxygen`, and these need one")
        if self.speaks is not None and self.kind in ("oxygen", "python", "websocket"):
            raise ValueError("`speaks` is for scripted policies; others speak for themselves")
        if (self.kind in ("python", "websocket")) != (self.target is not None):
            raise ValueError("`target` is for policies of kind `python` and `websocket`, and these need one")
        said = self.model_fields_set - {"name", "kind", "description", "checkpoint"}
        if self.checkpoint is not None and said:
            raise ValueError(f"`checkpoint` has a card that says `{min(said)}`: give one of them")
        if (self.model is None) != (self.embodiment is None):
            raise ValueError("`model` and `embodiment` belong together: say which robot its numbers are of")
        if (self.weights is None) != (self.tokenizer is None):
            raise ValueError("`weights` and `tokenizer` belong together: give both or neither")
        return self


class EpisodesConfig(Preset):
    """Configuration of a run without its mode. The defaults are the published protocol.

    Attributes:
        suites: Task suites, in the order they are run.
        task_ids: Tasks of every suite; all of them when empty.
        num_trials_per_task: Episodes per task, first stored states first; the suite's own number if None.
        init_ids: Which initial states, instead of the first `num_trials_per_task` stored ones; a suite may
            have drawn ones beyond those.
        shard: Share of these episodes, such as `3/16`; all if None.
        policy: A policy: the name of a preset or an entry point, a YAML file, a checkpoint's folder, a class,
            or a server's URL.
        policy_kwargs: Keyword arguments of a class or a server.
        random_weights: Use random weights instead of the policy's checkpoint, to measure latency.
        dtype: Data type of the policy's computation; the policy's own if None.
        assets: Source of the suites' assets: a folder, or the name of a source.
        language_tasks: Names of the language tasks wanted beside actions; those that the policy has learnt if
            None.
        text_every: A text of each language task is asked for at every so many-th query; as its preset says if
            None.
        tokens_per_frame: In mode `unified`, language tokens decoded per frame and request; with a deadline,
            the number that the batch is made large enough for.
        deadline_ms: In mode `unified`, decode what fits between the actions and so many milliseconds after
            the query, by measured costs, instead of `tokens_per_frame`.
        batch_size: Robots in one batch of the model, padded. Their number changes the last bits of what it
            computes; how many worlds are played at once does not.
        clock: How simulated time passes while the policy computes: `paused`, `fixed:A,B`, `profile:NAME`,
            `measured` or `replay:RUN`.
        while_waiting: What the robot does until the actions of a query come: it goes on with the chunk
            before, or is held still.
        overlap: Where the chunk before goes on, a new one begins after as many of its actions (`skip`), is
            besides averaged with what is left of the old one (`blend`), or is guided towards that as it is
            computed (`rtc`).
        replan_steps: Control steps between queries; the suite's own number if None; `asap`: none but those
            that the policy computes for.
        num_steps_wait: Settle steps; the suite's own number if None.
        max_steps: Step limit; the suite's own number if None.
        variation: How much the suites' scenes vary between episodes, 0 to 1; as the suites say if None.
        motion: How what is to be grasped moves until it is touched: `none`, `shuttle:SPEED[,PERIOD]` or
            `drift:SPEED`, in cm/s and s; as the suites say if None.
        wordings: Wording of instructions: the benchmark's, those of training, or held-out ones.
        seed: Seed of the environment in every episode, and of the policy's noise.
        margin: Percentage points of success that a mode may lose against the first one and still count as
            non-inferior: declared before anything is run.
        time_margin: Non-inferiority margin of the time to success, percent.
        video: Which episodes are recorded as videos.
    """

    suites: tuple[str, ...] = ()
    task_ids: tuple[int, ...] = ()
    num_trials_per_task: Count | None = None
    init_ids: tuple[Annotated[int, Field(ge=0)], ...] = ()
    shard: Shard | None = None
    policy: str = "tiny"
    policy_kwargs: dict[str, Any] = Field(default_factory=dict)
    random_weights: bool = False
    dtype: Dtype | None = None
    assets: str = "auto"
    language_tasks: tuple[str, ...] | None = None
    text_every: Count | None = None
    tokens_per_frame: Tokens = 5
    deadline_ms: float | None = Field(default=None, gt=0, le=3_600_000)
    batch_size: Robots = 1
    clock: str = "paused"
    while_waiting: WhileWaiting = "continue"
    overlap: OverlapRule = "skip"
    replan_steps: ReplanSteps | None = None
    num_steps_wait: SettleSteps | None = None
    max_steps: Count | None = None
    variation: float | None = Field(default=None, ge=0, le=1)
    motion: MotionText | None = None
    wordings: Wordings = "benchmark"
    seed: Seed = 7
    margin: float = Field(default=5.0, gt=0, lt=100)
    time_margin: float = Field(default=10.0, gt=0, lt=1000)
    video: VideoChoice = "failures"

    @model_validator(mode="after")
    def _names_each_thing_once(self) -> Self:
        refuse_doubles(self, "suites", "task_ids", "init_ids", "language_tasks")
        return self

    @model_validator(mode="after")
    def _waits_only_where_time_passes(self) -> Self:
        if self.clock == "paused" and self.while_waiting == "hold":
            raise ValueError("`while_waiting` is hold, but no time passes on clock paused; choose a clock")
        if self.clock == "paused" and self.overlap != "skip":
            raise ValueError(
                f"`overlap` is {self.overlap}, but no time passes on clock paused; choose a clock"
            )
        if self.while_waiting == "hold" and self.overlap != "skip":
            raise ValueError(
                f"`overlap` is {self.overlap}, but with `while_waiting` hold no chunk goes on that a new one "
                "could overlap; use continue"
            )
        if self.clock == "paused" and self.replan_steps == "asap":
            raise ValueError("`replan_steps` is asap, but no time passes on clock paused; choose a clock")
        if self.deadline_ms is not None and self.clock not in ("paused", "measured"):
            raise ValueError(
                f"`deadline_ms` is {self.deadline_ms:g} on clock {self.clock}, but a deadline is kept by "
                "what this machine takes; use `tokens_per_frame`, or clock measured"
            )
        return self


class RunConfig(EpisodesConfig):
    """Configuration of a run.

    Attributes:
        mode: How actions and language are scheduled.
    """

    mode: Mode = "unified"

    @model_validator(mode="after")
    def _has_a_deadline_only_where_one_can_be_kept(self) -> Self:
        if self.deadline_ms is not None and self.mode != "unified":
            raise ValueError(
                f"`deadline_ms` is {self.deadline_ms:g} in mode {self.mode}, which decodes no tokens by the "
                "frame; use it with mode unified"
            )
        return self


def refuse_doubles(config: Preset, *fields: str) -> None:
    """Reject a list with duplicates.

    Raises:
        ValueError: Names the field and what it holds.
    """
    for field in fields:
        values = getattr(config, field) or ()
        if len(set(values)) != len(values):
            raise ValueError(f"`{field}` names something twice: {list(values)}")
