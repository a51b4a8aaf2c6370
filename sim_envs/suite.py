"""The task suite contract: tasks, initial states, instructions, and opening worlds."""

import dataclasses
import importlib
import inspect
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import entry_points
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeVar, runtime_checkable

from configs.cli import format_option, ranges
from configs.errors import check
from configs.installed import imported_version
from configs.load import load, names
from configs.paths import absolute
from configs.schema import Preset, SuiteConfig, Wordings
from contracts.env_seed import BY_EPISODE
from contracts.episode import EpisodeKey
from contracts.errors import UsageError, pluralize, unknown
from contracts.interface import Interface
from contracts.motion import Drift, Shuttle, Static
from contracts.perturbation import DIMENSIONS, Perturbation
from contracts.perturbation import ENTRY_POINTS as PERTURBATIONS
from sim_envs.perturbations.dimension import Dimension, find_dimension
from sim_envs.scripted.policy import ScriptedPolicy
from sim_envs.world import World

ENTRY_POINTS = "oxygen_eval.suites"  # the entry-point group for suites of other packages: suite name to class
# Protocol fields for suites whose class names them in `supports`; why others refuse them, for errors.
_OPTIONAL = {
    "variation": "does not vary its scenes",
    "motion": "does not know which object is to be grasped, so it cannot move it",
    "env_seed": "seeds its world with the episode's seed",
    "settle_gripper": "waits with its own hold action",
    "initial_states": "has no placement of its own",
}
_DEFAULTS = (None, Static(), BY_EPISODE, "open", "stored")  # of these


StateSource = Literal["stored", "sampled"]
"""Where an initial state comes from."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """One task of a suite.

    Attributes:
        suite: Name of the suite.
        task_id: Index in the suite.
        name: Name in the suite.
        language: The suite's own instruction.
        category: The kind of task, for suites that have several.
        difficulty: Its level in the suite; None if unknown.
        missing: What its assets lack, so that it cannot be opened; empty if nothing.
    """

    suite: str
    task_id: int
    name: str
    language: str
    category: str = ""
    difficulty: int | None = None
    missing: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class InitIds:
    """The initial states of a task.

    Attributes:
        stored: Number of stored states; their ids are 0 to `stored - 1`.
        sampled_from: First id whose state is sampled, as a function of the id; None if none can be sampled.
    """

    stored: int
    sampled_from: int | None = None

    def check(self, init_id: int, task: Task) -> None:
        """Raise a UsageError if no initial state has this id."""
        if 0 <= init_id < self.stored or self.source(init_id) == "sampled":
            return
        sampled = "" if self.sampled_from is None else f", or {self.sampled_from} and more for sampled ones"
        raise UsageError(
            f"init id {init_id}: task {task.task_id} of {task.suite} has {self.stored} stored initial "
            f"states; give ids from 0 to {self.stored - 1}{sampled}"
        )

    def source(self, init_id: int) -> StateSource:
        """Whether the initial state is stored or sampled."""
        return "stored" if self.sampled_from is None or init_id < self.sampled_from else "sampled"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Assets:
    """The models and textures that a suite simulates and renders with."""

    name: str  # short name of their source
    digest: str  # digest of the files

    def __str__(self) -> str:
        return f"{self.name} ({self.digest[:8]})" if self.digest else self.name


@runtime_checkable
class Suite(Protocol):
    """Tasks that share one protocol. Opening a suite loads no simulator; opening a world does."""

    @property
    def protocol(self) -> SuiteConfig:
        """Limits, settle steps, replan steps, camera size."""

    @property
    def interface(self) -> Interface:
        """Cameras, state, actions, control rate and hold action of its worlds."""

    @property
    def assets(self) -> Assets | None:
        """The assets of its worlds; None if the simulator brings its own."""

    def tasks(self) -> Sequence[Task]:
        """All tasks, in order of task id."""

    def init_ids(self, task: Task) -> InitIds:
        """The task's initial states."""

    def instruction(self, key: EpisodeKey, wordings: Wordings) -> str:
        """The instruction that the policy gets in an episode, as a function of the key.

        Raises:
            UsageError: The suite does not have these wordings.
        """

    def training_wordings(self) -> Mapping[str, Sequence[str]]:
        """Maps each instruction to its wordings for training; empty if each has only one."""

    def check(self, tasks: Iterable[Task]) -> None:
        """Check requirements of these tasks before any episode runs: versions, assets, renderer.

        Raises:
            UsageError: Something is missing; the message gives the remedy.
        """

    def open(self, task: Task) -> World:
        """Open the task's world. The caller closes it."""

    def describe(self, wordings: Wordings) -> Mapping[str, Any]:
        """Everything else that determines an episode, for the protocol hash: versions, settings, wordings."""

    def expert_tasks(self) -> Sequence[Task]:
        """The tasks that the expert plays, in order of task id; empty if the suite has no expert."""

    def expert(self, world: World, *, noise: float = 0.0, memory_age_s: float = 0.0) -> ScriptedPolicy | None:
        """A scripted policy with access to the world's simulator state; None if the suite has none.

        Args:
            world: A world that this suite has opened.
            noise: Variation of pace and path, and frequency of mistakes, from 0 to 1.
            memory_age_s: Age of what it knows of past subgoals.
        """


EnvironmentT = TypeVar("EnvironmentT", bound=Preset)
TaskT = TypeVar("TaskT", bound=Task)


class ConfiguredSuite(Generic[EnvironmentT]):
    """Base of suites whose YAML describes their environments, with no choice of assets.

    By default an instruction has one wording, and there is no expert.
    """

    environment_type: type[EnvironmentT]  # schema of the protocol's `environment`
    perturbs: ClassVar[tuple[str, ...]] = ()  # which of `scene` and `pictures` perturbations can change
    supports: ClassVar[tuple[str, ...]] = ()  # which of the optional fields its worlds follow

    def __init__(self, protocol: SuiteConfig, *, assets: str = "auto") -> None:
        """Check the `environment` of a protocol; a UsageError if it is invalid, or assets are named."""
        if assets != "auto":
            raise UsageError(f"assets {assets!r}: {protocol.name} brings its own; leave them out")
        source = f"environment of suite {protocol.name}"
        self.environment = check(self.environment_type, protocol.environment, source=source)
        self.protocol = protocol
        self.assets = None

    def training_wordings(self) -> Mapping[str, Sequence[str]]:
        """See `Suite`."""
        return {}

    def expert_tasks(self) -> Sequence[Task]:
        """See `Suite`."""
        return ()

    def expert(self, world: World, *, noise: float = 0.0, memory_age_s: float = 0.0) -> ScriptedPolicy | None:  # noqa: ARG002
        """See `Suite`."""
        return None

    def _enumerated(self, tasks: Iterable[tuple[str, str]]) -> tuple[Task, ...]:
        """Tasks by name and instruction, in order of task id; a UsageError if two have the same name."""
        tasks = list(tasks)
        if repeated := [name for name, count in Counter(name for name, _ in tasks).items() if count > 1]:
            raise UsageError(f"{self.protocol.name} has two tasks {repeated[0]!r}; give each its own `name`")
        return tuple(
            Task(suite=self.protocol.name, task_id=task_id, name=name, language=language)
            for task_id, (name, language) in enumerate(tasks)
        )


# Opens a suite: `Factory(protocol, assets="auto")`. Entry points have their protocol in `published`.
SuiteFactory = Callable[..., Suite]


def find_suite(name: str) -> tuple[SuiteConfig, SuiteFactory]:
    """The protocol and the class of a suite.

    Args:
        name: Name of a suite of this package or of an entry point in the group `oxygen_eval.suites`, or path
            of a YAML file whose `world` names the class as `package.module:Class`. Modules are also found in
            the file's folder, which is appended to `sys.path`.

    Raises:
        UsageError: Unknown suite, its class cannot be imported, or another is imported than is installed.
    """
    is_file = name.endswith((".yaml", ".yml"))
    if is_file or name in names(SuiteConfig):
        protocol = load(SuiteConfig, name)
        if is_file:
            folder = absolute(name).parent.resolve()
            protocol = protocol.model_copy(update={"folder": folder})
            if str(folder) not in sys.path:
                sys.path.append(str(folder))
        return protocol, load_object(protocol.world, what=f"world of suite {name}")
    plugins = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
    if name not in plugins:
        raise unknown("suite", name, suite_names(), remedy="Or give the path of a YAML file.")
    if (package := plugins[name].dist) is not None:
        imported_version(package.name)
    factory: Any = load_object(plugins[name].value, what=f"suite {name}")
    return factory.published, factory


def suite_names() -> tuple[str, ...]:
    """Names of all suites: this package's and those of entry points."""
    return (*names(SuiteConfig), *sorted(point.name for point in entry_points(group=ENTRY_POINTS)))


def open_suite(name: str, *, assets: str = "auto", seeds: Sequence[int] = (), **overrides: Any) -> Suite:
    """Open a suite by name or path.

    Args:
        name: See `find_suite`.
        assets: A folder of assets, or the name of a source.
        seeds: The run's seeds, as far as they are known (`EnvSeed.resolved`).
        overrides: Fields of the published protocol to change; of `environment`, single arguments.

    Raises:
        UsageError: Unknown suite or asset source, a value that is invalid or that the suite does not support,
            or another `control_hz` than its interface has.
    """
    protocol, factory = find_suite(name)
    arguments = overrides.get("environment", {})
    taken = getattr(factory, "environment_type", None)
    for argument, value in arguments.items():
        if taken is not None and argument not in taken.model_fields:
            raise UsageError(
                f"{format_option(argument, value)}: {protocol.name} has no such choice; leave it out"
            )
    overrides["environment"] = {**protocol.environment, **arguments}
    config = check(SuiteConfig, {**dict(protocol), **overrides}, source=name)
    config = config.model_copy(update={"env_seed": config.env_seed.resolved(*seeds)})
    for part in config.perturb:
        _check_perturbation(part, config, getattr(factory, "perturbs", ()))
    for field, complaint in _OPTIONAL.items():
        value = getattr(config, field)
        if value not in _DEFAULTS and field not in getattr(factory, "supports", ()):
            in_file, option = f"leave `{field}` out of {name}", f"leave out {format_option(field, True)}"
            given = f"{field.replace('_', ' ')} {value}"
            raise UsageError(
                f"{given}: {protocol.name} {complaint}; {option if field in overrides else in_file}"
            )
    try:
        inspect.signature(factory).bind(config, assets=assets)
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"world of suite {name} is {protocol.world!r}, which opens no suite: {error}"
        ) from None
    suite = factory(config, assets=assets)
    if config.control_hz != (hz := suite.interface.action.control_hz):
        raise UsageError(
            f"{name}: control_hz is {config.control_hz:g}, but interface {suite.interface.name!r} of its "
            f"world has {hz:g}; give {hz:g}"
        )
    return suite


def _check_perturbation(part: Perturbation, config: SuiteConfig, media: Sequence[str]) -> None:
    """Refuse a perturbation that the suite's worlds cannot do, or that comes after an episode's end."""
    media = (*media, "words")
    if find_dimension(part.dimension).medium not in media:
        every = (*DIMENSIONS, *(point.name for point in entry_points(group=PERTURBATIONS)))
        can = [name for name in every if find_dimension(name).medium in media]
        raise UsageError(
            f"perturbation {part}: {config.name} cannot change its {part.dimension}; it can change its "
            + ", ".join(can)
        )
    limit_s = config.max_steps / config.control_hz
    if part.at_s >= limit_s:
        raise UsageError(
            f"perturbation {part}: an episode of {config.name} ends after {limit_s:g} s "
            f"({config.max_steps} control steps); give a time before"
        )


def require_movable(
    tasks: Iterable[TaskT],
    motion: Shuttle | Drift | None,
    others: Sequence[TaskT],
    can_move: Callable[[TaskT], bool],
) -> None:
    """Check that every task to be run has an object that can move, if there is a motion.

    The UsageError names those of the suite's tasks, `others`, that have one.
    """
    still = [] if motion is None else [task for task in tasks if not can_move(task)]
    if not still:
        return
    can = [str(task.task_id) for task in others if can_move(task)]
    numbers = ", ".join(str(task.task_id) for task in still)
    raise UsageError(
        f"motion {motion}: in {still[0].suite} task {numbers}, the object to be grasped cannot move: it is "
        "in or on another object, has to be remembered, or nothing is grasped; "
        + (f"give --task-ids {' '.join(can)}" if can else "give another suite, or leave out --motion")
    )


def require_perturbable(
    tasks: Sequence[TaskT],
    perturbations: Iterable[Perturbation],
    others: Sequence[TaskT],
    can_perturb: Callable[[TaskT, Dimension], bool],
) -> None:
    """Check that every task to be run has what its perturbations change.

    The UsageError names those of the tasks that have it, else those of the suite's tasks, `others`.
    """
    for part in perturbations:
        dimension = find_dimension(part.dimension)
        lacking = [task for task in tasks if not can_perturb(task, dimension)]
        if not lacking:
            continue
        of_chosen, of_suite = (
            ranges(task.task_id for task in each if can_perturb(task, dimension)) for each in (tasks, others)
        )
        needed = pluralize(dimension.objects, "object")
        exchanges = ", which the instruction does not tell apart by place" if dimension.objects > 1 else ""
        can = " ".join(of_chosen or of_suite)
        raise UsageError(
            f"perturbation {part} needs {needed} that can be moved on the table{exchanges}: not in "
            f"{lacking[0].suite} task {', '.join(ranges(task.task_id for task in lacking))}; "
            + (f"give --task-ids {can}" if can else f"give another suite, or leave out {part.dimension}")
        )


def require_available(tasks: Sequence[Task], others: Sequence[Task]) -> None:
    """Check that the assets lack nothing for the tasks to be run.

    The UsageError names the first task, and how many there are of the suite's tasks, `others`.
    """
    lacking = [task for task in tasks if task.missing]
    if not lacking:
        return
    (first, *more), left = lacking, sum(not task.missing for task in others)
    also = f", and {pluralize(len(more), 'other')} of those asked for lack theirs" if more else ""
    raise UsageError(
        f"{first.suite} task {first.task_id}, {first.name}, needs {first.missing}{also}; "
        f"--only-available plays the {left} of {len(others)} tasks that need nothing more"
    )


def load_object(path: str, *, what: str) -> Any:
    """Import the object at `package.module:name`; a UsageError if there is none."""
    module, _, attribute = path.partition(":")
    if not module or not attribute:
        raise UsageError(f"{what} is {path!r}; write it as package.module:Class")
    try:
        return getattr(importlib.import_module(module), attribute)
    except ImportError as error:
        raise UsageError(f"{what} is {path!r}, which cannot be imported: {error}") from error
    except AttributeError:
        public = [name for name in vars(importlib.import_module(module)) if not name.startswith("_")]
        raise unknown(f"object for {what} in {module}:", attribute, public) from None
