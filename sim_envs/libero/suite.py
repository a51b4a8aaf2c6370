"""LIBERO's suites: 130 tasks with stored initial states, under the published protocol."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from configs.errors import check
from configs.schema import Preset, SuiteConfig, Wordings
from contracts.episode import EpisodeKey
from contracts.hashing import hash_of
from sim_envs.eef_interface import delta_eef_interface
from sim_envs.gl import require_backend
from sim_envs.libero.assets import PINNED_VERSIONS, AssetSet, check_versions, find_assets
from sim_envs.libero.tasks import CONTROL_HZ, FIRST_SAMPLED, LiberoTask, definition, init_states, list_tasks
from sim_envs.libero.wordings import wordings as wordings_of
from sim_envs.perturbations.dimension import Dimension
from sim_envs.preflight import CheckResult
from sim_envs.scripted.policy import ScriptedPolicy
from sim_envs.suite import Assets, InitIds, Task, require_available, require_movable, require_perturbable
from sim_envs.world import World


class LiberoSuite:
    """One of LIBERO's suites, or ours on its assets. Implements `sim_envs.suite.Suite`."""

    environment_type: type[Preset] = Preset
    supports = ("motion", "env_seed", "settle_gripper", "initial_states")
    perturbs = ("scene", "pictures")

    def __init__(self, protocol: SuiteConfig, *, assets: str = "auto") -> None:
        """Find the suite's assets: a folder, or a source (auto, standins, download).

        A UsageError if there is no such suite or asset source, or `environment` is invalid.
        """
        source = f"environment of suite {protocol.name}"
        self.environment = check(self.environment_type, protocol.environment, source=source)
        self.protocol = protocol.model_copy(update={"environment": self.environment.model_dump()})
        self.interface = delta_eef_interface(
            "LIBERO", camera_size=protocol.camera_size, control_hz=CONTROL_HZ
        )
        self._asset_set = find_assets(assets)
        self._tasks = self._list_tasks()
        self.assets = Assets(name=self._asset_set.name, digest=self._asset_set.digest)

    def _list_tasks(self) -> tuple[LiberoTask, ...]:
        return list_tasks(self.protocol.name)

    def tasks(self) -> tuple[LiberoTask, ...]:
        """All tasks, in the published order; LIBERO's is its task order 0."""
        return self._tasks

    def init_ids(self, task: Task) -> InitIds:
        """Stored states; from 1000 on, states sampled by LIBERO's own placement."""
        return InitIds(stored=len(init_states(self._tasks[task.task_id])), sampled_from=FIRST_SAMPLED)

    def instruction(self, key: EpisodeKey, wordings: Wordings) -> str:
        """The benchmark's instruction, or one of its training or held-out wordings."""
        return key.choose(_wordings(self._tasks[key.task_id], wordings))

    def training_wordings(self) -> Mapping[str, tuple[str, ...]]:
        """The training wordings of the suite's instructions."""
        return {task.language: _wordings(task, "training") for task in self._tasks}

    def check(self, tasks: Iterable[Task]) -> None:
        """Check versions, renderer and assets, and with `--motion` that the tasks have an object to move."""
        check_versions()
        require_backend()  # first: importing MuJoCo with an invalid MUJOCO_GL raises a traceback
        from sim_envs.libero.sim import require_assets

        own = [self._tasks[task.task_id] for task in tasks]
        require_available(own, self._tasks)
        for task in own:
            require_assets(task, self._assets_of_worlds())
        require_movable(own, self.protocol.moving, self._tasks, _can_move)
        require_perturbable(own, self.protocol.perturb, self._tasks, _can_perturb)

    def open(self, task: Task) -> World:
        """Open a simulator of the task."""
        from sim_envs.libero.sim import LiberoSim  # imports MuJoCo

        own = self._tasks[task.task_id]
        require_movable([own], self.protocol.moving, self._tasks, _can_move)
        return LiberoSim(
            own,
            assets=self._assets_of_worlds(),
            camera_size=self.protocol.camera_size,
            motion=self.protocol.moving,
            env_seed=self.protocol.env_seed,
            initial_states=self.protocol.initial_states,
            settle_gripper=self.protocol.settle_gripper,
        )

    def _assets_of_worlds(self) -> AssetSet:
        return self._asset_set

    def describe(self, wordings: Wordings) -> Mapping[str, Any]:
        """The pinned versions, and digests of our own tasks and of wordings other than the benchmark's."""
        check_versions()  # again: what has been imported since may have changed Python's path
        described: dict[str, Any] = {"versions": dict(PINNED_VERSIONS)}
        if (own := definition(self.protocol.name)) is not None:
            described["tasks"] = own
        if wordings != "benchmark":
            digest = hash_of({task.language: _wordings(task, wordings) for task in self._tasks})
            described["wordings"] = {"name": wordings, "digest": digest}
        return described

    def preflight(self) -> Iterator[CheckResult]:
        """Replay reference control steps and let a scene settle."""
        from sim_envs.libero.preflight import check_libero

        yield from check_libero(self._asset_set)

    def expert_tasks(self) -> Sequence[Task]:
        """All tasks."""
        return self._tasks

    def expert(self, world: World, *, noise: float = 0.0, memory_age_s: float = 0.0) -> ScriptedPolicy:
        """The expert, which reads LIBERO's own environment; a UsageError if it cannot do the world's task."""
        from sim_envs.libero.experts.expert import Expert
        from sim_envs.libero.sim import LiberoSim

        assert isinstance(world, LiberoSim), "a suite's expert is bound to worlds that the suite opened"
        return Expert(world, noise, memory_age_s)


def _wordings(task: LiberoTask, name: Wordings) -> tuple[str, ...]:
    """The wordings of a task's instruction; a sequence has only its own, also for training."""
    own = bool(task.sequences) and name == "training"
    return wordings_of(task.language, "benchmark" if own else name)


_BY_PLACE = re.compile(
    r"\b(left|right|middle|front|back)\b(?! on the plate| compartment| drawer| of the (caddy|stove))"
)
"""What instructions tell objects and goals apart by, unless it is the place of a part or of a fixture."""


_PAN = "chefmate_8_frypan"  # its handle lies where others stand


def _can_perturb(task: LiberoTask, dimension: Dimension) -> bool:
    from sim_envs.libero.sim import interchangeable, loose, read_problem

    if dimension.objects == 0:
        return True
    problem = read_problem(task)
    told_by_place = _BY_PLACE.search(task.language) or not (task.sequences or interchangeable(problem))
    if dimension.objects > 1 and told_by_place:
        return False
    return len(loose(problem) - set(problem["objects"].get(_PAN, ()))) >= dimension.objects


def _can_move(task: LiberoTask) -> bool:
    from sim_envs.libero.sim import movable, read_problem

    return bool(movable(read_problem(task)))
