"""Reads reference trajectories of LIBERO from a file, replays them, and compares the results.

The file holds arrays named `<suite>.<task_id>.<init_id>.<array>`:

- `actions` [n, 7]: what to replay after the reset and the settling;
- `sim_state` [k, s], `policy_state` [k, 8]: MuJoCo's flat state and the policy's, each `record_every`
actions;
- `done` [n]: whether the task's goal held after each action;
- `image_after_settle`, `image_last` [h, 2w, 3]: both cameras side by side, before and after all actions.

All but `actions` may be absent, others are ignored. `meta`, JSON, may name `env_seed`, `settle_steps`,
`record_every` and `camera` (pixels).
"""

import dataclasses
import re
import sys
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path

import numpy as np

from configs.errors import UsageError
from configs.reading import parse_json, read_npz
from sim_envs.blas import KERNELS, pin_kernels
from sim_envs.libero.assets import AssetSet
from sim_envs.libero.sim import ACTION_SIZE, LiberoSim
from sim_envs.libero.tasks import get_init_state, get_task, is_drawn

STATE_TOLERANCE = 1e-9
"""Largest difference of any number of a state; on the reference's own kind of machine it is 0."""

IMAGE_TOLERANCE = 2.0
"""Mean difference in grey levels; renderers differ, simulators must not."""

AGREE, DIFFER = 0, 1

_COMPARED = ("sim_state", "policy_state", "done", "image_after_settle", "image_last")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordingSettings:
    """How the reference was recorded.

    Attributes:
        env_seed: Seed of the environment before each reset.
        settle_steps: Control steps with the hold action before the first action.
        record_every: Actions between two recorded states.
        camera: Height and width of an image, pixels.
    """

    env_seed: int = 7
    settle_steps: int = 10
    record_every: int = 5
    camera: int = 256

    def __post_init__(self) -> None:
        """Refuse what cannot have been.

        Raises:
            UsageError: A value is not a whole number, or below its least.
        """
        for field, least in (("env_seed", 0), ("settle_steps", 0), ("record_every", 1), ("camera", 1)):
            value = getattr(self, field)
            if type(value) is not int or value < least:
                raise UsageError(f"meta: {field} is {value!r}, but must be a whole number from {least} on")


@dataclasses.dataclass(frozen=True, kw_only=True, order=True)
class RecordedEpisode:
    """Identifies an episode of the file. Sorting groups the episodes of a task."""

    suite: str
    task_id: int
    init_id: int

    def __str__(self) -> str:
        return f"{self.suite}.{self.task_id}.{self.init_id}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReplayErrors:
    """Differences between a replay and the reference; None for what the file does not contain.

    Attributes:
        sim_state: Largest absolute difference in MuJoCo's state.
        policy_state: Largest absolute difference in the policy's state.
        done: Control steps at which success differs.
        images: Larger one of the two images' mean differences, grey levels.
    """

    sim_state: float | None
    policy_state: float | None
    done: int | None
    images: float | None

    @property
    def agree(self) -> bool:
        """Whether all of them are within tolerance. A NaN is not."""
        states = [error for error in (self.sim_state, self.policy_state) if error is not None]
        return (
            all(error <= STATE_TOLERANCE for error in states)
            and not self.done
            and (self.images is None or self.images <= IMAGE_TOLERANCE)
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReferenceFile:
    """A file of reference trajectories, read and checked."""

    recording: RecordingSettings
    episodes: Mapping[RecordedEpisode, Mapping[str, np.ndarray]]


def read_reference(file: Path) -> ReferenceFile:
    """Read a file of reference trajectories.

    Raises:
        UsageError: It is not such a file, or what it holds cannot be replayed.
    """
    arrays = read_npz(file)
    recording = _read_meta(arrays.pop("meta", None))
    episodes: dict[RecordedEpisode, dict[str, np.ndarray]] = {}
    for name, array in arrays.items():
        episode, kind = _parse(name)
        episodes.setdefault(episode, {})[kind] = array
    if not episodes:
        raise UsageError(f"{str(file)!r} holds no episode")
    for episode, recorded in episodes.items():
        _check(episode, recorded, recording)
    return ReferenceFile(recording=recording, episodes=episodes)


def replay(
    sim: LiberoSim, episode: RecordedEpisode, recorded: Mapping[str, np.ndarray], recording: RecordingSettings
) -> ReplayErrors:
    """Run one episode and measure how far it is from what was recorded."""
    sim.reset(init_id=episode.init_id, seed=recording.env_seed, settle_steps=recording.settle_steps)
    images = [_image_error(sim, recorded.get("image_after_settle"))]
    done, sim_states, policy_states = [], [], []
    for step, action in enumerate(recorded["actions"].astype(np.float64), start=1):
        done.append(sim.advance(action[None]).success)
        if step % recording.record_every == 0:
            sim_states.append(sim.flat_state())
            policy_states.append(sim.policy_state())
    images.append(_image_error(sim, recorded.get("image_last")))
    return ReplayErrors(
        sim_state=_largest_error(sim_states, recorded.get("sim_state")),
        policy_state=_largest_error(policy_states, recorded.get("policy_state")),
        done=None if "done" not in recorded else int(np.sum(np.array(done) != recorded["done"])),
        images=max((error for error in images if error is not None), default=None),
    )


def report(reference: ReferenceFile, assets: AssetSet) -> int:
    """Replay all episodes and print how far each is from its reference; the exit code of the command."""
    width = max(len(str(episode)) for episode in reference.episodes)
    _write(f"{'episode':{width}}  sim_state  policy_state  done  images")
    agreeing = 0
    for episode, errors in _replay_all(reference, assets):
        agreeing += errors.agree
        columns = (
            f"{_number(errors.sim_state):>9}  {_number(errors.policy_state):>12}  {_number(errors.done):>4}  "
            f"{_number(errors.images):>6}"
        )
        _write(f"{episode!s:{width}}  {columns}" + ("" if errors.agree else "  DIFFERS"))
    total = len(reference.episodes)
    _write(
        f"{agreeing} of {total} episodes agree (states to {STATE_TOLERANCE:g}, done exactly, images to a "
        f"mean of {IMAGE_TOLERANCE:g} grey levels; assets {assets.name})"
    )
    if agreeing < total and not pin_kernels():
        _write(
            f"note: the reference's last bits are those of OpenBLAS's {KERNELS} kernels; this machine does "
            "not run them; contacts amplify that"
        )
    return AGREE if agreeing == total else DIFFER


def _replay_all(reference: ReferenceFile, assets: AssetSet) -> Iterator[tuple[RecordedEpisode, ReplayErrors]]:
    recording = reference.recording
    for (suite, task_id), episodes in groupby(
        sorted(reference.episodes), key=lambda episode: (episode.suite, episode.task_id)
    ):
        with LiberoSim(get_task(suite, task_id), assets=assets, camera_size=recording.camera) as sim:
            for episode in episodes:
                yield episode, replay(sim, episode, reference.episodes[episode], recording)


def _parse(name: str) -> tuple[RecordedEpisode, str]:
    match = re.fullmatch(r"([^.]+)\.(\d+)\.(\d+)\.([^.]+)", name)
    if match is None:
        raise UsageError(f"array {name!r} is not named <suite>.<task_id>.<init_id>.<array>")
    return RecordedEpisode(suite=match[1], task_id=int(match[2]), init_id=int(match[3])), match[4]


def _read_meta(meta: np.ndarray | None) -> RecordingSettings:
    if meta is None:
        return RecordingSettings()
    content = parse_json(str(meta), "meta")
    if not isinstance(content, dict):
        raise UsageError(f"meta holds {type(content).__name__}, should hold an object")
    fields = {field.name for field in dataclasses.fields(RecordingSettings)}
    return RecordingSettings(**{key: value for key, value in content.items() if key in fields})


def _check(
    episode: RecordedEpisode, recorded: Mapping[str, np.ndarray], recording: RecordingSettings
) -> None:
    """Refuse, before anything runs, what cannot be replayed or compared."""
    task = get_task(episode.suite, episode.task_id)
    if not is_drawn(episode.init_id):
        get_init_state(task, episode.init_id)
    if "actions" not in recorded:
        raise UsageError(f"{episode} has no actions")
    actions = recorded["actions"]
    if actions.ndim != 2 or actions.shape[1] != ACTION_SIZE or not np.issubdtype(actions.dtype, np.number):
        raise UsageError(
            f"{episode}: actions are {actions.dtype} {list(actions.shape)}, must be numbers [n, 7]"
        )
    if not np.isfinite(actions).all():
        raise UsageError(f"{episode}: an action is not finite")
    rows = {
        "sim_state": len(actions) // recording.record_every,
        "policy_state": len(actions) // recording.record_every,
        "done": len(actions),
    }
    for name, expected in rows.items():
        if name in recorded and recorded[name].shape[:1] != (expected,):
            shape = list(recorded[name].shape)
            raise UsageError(
                f"{episode}: {name} has shape {shape}, but {len(actions)} actions make {expected} rows"
            )
    if recorded.keys().isdisjoint(_COMPARED):
        raise UsageError(f"{episode} has nothing to compare with: none of {', '.join(_COMPARED)}")


def _largest_error(ours: list[np.ndarray], theirs: np.ndarray | None) -> float | None:
    if theirs is None:
        return None
    if not ours:
        return 0.0
    table = np.array(ours)
    return float(np.abs(table - theirs).max()) if table.shape == theirs.shape else float("inf")


def _image_error(sim: LiberoSim, theirs: np.ndarray | None) -> float | None:
    if theirs is None:
        return None
    images = sim.observe().images
    ours = np.concatenate([images["image"], images["wrist_image"]], axis=1)
    if ours.shape != theirs.shape:
        return float("inf")
    return float(np.abs(ours.astype(np.float64) - theirs).mean())


def _number(value: float | int | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _write(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
