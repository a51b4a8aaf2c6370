"""DROID's suites: tabletop tasks from YAML files, with joint velocity or joint position control."""

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import Field

from configs.installed import identify
from configs.schema import Preset, SuiteConfig, Wordings
from contracts.episode import EpisodeKey
from contracts.errors import UsageError
from contracts.hashing import hash_of
from sim_envs.droid.control import ROBOSUITE, Control, interface
from sim_envs.droid.task_file import FIRST_SAMPLED, STORED, draw, load_task
from sim_envs.gl import choose_backend, require_backend
from sim_envs.perturbations.dimension import Dimension
from sim_envs.scripted.policy import ScriptedPolicy
from sim_envs.suite import ConfiguredSuite, InitIds, Task, require_movable, require_perturbable
from sim_envs.world import World

_MUJOCO = "3.2.3"  # physics is bit-identical only with this version
_RUBRIC = 3  # version of the evaluation of criteria, part of the protocol hash


class DroidEnvironment(Preset):
    """The `environment` of a suite's YAML."""

    control: Control
    # The tasks, in order of task id: names of built-in tasks, or paths of YAML files from the suite's own or
    # from the current folder.
    tasks: tuple[str, ...] = Field(min_length=1)


class DroidSuite(ConfiguredSuite[DroidEnvironment]):
    """Tasks on DROID's station, with robosuite's meshes. Implements `sim_envs.suite.Suite`."""

    environment_type = DroidEnvironment
    supports = ("variation", "motion")
    perturbs = ("scene", "pictures")

    def __init__(self, protocol: SuiteConfig, *, assets: str = "auto") -> None:
        """Read the tasks; a UsageError for an invalid `environment` or task file, or if assets are named."""
        super().__init__(protocol, assets=assets)
        self.interface = interface(self.environment.control, image_height=protocol.camera_size)
        self._tasks = tuple(load_task(name, protocol.folder) for name in self.environment.tasks)

    def tasks(self) -> tuple[Task, ...]:
        """All tasks, in the YAML's order."""
        return self._enumerated((task.name, task.instruction) for task in self._tasks)

    def init_ids(self, task: Task) -> InitIds:
        """Stored states, the same for every seed; from 1000 on, states sampled from id and seed."""
        return InitIds(stored=STORED, sampled_from=FIRST_SAMPLED)

    def instruction(self, key: EpisodeKey, wordings: Wordings) -> str:
        """The task's instruction, or one of its other wordings, in rotation."""
        task = self._tasks[key.task_id]
        return task.instruction if wordings == "benchmark" else key.choose(getattr(task.wordings, wordings))

    def training_wordings(self) -> Mapping[str, Sequence[str]]:
        """The training wordings of every instruction."""
        return {task.instruction: task.wordings.training for task in self._tasks}

    def check(self, tasks: Iterable[Task]) -> None:
        """Check versions and renderer, that objects can be placed, and with `--motion` that one can move."""
        tasks = list(tasks)
        self._check_mujoco()
        require_backend()
        require_movable(tasks, self.protocol.moving, self.tasks(), self._can_move)
        require_perturbable(tasks, self.protocol.perturb, self.tasks(), self._can_perturb)
        for task in tasks:
            for init_id in range(STORED):
                draw(self._tasks[task.task_id], init_id=init_id, seed=0)

    def open(self, task: Task) -> World:
        """Open a simulator of the task."""
        choose_backend()  # MuJoCo reads the choice on import
        from sim_envs.droid.sim import DroidSim

        require_movable([task], self.protocol.moving, self.tasks(), self._can_move)
        return DroidSim(
            self._tasks[task.task_id],
            control=self.environment.control,
            image_height=self.protocol.camera_size,
            variation=self.protocol.variation or 0.0,
            motion=self.protocol.moving,
        )

    def describe(self, wordings: Wordings) -> Mapping[str, Any]:
        """Versions, control mode, a digest of every task, and wordings other than the benchmark's."""
        self._check_mujoco()  # again: what has been imported since may have changed Python's path
        others = {} if wordings == "benchmark" else {"wordings": wordings}
        return {
            "versions": {"mujoco": _MUJOCO, "robosuite": ROBOSUITE, "rubric": _RUBRIC},
            "control": self.environment.control.value,
            "tasks": {task.name: hash_of(task.model_dump(mode="json")) for task in self._tasks},
            **others,
        }

    def expert_tasks(self) -> tuple[Task, ...]:
        """The tasks of picking, placing and blocking."""
        from sim_envs.droid.planning import moves  # imports MuJoCo

        playable = []
        for task in self.tasks():
            with contextlib.suppress(UsageError):
                moves(self._tasks[task.task_id])
                playable.append(task)
        return tuple(playable)

    def expert(self, world: World, *, noise: float = 0.0, memory_age_s: float = 0.0) -> ScriptedPolicy | None:
        """The scripted expert; a UsageError if it cannot do the task, or for noise not between 0 and 1."""
        from sim_envs.droid.expert import DroidExpert
        from sim_envs.droid.sim import DroidSim

        assert isinstance(world, DroidSim), "the world was not opened by this suite"
        return DroidExpert(world, noise=noise)

    def _check_mujoco(self) -> None:
        """Raise a UsageError if MuJoCo is not the release with which physics is bit-identical."""
        found = identify("mujoco")
        if found.version != _MUJOCO:
            raise UsageError(
                f"{self.protocol.name} needs mujoco {_MUJOCO}, but {found.version} is installed: "
                f"uv pip install mujoco=={_MUJOCO}"
            )
        found.require_release(f"{self.protocol.name} needs the release")

    def _can_perturb(self, task: Task, dimension: Dimension) -> bool:
        from sim_envs.droid.station import loose

        return len(loose(self._tasks[task.task_id])) >= dimension.objects

    def _can_move(self, task: Task) -> bool:
        from sim_envs.droid.station import movable

        return bool(movable(self._tasks[task.task_id]))
