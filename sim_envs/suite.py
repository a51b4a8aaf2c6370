"""The contract of a task suite: tasks, initial states, instructions, and how a world is opened."""

import dataclasses
import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import entry_points
from typing import Any, Protocol, runtime_checkable

from configs.errors import UsageError, unknown
from configs.interface import Interface
from configs.load import check, load, names
from configs.motion import NONE
from configs.schema import SuiteConfig, Wordings
from sim_envs.scripted.policy import ScriptedPolicy
from sim_envs.world import EpisodeKey, World

ENTRY_POINTS = "oxygen_eval.suites"
"""The entry-point group of suites that other packages bring: suite name to its class."""

_OPTIONAL = {
    "variation": "does not vary its scenes",
    "motion": "cannot say what is to be grasped, so nothing moves",
}
"""Fields of a protocol that are None where a suite has no such thing, and what is said to those who ask."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """One task of a suite.

    Attributes:
        suite: Name of its suite.
        task_id: Its index in the suite.
        name: Its name in the suite.
        language: Its instruction in the suite's own words.
    """

    suite: str
    task_id: int
    name: str
    language: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class InitIds:
    """The initial states of a task.

    Attributes:
        stored: How many are stored; their ids are 0 to `stored - 1`.
        drawn_from: The first id whose state is drawn, as a function of the id; None if none can be drawn.
    """

    stored: int
    drawn_from: int | None = None

    def check(self, init_id: int, task: Task) -> None:
        """Raise a UsageError if there is no such initial state."""
        if 0 <= init_id < self.stored or self.is_drawn(init_id):
            return
        drawn = "" if self.drawn_from is None else f", or {self.drawn_from} and more for drawn ones"
        raise UsageError(
            f"init id {init_id}: task {task.task_id} of {task.suite} has {self.stored} stored initial "
            f"states; give ids from 0 to {self.stored - 1}{drawn}"
        )

    def is_drawn(self, init_id: int) -> bool:
        """Whether the initial state is drawn."""
        return self.drawn_from is not None and init_id >= self.drawn_from


@dataclasses.dataclass(frozen=True, kw_only=True)
class Assets:
    """The models and textures that a suite simulates and renders with.

    Attributes:
        name: Where they are from, in a word.
        digest: A digest of their files.
    """

    name: str
    digest: str

    def __str__(self) -> str:
        return f"{self.name} ({self.digest[:8]})"


@runtime_checkable
class Suite(Protocol):
    """A suite of tasks under one protocol. Opening it loads no simulator; opening a world does."""

    @property
    def protocol(self) -> SuiteConfig:
        """Limits, settle steps, replan steps, camera size."""

    @property
    def interface(self) -> Interface:
        """Cameras, state, actions, rate and hold action of its worlds."""

    @property
    def assets(self) -> Assets | None:
        """What its worlds are built of; None if the simulator brings all."""

    def tasks(self) -> Sequence[Task]:
        """All tasks, by task id."""

    def init_ids(self, task: Task) -> InitIds:
        """The task's initial states."""

    def instruction(self, key: EpisodeKey, wordings: Wordings) -> str:
        """The instruction that a policy is given in an episode: a function of the key.

        Raises:
            UsageError: The suite has no such wordings.
        """

    def training_wordings(self) -> Mapping[str, Sequence[str]]:
        """Each instruction to the wordings that training may show; empty if there is but one of each."""

    def check(self, tasks: Iterable[Task]) -> None:
        """Refuse now what every episode of these tasks would fail of: versions, assets, renderer.

        Raises:
            UsageError: Says what is missing and the remedy.
        """

    def open(self, task: Task) -> World:
        """The task's world, to be closed by the caller."""

    def describe(self, wordings: Wordings) -> Mapping[str, Any]:
        """What else decides what an episode is, for the protocol hash: versions, settings, the wordings."""

    def expert(self, world: World, *, noise: float = 0.0) -> ScriptedPolicy | None:
        """A controller that reads the world's own state, bound to it; None if the suite has none.

        Args:
            world: A world that this suite has opened.
            noise: How much its pace and path vary and how often something goes wrong, from 0 to 1.
        """


SuiteFactory = Callable[..., Suite]
"""Opens a suite: `Factory(protocol, assets="auto")`. An entry point's has its protocol in `published`."""


def find_suite(name: str) -> tuple[SuiteConfig, SuiteFactory]:
    """The protocol and the class of a suite.

    Args:
        name: Of a suite in this package, or of an entry point in the group `oxygen_eval.suites`, or the path
            of a YAML file, whose `world` names the class as `package.module:Class`.

    Raises:
        UsageError: There is no such suite, or its class cannot be imported.
    """
    if name.endswith((".yaml", ".yml")) or name in names(SuiteConfig):
        protocol = load(SuiteConfig, name)
        return protocol, load_object(protocol.world, what=f"world of suite {name}")
    plugins = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
    if name not in plugins:
        raise unknown("suite", name, suite_names(), remedy="Or give the path of a YAML file.")
    factory: Any = load_object(plugins[name].value, what=f"suite {name}")
    return factory.published, factory


def suite_names() -> tuple[str, ...]:
    """All suites that can be named: this package's and those of entry points."""
    return (*names(SuiteConfig), *sorted(point.name for point in entry_points(group=ENTRY_POINTS)))


def open_suite(name: str, *, assets: str = "auto", **overrides: Any) -> Suite:
    """A suite by name or path.

    Args:
        name: See `find_suite`.
        assets: Where its assets come from: a folder, or the name of a source.
        overrides: Fields of its published protocol to change.

    Raises:
        UsageError: There is no such suite or asset source, or an override fits neither schema nor suite.
    """
    protocol, factory = find_suite(name)
    for field, complaint in _OPTIONAL.items():
        if getattr(protocol, field) is None and overrides.get(field, NONE) != NONE:
            raise UsageError(f"{field} {overrides[field]}: {protocol.name} {complaint}; leave out --{field}")
    return factory(check(SuiteConfig, {**dict(protocol), **overrides}, source=name), assets=assets)


def load_object(path: str, *, what: str) -> Any:
    """The object at `package.module:name`.

    Raises:
        UsageError: The path has another form, the module cannot be imported, or has no such object.
    """
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
