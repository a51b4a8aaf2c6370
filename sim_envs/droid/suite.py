"""DROID's suites: one table, tasks from YAML files, commanded by joint velocities or joint positions."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from typing import Any

from pydantic import Field

from configs.errors import UsageError
from configs.load import check
from configs.schema import Preset, SuiteConfig, Wordings
from sim_envs.droid.control import CONTROL_HZ, Control
from sim_envs.droid.conventions import interface
from sim_envs.droid.placement import FIRST_DRAWN, STORED, draw
from sim_envs.droid.task_file import TaskConfig, load_task
from sim_envs.gl import choose_backend, require_backend
from sim_envs.scripted.policy import ScriptedPolicy
from sim_envs.suite import InitIds, Task
from sim_envs.world import EpisodeKey, World

_PINNED = {"mujoco": "3.2.3", "robosuite": "1.4.0"}
"""Physics is the same bit for bit with these alone."""


class DroidEnvironment(Preset):
    """What a suite's YAML has under `environment`.

    Attributes:
        control: What the first seven numbers of an action ask for.
        tasks: Its tasks, by task id: names of those that ship, or paths of YAML files.
    """

    control: Control
    tasks: tuple[str, ...] = Field(min_length=1)


class DroidSuite:
    """Tasks on DROID's station. Implements `sim_envs.suite.Suite`.

    Attributes:
        protocol: Its published protocol.
        interface: Both cameras, joint positions, the arm's commands.
        assets: None: the robot's meshes come with robosuite, all else is in the task files.
    """

    def __init__(self, protocol: SuiteConfig, *, assets: str = "auto") -> None:
        """Read the tasks.

        Args:
            protocol: Of the suite; its `environment` fits `DroidEnvironment`.
            assets: `auto`: there is nothing to choose.

        Raises:
            UsageError: `environment` or a task file is wrong, or assets are named.
        """
        if assets != "auto":
            raise UsageError(f"assets {assets!r}: {protocol.name} brings its own; leave them out")
        if protocol.control_hz != CONTROL_HZ:
            raise UsageError(f"control_hz is {protocol.control_hz:g}, but DROID's is {CONTROL_HZ:g}")
        self._environment = check(
            DroidEnvironment, protocol.environment, source=f"environment of suite {protocol.name}"
        )
        self.protocol = protocol
        self.interface = interface(self._environment.control, image_height=protocol.camera_size)
        self.assets = None
        self._tasks = tuple(load_task(name) for name in self._environment.tasks)

    def tasks(self) -> tuple[Task, ...]:
        """All tasks, in the YAML's order."""
        return tuple(
            Task(suite=self.protocol.name, task_id=number, name=task.name, language=task.instruction)
            for number, task in enumerate(self._tasks)
        )

    def init_ids(self, task: Task) -> InitIds:
        """Those that are the same for every seed; from 1000 on, those drawn anew for every seed."""
        return InitIds(stored=STORED, drawn_from=FIRST_DRAWN)

    def instruction(self, key: EpisodeKey, wordings: Wordings) -> str:
        """The task's own instruction, or one of its other wordings, which take turns."""
        choice = _wordings(self._tasks[key.task_id], wordings)
        return choice[(key.init_id + key.task_id + key.seed) % len(choice)]

    def training_wordings(self) -> Mapping[str, Sequence[str]]:
        """The training wordings of every instruction."""
        return {task.instruction: task.wordings.training for task in self._tasks}

    def check(self, tasks: Iterable[Task]) -> None:
        """Refuse other versions than the pinned ones, crowded tasks, and a machine that cannot render."""
        for package, pinned in _PINNED.items():
            if version(package) != pinned:
                raise UsageError(
                    f"{self.protocol.name} needs {package} {pinned}, but {version(package)} is installed: "
                    f"uv pip install {package}=={pinned}"
                )
        require_backend()
        for task in tasks:
            for init_id in range(STORED):
                draw(self._tasks[task.task_id], init_id=init_id, seed=0)

    def open(self, task: Task) -> World:
        """A simulator with the task loaded."""
        choose_backend()  # MuJoCo reads it when it is imported
        from sim_envs.droid.sim import DroidSim

        return DroidSim(
            self._tasks[task.task_id],
            control=self._environment.control,
            image_height=self.protocol.camera_size,
            variation=self.protocol.variation or 0.0,
        )

    def describe(self, wordings: Wordings) -> Mapping[str, Any]:
        """The versions, the way to command the arm, a digest of every task, and other wordings."""
        said = {} if wordings == "benchmark" else {"wordings": wordings}
        return {
            "versions": {package: version(package) for package in _PINNED},
            "control": self._environment.control.value,
            "tasks": {task.name: _digest(task) for task in self._tasks},
            **said,
        }

    def expert(self, world: World, *, noise: float = 0.0) -> ScriptedPolicy | None:
        """The expert that picks and places.

        Raises:
            UsageError: It cannot do the world's task, or the noise is not between 0 and 1.
        """
        from sim_envs.droid.expert import DroidExpert
        from sim_envs.droid.sim import DroidSim

        assert isinstance(world, DroidSim), "a suite's expert is bound to worlds that the suite opened"
        return DroidExpert(world, noise=noise)


def _wordings(task: TaskConfig, wordings: Wordings) -> Sequence[str]:
    match wordings:
        case "benchmark":
            return (task.instruction,)
        case "training":
            return task.wordings.training
        case "held_out":
            return task.wordings.held_out


def _digest(task: TaskConfig) -> str:
    canonical = json.dumps(task.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]
