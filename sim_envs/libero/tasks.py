"""LIBERO's interface, its 130 tasks and ours: instructions, problem files and stored initial states."""

import dataclasses
import functools
import io
import pickle
import re
import runpy
import zipfile
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float64

from configs.paths import UNREADABLE, read_npy, read_npz, regular
from contracts.errors import UsageError, unknown
from contracts.hashing import hash_file, hash_of
from sim_envs.eef_interface import delta_eef_interface
from sim_envs.libero.assets import package_root
from sim_envs.libero.perturbation import Perturbation
from sim_envs.libero.sequences import FALSE_STEPS, OVERSHOT_STEPS, SEQUENCES, STILL_STEPS, TRUE_STEPS, Subgoal
from sim_envs.suite import InitIds, Task

CONTROL_HZ = 20.0
CAMERAS = {"image": "agentview", "wrist_image": "robot0_eye_in_hand"}  # policies' camera names to LIBERO's
# The published interface, to be compared with that of a policy.
LIBERO_INTERFACE = delta_eef_interface("LIBERO", camera_size=256, control_hz=CONTROL_HZ)

# LIBERO's suites, in the order of publications.
SUITES = ("libero_spatial", "libero_object", "libero_goal", "libero_10", "libero_90")
# Tasks that need memory, on LIBERO's objects: LIBERO-Mem's in problem files of our own, and short ones.
MEMORY_SUITE, SHORT_SUITE = "libero_memory", "libero_memory_short"
_SHORT_TASKS = {
    "cue": "pick up the marked object and place it in the basket",
    "count_twice": "lift the black bowl and put it back on the plate twice",
    "count_three_times": "lift the black bowl and put it back on the plate three times",
    "hidden": "put the cover that hides the cream cheese on the plate",
}
_MEMORY_TASKS = {  # suite to the instructions of its tasks, by name
    MEMORY_SUITE: {name: name.replace("_", " ") for name in SEQUENCES if name not in _SHORT_TASKS},
    SHORT_SUITE: _SHORT_TASKS,
}
_MEMORY_FILES = Path(__file__).parent / "memory"


def definition(suite: str) -> str | None:
    """A digest of what defines the tasks of a suite of ours; None for LIBERO's, whose version is pinned."""
    if suite not in _MEMORY_TASKS:
        return None
    own = [*_MEMORY_TASKS[suite], *(["cover"] if suite == SHORT_SUITE else [])]
    files = {file.name: hash_file(file) for file in sorted(_MEMORY_FILES.iterdir()) if file.stem in own}
    rules = (FALSE_STEPS, TRUE_STEPS, OVERSHOT_STEPS, STILL_STEPS)
    return hash_of({"files": files, "sequences": {name: SEQUENCES.get(name) for name in own}, "rules": rules})


_AGAIN = "install or write it again"
FIRST_SAMPLED = 1000  # initial states from this id on are sampled by LIBERO's placement


@dataclasses.dataclass(frozen=True, kw_only=True)
class LiberoTask(Task):
    """One of LIBERO's tasks, in task order 0, which is used for evaluation, or one of ours.

    Its name is the stem of its files. Its instruction is derived from the name, as in LIBERO's benchmark; the
    problem file has another wording, on which published policies were not trained.
    """

    is_own: ClassVar[bool] = False  # a user's task, which must not begin with its goal met
    perturbation: Perturbation = dataclasses.field(default_factory=Perturbation)
    sampled_from: int | None = None
    """Seed from which the initial states below `FIRST_SAMPLED` are sampled; None if they are stored."""

    @property
    def bddl_file(self) -> Path:
        """The BDDL problem: scene, objects, regions, goal."""
        own = self.suite in _MEMORY_TASKS
        return (_MEMORY_FILES if own else package_root() / "bddl_files" / self.suite) / f"{self.name}.bddl"

    @property
    def states_file(self) -> Path:
        """The stored initial states."""
        if self.suite in _MEMORY_TASKS:
            return _MEMORY_FILES / f"{self.name}.npy"
        return package_root() / "init_files" / self.suite / f"{self.name}.pruned_init"

    @property
    def sequences(self) -> tuple[tuple[Subgoal, ...], ...]:
        """Alternatives of subgoals that count in order; none if the task is not a sequence."""
        return SEQUENCES.get(self.name, ()) if self.suite in _MEMORY_TASKS else ()

    @property
    def plain_language(self) -> str:
        """The instruction in LIBERO's own words, which truth is told in."""
        return self.language


@functools.cache
def list_tasks(suite: str) -> tuple[LiberoTask, ...]:
    """All tasks of a suite, by task id; a UsageError that names the nearest suite if there is none."""
    if suite in _MEMORY_TASKS:
        return tuple(
            LiberoTask(suite=suite, task_id=task_id, name=name, language=language)
            for task_id, (name, language) in enumerate(_MEMORY_TASKS[suite].items())
        )
    if suite not in SUITES:
        raise unknown("suite", suite, (*SUITES, *_MEMORY_TASKS))
    # LIBERO's own list of tasks. Its package imports torch, the file with the list imports nothing.
    file = package_root() / "benchmark" / "libero_suite_task_map.py"
    tasks = []
    for task_id, name in enumerate(runpy.run_path(str(file))["libero_task_map"][suite]):
        language = instruction_of(name)
        tasks.append(LiberoTask(suite=suite, task_id=task_id, name=name, language=language))
    return tuple(tasks)


def instruction_of(name: str) -> str:
    """The instruction that LIBERO's benchmark derives from a task's name.

    Names of LIBERO-100 begin with their scene: `KITCHEN_SCENE4_put_the_bowl…` → `put the bowl…`.
    """
    return re.sub(r"^[A-Z][A-Z_]*_SCENE\d+_", "", name).replace("_", " ")


def get_task(suite: str, task_id: int) -> LiberoTask:
    """One task; a UsageError if there is no such suite, or no such task in it."""
    tasks = list_tasks(suite)
    if not 0 <= task_id < len(tasks):
        raise UsageError(f"{suite} has no task {task_id}: its task ids are 0 to {len(tasks) - 1}")
    return tasks[task_id]


@functools.lru_cache(maxsize=16)
def init_states(task: LiberoTask) -> Float64[np.ndarray, "init state"]:
    """The task's stored initial states: time, joint positions, joint velocities. Read-only."""
    file = task.states_file
    if file.suffix == ".npz":
        states = read_npz(file).get("states", np.empty(0))
    else:
        states = read_npy(file) if file.suffix == ".npy" else _read_torch_array(file)
    if states.size == 0 or states.ndim > 2 or states.dtype.kind not in "fiu":
        raise UsageError(f"{file} does not hold one table of initial states: {_AGAIN}")
    states = np.atleast_2d(states.astype(np.float64))
    states.flags.writeable = False
    return states


def get_init_state(task: LiberoTask, init_id: int) -> Float64[np.ndarray, " state"]:
    """One stored initial state; a UsageError if the task has none of this id."""
    states = init_states(task)
    InitIds(stored=len(states)).check(init_id, task)
    return states[init_id]


def _read_torch_array(file: Path) -> np.ndarray:
    """Read a NumPy array that torch pickled into a zip, without torch and without executing the pickle."""
    try:
        with zipfile.ZipFile(regular(file)) as archive:
            member = next(name for name in archive.namelist() if name.endswith("/data.pkl"))
            array = _ArrayUnpickler(io.BytesIO(archive.read(member))).load()
    except OSError as error:
        raise UsageError(f"cannot read {str(file)!r}: {error.strerror}") from None
    except (*UNREADABLE, StopIteration, pickle.UnpicklingError) as error:
        raise UsageError(f"{file} holds no initial states ({error}): {_AGAIN}") from None
    if not isinstance(array, np.ndarray):
        raise UsageError(f"{file} does not hold one table of initial states: {_AGAIN}")
    return array


class _ArrayUnpickler(pickle.Unpickler):  # noqa: S301 - it is what makes unpickling safe
    """Unpickles only NumPy arrays."""

    _ALLOWED = frozenset(
        {
            ("_codecs", "encode"),
            ("numpy", "dtype"),
            ("numpy", "ndarray"),
            ("numpy.core.multiarray", "_reconstruct"),
            ("numpy._core.multiarray", "_reconstruct"),
        }
    )

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self._ALLOWED:
            raise pickle.UnpicklingError(f"initial states must not contain {module}.{name}")
        return super().find_class(module.replace("numpy.core", "numpy._core"), name)
