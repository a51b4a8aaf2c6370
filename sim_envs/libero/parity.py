"""`python -m sim_envs.libero.parity FILE.npz …`: compare the simulator with recorded reference episodes."""

import dataclasses
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from configs.exits import OneLineParser, exit_code_of
from configs.paths import parse_json, read_npz
from contracts.env_seed import parse_env_seed
from contracts.errors import UsageError, one_line
from sim_envs.libero.assets import AssetSet, find_assets, installed_assets
from sim_envs.libero.plus.suite import LIBERO_PLUS, PlusEnvironment, PlusTask, list_plus_tasks, plus_task
from sim_envs.libero.plus.suite import PREFIX as PLUS_PREFIX
from sim_envs.libero.pro.suite import LIBERO_PRO, list_pro_tasks
from sim_envs.libero.pro.suite import PREFIX as PRO_PREFIX
from sim_envs.libero.sim import LiberoSim, read_problem
from sim_envs.libero.tasks import CAMERAS, LiberoTask, get_init_state, get_task, instruction_of
from sim_envs.perturbations import noise

PHYSICS, CAMERA, GREY_LEVELS, EXACT = 1e-9, 1e-12, 2.0, 0.0
"""Largest differences: of states, cameras, pictures (in the mean: renderers differ) and all else."""
_INPUTS = {"actions", "noise", "noise_seed", "noise_input"}
_COPIES = {benchmark.variable: benchmark for benchmark in (LIBERO_PLUS, LIBERO_PRO)}
_EPISODE_PARTS = 3  # of an array's name: suite, task, initial state


def compare(file: Path, assets: AssetSet) -> Iterator[tuple[str, float, float]]:
    """Play the episodes of a file again: name, largest difference and its tolerance of each of its arrays.

    Tasks for which the assets lack something are played with the installed originals.

    A UsageError if the file is none of reference episodes, or lacks something.
    """
    arrays = read_npz(file)
    meta = parse_json(str(arrays.pop("meta", "null")), f"meta of {file}")
    if (
        not isinstance(meta, dict)
        or not {"env_seed", "settle_steps", "record_every", "camera"} <= meta.keys()
    ):
        raise UsageError(
            f"{str(file)!r} holds no reference episodes: its `meta` lacks env_seed, settle_steps …"
        )
    groups: dict[str, dict[str, np.ndarray]] = {}
    for name, array in arrays.items():
        parts = name.split(".", 1 if name.startswith("noise.") else _EPISODE_PARTS)
        groups.setdefault(name.removesuffix(f".{parts[-1]}"), {})[parts[-1]] = array
    for group, recorded in groups.items():
        try:
            if group == "noise":
                computed = _noisy(recorded)
            else:
                tree = assets
                task, init_id = _find_task(group, recorded, meta, tree)
                if task.missing:
                    tree = installed_assets()
                    task, init_id = _find_task(group, recorded, meta, tree)
                computed = _replay(task, init_id, tree, recorded, meta)
        except (KeyError, ValueError) as error:
            if isinstance(error, UsageError):
                raise
            raise UsageError(f"{str(file)!r}: {group!r} is no episode: {one_line(error)}") from None
        for name, array in recorded.items():
            if name in _INPUTS or (group == "noise" and name not in computed):
                continue
            if name not in computed:
                raise UsageError(f"{str(file)!r}: nothing here computes {group}.{name}")
            yield f"{group}.{name}", *_compared(f"{group}.{name}", array, computed[name])


def _find_task(
    episode: str, recorded: Mapping[str, np.ndarray], meta: Mapping[str, Any], assets: AssetSet
) -> tuple[LiberoTask, int]:
    """The task of an episode that is named `suite.task.init`, and the initial state."""
    suite, task_id, init_id = episode.split(".")
    source = meta.get("source", "")
    if "libero-pro" in source:
        name = suite.replace("libero_", PRO_PREFIX, 1)
        return list_pro_tasks(LIBERO_PRO.find(), name, assets)[int(task_id)], int(init_id)
    if "LIBERO-plus" not in source:
        return get_task(suite, int(task_id)), int(init_id)
    copy, name = LIBERO_PLUS.find(), suite.replace("libero_", PLUS_PREFIX, 1)
    environment = PlusEnvironment(plus_instruction="published")
    if task_id == "base":  # LIBERO's own task, which no suite lists
        task = plus_task(copy, name, str(recorded["task"]), environment, assets, task_id=0)
        return dataclasses.replace(task, language=""), int(init_id)
    return list_plus_tasks(copy, name, environment, assets)[int(task_id)], int(init_id)


def _replay(
    task: LiberoTask,
    init_id: int,
    assets: AssetSet,
    recorded: Mapping[str, np.ndarray],
    meta: Mapping[str, Any],
) -> dict[str, np.ndarray]:
    """The arrays of an episode, computed here."""
    said = " ".join(read_problem(task)["language_instruction"])
    found: dict[str, Any] = {
        "bddl": task.name,
        "task": task.name,
        "language": said,
        "env_language": said,
        "benchmark_language": task.language if isinstance(task, PlusTask) else instruction_of(task.name),
        "init_state": get_init_state(task, init_id),
    }
    seed = meta["env_seed"]
    env_seed = parse_env_seed(f"fixed {seed}")
    with LiberoSim(task, assets=assets, camera_size=meta["camera"], env_seed=env_seed) as sim:
        sim._reset_env(*env_seed.draws(init_id, seed))
        found |= {"qpos_reset": sim.env.sim.data._data.qpos.copy(), **_model(sim.env)}
        sim.reset(init_id=init_id, seed=seed, settle_steps=0)
        found |= {**_joints(sim.env, "init"), "image_init": _pictures(sim, recorded.get("image_init"))}
        robot = sim.env.robots[0]
        found["robot_init_qpos"] = robot.init_qpos
        found["controller_initial_joint"] = np.array(robot.controller.initial_joint)
        found["controller_goal_ori_init"] = np.array(robot.controller.goal_ori)
        sim.reset(init_id=init_id, seed=seed, settle_steps=meta["settle_steps"])
        found |= {**_joints(sim.env, "settled"), "policy_state_settled": sim.policy_state()}
        found["image_after_settle"] = _pictures(sim, recorded.get("image_after_settle"))
        states, policy_states, done = [], [], []
        for step, action in enumerate(recorded["actions"], start=1):
            done.append(sim.advance(action[None]).success)
            if step % meta["record_every"] == 0:
                states.append(sim.flat_state())
                policy_states.append(sim.policy_state())
        found["image_last"] = _pictures(sim, recorded.get("image_last"))
    found |= {"sim_state": states, "policy_state": policy_states, "done": done}
    if "noise_input" in recorded:
        one = {name: recorded[f"noise_{name}"] for name in ("input", "seed")}
        found["noise_output"] = _noisy({**one, "noise": recorded["noise"]})["output"][0]
    return {name: np.asarray(array) for name, array in found.items()}


def _joints(env: Any, when: str) -> dict[str, np.ndarray]:
    data = env.sim.data._data
    return {f"qpos_{when}": data.qpos.copy(), f"qvel_{when}": data.qvel.copy()}


def _model(env: Any) -> dict[str, Any]:
    """Poses of fixtures, cameras and lights."""
    model, name = env.sim.model._model, CAMERAS["image"]
    fixtures = [fixture.root_body for fixture in env.fixtures_dict.values()]
    bodies, camera = [model.body(each).id for each in fixtures], model.camera(name)
    parts = ("pos", "dir", "diffuse", "specular", "castshadow", "directional")
    poses = {"pos": camera.pos, "quat": camera.quat, "fovy": camera.fovy[0]}
    return {
        "fixtures": fixtures,
        "fixture_pos": model.body_pos[bodies].copy(),
        "fixture_quat": model.body_quat[bodies].copy(),
        **{f"camera.{name}.{part}": np.array(value) for part, value in poses.items()},
        **{f"light.{part}": getattr(model, f"light_{part}").copy() for part in parts},
        "light.names": [model.light(number).name for number in range(model.nlight)],
    }


def _noisy(recorded: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Noisy pictures of one clean one, each drawn after seeding, and the next number of each generator."""
    pictures, following, clean = [], [], recorded["input"]
    for setting, seed in zip(np.atleast_1d(recorded["noise"]), np.atleast_1d(recorded["seed"]), strict=True):
        random = np.random.RandomState(int(seed))
        drawn = noise.draw(int(setting), clean.shape[:2], random)
        pictures.append(noise.apply(int(setting), clean, drawn))
        following.append(random.random_sample())
    return {"output": np.array(pictures), "next_random": np.array(following)}


def _pictures(sim: LiberoSim, recorded: np.ndarray | None) -> np.ndarray:
    """The first camera's image, or those of both side by side, as recorded."""
    if recorded is None:
        return np.empty(0)
    images = list(sim.observe().images.values())
    return np.concatenate(images[: recorded.shape[1] // recorded.shape[0]], axis=1)


def _compared(name: str, recorded: np.ndarray, computed: np.ndarray) -> tuple[float, float]:
    """Largest difference, NaN where shapes differ, and its tolerance."""
    is_picture, is_text = ".image_" in name, "U" in (recorded.dtype.kind, computed.dtype.kind)
    if is_picture:
        tolerance = GREY_LEVELS
    elif recorded.dtype.kind in "Ubu" or name.startswith("noise."):
        tolerance = EXACT
    else:
        tolerance = CAMERA if ".camera." in name else PHYSICS
    if recorded.size == computed.size == 0:  # whatever their shapes
        error = 0.0
    elif recorded.shape != computed.shape:
        error = np.nan
    elif is_text:
        error = (recorded.astype(str) != computed.astype(str)).sum()
    else:
        differences = np.abs(recorded.astype(np.float64) - computed.astype(np.float64))
        error = differences.mean() if is_picture else differences.max(initial=0.0)
    return float(error), tolerance


def main(arguments: Sequence[str]) -> int:
    """Compare the files named on the command line; returns the exit code."""
    parser = OneLineParser(prog="python -m sim_envs.libero.parity", description=__doc__)
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE.npz")
    parser.add_argument("--assets", default="auto", help="a folder, or auto (default), standins or download")
    for benchmark in _COPIES.values():
        how = f"a checkout of {benchmark.name}, for files of its episodes"
        parser.add_argument(benchmark.option, type=Path, metavar="PATH", dest=benchmark.variable, help=how)

    def run() -> int:
        options = parser.parse_args(arguments)
        os.environ |= {name: str(path) for name, path in vars(options).items() if name in _COPIES and path}
        assets, passed = find_assets(options.assets), True
        for file in options.files:
            sys.stdout.write(f"{file.name}, assets {assets.name}\n")
            for name, error, tolerance in compare(file, assets):
                equal, limit = error <= tolerance, f"≤ {tolerance:g}"
                sys.stdout.write(f"  {name:45} {error:10.3g}  {limit:8} {'ok' if equal else 'FAIL'}\n")
                sys.stdout.flush()
                passed = passed and equal
        return 0 if passed else 1

    return exit_code_of(run)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
