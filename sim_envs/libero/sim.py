"""LIBERO's simulator as a world: `advance` runs physics only, `observe` renders.

It wraps LIBERO's own environment, built without a renderer and reset without recompiling its model.
"""

import contextlib
import dataclasses
import functools
import gc
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import mujoco
import numpy as np
from jaxtyping import Bool, Float64, UInt8
from typing_extensions import override

from configs.schema import InitialStates, SettleGripper
from contracts.env_seed import BY_EPISODE, EnvSeed
from contracts.episode import EpisodeKey
from contracts.errors import UsageError
from contracts.motion import Drift, Shuttle
from contracts.nouns import FIXTURES
from contracts.observation import Observation
from contracts.truth import Truth
from sim_envs.libero.arm import ArmController
from sim_envs.libero.assets import STANDINS, AssetSet, load_libero, use_assets
from sim_envs.libero.cue import COVER, MARKER, Cue, find_cue, register_cover
from sim_envs.libero.definitions import WORKSPACES, add_models, add_objects, models_in, problem_class
from sim_envs.libero.experts.scene import ExpertScene
from sim_envs.libero.sequences import GoalSequence, Subgoal
from sim_envs.libero.tasks import CAMERAS, CONTROL_HZ, FIRST_SAMPLED, LiberoTask, get_init_state
from sim_envs.libero.truth import GROUNDS, LiberoScene
from sim_envs.moving import Bounds, Mover, PredictedMotion, sample_movers
from sim_envs.perturbations.noise import SensorNoise
from sim_envs.perturbations.perturber import Perturber
from sim_envs.perturbations.scene import Scene
from sim_envs.rendering import Cameras
from sim_envs.truth.tracker import EpisodeTruth
from sim_envs.world import AdvanceResult, PhysicsError, TaskError, World, as_flag, checked_actions

_PLACEMENT_ATTEMPTS = 20  # each of up to 5,000 draws per object


def _restorer(env: Any) -> Callable[[], None]:
    """A function that restores what episodes change in the model and LIBERO's own reset does not.

    These are, in the model just compiled, poses of fixtures; visibility, position and size of sites.
    """
    model = env.sim.model._model
    changed = ("body_pos", "body_quat", "site_rgba", "site_pos", "site_size")
    arrays = {name: getattr(model, name).copy() for name in changed}
    for fixture in env.fixtures_dict.values():
        body = env.model.worldbody.find(f".//body[@name='{fixture.root_body}']")
        number = env.sim.model.body_name2id(fixture.root_body)
        arrays["body_pos"][number] = np.fromstring(body.get("pos", "0 0 0"), sep=" ")
        arrays["body_quat"][number] = np.fromstring(body.get("quat", "1 0 0 0"), sep=" ")

    def restore() -> None:
        for name, values in arrays.items():
            getattr(env.sim.model._model, name)[:] = values

    return restore


def require_assets(task: LiberoTask, assets: AssetSet) -> None:
    """Raise a UsageError if the asset set lacks some of the task's objects or fixtures."""
    if assets.name != STANDINS:
        return
    problem = read_problem(task)
    categories = {*problem["objects"], *problem["fixtures"]}
    missing = sorted(categories - models_in(assets.path).keys() - WORKSPACES - {COVER})
    if missing:
        raise UsageError(
            f"{task.suite} task {task.task_id} needs {', '.join(missing)}, for which there are no stand-ins: "
            "play LIBERO's own assets instead, with --assets auto, PATH or download"
        )


def _build_env(task: LiberoTask, assets: AssetSet) -> Any:
    """LIBERO's environment for the task, as its `OffScreenRenderEnv` makes it but without a renderer."""
    load_libero()
    register_cover()
    import robosuite

    require_assets(task, assets)
    parsed, code = read_problem(task), task.perturbation.code
    categories = {*parsed["objects"], *parsed["fixtures"]} - WORKSPACES
    if code is not None:
        add_objects(code, categories)
    else:
        add_models(assets.path, categories)
    problem, scene = problem_class(code, parsed["problem_name"])
    controller = robosuite.load_controller_config(default_controller="OSC_POSE")
    with use_assets(assets.path), _numpy_seed(0):
        return _until_placed(
            task,
            lambda: problem(
                str(task.bddl_file),
                robots=["Panda"],
                controller_configs=controller,
                initialization_noise=None,
                use_camera_obs=False,
                has_offscreen_renderer=False,
                control_freq=CONTROL_HZ,
                ignore_done=True,
                **scene,
            ),
        )


def read_problem(task: LiberoTask) -> dict[str, Any]:
    """The task's BDDL problem, as LIBERO's `robosuite_parse_problem` returns it."""
    load_libero()
    from libero.libero.envs.bddl_utils import robosuite_parse_problem

    problem: dict[str, Any] = robosuite_parse_problem(str(task.bddl_file))
    return problem


def _until_placed(task: LiberoTask, attempt: Callable[[], Any]) -> Any:
    """Retry, as LIBERO does, while its random placement fails, up to a limit."""
    from robosuite.utils.errors import RandomizationError

    for _ in range(_PLACEMENT_ATTEMPTS):
        with contextlib.suppress(RandomizationError):
            return attempt()
    raise UsageError(
        f"{task.bddl_file}: its objects found no room in {_PLACEMENT_ATTEMPTS} attempts; give them regions "
        "that are larger or further apart"
    )


@contextlib.contextmanager
def _numpy_seed(seed: int) -> Iterator[None]:
    """Seed NumPy's global generator, which LIBERO uses, and restore it afterwards."""
    before = np.random.get_state()  # noqa: NPY002
    np.random.seed(seed)  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(before)  # noqa: NPY002


def contact_checker(data: mujoco.MjData) -> Callable[..., bool]:
    """Robosuite's `MujocoEnv.check_contact`, twenty times faster: a group of geoms is a cached mask.

    It says whether a geom of the first group touches one of the second, or any geom if None. A group is the
    name of a geom, names, or a robosuite model, which stands for its contact geoms.
    """

    @functools.cache
    def mask_of(names: tuple[str, ...]) -> Bool[np.ndarray, " geom"]:
        mask = np.zeros(data.model.ngeom, np.bool_)
        numbers = [mujoco.mj_name2id(data.model, mujoco.mjtObj.mjOBJ_GEOM, name) for name in names]
        mask[[number for number in numbers if number >= 0]] = True
        return mask

    def in_contact(geoms: Any) -> Bool[np.ndarray, "contact 2"]:
        names = geoms if isinstance(geoms, str | list | tuple) else geoms.contact_geoms
        return mask_of((names,) if isinstance(names, str) else tuple(names))[data.contact.geom]

    def check_contact(geoms_1: Any, geoms_2: Any = None) -> bool:
        first = in_contact(geoms_1)
        return bool((first if geoms_2 is None else first & in_contact(geoms_2)[:, ::-1]).any())

    return check_contact


_REACH = (0.4, 0.75)  # distances (m) from the robot's base between a folded and a stretched arm (0.85)

_SHOULDER = np.array([0.0, 0.0, 0.333])  # of the arm, from its base (m)
_LONGEST = 0.95  # distance (m) from there that nothing has which the arm can grasp; LIBERO's tasks: 0.85


def movable(problem: Mapping[str, Any]) -> list[str]:
    """The objects among those of `loose` that a BDDL problem's goals require to be moved."""
    wanted = [goal[1] for goal in problem["goal_state"] if goal[0] in ("in", "on")]
    free = loose(problem)
    return [name for name in dict.fromkeys(wanted) if name in free]


def loose(problem: Mapping[str, Any]) -> set[str]:
    """The objects of a BDDL problem that initially stand on table or floor and can be moved.

    None if a marker or covers show at the beginning what has to be remembered: they stay where they are.
    """
    if MARKER in problem["regions"] or COVER in problem["objects"]:
        return set()
    objects = {name for names in problem["objects"].values() for name in names}
    grounds = {
        name for kind, names in problem["fixtures"].items() if FIXTURES.get(kind) in GROUNDS for name in names
    }
    return objects & {
        state[1]
        for state in problem["initial_state"]
        if state[0] == "on" and problem["regions"].get(state[2], {}).get("target") in grounds
    }


def interchangeable(problem: Mapping[str, Any]) -> bool:
    """Whether no goal of a BDDL problem tells objects of one kind apart."""
    goals = {tuple(goal) for goal in problem["goal_state"]}
    kinds = problem["objects"].values()
    exchanges = ({a: b, b: a} for names in kinds for a, b in itertools.combinations(names, 2))
    return all({tuple(other.get(n, n) for n in goal) for goal in goals} == goals for other in exchanges)


def _draw(env: Any) -> None:
    """Draw what a reset of LIBERO's environment draws, in its order, and place nothing."""
    env.sim.reset()
    for robot in env.robots:
        np.random.randn(len(robot.init_qpos))  # noqa: NPY002 - noise of the resting arm, of size 0
    for sampler in env.object_property_initializers:
        env.object_states_dict[sampler.name].set_joint(sampler.sample())
    mujoco.mj_kinematics(env.sim.model._model, env.sim.data._data)  # for regions that are in a drawer
    placements = env.placement_initializer.sample()
    placements = env.conditional_placement_initializer.sample(env.sim, placements)
    env.conditional_placement_on_objects_initializer.sample(placements)


@dataclasses.dataclass(frozen=True)
class _StreamPosition:
    """Where a reset begins in a stream of random numbers that runs on over resets."""

    generator: Any  # state of NumPy's global generator
    # Samplers of joint positions (open drawers). LIBERO appends to them whenever it loads its model, and then
    # draws from all, so that every reset draws more than the one before.
    joint_samplers: tuple[Any, ...]


ACTION_SIZE = 7  # end-effector delta (position, axis-angle) and gripper (-1 open, +1 close), in [-1, 1]
SETTLE_ACTION = np.array([0.0, 0, 0, 0, 0, 0, -1])  # holds still with an open gripper

# Standard deviation (rad) of the resting arm's joints over LIBERO's stored initial states: robosuite's.
_REST_NOISE = 0.02
_PLATES_APART = 0.18  # smallest distance (m) between plates that others stand on
_REDRAWS = 200  # most placements drawn for it
_COLLISION_GROUP, _VISUAL_GROUP = 0, 1
_PHYSICS_STEPS = 25
_EXPOSED_STEP = 23  # after this physics step robosuite's sensors sample, given LIBERO's order of calls


class LiberoSim(World):
    """A simulator with one LIBERO task.

    The model is compiled once; a reset restores it. A trajectory is a function of (task, motion, init_id,
    seed, actions). Without motion and from a stored initial state it equals the one of LIBERO's own
    `OffScreenRenderEnv`, seeded and reset as `env_seed` says, bit for bit. Initial states from
    `tasks.FIRST_SAMPLED` on are sampled from id and seed by LIBERO's own placement; in stored ones `env_seed`
    determines the poses of fixtures. A process with an instance must not fork.
    """

    def __init__(
        self,
        task: LiberoTask,
        *,
        assets: AssetSet,
        camera_size: int = 256,
        motion: Shuttle | Drift | None = None,
        env_seed: EnvSeed = BY_EPISODE,
        initial_states: InitialStates = "stored",
        settle_gripper: SettleGripper = "open",
    ) -> None:
        """Build and compile the task's model. No renderer is opened before the first `observe`.

        Args:
            task: From `tasks.get_task`.
            assets: From `assets.find_assets`.
            camera_size: Height and width of camera images, pixels.
            motion: Motion of objects to be grasped, until they are touched; None for no motion.
            env_seed: Seeding of LIBERO's placement in stored initial states.
            initial_states: Whether that of a reset is followed by the stored state.
            settle_gripper: Command of the gripper while objects settle.

        A UsageError if a library has an unsupported version, or assets are missing.
        """
        self.task, self.assets = task, assets
        self.env = _build_env(task, self.assets)  # for privileged controllers to read, but not to step
        task.perturbation.apply(self.env, CAMERAS["image"])
        self._model: mujoco.MjModel = self.env.sim.model._model
        # Nobody reads the gripper's force sensors, which MuJoCo would compute in every physics step.
        self._model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_SENSOR
        self._data: mujoco.MjData = self.env.sim.data._data
        self.env.check_contact = contact_checker(self._data)
        self._restore = _restorer(self.env)
        self._env_seed, self._restores = env_seed, initial_states == "stored"
        self._settle_action = SETTLE_ACTION if settle_gripper == "open" else np.zeros(7)
        self._joint_samplers = tuple(self.env.object_property_initializers)
        self._stream: tuple[int, list[_StreamPosition]] = (-1, [])  # a seed, and where its resets begin
        self._after_reset: Any = None  # state of NumPy's global generator, which LIBERO-plus draws noise from
        option = mujoco.MjvOption()
        option.geomgroup[_COLLISION_GROUP], option.geomgroup[_VISUAL_GROUP] = 0, 1
        self._cameras = Cameras(self._model, CAMERAS, size=(camera_size, camera_size), option=option)
        self._camera_size = camera_size
        self._noise: SensorNoise | None = None
        self.perturber = Perturber(CONTROL_HZ)
        self._motion = motion
        self._movers: Mapping[str, Mover] = {}
        self._arm: ArmController | None = None
        self._tracker: EpisodeTruth | None = None
        self.sequence: GoalSequence | None = None  # of a task that is one
        self._cue: Cue | None = None
        self._state: Float64[np.ndarray, " 8"] = np.full(8, np.nan)
        self._closed = False

    @override
    def reset(self, *, init_id: int, seed: int, settle_steps: int) -> None:
        self.perturber.restore()
        if init_id >= FIRST_SAMPLED:
            self._sample_state(init_id, seed)
        elif self.task.sampled_from is not None:
            self._sample_state(init_id, self.task.sampled_from)
        else:
            state, needed = get_init_state(self.task, init_id), 1 + self._model.nq + self._model.nv
            if len(state) != needed:
                raise TaskError(
                    f"{self.task.states_file} has initial states of {len(state)} numbers, and the model of "
                    f"{self.task.suite} task {self.task.task_id} needs {needed} with assets "
                    f"{self.assets.name!r}; give states of this task, or other assets"
                )
            env_seed, earlier_resets = self._env_seed.draws(init_id, seed)
            self._reset_env(env_seed, earlier_resets)
            if self._restores:
                self.env.sim.set_state_from_flattened(state)
        if self._restores or init_id >= FIRST_SAMPLED:
            self.env.sim.forward()
        self._tracker, self._movers, self.sequence = None, {}, None
        key = EpisodeKey(suite=self.task.suite, task_id=self.task.task_id, init_id=init_id, seed=seed)
        self._noise, changes = None, self.task.perturbation
        if changes.noise:
            stream = self._after_reset if changes.draws == "published" else None
            self._noise = SensorNoise(changes.noise, self._camera_size, digest=key.digest(), stream=stream)
        self._cue = find_cue(self.env, init_id)
        self._judge()
        self._arm = ArmController(self.env)
        self._expose()
        for _ in range(settle_steps):
            self._control_step(self._settle_action)
        self._perturb(key)
        if self._motion is not None:
            bounds, bodies = self._bounds, self._bodies(movable(self.env.parsed_problem))
            with self.perturber.control_view():
                self._movers = sample_movers(self._data, bodies, self._motion, bounds, digest=key.digest())
            self.perturber.without(self._movers)
        if self.task.sequences:
            alternatives = sorted(self.task.sequences, key=self._distance)
            self.sequence = GoalSequence(alternatives, self.env._eval_predicate)
        hidden = None if self._cue is None else self._cue.hidden
        scene = functools.partial(
            LiberoScene, self.env, self.task.plain_language, self.sequence, hidden=hidden
        )
        self._tracker = EpisodeTruth(scene, control_hz=CONTROL_HZ)
        if self.task.is_own and self.progress() == 1.0:
            raise TaskError.solved_at_start(self.task.bddl_file, init_id)

    @override
    def advance(self, actions: Float64[np.ndarray, "steps action"]) -> AdvanceResult:
        actions = checked_actions(actions, size=ACTION_SIZE)
        success, failed, path = False, False, [self._state[:3].copy()]
        for action in actions:
            success = self._control_step(action)
            failed = self._failed
            path.append(self._state[:3].copy())
            if success or failed:
                break
        return AdvanceResult(steps=len(path) - 1, success=success, failed=failed, end_effector=np.array(path))

    @override
    def observe(self) -> Observation:
        state = self.policy_state()
        images = {camera: self.render(camera) for camera in CAMERAS}
        return Observation(images=images, state=state, language=self.task.language)

    @override
    def render(self, camera: str) -> UInt8[np.ndarray, "height width 3"]:
        picture = self._cameras.draw(camera, cull=True)
        if self._noise is not None and CAMERAS[camera] == CAMERAS["image"]:
            picture = self._noise.apply(picture)
        # Rotated by 180°, as in the training data of published policies.
        return self.perturber.picture(np.ascontiguousarray(picture[::-1, ::-1]))

    @override
    def truth(self) -> Truth:
        assert self._tracker is not None, "no episode: reset the simulator first"
        return self._tracker.truth()

    @override
    def progress(self) -> float:
        if self.sequence is not None:
            return self.sequence.progress
        goals = self.env.parsed_problem["goal_state"]
        return sum(bool(self.env._eval_predicate(goal)) for goal in goals) / len(goals)

    def out_of_reach(self) -> str:
        """What the goal needs and the arm cannot reach, in words; empty if nothing."""
        scene = ExpertScene(self.env)
        for name in dict.fromkeys(name for goal in scene.goals for name in goal.arguments):
            distance = float(np.linalg.norm(scene.position(name) - scene.base.position - _SHOULDER))
            if distance > _LONGEST:
                return f"{name} is {distance:.2f} m from the arm's shoulder, and it reaches {_LONGEST} m"
        return ""

    def predicted_motion(self, obj: str) -> PredictedMotion | None:
        """The predicted motion of an object; None if it does not move by itself."""
        mover = self._movers.get(obj)
        return mover.ahead if mover is not None and mover.leads else None

    @property
    def shows_cue(self) -> bool:
        """Whether the world shows now what later has to be remembered."""
        return self._cue is not None and self._cue.steps_left > 0

    def policy_state(self) -> Float64[np.ndarray, " 8"]:
        """The state as in `observe`, without rendering: position (m), axis-angle (rad), two fingers (m)."""
        return self._state.copy()

    def flat_state(self) -> Float64[np.ndarray, " state"]:
        """MuJoCo's state as LIBERO stores it: time, joint positions, joint velocities."""
        return np.concatenate([[self._data.time], self._data.qpos, self._data.qvel])

    @override
    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._arm = self._tracker = None
        self._movers = {}
        self._cameras.close()
        self.env.close()
        # LIBERO's objects are in reference cycles with the compiled model, which takes 100 MB.
        del self.env, self._model, self._data, self._cameras, self._restore
        gc.collect()

    def __enter__(self) -> "LiberoSim":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _perturb(self, key: EpisodeKey) -> None:
        """Apply what the episode starts with. The arm is held where it is then."""
        arm, joints = self.env.robots[0], self.env.robots[0]._ref_joint_pos_indexes
        before = self._data.qpos[joints].copy()
        changed = self.perturber.begin(self._scene, key.digest())
        if not np.array_equal(self._data.qpos[joints], before):
            arm.controller.update_initial_joints(self._data.qpos[joints])
            arm.controller.reset_goal()
            self._expose()
        elif changed:
            self._cameras.capture(self._data)

    @property
    def _bounds(self) -> Bounds:
        camera = self._model.camera(CAMERAS["image"]).id
        return Bounds(robot=ExpertScene(self.env).robot_root, reach=_REACH, camera=camera)

    def _bodies(self, names: Iterable[str]) -> dict[str, int]:
        """The bodies of objects, and of those whose regions are named."""
        known: Mapping[str, int] = self.env.obj_body_id
        owners = {each: max((o for o in known if each.startswith(o)), key=len, default="") for each in names}
        return {owner: int(known[owner]) for owner in owners.values() if owner}

    def _scene(self) -> Scene:
        """What perturbations see of an episode that has just been reset."""
        wanted = self._bodies(self.env.obj_of_interest)
        return Scene(
            model=self._model,
            data=self._data,
            bounds=self._bounds,
            joints=np.array(self.env.robots[0]._ref_joint_pos_indexes),
            grip=self._model.site(self.env.robots[0].controller.eef_name).id,
            objects=self._bodies(self.env.objects_dict),
            wanted=list((wanted or self._bodies(self.env.objects_dict)).values()),
            fixtures=list(self._bodies(self.env.fixtures_dict).values()),
            to_grasp=list(self._bodies(movable(self.env.parsed_problem)).values()),
            solved=lambda: as_flag(self.env._check_success(), what="_check_success()"),
        )

    def _sample_state(self, init_id: int, seed: int) -> None:
        """Reset with objects by LIBERO's own placement, and the arm near its resting position."""
        draws = np.random.SeedSequence((seed, init_id)).generate_state(2 + _REDRAWS)
        for_objects, for_arm, *again = map(int, draws)
        self._reset_env(for_objects)
        if self.task.sequences:

            def place(name: str) -> Float64[np.ndarray, " 2"]:
                return self._data.joint(self.env.objects_dict[name].joints[-1]).qpos[:2]

            plates = [name for name in self.env.objects_dict if name.startswith("plate_")]
            pairs = list(itertools.combinations(plates, 2))
            while any(np.linalg.norm(place(one) - place(other)) < _PLATES_APART for one, other in pairs):
                self._reset_env(again.pop())
            for predicate, *names in self.env.parsed_problem["initial_state"]:
                if predicate == "on" and set(names) <= self.env.objects_dict.keys():
                    place(names[0])[:] = place(names[1])  # so that LIBERO's `on` holds
        joints, noise = self.env.robots[0]._ref_joint_pos_indexes, np.random.default_rng(for_arm)
        self._data.qpos[joints] += noise.normal(scale=_REST_NOISE, size=len(joints))

    def _distance(self, subgoals: Sequence[Subgoal]) -> float:
        """Distance (m) of the object of the first subgoal from its container; 0 if it goes into none."""
        predicate, obj, place = subgoals[0]
        if predicate != "in":
            return 0.0
        way = self._data.body(self.env.obj_body_id[obj]).xpos - self._data.site(place).xpos
        return float(np.linalg.norm(way))

    def _reset_env(self, seed: int, earlier_resets: int = 0) -> None:
        """Reset as LIBERO's hard reset does, without recompiling the model.

        It draws as LIBERO does after seeding and that many earlier resets. Every `forward` is needed:
        each changes the constraint solver's warm start.
        """
        env = self.env

        def attempt() -> None:
            env.visualization_sites_list = []
            env._load_model()
            env.sim.reset()
            env.sim.forward()
            env.sim.forward()  # in LIBERO, by opening the renderer
            env._reset_internal()

        with use_assets(self.assets.path), _numpy_seed(seed):
            self._go_to(self._position(seed, earlier_resets))
            _until_placed(self.task, attempt)
            env.sim.forward()
            env.visualize(vis_settings=dict.fromkeys(env._visualizations, False))
            self._after_reset = np.random.get_state()  # noqa: NPY002

    def _position(self, seed: int, number: int) -> _StreamPosition:
        """Where the reset of that number begins, from 0 after seeding.

        Those before it are drawn once for all.
        """
        env = self.env
        first = _StreamPosition(np.random.RandomState(seed).get_state(), self._joint_samplers)
        if number == 0:
            return first
        if self._stream[0] != seed:
            self._stream = seed, [first]

        def attempt() -> None:
            env.object_property_initializers += self._joint_samplers  # as loading the model does
            _draw(env)

        positions = self._stream[1]
        while len(positions) <= number:
            self._go_to(positions[-1])
            _until_placed(self.task, attempt)
            samplers = tuple(env.object_property_initializers)
            positions.append(_StreamPosition(np.random.get_state(), samplers))  # noqa: NPY002
        return positions[number]

    def _go_to(self, position: _StreamPosition) -> None:
        """Bring model and random numbers to where a reset begins."""
        self._restore()
        np.random.set_state(position.generator)  # noqa: NPY002
        self.env.object_property_initializers = list(position.joint_samplers)

    def _control_step(self, action: Float64[np.ndarray, " 7"]) -> bool:
        """Run one control step. Returns whether the task's goal holds after it."""
        assert self._arm is not None, "no episode: reset the simulator first"
        if self._cue is not None and self._tracker is not None:
            self._cue.step()  # before the scene is captured
        for step in range(_PHYSICS_STEPS):
            self._arm.physics_step(action, new_goal=step == 0)
            for mover in self._movers.values():
                mover.lead()
            if self._cue is not None:
                self._cue.hold()
            if step == _EXPOSED_STEP:
                self._expose()
        if self._noise is not None:
            self._noise.step()
        if self.perturber.step():  # pictures, truth and success are of the changed scene
            self._cameras.capture(self._data)
        if self._data.warning[mujoco.mjtWarning.mjWARN_BADQACC].number:
            raise PhysicsError(
                f"MuJoCo's accelerations diverged in {self.task.suite} task {self.task.task_id}"
            )
        success = self._judge()
        if self._tracker is not None:
            if self.shows_cue:
                self._tracker.start_here()
            self._tracker.step(solved=success)
        return success

    def _judge(self) -> bool:
        """Evaluate LIBERO's success predicate, or the sequence, and update what it displays (a burner)."""
        success = self.env._check_success() if self.sequence is None else self.sequence.step()
        self.env._post_process()
        return as_flag(success, what="_check_success() of LIBERO's environment") and not self._failed

    @property
    def _failed(self) -> bool:
        """Whether the task can no longer be solved."""
        overshot = self.sequence is not None and self.sequence.overshot
        return overshot or (self._cue is not None and self._cue.failed)

    def _expose(self) -> None:
        assert self._arm is not None
        self._cameras.capture(self._data)
        self._state = self._arm.policy_state()
