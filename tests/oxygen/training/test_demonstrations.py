"""Reading demonstrations: what was collected comes back, fast and at random, and what is broken is named."""

import dataclasses
import itertools
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from contracts.errors import UsageError
from eval.collect.episode import png_cells
from oxygen.robots.images import resized
from oxygen.training import layout
from oxygen.training.demonstrations import Demonstrations
from tests.eval.collect.collecting import collect
from tests.oxygen.training.conftest import MODEL

TABLE = "data/chunk-000/file-000.parquet"
(PNG,) = png_cells([np.random.default_rng(0).integers(0, 256, (12, 12, 3), dtype=np.uint8)])
EPISODES = "meta/episodes/chunk-000/file-000.parquet"


@pytest.fixture(scope="module")
def png(tmp_path_factory) -> Path:
    """Four episodes of six and nine frames, images 12 pixels a side."""
    path = tmp_path_factory.mktemp("png")
    collect(path, image_size=12, replan_steps=1, suites=("libero_goal",))
    return path


@pytest.fixture(scope="module")
def video(tmp_path_factory) -> Path:
    """The same as video, in larger images."""
    path = tmp_path_factory.mktemp("video")
    collect(path, image_size=48, replan_steps=1, suites=("libero_goal",), images="video")
    return path


@pytest.fixture
def copy(png, tmp_path) -> Path:
    return Path(shutil.copytree(png, tmp_path / "copy"))


def test_columns_are_of_all_frames_and_episodes_know_where_they_are(png):
    found = Demonstrations(png)
    columns = found.columns
    assert len(found) == 6 + 9 + 6 + 9
    spans = [(episode.start, episode.stop) for episode in found.episodes]
    assert spans == [(0, 6), (6, 15), (15, 21), (21, 30)]
    key = {"suite": "libero_goal", "task_id": 1, "init_id": 1, "seed": 7, "assets": "a", "noise": 0.0}
    assert {part: columns[layout.OWN + part][-1] for part in key} == key
    assert columns[layout.LANGUAGE][-1] == "put the bowl on the stove"
    assert (found.fps, found.cameras) == (20, ("image", "wrist_image"))
    assert columns[layout.STATE].shape == (30, 8)
    assert columns[layout.CHUNK].shape == (30, 10, 7)
    assert columns[layout.PADDED].shape == (30, 10)
    assert columns["episode_index"].tolist() == [0] * 6 + [1] * 9 + [2] * 6 + [3] * 9
    assert columns["frame_index"][6:15].tolist() == columns[layout.STEP][6:15].tolist() == list(range(9))
    # What the action chunk promises is what the state then shows: the fake world adds up actions.
    moved = columns[layout.STATE][9] - columns[layout.STATE][6]
    assert moved[1:6] == pytest.approx(columns[layout.CHUNK][6, :3, 1:6].sum(axis=0), abs=1e-6)


@pytest.mark.parametrize("kind", ["png", "video"])
def test_frames_come_in_any_order_and_pixels_are_their_images_as_the_policy_resizes_them(kind, request):
    found = Demonstrations(request.getfixturevalue(kind))
    columns = found.columns
    levels = 16 * columns[layout.OWN + "init_id"] + 7 + columns[layout.STEP]  # the same throughout an image
    tolerance = 0 if kind == "png" else 2
    for index in (29, 0, 14, 15, 6):
        frame = found[index]
        for camera in ("image", "wrist_image"):
            image = frame[layout.IMAGES + camera]
            assert np.abs(image.astype(int) - levels[index]).max() <= tolerance
        assert np.array_equal(frame[layout.CHUNK], columns[layout.CHUNK][index])
        assert frame[layout.LANGUAGE] == columns[layout.LANGUAGE][index]
    with pytest.raises(IndexError, match="frame 30 of 30"):
        found[30]
    pixels = found.pixels(16)
    assert pixels.shape == (30, 2, 16, 16, 3)
    for index, frame in enumerate(found):
        for camera, name in enumerate(found.cameras):
            image = resized(frame[layout.IMAGES + name], 16)
            assert np.array_equal(pixels[index, camera], image)


def test_pixels_are_decoded_once_unless_the_dataset_has_grown(copy):
    first = Demonstrations(copy).pixels(8)
    (file,) = (copy / ".cache").glob("pixels-8-*")
    stamp = file.stat().st_mtime_ns
    again = Demonstrations(copy).pixels(8)
    assert isinstance(again, np.memmap)
    assert np.array_equal(first, again)
    assert file.stat().st_mtime_ns == stamp
    collect(copy, image_size=12, replan_steps=1, suites=("libero_goal",), seeds=(8,))
    assert len(Demonstrations(copy).pixels(8)) == 60


def test_samples_have_the_models_cameras_in_its_order(png, monkeypatch):
    found = Demonstrations(png)
    pixels = np.random.default_rng(0).integers(0, 256, (30, 2, 28, 28, 3), np.uint8)
    monkeypatch.setattr(found, "pixels", lambda side, resize: pixels)
    part = found.samples(dataclasses.replace(MODEL, cameras=("wrist_image", "image")))
    np.testing.assert_array_equal(part.images[0], pixels[:, ::-1])
    np.testing.assert_array_equal(part.valid, ~found.columns[layout.PADDED])
    with pytest.raises(UsageError, match="'left'"):
        found.samples(dataclasses.replace(MODEL, cameras=("left",)))


def test_tables_grouped_by_another_writer_are_read_as_well(copy, png):
    table = pq.read_table(copy / TABLE)
    pq.write_table(table, copy / TABLE, row_group_size=7)
    for ours, theirs in zip(Demonstrations(copy), Demonstrations(png), strict=True):
        assert np.array_equal(ours[layout.IMAGES + "image"], theirs[layout.IMAGES + "image"])


def edit_info(dataset: Path, **changes) -> None:
    path = dataset / "meta/info.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def edited(change: Callable[[pa.Table], pa.Table], file: str = TABLE) -> Callable[[Path], None]:
    return lambda dataset: pq.write_table(change(pq.read_table(dataset / file)), dataset / file)


def replaced(table: pa.Table, column: str, values: list) -> pa.Table:
    field = table.schema.field(column)
    return table.set_column(table.schema.get_field_index(column), field, pa.array(values, field.type))


def overwrite(file: Path, column: str) -> None:
    """Noise where the pages of a column are."""
    chunks = map(pq.read_metadata(file).row_group(0).column, itertools.count())
    chunk = next(chunk for chunk in chunks if chunk.path_in_schema.startswith(column))
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    with file.open("r+b") as content:
        content.seek(start)
        content.write(b"\xa5" * chunk.total_compressed_size)


def without(dataset: Path, name: str) -> dict:
    features = json.loads((dataset / "meta/info.json").read_text())["features"]
    return {key: value for key, value in features.items() if key != name}


@pytest.mark.parametrize(
    ("breaks", "said"),
    [
        (lambda at: (at / "meta/info.json").unlink(), "cannot read meta/info.json"),
        (lambda at: (at / "meta/info.json").write_text("{"), "not the info of a LeRobot dataset"),
        (lambda at: edit_info(at, features=5), "of a LeRobot dataset: features is 5: input should be"),
        (lambda at: edit_info(at, features={"action": 5}), "of a LeRobot dataset: features.action is 5"),
        (lambda at: edit_info(at, total_frames="many"), "of a LeRobot dataset: total_frames is 'many'"),
        (lambda at: edit_info(at, fps=0), "of a LeRobot dataset: fps is 0"),
        (lambda at: edit_info(at, fps=math.nan), "of a LeRobot dataset: fps is nan"),
        (lambda at: edit_info(at, data_path=7), "of a LeRobot dataset: data_path is 7"),
        (lambda at: edit_info(at, codebase_version="v2.1"), "v2.1; this reads v3.0.*from_episodes"),
        (lambda at: edit_info(at, features={}), "no column 'oxygen.action_chunk'.*from_episodes"),
        (lambda at: edit_info(at, features=without(at, "oxygen.truth")), "no column .*; collect again with"),
        (lambda at: edit_info(at, total_frames=31), "4 episodes and 30 frames, but .* says 4 and 31"),
        (lambda at: (at / EPISODES).unlink(), "no table in meta/episodes"),
        (lambda at: (at / TABLE).write_bytes(b"PAR1 but no more"), "cannot be read as Parquet"),
        (edited(lambda table: table.drop_columns(["oxygen.truth"])), "no column 'oxygen.truth'"),
        (lambda at: overwrite(at / TABLE, "observation.state"), f"{TABLE}: cannot be read as Parquet"),
        (edited(lambda table: table.slice(0, 20)), "'index' does not count from 0"),
        (edited(lambda table: table.take([1, 0, 2, 3]), EPISODES), "episode 0 has frames 6 to 15"),
        (edited(lambda table: replaced(table, "index", [5] * 30)), "'index' does not count from 0"),
    ],
)
def test_what_is_broken_is_named(copy, breaks, said):
    breaks(copy)
    with pytest.raises(UsageError, match=said):
        Demonstrations(copy)


def test_a_folder_without_demonstrations_is_told_the_nearest_or_how_to_collect_some(copy, tmp_path):
    with pytest.raises(UsageError, match=rf"Nearest: {copy}$"):
        Demonstrations(tmp_path / "coyp")
    shutil.rmtree(copy)
    with pytest.raises(UsageError, match=r"Collect some: oxygen-eval collect .* --output .*coyp$"):
        Demonstrations(tmp_path / "coyp")


@pytest.mark.parametrize("image_bytes", [b"no picture", None, PNG["bytes"][:40]], ids=range(3))
def test_an_image_that_is_damaged_is_named(copy, image_bytes):
    images = pq.read_table(copy / TABLE)["observation.images.image"].to_pylist()
    images[7]["bytes"] = image_bytes
    edited(lambda table: replaced(table, "observation.images.image", images))(copy)
    broken = Demonstrations(copy)
    assert broken[6]
    with pytest.raises(UsageError, match=f"{TABLE}: an image of frame 7 cannot be decoded"):
        broken[7]


def test_a_video_that_is_missing_is_named(video, tmp_path):
    broken = Path(shutil.copytree(video, tmp_path / "broken"))
    next(broken.rglob("*.mp4")).unlink()
    with pytest.raises(UsageError, match=r"file-000\.mp4: cannot read 6 frames from 0\.00 s"):
        Demonstrations(broken)[0]
