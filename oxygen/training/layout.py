"""Layout of demonstrations on disk: LeRobot's dataset format v3.0, with additional columns.

See huggingface.co/docs/lerobot/lerobot-dataset-v3; compatible with LeRobot 0.4 to 0.6.
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
"""Not part of LeRobot's format: provenance of the demonstrations, and failed episodes."""

FILES_PER_CHUNK = 1000
DATA_FILE_MB = 100
VIDEO_FILE_MB = 200

IMAGES = "observation.images."
"""Prefix of the camera columns."""
STATE = "observation.state"
ACTION = "action"

OWN = "oxygen."
"""Prefix of the additional columns."""
CHUNK = OWN + "action_chunk"
PADDED = OWN + "action_is_pad"
STEP = OWN + "step"
NARRATION = OWN + "narration"
MEMORY = OWN + "memory"
TEXTUAL_MEMORY = OWN + "textual_memory"
"""Absent from datasets collected before it existed."""
TRUTH = OWN + "truth"
FED = OWN + "feedback"
"""Only in datasets of policies that read their own texts."""

_OWN = {
    STEP: "int64",
    OWN + "suite": "string",
    OWN + "task_id": "int64",
    OWN + "init_id": "int64",
    OWN + "seed": "int64",
    OWN + "assets": "string",
    OWN + "noise": "float32",
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
    cameras: Mapping[str, tuple[int, int]],
    *,
    images: str,
    state_names: Sequence[str],
    action_names: Sequence[str],
    horizon: int,
    fed: bool = False,
) -> dict[str, Feature]:
    """The columns of a frame, as listed in `info.json`.

    Args:
        cameras: Camera to the height and width of its images, pixels.
        images: `image` if they are stored in the tables, else `video`.
        state_names: Name of every state channel.
        action_names: Name of every action channel.
        horizon: Control steps in an action chunk.
        fed: Whether they have the texts in the policy's prompt.
    """
    optional = [TEXTUAL_MEMORY, *([FED] if fed else [])]
    return {
        **{
            IMAGES + camera: {"dtype": images, "shape": [*size, 3], "names": ["height", "width", "channels"]}
            for camera, size in cameras.items()
        },
        STATE: _vector(state_names),
        ACTION: _vector(action_names),
        CHUNK: {"dtype": "float32", "shape": [horizon, len(action_names)], "names": list(action_names)},
        PADDED: {"dtype": "bool", "shape": [horizon], "names": None},
        **{
            name: {"dtype": dtype, "shape": [1], "names": None}
            for name, dtype in (_OWN | dict.fromkeys(optional, "string") | _EVERY_DATASET).items()
        },
    }


def place(number: int) -> dict[str, int]:
    """Chunk and file index of a file number, for the path patterns."""
    chunk, file = divmod(number, FILES_PER_CHUNK)
    return {"chunk_index": chunk, "file_index": file}


def cameras_of(features: Iterable[str]) -> tuple[str, ...]:
    """The camera names among the features."""
    return tuple(name.removeprefix(IMAGES) for name in features if name.startswith(IMAGES))


def expected_dtypes() -> dict[str, str]:
    """Column to dtype, for all columns but the images."""
    return {STATE: "float32", ACTION: "float32", CHUNK: "float32", PADDED: "bool", **_OWN, **_EVERY_DATASET}


def _vector(names: Sequence[str]) -> Feature:
    return {"dtype": "float32", "shape": [len(names)], "names": list(names)}
