"""The world contract: the methods of a simulator."""

import contextlib
import dataclasses
import reprlib
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float64, UInt8

from contracts.errors import UsageError, one_line
from contracts.observation import Observation
from contracts.perturbation import Perturbations
from contracts.truth import Truth

if TYPE_CHECKING:
    from sim_envs.perturbations.perturber import Perturber


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdvanceResult:
    """Result of executing a sequence of actions.

    `success` and `failed` may be given as whatever `as_flag` accepts; all else is a UsageError.

    Attributes:
        steps: Control steps taken; fewer than the actions given if the episode ended before the last.
        success: Whether the task's goal held after the last step.
        failed: Whether the task can no longer be solved, which also ends the episode.
        end_effector: Position (m) before the first action and after each that was taken; None in worlds
            without one end effector, or in which it is not known.
    """

    steps: int
    success: bool
    failed: bool = False
    end_effector: Float64[np.ndarray, "position 3"] | None = dataclasses.field(default=None, compare=False)

    def __post_init__(self) -> None:
        for name in ("success", "failed"):
            flag = as_flag(getattr(self, name), what=f"`{name}` of an AdvanceResult")
            object.__setattr__(self, name, flag)


class TaskError(UsageError):
    """A fault of the task, which its other episodes have, too: it ends the evaluation."""

    @classmethod
    def solved_at_start(cls, task: object, init_id: int) -> "TaskError":
        """The error for a task, or its file, whose goal is met before anything has been done."""
        where = f"the goal is true at the start of initial state {init_id}"
        return cls(f"{task}: {where}; change it, or where things begin")


class PhysicsError(RuntimeError):
    """The physics diverged under finite actions. Counts as a failure of the policy."""


@runtime_checkable
class World(Protocol):
    """A simulator with one task loaded. `advance` runs physics only; `observe` and `render` render.

    `reset` comes before any other method. A world belongs to the thread that made it.
    """

    def reset(self, *, init_id: int, seed: int, settle_steps: int) -> None:
        """Reseed, load an initial state and let it settle. Renders nothing.

        Args:
            init_id: Id of the initial state.
            seed: Determines everything that the initial state does not.
            settle_steps: Control steps of holding still with an open gripper.

        Raises:
            UsageError: Unknown initial state.
            PhysicsError: The physics diverged.
        """

    def advance(self, actions: Float64[np.ndarray, "steps action"]) -> AdvanceResult:
        """Run each action for one control step, without rendering; stop at success.

        Raises:
            ValueError: An action has the wrong size or is not finite; nothing was run.
            PhysicsError: The physics diverged.
        """

    def observe(self) -> Observation:
        """Render the cameras once and read the state.

        Raises:
            UsageError: No rendering backend works on this machine.
        """

    def render(self, camera: str) -> UInt8[np.ndarray, "height width 3"]:
        """The image of one camera as in `observe`, for videos. Changes nothing.

        Raises:
            UsageError: No rendering backend works on this machine.
        """

    def truth(self) -> Truth | None:
        """The ground truth for language at this step, or None. Never given to a policy.

        It may raise anything, which is recorded: see `read_truth`.
        """

    def progress(self) -> float:
        """Fraction of the task's criteria that are met, from 0 to 1."""

    def close(self) -> None:
        """Release the simulator and its renderer. A second call does nothing."""


@runtime_checkable
class Perturbable(Protocol):
    """A world whose episodes can be perturbed, beyond their instruction."""

    perturber: "Perturber"


def perturbed_world(world: World, perturbations: Perturbations) -> World:
    """The world, whose next episodes are perturbed; their instruction is not the world's."""
    if isinstance(world, Perturbable):
        world.perturber.perturbations = perturbations
    return world


def read_truth(world: World) -> tuple[Truth | None, str | None]:
    """The world's truth, and one line on why there is none if it fails: no episode is lost for that."""
    try:
        truth: object = world.truth()
    except Exception as error:  # noqa: BLE001 - truth grades texts, and decides nothing else
        return None, one_line(error)
    if truth is None or isinstance(truth, Truth):
        return truth, None
    return None, f"truth() returned a {type(truth).__name__}, not a {Truth.__module__}.Truth"


def checked_actions(actions: Any, *, size: int) -> Float64[np.ndarray, "steps action"]:
    """Convert actions to an array; a ValueError if it is not [steps, size], or a value is not finite."""
    actions = np.asarray(actions, np.float64)
    if actions.ndim != 2 or actions.shape[1] != size:
        raise ValueError(f"actions have shape {list(actions.shape)}, but must have [steps, {size}]")
    finite = np.isfinite(actions).all(axis=1)
    if not finite.all():
        first = int(np.argmin(finite))
        raise ValueError(f"action {first} of {len(actions)} is not finite: {actions[first].tolist()}")
    return actions


def as_number(value: object, *, what: str, expected: str = "a finite number,") -> float:
    """A finite number, a bool, or an array of one of these, as a float.

    Raises:
        UsageError: It is something else; names `what`, and what is `expected`.
    """
    array = np.empty(0)
    if isinstance(value, bool | int | float) or hasattr(value, "__array__"):  # tensors have it, too
        with contextlib.suppress(TypeError, ValueError, RuntimeError):  # a tensor on a GPU, for example
            array = np.asarray(value)
    if array.size != 1 or array.dtype.kind not in "biuf" or not np.isfinite(array).all():
        given = f"{reprlib.repr(value)} ({type(value).__name__})"
        raise UsageError(f"{what} is {given}, but must be {expected} or an array of one")
    return float(array.item())


def as_flag(value: object, *, what: str) -> bool:
    """A bool, 0 or 1, or an array of one of these, as a bool.

    Truthiness would not do: `{"task": False}`, `"False"` and NaN are true in Python.

    Raises:
        UsageError: It is something else; names `what`.
    """
    expected = "True, False, 1 or 0,"
    number = as_number(value, what=what, expected=expected)
    if number not in (0.0, 1.0):
        raise UsageError(f"{what} is {number:g}, but must be {expected} or an array of one")
    return bool(number)


def as_progress(value: object) -> float:
    """What `World.progress` returned; a UsageError if that is not a number from 0 to 1."""
    number = as_number(value, what="progress() of the world", expected="a number from 0 to 1,")
    if not 0.0 <= number <= 1.0:
        raise UsageError(f"progress() of the world is {number:g}, but must be from 0 to 1")
    return number
