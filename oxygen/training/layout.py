"""How demonstrations lie on disk: LeRobot's dataset layout v3.0, and the columns of our own beside it.

Documented at huggingface.co/docs/lerobot/lerobot-dataset-v3, and as LeRobot 0.4 to 0.6 read and write it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

VERSION = "v3.0"

INFO = "meta/info.json"
STATS = "meta/stats.json"
TASKS = "meta/tasks.parquet"
EPISODES = "meta/episodes/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
DATA = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
VIDEO = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
MANIFEST = "meta/oxygen.json"
"""Ours: where the demonstrations came from, and what failed."""

FILES_PER_CHUNK = 1000
DATA_FILE_MB = 100
VIDEO_FILE_MB = 200

IMAGES = "observation.images."
"""Before the name of every camera."""
STATE = "observation.state"
ACTION = "action"
PADDED = "action_is_pad"

OWN = "oxygen."
"""Before the columns that LeRobot knows nothing of."""
STEP = OWN + "step"
SUITE = OWN + "suite"
TASK_ID = OWN + "task_id"
INIT_ID = OWN + "init_id"
SEED = OWN + "seed"
ASSETS = OWN + "assets"
NOISE = OWN + "noise"
NARRATION = OWN + "narration"
MEMORY = OWN + "memory"
TRUTH = OWN + "truth"

_OWN = {
    STEP: "int64",
    SUITE: "string",
    TASK_ID: "int64",
    INIT_ID: "int64",
    SEED: "int64",
    ASSETS: "string",
    NOISE: "float32",
    NARRATION: "string",
    MEMORY: "string",
    TRUTH: "string",
}
_EVERY_DATASET = {
    "timestamp": "float32",
    "frame_index": "int64",
    "episode_index": "int64",
    "index": "int64",
    "task_index": "int64",
}

Feature = dict[str, Any]


def features(
    cameras: Mapping[str, tuple[int, int]], *, images: str, state_names: Sequence[str], action: Feature
) -> dict[str, Feature]:
    """The columns of a frame, as `info.json` lists them.

    Args:
        cameras: Every camera to the height and width of its images, pixels.
        images: `image` where they lie in the tables, `video` where they do not.
        state_names: A name for every number of the state.
        action: The feature of an action chunk, [horizon, channel].
    """
    return {
        **{
            IMAGES + camera: {
                "dtype": images,
                "shape": [*size, 3],
                "names": ["height", "width", "channels"],
            }
            for camera, size in cameras.items()
        },
        STATE: {"dtype": "float32", "shape": [len(state_names)], "names": list(state_names)},
        ACTION: action,
        PADDED: {"dtype": "bool", "shape": action["shape"][:1], "names": None},
        **{name: _scalar(dtype) for name, dtype in (_OWN | _EVERY_DATASET).items()},
    }


def action_feature(horizon: int, channels: Sequence[str]) -> Feature:
    """The feature of a chunk of `horizon` actions; the names are those of the channels."""
    return {"dtype": "float32", "shape": [horizon, len(channels)], "names": list(channels)}


def place(number: int) -> dict[str, int]:
    """Where the file with that number lies, as the patterns of paths want it."""
    chunk, file = divmod(number, FILES_PER_CHUNK)
    return {"chunk_index": chunk, "file_index": file}


def cameras_of(features: Iterable[str]) -> tuple[str, ...]:
    """The names of the cameras among the features."""
    return tuple(name.removeprefix(IMAGES) for name in features if name.startswith(IMAGES))


def expected_dtypes() -> dict[str, str]:
    """Every column that demonstrations have, images apart, and what it is made of."""
    return {STATE: "float32", ACTION: "float32", PADDED: "bool", **_OWN, **_EVERY_DATASET}


def _scalar(dtype: str) -> Feature:
    return {"dtype": dtype, "shape": [1], "names": None}
