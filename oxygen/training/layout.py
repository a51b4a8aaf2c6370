"""Layout of demonstrations on disk: LeRobot's dataset format v3.0, with additional columns.

See huggingface.co/docs/lerobot/lerobot-dataset-v3; compatible with LeRobot 0.4 to 0.6.
"""

from collections.abc import Iterable
from typing import Any

from contracts.interface import Interface, channel_names

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
TEXTS = {OWN + task: task for task in ("narration", "memory", "textual_memory")}
"""Column to the language task whose true text it holds."""
TRUTH = OWN + "truth"
FED = OWN + "feedback"
"""Only in datasets of policies that read their own texts."""
LANGUAGE = "task"
"""The instruction, which the tables name by `task_index`."""

COLUMNS = {
    **dict.fromkeys((STATE, ACTION, CHUNK), "float32"),
    PADDED: "bool",
    STEP: "int64",
    OWN + "suite": "string",
    **dict.fromkeys((OWN + "task_id", OWN + "init_id", OWN + "seed"), "int64"),
    OWN + "assets": "string",
    OWN + "noise": "float32",
    **dict.fromkeys((OWN + "narration", OWN + "memory", TRUTH, OWN + "textual_memory", FED), "string"),
    "timestamp": "float32",
    **dict.fromkeys(("frame_index", "episode_index", "index", "task_index"), "int64"),
}
"""Column to dtype, in the order of the tables; the images come before them."""

Feature = dict[str, Any]


def features(interface: Interface, *, images: str, horizon: int, fed: bool = False) -> dict[str, Feature]:
    """The columns of a frame, as listed in `info.json`.

    `images` are stored as `image` in the tables or as `video`; an action chunk has `horizon` control steps;
    `fed` says whether there are the texts in the policy's prompt.
    """
    state, action = map(channel_names, (interface.observation.state, interface.action.channels))
    columns: dict[str, Feature] = {}
    for camera in interface.observation.cameras:
        assert camera.size is not None, "a world declares its image sizes"
        names = ["height", "width", "channels"]
        columns[IMAGES + camera.name] = {"dtype": images, "shape": [*camera.size, 3], "names": names}
    for name, dtype in COLUMNS.items():
        columns[name] = {"dtype": dtype, "shape": [1], "names": None}
    columns[STATE] |= {"shape": [len(state)], "names": state}
    columns[ACTION] |= {"shape": [len(action)], "names": action}
    columns[CHUNK] |= {"shape": [horizon, len(action)], "names": action}
    columns[PADDED] |= {"shape": [horizon]}
    return columns if fed else {name: feature for name, feature in columns.items() if name != FED}


def place(number: int) -> dict[str, int]:
    """Chunk and file index of a file number, for the path patterns."""
    chunk, file = divmod(number, FILES_PER_CHUNK)
    return {"chunk_index": chunk, "file_index": file}


def cameras_of(features: Iterable[str]) -> tuple[str, ...]:
    """The camera names among the features."""
    return tuple(name.removeprefix(IMAGES) for name in features if name.startswith(IMAGES))
