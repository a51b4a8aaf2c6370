"""Schemas of presets: suites, policies, runs, evaluations of one run per mode, and sweeps of a grid."""

import dataclasses
import functools
import itertools
import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import resources
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from cyclopts import Group, Parameter
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    model_validator,
)

from configs.cli import DistinctOf, Names, NamesOrNone, Numbers, NumbersOf, Several
from configs.errors import check
from contracts.clock import MEASURED, PAUSED, Clock, parse_clock
from contracts.env_seed import BY_EPISODE, EnvSeed, parse_env_seed
from contracts.errors import UsageError, unknown
from contracts.mode import Mode
from contracts.motion import Drift, ObjectMotion, Shuttle, Static, parse_motion
from contracts.perturbation import (
    ENTRY_POINTS as PERTURBATIONS,
)
from contracts.perturbation import (
    UNPERTURBED,
    Perturbations,
    combined,
    format_perturbations,
    parse_perturbations,
)
from contracts.prompt import PromptField, prompt_fields
from contracts.text_source import TextSource, parse_text_source

VideoChoice = Literal["none", "failures", "all"]
Wordings = Literal["benchmark", "training", "held_out"]
WhileWaiting = Literal["continue", "hold"]
OverlapRule = Literal["skip", "blend", "rtc", "whole"]
Dtype = Literal["float32", "bfloat16"]
DecodeWeights = Literal["int8"]
AdapterMask = Literal["exact", "published"]
ImageStorage = Literal["png", "video"]
SettleGripper = Literal["open", "zero"]
InitialStates = Literal["stored", "placement"]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+$")]

WHAT = Parameter(group=Group("What to run", sort_key=1))
SERVING = Parameter(group=Group("Modes and texts", sort_key=2))
PROTOCOL = Parameter(group=Group("Protocol (changes what may be compared)", sort_key=3))
SCALE = Parameter(group=Group("How many at once", sort_key=4))
OUTPUT = Parameter(group=Group("Output", sort_key=5))
_AXIS = Parameter(group=Group("What varies (several values make several cells)", sort_key=0))

_AS_GIVEN = (
    Parameter(consume_multiple=(1, None), negative_iterable=()),
    BeforeValidator(lambda value: value if isinstance(value, list | tuple | None) else (value,)),
)
"""Values that may have a comma, such as `fixed:50,90`."""


def _as_usual(text: str) -> str:
    scheme, separator, rest = text.strip().partition("://")
    return f"{scheme.lower()}://{rest}" if separator else scheme


PolicyText = Annotated[str, AfterValidator(_as_usual)]
"""A policy by name, path, class or URL; without spaces around it, and the scheme of a URL in lower case."""


def _in_its_bounds(value: Any) -> Any:
    numbers = value.split("/") if isinstance(value, str) else ()
    if len(numbers) == 2 and all(map(str.isdecimal, numbers)) and 1 <= int(numbers[0]) <= int(numbers[1]):
        return value
    raise ValueError(f"`shard` is {value!r}: give a share such as 3/16, from 1/16 to 16/16")


Shard = Annotated[str, BeforeValidator(_in_its_bounds)]
"""A share of a run's episodes: `3/16` is the third of sixteen."""


def _no_boolean(value: Any) -> Any:
    if value is True or value is False:
        raise ValueError(f"{str(value).lower()} is not a number")
    return value


Whole = Annotated[int, BeforeValidator(_no_boolean)]
Count = Annotated[Whole, Field(gt=0, le=1_000_000)]  # episodes, queries, steps
Tokens = Annotated[Whole, Field(gt=0, le=8192)]  # of a text, or decoded in a query
Robots = Annotated[Whole, Field(gt=0, le=4096)]  # robots, worlds or worker processes at once
Pixels = Annotated[Whole, Field(gt=0, le=4096)]  # the height of an image
Seed = Annotated[Whole, Field(ge=0, lt=2**32)]
Timeout = Annotated[float, Field(gt=0, le=1_000_000)]  # seconds
SettleSteps = Annotated[Whole, Field(ge=0, le=1_000_000)]  # control steps before the first query


def _spelled(parse: Callable[[str], Any]) -> tuple[Parameter, BeforeValidator, PlainSerializer]:
    """A value that options, YAML and records spell; `str` writes what `parse` reads."""

    def read(value: Any) -> Any:
        return parse(str(value)) if isinstance(value, str | int | float) else value

    return Parameter(accepts_keys=False, n_tokens=1), BeforeValidator(read), PlainSerializer(str)


def _presets(folder: str) -> list[str]:
    return sorted(Path(file.name).stem for file in (resources.files("configs") / folder).iterdir())


_PROFILES, _PROTOCOLS = _presets("profiles"), _presets("protocols")
_NOT_EXPRESSIBLE = {
    "x-vla": "it commands absolute poses and observes the controller's rotation matrix; here they are deltas"
}
"""Protocols that cannot be followed, and why."""


def _followed(protocol: str) -> str:
    if protocol in _NOT_EXPRESSIBLE:
        raise UsageError(
            f"protocol {protocol} cannot be followed: {_NOT_EXPRESSIBLE[protocol]}; choose one of "
            f"{', '.join(_PROTOCOLS)}"
        )
    if protocol not in _PROTOCOLS:
        raise unknown("protocol", protocol, _PROTOCOLS)
    return protocol


ProtocolName = Annotated[str, AfterValidator(_followed)]
"""The protocol of a published runner; `configs.protocol.ProtocolConfig` is what it says."""
CHUNK = "chunk"  # control steps between queries: as many as an answer has actions


ClockOption = Annotated[Clock, *_spelled(functools.partial(parse_clock, profiles=_PROFILES))]
MotionOption = Annotated[ObjectMotion, *_spelled(parse_motion)]
EnvSeedOption = Annotated[EnvSeed, *_spelled(parse_env_seed)]
TextSourceOption = Annotated[TextSource, *_spelled(parse_text_source)]


def _further_perturbations() -> list[str]:
    return [point.name for point in entry_points(group=PERTURBATIONS)]


def _read_perturbations(value: Any) -> Any:
    """Perturbations from one text or a list of them."""
    if isinstance(value, str | list | tuple) and all(isinstance(each, str) for each in value):
        text = value if isinstance(value, str) else "+".join(value)
        return parse_perturbations(text, others=_further_perturbations)
    return value


PerturbOption = Annotated[
    Perturbations,
    BeforeValidator(_read_perturbations),
    PlainSerializer(format_perturbations),
    Parameter(accepts_keys=False, consume_multiple=(1, None), negative_iterable=()),
]
"""Changes of one episode: `--perturb camera:3 light:2`."""
_GridPerturbations = Annotated[PerturbOption, Parameter(n_tokens=1, consume_multiple=False)]

_FIELD = "{'field': 'memory', 'format': 'Memory: {text}'}"


def _listed(value: Any) -> Any:
    items = (value,) if isinstance(value, Mapping) else value
    if isinstance(items, list | tuple) and all(isinstance(each, Mapping | PromptField) for each in items):
        names = [field.name for field in dataclasses.fields(PromptField)]
        for key in (key for each in items if isinstance(each, Mapping) for key in each):
            if key not in names:
                raise ValueError(str(unknown("key", str(key), names)))
        return items
    given = reprlib.repr(value)
    raise ValueError(
        f"{given} is neither a mapping with field and format, such as {_FIELD}, nor a list of them"
    )


Fields = Annotated[tuple[PromptField, ...], BeforeValidator(_listed)]
"""The fields that one language task's answers fill: one, or a list."""


def read_prompt_fields(declared: Any, source: str) -> dict[str, tuple[PromptField, ...]]:
    """The fields that a policy declares: language task to one field, or a list; else a UsageError."""
    if not isinstance(declared, Mapping) or isinstance(declared.get("field"), str):
        given, example = reprlib.repr(declared), f"{{'memory': {_FIELD}}}"
        raise UsageError(f"{source} is {given}; give a mapping of language task to field, such as {example}")
    fields_by_task = check(dict[str, Fields], declared, source=source)
    try:
        prompt_fields(fields_by_task)
    except UsageError as error:
        raise UsageError(f"{source}: {error}") from None
    return fields_by_task


class Preset(BaseModel):
    """Base of all presets: frozen, unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)  # a command uses few of them


class SuiteConfig(Preset):
    """The published protocol of one task suite.

    Attributes:
        name: Name of the suite.
        world: The class that loads it, as `package.module:Class`.
        max_steps: Control steps after settling until an episode is a timeout.
        settle_steps: Control steps of the hold action before the first query, while objects settle.
        settle_gripper: Command of the gripper in these: `open`, or `zero`, which leaves it half open.
        trials_per_task: Episodes per task, one per stored initial state.
        control_hz: Control steps per simulated second.
        camera_size: Height of a camera image, pixels; also the width of square images.
        replan_steps: Control steps between two queries.
        variation: Variation of scenes between episodes beyond initial states, 0 to 1; None if unsupported.
        motion: Motion of the object to grasp until it is touched, as `contracts.motion` reads it; None
            if nothing can move.
        env_seed: Seeding of the environment in stored initial states, as `contracts.env_seed` reads it.
        initial_states: `stored`, or `placement`: objects as the reset of the same number places them.
        base: The suite whose place it has in a protocol by name; None for itself.
        perturb: Changes of its episodes, as `contracts.perturbation` reads them.
        test_init_ids: First and last of the initial states reserved for evaluation; no demonstrations of them
            are collected.
        environment: Further arguments of the class.
        folder: Folder of the YAML file, in which files that it names are found; None for a suite that ships.
            Set when the file is read, and part of no record.
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
    motion: MotionOption | None = None
    env_seed: EnvSeedOption = BY_EPISODE
    settle_gripper: SettleGripper = "open"
    initial_states: InitialStates = "stored"
    base: Name | None = Field(default=None, exclude=True)
    perturb: PerturbOption = UNPERTURBED
    test_init_ids: tuple[int, int] | None = None
    environment: dict[str, Any] = Field(default_factory=dict)
    folder: Path | None = Field(default=None, exclude=True)

    @property
    def moving(self) -> Shuttle | Drift | None:
        """The motion; None if nothing moves."""
        return None if isinstance(self.motion, Static) else self.motion


class AdapterConfig(Preset):
    """A suffix adapter, which changes a model's texts but no action.

    What is None is read from `adapter_config.json` beside the file, if it is there.
    """

    file: str  # OxyGen's `.npz`: a file or a URL
    # What generated tokens see of the prefix: `exact` (all of it; the default) or `published` (what
    # OxyGen's own adapter was trained with).
    mask: AdapterMask | None = None
    # Scale of the attention's products, times the rank. Default: the rank.
    alpha: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    rank: Count | None = None  # its rank, checked
    sha256: str | None = Field(default=None, pattern="^[0-9a-f]{64}$")  # the file's checksum, checked


class PolicyConfig(Preset):
    """A policy by name."""

    name: Name
    # `oxygen` is a vision-language-action model served by the engine; `python` a user's class; `lerobot` a
    # checkpoint of LeRobot; `websocket` a server; the others are scripted.
    kind: Literal["oxygen", "expert", "noop", "random", "python", "lerobot", "websocket"]
    description: str = ""  # one line for tables
    # For `python` the class, as `package.module:Class` or `file.py:Class`; for `lerobot` the folder or the
    # Hub's id; for `websocket` the URL.
    target: PolicyText | None = None
    kwargs: dict[str, Any] = Field(default_factory=dict)  # keyword arguments of those with a `target`
    # `truth` for a scripted policy that writes texts from the ground truth; None for none.
    generates_text: Literal["truth"] | None = None
    # For `oxygen`, a checkpoint of training, a folder or a URL; its card has all fields below.
    checkpoint: str | None = None
    model: Name | None = None  # for `oxygen` without `checkpoint`, the model configuration
    # The robot it was trained on: prompt, state, actions. Beside `checkpoint`, that it acts on.
    embodiment: Name | None = None
    weights: str | None = None  # its checkpoint: a folder or a URL; random weights if None
    weights_seed: Seed = 0  # the seed of random weights
    # Normalisation statistics, if the checkpoint has none: a `norm_stats.json` or its URL.
    norm_stats: str | None = None
    tokenizer: str | None = None  # the SentencePiece model its checkpoint was trained with: a file or a URL
    # Name to prompt suffix of the language tasks it was trained on; None if unknown.
    language_tasks: dict[Name, str] | None = None
    # Language task to the fields of the prompt that its texts filled in training; None for none.
    feedback: dict[Name, Fields] | None = None
    adapter: Annotated[  # for `oxygen`, a suffix adapter, or its file
        AdapterConfig | None,
        BeforeValidator(lambda value: {"file": value} if isinstance(value, str) else value),
    ] = None

    @property
    def is_foreign(self) -> bool:
        """Whether it is code from elsewhere, which decides itself what it computes."""
        return self.kind in ("python", "lerobot", "websocket")

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if (self.kind == "oxygen") != ((self.model or self.checkpoint) is not None):
            raise ValueError("`model` or `checkpoint` is for policies of kind `oxygen`, and these need one")
        if self.generates_text is not None and (self.kind == "oxygen" or self.is_foreign):
            raise ValueError("`generates_text` is for scripted policies only")
        if self.is_foreign != (self.target is not None):
            raise ValueError("`target` is for policies of kind `python`, `lerobot` and `websocket`: give one")
        beside = {"name", "kind", "description", "checkpoint", "embodiment", "adapter"}
        if self.adapter is not None:
            beside.add("language_tasks")
        repeated = self.model_fields_set - beside
        if self.checkpoint is not None and repeated:
            raise ValueError(f"`checkpoint` has a card that says `{min(repeated)}`: give one of them")
        if self.adapter is not None and self.kind != "oxygen":
            raise ValueError("`adapter` is for policies of kind `oxygen`")
        if self.checkpoint is None and (self.model is None) != (self.embodiment is None):
            raise ValueError("`model` and `embodiment` belong together: give both or neither")
        if (self.weights is None) != (self.tokenizer is None):
            raise ValueError("`weights` and `tokenizer` belong together: give both or neither")
        return self


class PlayedConfig(Preset):
    """The options of everything that plays episodes: which, by which policy, under which protocol.

    Attributes:
        suites: Task suites, by name or as YAML files.
        task_ids: Tasks of each suite, as `0 3 7`, `0,3,7` or `0-4`. Default: all.
        num_trials_per_task: Episodes per task and seed, one per stored initial state. Default: the suite's
            published number.
        init_ids: Initial states, instead of the first `num_trials_per_task` stored ones. A suite may offer
            sampled states beyond the stored ones.
        seeds: Every task and initial state is played once with each: seeds of the policy's noise, of sampled
            initial states, motion and order of wordings; and of the environment if env_seed has no number.
        random_weights: Use random weights: measures latency without a download.
        dtype: Data type of the policy's computation. Default: the policy's.
        assets: Source of the suite's assets: a folder, or auto, standins or download.
        num_steps_wait: Settle steps before the first query. Default: the suite's.
        max_steps: Step limit of an episode. Default: the suite's published limit.
        variation: Variation of scenes between episodes, from 0 to 1, for suites that support it. Default: the
            suite's.
        env_seed: Seeding of the environment, which draws what a stored initial state does not restore:
            stream:S (S once per task; state i has the draws of reset i + 1), fixed:S (S before every reset),
            or offset:S (S + i). Without S: the episode's seed. Default: the suite's.
        environment: Arguments of the suites' class, over those of their YAML files.
        only_available: Play only the tasks for which the assets lack nothing.
        per_category: Play that many tasks of each of a suite's categories, the same ones everywhere; with
            --only-available, of those left. Default: all.
    """

    suites: Annotated[Names, WHAT, Parameter(name="--suite")] = ()
    task_ids: Annotated[Numbers, WHAT] = ()
    num_trials_per_task: Annotated[Count | None, WHAT] = None
    init_ids: Annotated[Numbers, WHAT] = ()
    seeds: Annotated[DistinctOf[Seed], WHAT, Parameter(name=["--seeds", "--seed"]), Field(min_length=1)] = (
        7,
    )
    random_weights: Annotated[bool, WHAT, Parameter(show_default=False)] = False
    dtype: Annotated[Dtype | None, WHAT] = None
    assets: Annotated[str, PROTOCOL] = "auto"
    num_steps_wait: Annotated[SettleSteps | None, PROTOCOL] = None
    max_steps: Annotated[Count | None, PROTOCOL] = None
    variation: Annotated[float | None, PROTOCOL, Field(ge=0, le=1)] = None
    env_seed: Annotated[EnvSeedOption | None, PROTOCOL] = None
    environment: Annotated[dict[str, Any], Parameter(parse=False)] = Field(default_factory=dict)
    only_available: Annotated[bool, WHAT, Parameter(show_default=False)] = False
    per_category: Annotated[Count | None, WHAT] = None


class EpisodesConfig(PlayedConfig):
    """The options that all runs of an evaluation or a sweep share. The defaults are the published protocol.

    Attributes:
        policy: tiny (default; for droid tiny_droid), expert, noop, random or another preset; a YAML file; the
            folder of a checkpoint written by `oxygen-eval train`; a class, as package.module:Class or
            file.py:Class; or a server, ws://host:port.
        protocol: LIBERO as a published runner plays it: openpi (equals the default), openvla, openvla-oft,
            lerobot, vla-eval, starvla, dexbotic, libero, groot or rlinf. With an option that changes it, it
            is called openpi* and so on.
        settle_gripper: Gripper in the settle steps: open, or zero, which leaves it half open. Default: open.
        initial_states: stored, or placement: as LIBERO's reset places objects. Default: stored.
        camera_size: Height and width of rendered images, pixels. Default: the suite's.
        policy_kwargs: Keyword arguments of a class or a server.
        decode_weights: Data type of the weights that decode texts: int8 changes texts, but no action.
            Default: that of the computation.
        adapter: A suffix adapter for the policy's texts, an .npz: changes texts, but no action.
        adapter_mask: What its generated tokens see: exact (the whole prefix), or published (what OxyGen's own
            adapter was trained with). Default: what the adapter's card says, else exact.
        language_tasks: Texts to generate beside actions, or `none`. Default: those the policy was trained on.
        deadline_ms: In mode unified, latency budget of a query: decode as many tokens as fit, by measured
            costs. The batch is sized for tokens_per_frame. Default: none.
        margin: Non-inferiority margin of the success rate against the reference, percentage points.
        time_margin: Non-inferiority margin of the time to success, percent.
        wordings: Wording of instructions: benchmark, training (as used by `oxygen-eval train`), or held_out
            (never used in training).
        batch_size: Robots per batch of the model, padded, or of a class with infer_batch; affects the last
            bits of its results. Default: half of num_envs, rounded up, so that two groups of worlds
            alternate.
        shard: Play a share of the episodes, such as 3/16; oxygen-eval merge joins the shares.
        video: Episodes to record: none, failures or all (default of the demo).
        video_every: Control steps between pictures of a video; 1 is smooth. Those between queries show the
            first camera, for the video alone: they change no state, action or simulated time.
    """

    policy: Annotated[PolicyText, WHAT, Parameter(show_default=False)] = "tiny"
    protocol: Annotated[ProtocolName | None, PROTOCOL] = None
    settle_gripper: Annotated[SettleGripper | None, PROTOCOL] = None
    initial_states: Annotated[InitialStates | None, PROTOCOL] = None
    camera_size: Annotated[Pixels | None, PROTOCOL] = None
    policy_kwargs: Annotated[dict[str, Any], Parameter(parse=False)] = Field(default_factory=dict)
    decode_weights: Annotated[DecodeWeights | None, WHAT] = None
    adapter: Annotated[str | None, WHAT] = None
    adapter_mask: Annotated[AdapterMask | None, WHAT] = None
    language_tasks: Annotated[NamesOrNone | None, SERVING] = None
    deadline_ms: Annotated[float | None, SERVING, Field(gt=0, le=3_600_000)] = None
    margin: Annotated[float, SERVING, Field(gt=0, lt=100)] = 5.0
    time_margin: Annotated[float, SERVING, Field(gt=0, lt=1000)] = 10.0
    wordings: Annotated[Wordings, PROTOCOL] = "benchmark"
    batch_size: Annotated[Robots, SCALE, Parameter(show_default=False)] = 1
    shard: Annotated[Shard | None, SCALE] = None
    video: Annotated[VideoChoice, OUTPUT] = "failures"
    video_every: Annotated[Count, OUTPUT] = 5


class ScheduledConfig(EpisodesConfig):
    """The options that a sweep can vary, but for the mode.

    Attributes:
        text_every: Request a text of each language task at every N-th query. Default: each task's own rate.
        tokens_per_frame: In modes unified and interleaved, tokens decoded per query for each running text.
        clock: How simulated time passes while the policy computes: paused (not at all), fixed:A,B
            (milliseconds until the actions, until the next query), profile:NAME or profile:FILE.yaml (a
            device profile), measured (this machine), or replay:RUN (a recorded run).
        while_waiting: Until new actions are available, continue the previous chunk, or hold still.
        overlap: How a new chunk replaces the previous one. skip leaves out as many of its actions as old ones
            were executed; blend also averages it with the rest of the old chunk; rtc also guides denoising
            towards that (real-time chunking); whole executes it from its first action (VLASH).
        replan_steps: Minimum control steps between two queries; 1 is as soon as the policy is free. Default:
            the suite's.
        motion: Motion of the object to grasp until it is touched: none, shuttle:SPEED[,PERIOD] (oscillating)
            or drift:SPEED (along a line), in cm/s and s, such as shuttle:3. Default: the suite's.
        perturb: Changes of the episodes, DIMENSION[:SEVERITY][@SECONDSs], such as camera:3 light:2@4s:
            camera, light, background, appearance, noise, robot, layout, swap or wording, from 1 to 5 (default
            3). Each episode is also played without them, as its control.
        control: A run of the same episodes without perturbations, to compare with instead of playing it.
        feedback: Texts in the prompt of a policy that reads its own: own, none, truth (of the simulator, at
            once), truth:SECONDS (that late), truth-delayed (the truth at each request, delivered when the
            policy's own text would have been), or frozen:TEXT (a constant). Default: own.
    """

    text_every: Annotated[Count | None, SERVING] = None
    tokens_per_frame: Annotated[Tokens, SERVING] = 5
    clock: Annotated[ClockOption, PROTOCOL] = PAUSED
    while_waiting: Annotated[WhileWaiting, PROTOCOL] = "continue"
    overlap: Annotated[OverlapRule, PROTOCOL] = "skip"
    replan_steps: Annotated[Count | None, PROTOCOL] = None
    motion: Annotated[MotionOption | None, PROTOCOL] = None
    perturb: Annotated[PerturbOption, PROTOCOL, Parameter(show_default=False)] = UNPERTURBED
    control: Annotated[str | None, WHAT] = None
    feedback: Annotated[TextSourceOption | None, PROTOCOL] = None


class RunConfig(ScheduledConfig):
    """Configuration of a run.

    Attributes:
        mode: How actions and language are scheduled.
    """

    mode: Mode = Mode.UNIFIED

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        needs_clock = {
            "while_waiting": self.while_waiting == "hold",
            "overlap": self.overlap != "skip",
        }
        for name, needed in needs_clock.items():
            if needed and self.clock == PAUSED:
                value = getattr(self, name)
                raise ValueError(f"`{name}` is {value}, but no time passes on clock paused; choose a clock")
        if self.while_waiting == "hold" and self.overlap != "skip":
            raise ValueError(
                f"`overlap` is {self.overlap}, but with `while_waiting` hold there is no overlap of chunks; "
                "use continue"
            )
        if self.deadline_ms is not None and self.mode != "unified":
            raise ValueError(
                f"`deadline_ms` is {self.deadline_ms:g} in mode {self.mode}, which has no deadline; "
                "use it with mode unified"
            )
        if self.deadline_ms is not None and self.clock not in (PAUSED, MEASURED):
            raise ValueError(
                f"`deadline_ms` is {self.deadline_ms:g} on clock {self.clock}, but it applies to measured "
                "times; use `tokens_per_frame`, or clock measured"
            )
        return self


class PlayConfig(Preset):
    """How the episodes of an evaluation or a sweep are played. Apart from timings, it affects no record.

    Attributes:
        num_envs: Parallel worlds, each in its own process. Does not affect records, except timings.
        max_errors: Stop after this many consecutive errors.
    """

    num_envs: Annotated[Robots, SCALE] = 1
    max_errors: Annotated[Count, OUTPUT] = 5


class ExecutionConfig(PlayConfig):
    """How the episodes of an evaluation are played, and where.

    Attributes:
        executor: serial (default for one world): in this process; processes (default for several); or ray: on
            a Ray cluster (extra [ray]).
        episode_timeout: Seconds after which an episode's process is replaced and the episode retried once.
            Default: 3600.
        ray_address: Cluster of executor ray: auto (default; the one of this machine), local (started for this
            run), or host:port.
        query_timeout: Seconds after which a query of a Python class counts as hung, and its episode as an
            error. Default: 600.
    """

    executor: Annotated[Literal["serial", "processes", "ray"] | None, SCALE] = None
    episode_timeout: Annotated[Timeout | None, SCALE] = None
    ray_address: Annotated[str | None, SCALE] = None
    query_timeout: Annotated[Timeout | None, SCALE] = None


class VariantsConfig(ScheduledConfig):
    """The options of `oxygen-eval run`, on its command line or in a YAML file: one run per mode.

    Attributes:
        mode: How actions and language are scheduled. Each of several modes is a variant: a run of its own.
            All variants play each episode before the next, and are compared. Default: unified, or actions for
            a policy without texts.
        perturb_each: Perturb each of these dimensions alone, a run each, beside the control.
        severities: At each of these severities. Default: 3.
        against: Another variant, the reference of the comparison. Default: the first in `mode`; in the demo,
            isolated.
    """

    mode: Annotated[Several[Mode], SERVING, Field(min_length=1)] = (Mode.UNIFIED,)
    perturb_each: Annotated[Names, PROTOCOL] = ()
    severities: Annotated[NumbersOf[int], PROTOCOL] = ()
    against: Annotated[Mode | None, SERVING] = None

    @property
    def modes(self) -> tuple[Mode, ...]:
        """The modes of the variants, the reference first."""
        return tuple(dict.fromkeys(self.mode if self.against is None else (self.against, *self.mode)))

    @property
    def perturbed(self) -> tuple[Perturbations, ...]:
        """The perturbations of the variants; the control's first, if it is played.

        A UsageError for severities without `perturb_each`, or a control without perturbations.
        """
        if self.severities and not self.perturb_each:
            raise UsageError(
                f"--severities {' '.join(map(str, self.severities))} is for --perturb-each; write "
                f"--perturb camera:{self.severities[0]}"
            )
        sets = [self.perturb]
        if leveled := next((each for each in self.perturb_each if ":" in each), None):
            name, _, level = leveled.partition(":")
            raise UsageError(
                f"--perturb-each {leveled}: severities have an option of their own; write --perturb-each "
                f"{name} --severities {level.partition('@')[0] or 3}"
            )
        if self.perturb_each:
            named = [
                (each.partition("@"), level)
                for each in self.perturb_each
                for level in self.severities or (3,)
            ]
            texts = [f"{name}:{level}{at}{time}" for (name, at, time), level in named]
            sets = [combined((*self.perturb, *_read_perturbations(text))) for text in texts]
        if self.control is not None and not any(sets):
            raise UsageError(
                f"--control {self.control} is what perturbed episodes are compared with; "
                "give --perturb or --perturb-each"
            )
        played = [UNPERTURBED] if any(sets) and self.control is None else []
        return tuple(dict.fromkeys([*played, *sets]))

    def variants(self) -> tuple[RunConfig, ...]:
        """One run per mode and perturbation. A deadline applies to mode `unified`, if that is among them.

        Options that contradict each other are a UsageError.
        """
        shared = self.model_dump(exclude={"against", "perturb_each", "severities"})
        without = {"deadline_ms": None} if "unified" in self.modes else {}
        options = [
            shared | ({} if mode == "unified" else without) | {"mode": mode, "perturb": perturb}
            for perturb in self.perturbed
            for mode in self.modes
        ]
        return tuple(check(RunConfig, each, source="the command line") for each in options)

    @classmethod
    def of(cls, variants: Sequence[RunConfig]) -> Self:
        """Reconstruct the configuration from its runs, without their perturbations."""
        deadline_ms = next((each.deadline_ms for each in variants if each.deadline_ms is not None), None)
        modes = {"mode": tuple(dict.fromkeys(each.mode for each in variants)), "deadline_ms": deadline_ms}
        return cls.model_validate({**variants[0].model_dump(), **modes, "perturb": UNPERTURBED})


class GridConfig(Preset):
    """All combinations of values of some options. Each field is an axis; None keeps the default.

    Attributes:
        clock: How simulated time passes: paused, fixed:A,B (milliseconds), profile:NAME, measured.
        motion: none, shuttle:SPEED[,PERIOD] or drift:SPEED (cm/s, s). Default: none.
        perturb: Changes of the episodes, joined by `+`, such as none camera:3 light:2+wording:1.
            Default: none.
        feedback: Texts in the prompt of a policy that reads its own: own, none, truth, truth:SECONDS,
            truth-delayed, frozen:TEXT. Default: own.
        mode: How actions and language are scheduled. Default: unified.
        text_every: Request a text of each language task at every N-th query. For no texts use mode actions.
            Default: each task's own rate.
        tokens_per_frame: In modes unified and interleaved, tokens decoded per query for each running text.
            Default: 5.
        replan_steps: Minimum control steps between two queries. Default: the suite's.
        while_waiting: What the robot does until new actions are available. Default: continue.
        overlap: How a new chunk replaces the previous one. Default: skip.
    """

    clock: Annotated[tuple[ClockOption, ...] | None, _AXIS, *_AS_GIVEN] = None
    motion: Annotated[tuple[MotionOption, ...] | None, _AXIS, *_AS_GIVEN] = None
    perturb: Annotated[tuple[_GridPerturbations, ...] | None, _AXIS, *_AS_GIVEN] = None
    feedback: Annotated[tuple[TextSourceOption, ...] | None, _AXIS, *_AS_GIVEN] = None
    mode: Annotated[Several[Mode] | None, _AXIS] = None
    text_every: Annotated[Numbers | None, _AXIS] = None
    tokens_per_frame: Annotated[Numbers | None, _AXIS] = None
    replan_steps: Annotated[NumbersOf[Count] | None, _AXIS] = None
    while_waiting: Annotated[Several[WhileWaiting] | None, _AXIS] = None
    overlap: Annotated[Several[OverlapRule] | None, _AXIS] = None

    @model_validator(mode="after")
    def _has_values(self) -> Self:
        for axis in AXES:
            if getattr(self, axis) == ():
                raise ValueError(f"`{axis}` has no value; leave it out for the default")
        return self

    def combinations(self) -> Iterator[dict[str, Any]]:
        """The options of each cell that the grid sets."""
        varied = {axis: getattr(self, axis) for axis in AXES if getattr(self, axis) is not None}
        for values in itertools.product(*varied.values()):
            yield dict(zip(varied, values, strict=True))


AXES = tuple(GridConfig.model_fields)
"""The options that a sweep can vary, the slowest first."""

CONDITIONS = ("clock", "motion", "perturb", "feedback")
"""The axes of the environment: device, motion, perturbations, and the origin of texts in the prompt."""

SCHEDULE = tuple(axis for axis in AXES if axis not in (*CONDITIONS, "mode", "text_every"))
"""The axes of the schedule, which may be optimised: all but conditions, mode and text rate."""


class SweepConfig(EpisodesConfig):
    """The options of a sweep that are the same in every cell, and its grids.

    Attributes:
        video: Episodes to record.
        grids: Grids whose cells form the sweep. An axis given beside them applies to those that lack it.
    """

    video: Annotated[VideoChoice, OUTPUT] = "none"
    grids: Annotated[tuple[GridConfig, ...], Parameter(parse=False), Field(min_length=1)] = (GridConfig(),)

    @model_validator(mode="before")
    @classmethod
    def _has_axes_in_grids(cls, content: Any) -> Any:
        shared = {axis: content[axis] for axis in AXES if axis in content}
        if not shared:
            return content
        others = {name: value for name, value in content.items() if name not in shared}
        return {**others, "grids": [{**shared, **dict(grid)} for grid in content.get("grids", [{}])]}
