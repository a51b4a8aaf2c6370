"""`python -m sim_envs.libero.parity FILE.npz …`: compare the simulator with recorded reference episodes."""

import dataclasses
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from configs.exits import OneLineParser, exit_code_of
from configs.paths import parse_json, read_npz
from contracts.env_seed import parse_env_seed
from contracts.errors import UsageError
from sim_envs.libero.assets import AssetSet, find_assets
from sim_envs.libero.sim import LiberoSim, read_problem
from sim_envs.libero.tasks import LiberoTask, get_init_state, get_task

PHYSICS, GREY_LEVELS, EXACT = 1e-9, 2.0, 0.0
"""Largest differences: of states, of pictures (in the mean: renderers differ), and of all else."""
_INPUTS = {"actions"}
_EPISODE_PARTS = 3  # of an array's name: suite, task, initial state


@dataclasses.dataclass(frozen=True, kw_only=True)
class Check:
    """One array of a file.

    Attributes:
        name: Its name in the file.
        error: The largest difference from what is computed here.
        tolerance: The largest that passes.
    """

    name: str
    error: float
    tolerance: float

    @property
    def passed(self) -> bool:
        """Whether the difference is within the tolerance; never for NaN."""
        return self.error <= self.tolerance


def compare(file: Path, assets: AssetSet) -> Iterator[Check]:
    """Play the episodes of a file again, and compare each of its arrays.

    A UsageError if the file is none of reference episodes, or lacks something.
    """
    arrays = read_npz(file)
    meta = parse_json(str(arrays.pop("meta", "null")), f"meta of {file}")
    if not isinstance(meta, dict) or not {"env_seed", "settle_steps", "record_every"} <= meta.keys():
        raise UsageError(
            f"{str(file)!r} holds no reference episodes: its `meta` lacks env_seed, settle_steps …"
        )
    episodes: dict[str, dict[str, np.ndarray]] = {}
    for name, array in arrays.items():
        parts = name.split(".", _EPISODE_PARTS)
        if len(parts) <= _EPISODE_PARTS:
            raise UsageError(f"{str(file)!r}: no array of an episode is named {name!r}")
        episodes.setdefault(name.removesuffix(f".{parts[-1]}"), {})[parts[-1]] = array
    for episode, recorded in episodes.items():
        suite, task_id, init_id = episode.split(".")
        task = get_task(suite, int(task_id))
        try:
            computed = _replay(task, int(init_id), assets, recorded, meta)
        except KeyError as error:
            raise UsageError(f"{str(file)!r}: episode {episode} lacks {error}") from None
        for name, array in recorded.items():
            if name in _INPUTS:
                continue
            if name not in computed:
                raise UsageError(f"{str(file)!r}: nothing here computes {episode}.{name}")
            yield _check(f"{episode}.{name}", array, computed[name])


def _replay(
    task: LiberoTask,
    init_id: int,
    assets: AssetSet,
    recorded: Mapping[str, np.ndarray],
    meta: Mapping[str, Any],
) -> dict[str, np.ndarray]:
    """The arrays of an episode, computed here."""
    found: dict[str, Any] = {
        "bddl": task.name,
        "language": " ".join(read_problem(task)["language_instruction"]),
        "init_state": get_init_state(task, init_id),
    }
    env_seed = parse_env_seed(f"fixed {meta['env_seed']}")
    with LiberoSim(task, assets=assets, camera_size=meta["camera"], env_seed=env_seed) as sim:
        begin = {"init_id": init_id, "seed": meta["env_seed"]}
        sim.reset(**begin, settle_steps=meta["settle_steps"])
        found["image_after_settle"] = _pictures(sim, recorded.get("image_after_settle"))
        states, policy_states, done = [], [], []
        for step, action in enumerate(recorded["actions"], start=1):
            done.append(sim.advance(action[None]).success)
            if step % meta["record_every"] == 0:
                states.append(sim.flat_state())
                policy_states.append(sim.policy_state())
        found["image_last"] = _pictures(sim, recorded.get("image_last"))
    found |= {"sim_state": states, "policy_state": policy_states, "done": done}
    return {name: np.asarray(array) for name, array in found.items()}


def _pictures(sim: LiberoSim, recorded: np.ndarray | None) -> np.ndarray:
    """The first camera's image, or those of both side by side, as recorded."""
    if recorded is None:
        return np.empty(0)
    images = list(sim.observe().images.values())
    return np.concatenate(images[: recorded.shape[1] // recorded.shape[0]], axis=1)


def _check(name: str, recorded: np.ndarray, computed: np.ndarray) -> Check:
    kind = name.rsplit(".", 1)[1]
    is_picture = kind.startswith("image_")
    tolerance = GREY_LEVELS if is_picture else EXACT if recorded.dtype.kind in "Ub" else PHYSICS
    if recorded.shape != computed.shape:
        return Check(name=name, error=np.nan, tolerance=tolerance)
    if recorded.dtype.kind == "U":
        return Check(name=name, error=float((recorded != computed).sum()), tolerance=tolerance)
    differences = np.abs(recorded.astype(np.float64) - computed.astype(np.float64))
    error = float(differences.mean() if is_picture else differences.max(initial=0.0))
    return Check(name=name, error=error, tolerance=tolerance)


def main(arguments: Sequence[str]) -> int:
    """Compare the files named on the command line; returns the exit code."""
    parser = OneLineParser(prog="python -m sim_envs.libero.parity", description=__doc__)
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE.npz")
    parser.add_argument("--assets", default="auto", help="a folder, or auto (default), standins or download")

    def run() -> int:
        options = parser.parse_args(arguments)
        assets, passed = find_assets(options.assets), True
        for file in options.files:
            sys.stdout.write(f"{file.name}, assets {assets.name}\n")
            for check in compare(file, assets):
                verdict, limit = "ok" if check.passed else "FAIL", f"≤ {check.tolerance:g}"
                sys.stdout.write(f"  {check.name:45} {check.error:10.3g}  {limit:8} {verdict}\n")
                sys.stdout.flush()
                passed = passed and check.passed
        return 0 if passed else 1

    return exit_code_of(run)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
