"""Builds LIBERO's own environment without a renderer, and resets it without recompiling its model."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np

from configs.errors import UsageError
from sim_envs.libero.assets import STANDINS, AssetSet
from sim_envs.libero.bootstrap import load_libero, use_assets
from sim_envs.libero.cue import COVER, register_cover
from sim_envs.libero.tasks import CONTROL_HZ, LiberoTask

_PLACEMENT_ATTEMPTS = 100

_WORKSPACES = {"floor", "table", "kitchen_table", "living_room_table", "study_table"}
"""Fixtures of BDDL that are part of a scene."""

T = TypeVar("T")


class SimulationError(RuntimeError):
    """LIBERO could not set up the episode."""


def restorer(env: Any) -> Callable[[], None]:
    """A function that restores what episodes change in an environment and LIBERO's own reset does not.

    These are samplers of joint positions (open drawers), to which LIBERO appends at each reset, and arrays of
    the compiled model: poses of fixtures before placement; visibility, position and size of sites. Call it
    right after compilation, which has already placed the fixtures.
    """
    model, samplers = env.sim.model._model, list(env.object_property_initializers)
    changed = ("body_pos", "body_quat", "site_rgba", "site_pos", "site_size")
    arrays = {name: getattr(model, name).copy() for name in changed}
    for fixture in env.fixtures_dict.values():
        body = env.model.worldbody.find(f".//body[@name='{fixture.root_body}']")
        number = env.sim.model.body_name2id(fixture.root_body)
        arrays["body_pos"][number] = np.fromstring(body.get("pos", "0 0 0"), sep=" ")
        arrays["body_quat"][number] = np.fromstring(body.get("quat", "1 0 0 0"), sep=" ")

    def restore() -> None:
        env.object_property_initializers = list(samplers)
        for name, values in arrays.items():
            getattr(env.sim.model._model, name)[:] = values

    return restore


def require_assets(task: LiberoTask, assets: AssetSet) -> None:
    """Check that the asset set has the task's objects and fixtures, before anything is built.

    Raises:
        UsageError: Some are missing.
    """
    if assets.name != STANDINS:
        return
    problem = read_problem(task)
    models = {model.stem for part in assets.path.iterdir() for model in part.rglob("*.xml")}
    missing = sorted({*problem["objects"], *problem["fixtures"]} - models - _WORKSPACES - {COVER})
    if missing:
        raise UsageError(
            f"{task.suite} task {task.task_id} needs {', '.join(missing)}, for which there are no stand-ins: "
            "use LIBERO's own assets, with --assets PATH or --assets download"
        )


def build_env(task: LiberoTask, assets: AssetSet) -> Any:
    """LIBERO's environment for the task, as its `OffScreenRenderEnv` makes it but without a renderer.

    Raises:
        UsageError: The asset set lacks some of the task's objects.
    """
    libero_envs = load_libero()
    register_cover()
    import robosuite

    require_assets(task, assets)
    problem = libero_envs.TASK_MAPPING[read_problem(task)["problem_name"]]
    controller = robosuite.load_controller_config(default_controller="OSC_POSE")
    with use_assets(assets.path), numpy_seed(0):
        return _until_placed(
            lambda: problem(
                str(task.bddl_file),
                robots=["Panda"],
                controller_configs=controller,
                initialization_noise=None,
                use_camera_obs=False,
                has_offscreen_renderer=False,
                control_freq=CONTROL_HZ,
                ignore_done=True,
            )
        )


def reset_env(env: Any, restore: Callable[[], None]) -> None:
    """Reset as LIBERO's hard reset does, without recompiling the model; `restore` is the `restorer`'s.

    Every `forward` is needed: each changes the constraint solver's warm start.
    """
    restore()

    def attempt() -> None:
        env.visualization_sites_list = []
        env._load_model()
        env.sim.reset()
        env.sim.forward()
        env.sim.forward()  # in LIBERO, by opening the renderer
        env._reset_internal()

    _until_placed(attempt)
    env.sim.forward()
    env.visualize(vis_settings=dict.fromkeys(env._visualizations, False))


def read_problem(task: LiberoTask) -> dict[str, Any]:
    """The task's BDDL problem, as LIBERO's `robosuite_parse_problem` returns it."""
    load_libero()
    from libero.libero.envs.bddl_utils import robosuite_parse_problem

    problem: dict[str, Any] = robosuite_parse_problem(str(task.bddl_file))
    return problem


def _until_placed(attempt: Callable[[], T]) -> T:
    """Retry, as LIBERO does, while its random placement fails, up to a limit."""
    from robosuite.utils.errors import RandomizationError

    for _ in range(_PLACEMENT_ATTEMPTS):
        with contextlib.suppress(RandomizationError):
            return attempt()
    raise SimulationError(f"LIBERO found no room for the task's objects in {_PLACEMENT_ATTEMPTS} attempts")


@contextlib.contextmanager
def numpy_seed(seed: int) -> Iterator[None]:
    """Seed NumPy's global generator, which LIBERO uses, and restore it afterwards."""
    before = np.random.get_state()  # noqa: NPY002
    np.random.seed(seed)  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(before)  # noqa: NPY002
