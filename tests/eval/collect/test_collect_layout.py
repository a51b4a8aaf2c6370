"""What is written is LeRobot's dataset layout v3.0, field by field.

LeRobot's own reader needs torch, so it is not among the packages here. Held against instead: the layout that
huggingface.co/docs/lerobot/lerobot-dataset-v3 documents, and the files that `lerobot` 0.4.4
(`codebase_version` "v3.0") writes for the same features. The names, types and shapes below are those.
"""

import io
import json
from pathlib import Path

import imageio_ffmpeg
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from oxygen.training import layout
from oxygen.training.demonstrations import Demonstrations
from tests.eval.collect.collecting import collect, corrections

CAMERAS = ("observation.images.image", "observation.images.wrist_image")
STATISTICS = {"min", "max", "mean", "std", "count", "q01", "q10", "q50", "q90", "q99"}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory) -> Path:
    """Eight episodes of two and three frames, two tasks in each of two suites."""
    path = tmp_path_factory.mktemp("png")
    collect(path, contact_sheet=True)
    return path


@pytest.fixture(scope="module")
def videos(tmp_path_factory) -> Path:
    """The same as video, at a frame per control step."""
    path = tmp_path_factory.mktemp("video")
    collect(path, images="video", image_size=32, replan_steps=1)
    return path


def info(dataset: Path) -> dict:
    return json.loads((dataset / layout.INFO).read_text())


def test_files_are_where_the_layout_puts_them(dataset, videos):
    found = {str(file.relative_to(dataset)) for file in dataset.rglob("*") if file.is_file()}
    assert {name for name in found if not name.startswith(".")} == {
        *("meta/info.json", "meta/stats.json", "meta/tasks.parquet", "meta/oxygen.json", "contact_sheet.png"),
        *("meta/episodes/chunk-000/file-000.parquet", "data/chunk-000/file-000.parquet"),
    }
    assert {str(file.relative_to(videos)) for file in videos.rglob("*.mp4")} == {
        f"videos/{camera}/chunk-000/file-000.mp4" for camera in CAMERAS
    }


def plain(dtype: str) -> tuple:
    return dtype, [1], {"dtype": dtype, "_type": "Value"}, getattr(pa, dtype)()


def vector(dtype: str, size: int) -> tuple:
    value, arrow = {"dtype": dtype, "_type": "Value"}, {"bool": pa.bool_()}.get(dtype, pa.float32())
    return dtype, [size], {"feature": value, "length": size, "_type": "Sequence"}, pa.list_(arrow, size)


ARRAY = {"shape": [10, 7], "dtype": "float32", "_type": "Array2D"}
IMAGE = "image", [8, 8, 3], {"_type": "Image"}, pa.struct([("bytes", pa.binary()), ("path", pa.string())])
COLUMNS = {
    **dict.fromkeys(CAMERAS, IMAGE),
    "observation.state": vector("float32", 8),
    "action": vector("float32", 7),
    "oxygen.action_chunk": ("float32", [10, 7], ARRAY, pa.list_(pa.list_(pa.float32()))),
    "oxygen.action_is_pad": vector("bool", 10),
    "oxygen.step": plain("int64"),
    "oxygen.suite": plain("string"),
    **{f"oxygen.{name}": plain("int64") for name in ("task_id", "init_id", "seed")},
    "oxygen.assets": plain("string"),
    "oxygen.noise": plain("float32"),
    **{f"oxygen.{name}": plain("string") for name in ("narration", "memory", "truth", "textual_memory")},
    "timestamp": plain("float32"),
    **{name: plain("int64") for name in ("frame_index", "episode_index", "index", "task_index")},
}
"""Every column in order: dtype and shape in `info.json`, its type for `datasets`, and for Arrow."""


def test_the_info_has_exactly_lerobots_keys_and_the_tables_their_types(dataset):
    found = info(dataset)
    features = found.pop("features")
    assert found == {
        "codebase_version": "v3.0",
        "robot_type": "panda",
        "total_episodes": 8,
        "total_frames": 16,
        "total_tasks": 4,
        "chunks_size": 1000,
        "data_files_size_in_mb": 100,
        "video_files_size_in_mb": 200,
        "fps": 4,
        "splits": {"train": "0:8"},
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "video_path": None,
    }
    assert type(found["fps"]) is int
    assert all(set(feature) == {"dtype", "shape", "names"} for feature in features.values())
    assert features[CAMERAS[0]]["names"] == ["height", "width", "channels"]
    assert [len(features[name]["names"]) for name in ("observation.state", "action")] == [8, 7]
    schema = pq.read_schema(dataset / "data/chunk-000/file-000.parquet")
    described = json.loads(schema.metadata[b"huggingface"])["info"]["features"]
    assert schema.names == list(features) == list(described) == list(COLUMNS)
    for name, expected in COLUMNS.items():
        feature = features[name]
        assert (feature["dtype"], feature["shape"], described[name], schema.field(name).type) == expected


def test_the_frames_are_numbered_and_timed(dataset):
    file = pq.ParquetFile(dataset / "data/chunk-000/file-000.parquet")
    assert file.num_row_groups == 8  # one per episode
    frames = file.read()
    assert frames["index"].to_pylist() == list(range(16))
    assert frames["episode_index"].to_pylist() == [number for number in range(8) for _ in range(2)]
    assert frames["frame_index"].to_pylist() == [0, 1] * 8
    assert frames["task_index"].to_pylist() == [number // 4 for number in range(16)]
    assert np.allclose(frames["timestamp"].to_numpy() * 4, frames["frame_index"].to_numpy())
    picture = Image.open(io.BytesIO(frames[CAMERAS[0]][1]["bytes"].as_py()))
    assert (picture.format, picture.size, picture.mode) == ("PNG", (8, 8), "RGB")


def test_episode_metadata_locates_and_describes_frames(dataset):
    episodes = pq.read_table(dataset / "meta/episodes/chunk-000/file-000.parquet")
    assert [name for name in episodes.schema.names if not name.startswith("stats/")] == [
        *("episode_index", "tasks", "length", "data/chunk_index", "data/file_index"),
        *("dataset_from_index", "dataset_to_index", "meta/episodes/chunk_index", "meta/episodes/file_index"),
    ]
    last = episodes.slice(7).to_pylist()[0]
    assert (last["dataset_from_index"], last["dataset_to_index"], last["length"]) == (14, 16, 2)
    assert last["tasks"] == ["pick up the cream cheese and place it in the basket"]
    numbers = [name for name in layout.COLUMNS if not name.startswith(layout.OWN)]
    assert {name for name in episodes.schema.names if name.startswith("stats/")} == {
        f"stats/{name}/{statistic}" for name in (*CAMERAS, *numbers) for statistic in STATISTICS
    }
    assert np.shape(last["stats/action/q99"]) == (7,)
    assert np.shape(last[f"stats/{CAMERAS[0]}/mean"]) == (3, 1, 1)
    assert last["stats/index/count"] == [2]


def test_the_statistics_are_of_all_frames(dataset):
    stats = json.loads((dataset / "meta/stats.json").read_text())
    frames = pq.read_table(dataset / "data/chunk-000/file-000.parquet")
    state = np.array(frames["observation.state"].to_pylist())
    assert stats["observation.state"]["mean"] == pytest.approx(state.mean(axis=0).tolist())
    assert stats["observation.state"]["q90"] == pytest.approx(np.quantile(state, 0.9, axis=0).tolist())
    actions = np.array(frames["action"].to_pylist())
    assert stats["action"]["std"] == pytest.approx(actions.std(axis=0).tolist())
    pngs = [io.BytesIO(cell["bytes"]) for cell in frames[CAMERAS[1]].to_pylist()]
    images = np.stack([np.asarray(Image.open(png)) for png in pngs]) / 255
    for name in ("mean", "std", "max"):
        expected = getattr(images, name)(axis=(0, 1, 2)).tolist()
        assert np.ravel(stats[CAMERAS[1]][name]) == pytest.approx(expected)
    assert all(set(found) == STATISTICS for found in stats.values())


def test_an_action_is_the_first_of_its_chunk_and_only_targets_have_statistics(tmp_path):
    assert collect(tmp_path, acts=corrections, init_ids=(7,), replan_steps=1) == 0
    frames = pq.read_table(tmp_path / "data/chunk-000/file-000.parquet")
    actions, chunks = (np.array(frames[name].to_pylist()) for name in ("action", "oxygen.action_chunk"))
    targets = ~np.array(frames["oxygen.action_is_pad"].to_pylist())[:, 0]
    assert 0 < targets.sum() < len(targets)
    assert np.array_equal(actions, chunks[:, 0])
    stats = json.loads((tmp_path / "meta/stats.json").read_text())
    assert stats["action"]["mean"] == pytest.approx(actions[targets].mean(axis=0).tolist())
    assert stats["action"]["count"] == [targets.sum()], "by which LeRobot weights it among other datasets"
    assert stats["observation.state"]["count"] == [len(targets)]
    assert not [name for name in stats if name.startswith(layout.OWN)]


def test_an_episode_that_a_learner_solved_alone_is_kept_for_its_texts(tmp_path):
    assert collect(tmp_path, acts=corrections, suites=("libero_goal",), task_ids=(0,)) == 0
    columns = Demonstrations(tmp_path).columns
    assert columns[layout.PADDED].all()
    assert all(columns["oxygen.narration"])
    (episodes,) = (tmp_path / "meta/episodes").rglob("*.parquet")
    least = pq.read_table(episodes)["stats/action/min"].to_pylist()
    assert np.isfinite(least).all()


def test_videos_hold_the_episodes_one_after_the_other(videos):
    described = info(videos)
    assert described["video_path"] == "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
    assert described["fps"] == 20
    feature = described["features"][CAMERAS[0]]
    about = feature["info"]
    assert (feature["dtype"], about["video.fps"], about["video.codec"]) == ("video", 20, "h264")
    assert CAMERAS[0] not in pq.read_schema(videos / "data/chunk-000/file-000.parquet").names
    episodes = pq.read_table(videos / "meta/episodes/chunk-000/file-000.parquet").to_pylist()
    for camera in CAMERAS:
        end = 0.0
        for episode in episodes:
            assert episode[f"videos/{camera}/from_timestamp"] == pytest.approx(end)
            end += episode["length"] / 20
            assert episode[f"videos/{camera}/to_timestamp"] == pytest.approx(end)
        path = videos / f"videos/{camera}/chunk-000/file-000.mp4"
        count, seconds = imageio_ffmpeg.count_frames_and_secs(str(path))
        assert count == described["total_frames"]
        assert seconds == pytest.approx(end, abs=0.01)


@pytest.mark.slow
def test_full_tables_and_videos_start_new_files(tmp_path, monkeypatch):
    monkeypatch.setattr(layout, "DATA_FILE_MB", 0.002)
    monkeypatch.setattr(layout, "VIDEO_FILE_MB", 0.00002)
    monkeypatch.setattr(layout, "FILES_PER_CHUNK", 2)
    collect(tmp_path, images="video", image_size=32)
    tables = sorted(str(file.relative_to(tmp_path / "data")) for file in tmp_path.glob("data/*/*"))
    places = ("chunk-000/file-000", "chunk-000/file-001", "chunk-001/file-000")
    assert tables[:3] == [f"{place}.parquet" for place in places]
    assert len(list(tmp_path.glob("videos/observation.images.image/*/*"))) > 1
    rows = 0
    for episode in pq.read_table(tmp_path / "meta/episodes/chunk-000/file-000.parquet").to_pylist():
        place = {name: episode[f"data/{name}"] for name in ("chunk_index", "file_index")}
        frames = pq.read_table(tmp_path / layout.DATA.format(**place))["index"].to_pylist()
        assert set(range(episode["dataset_from_index"], episode["dataset_to_index"])) <= set(frames)
        rows += episode["length"]
    assert rows == 16
    found = Demonstrations(tmp_path)
    for episode in found.episodes:
        first = found[episode.start]
        level = 16 * first["oxygen.init_id"] + 7
        assert np.abs(first[CAMERAS[0]].astype(int) - level).max() <= 2
