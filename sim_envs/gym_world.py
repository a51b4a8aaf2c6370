"""Gymnasium environments as worlds, described by a suite's YAML."""

import importlib
import traceback
from collections.abc import Iterable, Mapping
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, Literal

import gymnasium
import numpy as np
from jaxtyping import Float64, UInt8
from pydantic import Field, model_validator
from typing_extensions import override

from configs.installed import distribution_of, identify
from configs.schema import Name, Preset, SuiteConfig, Wordings
from contracts.episode import EpisodeKey
from contracts.errors import UsageError, install_command, one_line, unknown
from contracts.hashing import hash_of
from contracts.interface import (
    ActionChannels,
    ActionSpec,
    Camera,
    Channels,
    Gripper,
    Hold,
    Interface,
    Motion,
    ObservationSpec,
    Rotation,
)
from contracts.observation import Observation
from sim_envs.gl import choose_backend, import_robosuite, load_triton_first, require_backend
from sim_envs.perturbations.perturber import Perturber
from sim_envs.suite import ConfiguredSuite, InitIds, Task, load_object
from sim_envs.world import AdvanceResult, PhysicsError, World, as_flag, as_number, checked_actions

RENDER = "render"  # the key of a camera whose images come from `render()`
_WRAP = "register the environment in a wrapper (docs/worlds.md, Wrappers)"
_OLD_API = f"it has the interface of Gym before 0.26; {_WRAP}, such as shimmy's GymV21CompatibilityV0"
_MAKE_ARGUMENTS = ("id", "max_episode_steps", "disable_env_checker")  # of `gymnasium.make`, a suite's own


class GymTask(Preset):
    """One task."""

    name: Name  # name in the suite
    id: str  # the environment's id in Gymnasium's registry
    # Further arguments of `gymnasium.make`, without those that the suite gives.
    kwargs: dict[str, Any] = Field(default_factory=dict)
    instruction: str = Field(min_length=1)
    paraphrases: tuple[str, ...] = ()  # other wordings of it, held out


class GymCamera(Preset):
    """One camera."""

    name: str  # name in the suite
    key: str  # key of the images in an observation (`pixels/top`), or `render` for `env.render()`
    # Height and width in pixels, if fixed by the environment; `camera_size`, square, if None.
    size: tuple[int, int] | None = None
    # Rotation that the world applies to the images, counterclockwise.
    rotated_deg: Literal[0, 90, 180, 270] = 0


class GymState(Preset):
    """A group of state channels."""

    name: str  # name of the channels
    # Key of the array in an observation (`robot/joints`); None if the observation is one array.
    key: str | None = None
    slice: tuple[int, int] | None = None  # start and end (exclusive) within that array
    size: int | None = Field(default=None, gt=0)  # number of channels, if they are the whole array
    unit: str  # unit of each channel

    @model_validator(mode="after")
    def _has_slice_or_size(self) -> "GymState":
        if (self.slice is None) == (self.size is None):
            raise ValueError(f"state {self.name!r}: give `slice` or `size`, but not both")
        if self.slice is not None and not 0 <= self.slice[0] < self.slice[1]:
            raise ValueError(f"state {self.name!r}: slice {list(self.slice)} is not [first, last + 1]")
        return self

    def channels(self) -> Channels:
        """The channels for the interface."""
        size = self.size if self.slice is None else self.slice[1] - self.slice[0]
        assert size is not None
        return Channels(name=self.name, size=size, unit=self.unit)


class GymAction(Preset):
    """A group of action channels; see `contracts.interface.ActionChannels`."""

    name: str
    size: int = Field(gt=0)
    unit: str
    motion: Motion
    hold: Literal["zero", "state", "last_command"]
    state: str | None = None


class GymSuccess(Preset):
    """The success criterion: exactly one of these."""

    info: str | None = None  # `info` has a true value under this key after a step
    terminated: Literal[True] | None = None  # the environment terminates
    reward: float | None = None  # the reward of a step is at least this

    @model_validator(mode="after")
    def _has_one_criterion(self) -> "GymSuccess":
        if len(self.model_fields_set) != 1:
            raise ValueError("`success` is one of `info: KEY`, `terminated: true`, `reward: MINIMUM`")
        return self


class GymEnvironment(Preset):
    """A suite of Gymnasium environments that share cameras, state and actions."""

    module: str | None = None  # module that registers the environments; imported first
    # Distributions whose versions determine an episode. With `mujoco` among them, the renderer is chosen as
    # for the other worlds.
    packages: tuple[str, ...] = ()
    extra: str | None = None  # the extra of this project that installs them
    tasks: tuple[GymTask, ...] = Field(min_length=1)  # the tasks, in order of task id
    # Number of initial states per task. Each is what the environment samples for its own seed.
    init_ids: int = Field(gt=0)
    size_arguments: tuple[str, ...] = ()  # keyword arguments of the environments that receive `camera_size`
    cameras: tuple[GymCamera, ...] = Field(min_length=1)
    state: tuple[GymState, ...] = Field(min_length=1)
    state_rotation: Rotation = Rotation.NONE  # representation of rotations in the state
    action: tuple[GymAction, ...] = Field(min_length=1)  # the action channels, in order
    action_rotation: Rotation = Rotation.NONE  # representation of rotations in the action
    grippers: tuple[Gripper, ...] = ()  # range of every gripper
    # Lowest and highest action value, to which actions are clipped; None: not clipped.
    limits: tuple[float, float] | None
    success: GymSuccess
    physics_error: str | None = None  # exception that means diverged physics, as `package.module:Class`

    @property
    def modules(self) -> list[str]:
        """The modules that register the environments: `module`, and those in ids (`module:Name-v0`)."""
        named = [self.module or "", *(task.id.rpartition(":")[0] for task in self.tasks)]
        return [module for module in dict.fromkeys(named) if module]

    @property
    def renders(self) -> bool:
        """Whether any camera uses `render()`."""
        return any(camera.key == RENDER for camera in self.cameras)

    @model_validator(mode="after")
    def _kwargs_are_not_the_suites(self) -> "GymEnvironment":
        own = {*self.size_arguments, *_MAKE_ARGUMENTS, *(["render_mode"] if self.renders else [])}
        for task in self.tasks:
            if repeated := sorted(own & task.kwargs.keys()):
                raise ValueError(
                    f"`kwargs` of task {task.name!r} have {', '.join(repeated)}, which the suite "
                    "gives: leave it out"
                )
        return self


class GymSuite(ConfiguredSuite[GymEnvironment]):
    """Gymnasium environments that share an interface. Implements `sim_envs.suite.Suite`."""

    environment_type = GymEnvironment
    perturbs = ("pictures",)

    def __init__(self, protocol: SuiteConfig, *, assets: str = "auto") -> None:
        """Open the suite; a UsageError if its `environment` is invalid, or assets are named."""
        super().__init__(protocol, assets=assets)
        declared, side = self.environment, protocol.camera_size
        for camera in declared.cameras:
            if camera.size is not None and camera.size[0] != side:
                raise UsageError(
                    f"camera_size is {side}, but camera {camera.name!r} of {protocol.name} has images of "
                    f"{camera.size[0]} × {camera.size[1]} pixels: give {camera.size[0]}"
                )
        self.interface = Interface(
            name=protocol.name,
            observation=ObservationSpec(
                cameras=tuple(
                    Camera(name=each.name, size=each.size or (side, side), rotated_deg=each.rotated_deg)
                    for each in declared.cameras
                ),
                state=tuple(each.channels() for each in declared.state),
                rotation=declared.state_rotation,
            ),
            action=ActionSpec(
                channels=tuple(
                    ActionChannels(**each.model_dump(exclude={"hold"}), hold=Hold[each.hold.upper()])
                    for each in declared.action
                ),
                rotation=declared.action_rotation,
                grippers=declared.grippers,
                limits=declared.limits,
                control_hz=protocol.control_hz,
            ),
        )

    def tasks(self) -> tuple[Task, ...]:
        """All tasks, in the YAML's order."""
        return self._enumerated((task.name, task.instruction) for task in self.environment.tasks)

    def init_ids(self, task: Task) -> InitIds:
        """Stored states, as many as the YAML declares."""
        return InitIds(stored=self.environment.init_ids)

    def instruction(self, key: EpisodeKey, wordings: Wordings) -> str:
        """The YAML's instruction, or one of its paraphrases, which are the held-out wordings."""
        task = self.environment.tasks[key.task_id]
        if wordings == "held_out" and task.paraphrases:
            return key.choose(task.paraphrases)
        if wordings != "benchmark":
            raise UsageError(
                f"{self.protocol.name} has no {wordings} wordings (those that are held out are `paraphrases` "
                "in its YAML)"
            )
        return task.instruction

    def check(self, tasks: Iterable[Task]) -> None:
        """Check packages, environment ids, and the renderer if MuJoCo is used."""
        self._load()
        if "mujoco" in self.environment.packages:
            require_backend()
        for task in tasks:
            name = self.environment.tasks[task.task_id].id.rpartition(":")[2]  # without a module to import
            if name not in gymnasium.registry:
                raise unknown("Gymnasium environment", name, gymnasium.registry)

    def open(self, task: Task) -> World:
        """Make the task's environment, without Gymnasium's time limit: the protocol has its own."""
        self._load()
        chosen = self.environment.tasks[task.task_id]
        options: dict[str, Any] = dict.fromkeys(self.environment.size_arguments, self.protocol.camera_size)
        if self.environment.renders:
            options["render_mode"] = "rgb_array"
        try:
            env = gymnasium.make(
                chosen.id, **chosen.kwargs, **options, max_episode_steps=-1, disable_env_checker=True
            )
        except gymnasium.error.DependencyNotInstalled as error:
            extra = self.environment.extra
            remedy = f"; run {install_command(extra)}" if extra else ""
            raise UsageError(f"{chosen.id} of {task.suite}: {error}{remedy}") from error
        except TypeError as error:  # an argument that its constructor does not take, or no `gymnasium.Env`
            remedy = "`kwargs` and `size_arguments` have to be arguments of the environment"
            if "render_mode" in str(error):
                remedy = "let it take `render_mode`, or give the cameras the `key` of observed images"
            raise UsageError(f"{chosen.id} of {task.suite}: {error}; {remedy}") from error
        return GymWorld(env, suite=self, task=task)

    def describe(self, wordings: Wordings) -> Mapping[str, Any]:
        """Environment ids, arguments, number of initial states, success criterion and versions."""
        fields, others = {"tasks", "init_ids", "size_arguments", "success"}, {"__all__": {"paraphrases"}}
        described = self.environment.model_dump(mode="json", include=fields, exclude={"tasks": others})
        if wordings != "benchmark":
            listed = [task.paraphrases for task in self.environment.tasks]
            described["wordings"] = {"name": wordings, "digest": hash_of(listed)}
        return {**described, "versions": self._versions()}

    def _versions(self) -> dict[str, Any]:
        """What runs of each package; a UsageError if one is imported from elsewhere."""
        packages, module = ("gymnasium", *self.environment.packages), self.environment.module
        versions = {package: identify(package).describe() for package in packages}
        name = None if module is None else distribution_of(module)
        if name is not None and name.replace("_", "-") not in {each.replace("_", "-") for each in packages}:
            found = identify(name)
            versions |= {name: found.describe()} if found.origin else {}
        return versions

    def _load(self) -> None:
        """Import the modules that register the environments."""
        packages, extra = self.environment.packages, self.environment.extra
        missing = [package for package in packages if not any(distributions(name=package))]
        if missing:
            install = "uv pip install " + " ".join(f"'{package}'" for package in missing)
            raise self._needs(", ".join(missing), install_command(extra) if extra else install)
        self._versions()  # before any of them runs
        if "mujoco" in packages:
            choose_backend()  # MuJoCo reads the choice on import
        load_triton_first()  # environments may render without MuJoCo, or import it themselves
        if "robosuite" in packages:
            import_robosuite()
        for module in self.environment.modules:
            self._import(module, extra)

    def _import(self, module: str, extra: str | None) -> None:
        try:
            importlib.import_module(module)
        except Exception as error:  # the user's code may raise anything
            absent = error.name if isinstance(error, ModuleNotFoundError) else None
            if absent and extra:
                raise self._needs(absent, install_command(extra)) from error
            start = f"suite {self.protocol.name}: cannot import module {module!r}: "
            if absent and f"{module}.".startswith(f"{absent}."):
                raise UsageError(
                    f"{start}put its folder on PYTHONPATH, run from it, or install the module"
                ) from error
            where = traceback.extract_tb(error.__traceback__)[-1]
            place = "" if absent else f" ({Path(where.filename).name}, line {where.lineno})"
            remedy = "; install what provides it" if absent else ""
            raise UsageError(f"{start}{one_line(error)}{place}{remedy}") from error

    def _needs(self, missing: str, command: str) -> UsageError:
        return UsageError(f"suite {self.protocol.name} needs {missing}, not installed here: run {command}")


class GymWorld(World):
    """One Gymnasium environment.

    An environment that terminates or truncates without success is no longer stepped: control steps pass,
    nothing moves, and the episode ends at the protocol's limit. `advance` itself renders nothing, but
    environments with images in their observations render them at every step. A UsageError is raised for
    actions, states and images that differ from the declared ones.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], *, suite: GymSuite, task: Task) -> None:
        """Wrap an environment of a suite, made without Gymnasium's time limit. The world closes it."""
        self.env = env  # also for controllers with privileged access
        self._config = suite.environment
        self._interface = suite.interface
        self._task = task
        diverged = self._config.physics_error
        self._diverged = load_object(diverged, what="physics_error") if diverged else ()
        self._observed: Any = None
        self._finished = self._solved = self._closed = False
        self.perturber = Perturber(self._interface.action.control_hz)
        self._last: Float64[np.ndarray, " action"] | None = None
        if remedy := _action_remedy(env.action_space, self._interface.action):
            raise UsageError(
                f"{self._interface.name} declares {self._interface.action.size} action channels, but takes "
                f"{env.action_space}: {remedy}"
            )

    @override
    def reset(self, *, init_id: int, seed: int, settle_steps: int) -> None:
        self.perturber.restore()
        number = int(np.random.SeedSequence((init_id, seed)).generate_state(1)[0])
        try:
            started = self.env.reset(seed=number)
        except TypeError as error:
            if "unexpected keyword argument" not in str(error):
                raise
            raise UsageError(f"reset() of {self._interface.name}: {error}: {_OLD_API}") from error
        if not (isinstance(started, tuple) and len(started) == 2 and isinstance(started[1], Mapping)):
            raise UsageError(
                f"reset() of {self._interface.name} returns {type(started).__name__}, not (observation, "
                f"info): {_OLD_API}"
            )
        self._observed = started[0]
        self._state()  # refuses one that does not fit
        self._finished = self._solved = False
        self._last = None
        for _ in range(settle_steps):
            if not self._finished:
                self._control_step(self._interface.hold_action(self._state(), self._last))
        of_task = {"suite": self._task.suite, "task_id": self._task.task_id}
        self.perturber.begin(None, EpisodeKey(**of_task, init_id=init_id, seed=seed).digest())

    @override
    def advance(self, actions: Float64[np.ndarray, "steps action"]) -> AdvanceResult:
        actions = checked_actions(actions, size=self._interface.action.size)
        for taken, action in enumerate(actions, start=1):
            if not self._finished:
                self._control_step(action)
            self.perturber.step()
            if self._solved:
                return AdvanceResult(steps=taken, success=True)
        return AdvanceResult(steps=len(actions), success=False)

    @override
    def observe(self) -> Observation:
        images = {name: self.render(name) for name in self._interface.observation.camera_names}
        return Observation(images=images, state=self._state(), language=self._task.language)

    @override
    def render(self, camera: str) -> UInt8[np.ndarray, "height width 3"]:
        number = self._interface.observation.camera_names.index(camera)
        key, declared = self._config.cameras[number].key, self._interface.observation.cameras[number]
        given = self.env.render() if key == RENDER else self._at(key)
        pixels = np.asarray(given)
        image = np.rot90(pixels, declared.rotated_deg // 90) if pixels.ndim == 3 else pixels
        assert declared.size is not None
        if image.dtype != np.uint8 or image.shape != (*declared.size, 3):
            size = " × ".join(map(str, declared.size))
            raise UsageError(
                f"camera {camera!r} of {self._interface.name} is declared with {size} pixels, that is uint8 "
                f"{[*declared.size, 3]}; the environment gives {type(given).__name__} of {image.dtype} "
                f"{list(image.shape)}: {_image_remedy(given)}"
            )
        return self.perturber.picture(np.array(image, order="C"))

    @override
    def truth(self) -> None:
        return None

    @override
    def progress(self) -> float:
        return float(self._solved)

    @override
    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.env.close()

    def _control_step(self, action: Float64[np.ndarray, " action"]) -> None:
        self._last = action
        limits = self._interface.action.limits
        clipped = action if limits is None else np.clip(action, *limits)
        try:
            stepped = self.env.step(np.asarray(clipped, self.env.action_space.dtype))
        except self._diverged as error:
            raise PhysicsError(f"{self._interface.name}: {error}") from error
        name = self._interface.name
        if len(stepped) != 5:
            raise UsageError(f"step() of {name} returns {len(stepped)} values, not 5: {_OLD_API}")
        self._observed, reward, terminated, truncated, info = stepped
        self._state()  # refuses one that is not finite
        if not isinstance(info, Mapping):
            raise UsageError(f"info of step() of {name} is {type(info).__name__}, but must be a dict")
        if restarted := [key for key in ("final_info", "final_obs", "final_observation") if key in info]:
            raise UsageError(
                f"{name} begins the next episode by itself (info has {restarted[0]!r}): turn its automatic "
                "reset off"
            )
        ended = [
            as_flag(end, what=f"`{what}` of step() of {name}")
            for what, end in (("terminated", terminated), ("truncated", truncated))
        ]
        match self._config.success:
            case GymSuccess(info=str(key)):
                if key not in info:
                    remedy = "It has to be there after every step; else grade by `terminated` or `reward`."
                    raise unknown("info key of `success`", key, info, remedy=remedy)
                self._solved = as_flag(info[key], what=f"info[{key!r}] of {name}, its success,")
            case GymSuccess(reward=float(least)):
                self._solved = as_number(reward, what=f"the reward of {name}") >= least
            case _:
                self._solved = ended[0]
        self._finished = self._solved or any(ended)

    def _state(self) -> Float64[np.ndarray, " state"]:
        parts, name = [], self._interface.name
        for part, declared in zip(self._config.state, self._interface.observation.state, strict=True):
            given, place = self._at(part.key), part.key or "the observation"
            try:
                whole = np.asarray(given, np.float64).ravel()
            except (TypeError, ValueError) as error:
                raise UsageError(
                    f"state {part.name!r} of {name}: {place} is {type(given).__name__}, which is not numbers "
                    f"({error}): give another `key`, or {_WRAP}"
                ) from error
            parts.append(whole if part.slice is None else whole[slice(*part.slice)])
            if len(parts[-1]) != declared.size:
                raise UsageError(
                    f"state {part.name!r} of {name} is declared with {declared.size} channels; the "
                    f"environment gives {len(parts[-1])} of {len(whole)} at {place}"
                )
            if not np.isfinite(parts[-1]).all():
                raise UsageError(
                    f"state {part.name!r} of {name} is {parts[-1].tolist()}, not finite: if its physics can "
                    "diverge under a policy's actions, let it raise an exception that `physics_error` names"
                )
        return np.concatenate(parts)

    def _at(self, key: str | None) -> Any:
        """The array at a path in the observation; the whole observation if `key` is None."""
        if (found := self._observed) is None:
            raise UsageError(f"{self._interface.name} gives no observation, but None")
        for part in [] if key is None else key.split("/"):
            inside = _parts(found)
            if part not in inside:
                raise unknown(f"observation key ({key}) of {self._interface.name}:", part, inside)
            found = inside[part]
        if inside := _parts(found):
            raise UsageError(
                f"{key or 'the observation'} of {self._interface.name} has several arrays: give the key of "
                f"one of {', '.join(inside)}"
            )
        return found


def _parts(observed: Any) -> dict[str, Any]:
    """What a dict of arrays, or a tuple, has by key or index; empty for an array."""
    if isinstance(observed, Mapping):
        return {str(key): value for key, value in observed.items()}
    return {str(index): each for index, each in enumerate(observed)} if isinstance(observed, tuple) else {}


def _action_remedy(space: gymnasium.Space[Any], declared: ActionSpec) -> str | None:
    """What to do about an action space that cannot take the declared actions; None if it can."""
    if not isinstance(space, gymnasium.spaces.Box):
        return f"{_WRAP} as one that takes {declared.size} real numbers"
    if space.shape != (declared.size,):
        if len(space.shape) == 1:
            return f"give `action` channels of {space.shape[0]} numbers in all"
        return f"{_WRAP}, with `action.reshape({', '.join(map(str, space.shape))})`"
    if not np.issubdtype(space.dtype, np.floating):
        return f"{_WRAP} as one that takes real numbers, with `np.rint(action)` or what else is meant"
    ends = [np.full(space.shape, end, space.dtype) for end in declared.limits or ()]
    if not all(map(space.contains, ends)):
        return f"`limits` are {list(declared.limits or ())}; give some within, or null if it clips by itself"
    return None


def _image_remedy(given: Any) -> str:
    """What makes uint8 [height, width, 3] of what an environment gives as an image."""
    image = np.asarray(given)
    match image.shape:
        case _ if given is None:
            return (
                "let it render in mode rgb_array, or give the camera the `key` of an image in its observation"
            )
        case _ if isinstance(given, list | tuple):
            made = "images[-1]"
        case (3 | 4, _, width) if width not in (3, 4):
            made = "np.moveaxis(image, 0, -1)"
        case (_, _, 4):
            made = "image[..., :3]"
        case (_, _) | (_, _, 1):
            made = "np.repeat(image.reshape(*image.shape[:2], 1), 3, axis=2)"
        case (_, _, _, _):
            made = "image[0]"
        case _ if image.dtype != np.uint8:
            scaled = "255 * image" if np.issubdtype(image.dtype, np.floating) else "image"
            made = f"({scaled}).astype(np.uint8)"
        case (height, width, 3):
            return (
                f"give `camera_size: {height}` and the camera `size: [{height}, {width}]`, or name the "
                "environment's arguments for them in `size_arguments`"
            )
        case _:
            made = "an image"
    return f"{_WRAP}, with `{made}`"
