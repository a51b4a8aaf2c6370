"""Reading demonstrations: what was collected comes back, fast and at random, and what is broken is named."""

import dataclasses
import io
import itertools
import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from configs.errors import UsageError
from oxygen.robots.images import resize_with_pad
from oxygen.training.demonstrations import Demonstrations, Origin
from tests.eval.collect.collecting import collect
from tests.oxygen.training.conftest import MODEL

TABLE = "data/chunk-000/file-000.parquet"
PNG = io.BytesIO()
Image.fromarray(np.random.default_rng(0).integers(0, 256, (12, 12, 3), dtype=np.uint8)).save(PNG, "png")
PNG = PNG.getvalue()
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
    """A copy that may be broken."""
    return Path(shutil.copytree(png, tmp_path / "copy"))


def grey(found: Demonstrations) -> list[int]:
    """The level that every frame's images have throughout, from what the frame says of itself."""
    return [
        16 * episode.origin.init_id + 7 + int(found.columns.step[index])
        for episode in found.episodes
        for index in range(episode.start, episode.stop)
    ]


def test_an_episode_knows_where_it_came_from(png):
    found = Demonstrations(png)
    assert len(found) == 6 + 9 + 6 + 9
    assert [(episode.start, episode.stop) for episode in found.episodes] == [
        (0, 6),
        (6, 15),
        (15, 21),
        (21, 30),
    ]
    last = found.episodes[-1]
    assert last.origin == Origin(suite="libero_goal", task_id=1, init_id=1, seed=7, assets="a", noise=0.0)
    assert last.language == "put the bowl on the stove"
    assert found.fps == 20
    assert found.cameras == ("image", "wrist_image")


def test_columns_are_arrays_over_all_frames(png):
    columns = Demonstrations(png).columns
    assert columns.state.shape == (30, 8)
    assert columns.action.shape == (30, 10, 7)
    assert columns.padded.shape == (30, 10)
    assert columns.episode_index.tolist() == [0] * 6 + [1] * 9 + [2] * 6 + [3] * 9
    assert columns.frame_index[6:15].tolist() == columns.step[6:15].tolist() == list(range(9))
    # What the action chunk promises is what the state then shows: the fake world adds up actions.
    moved = columns.state[9] - columns.state[6]
    assert moved[1:6] == pytest.approx(columns.action[6, :3, 1:6].sum(axis=0), abs=1e-6)


@pytest.mark.parametrize("kind", ["png", "video"])
def test_frames_come_in_any_order_with_their_images(kind, request):
    found = Demonstrations(request.getfixturevalue(kind))
    levels = grey(found)
    tolerance = 0 if kind == "png" else 2
    for index in (29, 0, 14, 15, 6):
        frame = found.frame(index)
        assert set(frame.images) == {"image", "wrist_image"}
        for image in frame.images.values():
            assert np.abs(image.astype(int) - levels[index]).max() <= tolerance
        assert np.array_equal(frame.action, found.columns.action[index])
        assert frame.language == found.columns.language[index]
    assert len(list(found)) == 30
    with pytest.raises(IndexError, match="frame 30 of 30"):
        found.frame(30)


@pytest.mark.parametrize("kind", ["png", "video"])
def test_pixels_are_every_image_as_the_policy_resizes_it(kind, request, tmp_path):
    found = Demonstrations(request.getfixturevalue(kind))
    pixels = found.pixels(16, cache=tmp_path)
    assert pixels.shape == (30, 2, 16, 16, 3)
    for index, frame in enumerate(found):
        for camera, image in enumerate(frame.images.values()):
            assert np.array_equal(pixels[index, camera], resize_with_pad(image, 16))


def test_pixels_are_decoded_once_unless_the_dataset_has_grown(copy, tmp_path):
    first = Demonstrations(copy).pixels(8, cache=tmp_path / "cache")
    (file,) = (tmp_path / "cache").iterdir()
    stamp = file.stat().st_mtime_ns
    again = Demonstrations(copy).pixels(8, cache=tmp_path / "cache")
    assert isinstance(again, np.memmap)
    assert np.array_equal(first, again)
    assert file.stat().st_mtime_ns == stamp
    collect(copy, image_size=12, replan_steps=1, suites=("libero_goal",), seeds=(8,))
    assert len(Demonstrations(copy).pixels(8, cache=tmp_path / "cache")) == 60


def test_samples_have_the_models_cameras_in_its_order(png, monkeypatch):
    found = Demonstrations(png)
    pixels = np.random.default_rng(0).integers(0, 256, (30, 2, 28, 28, 3), np.uint8)
    monkeypatch.setattr(found, "pixels", lambda side, resize: pixels)
    part = found.samples(dataclasses.replace(MODEL, cameras=("wrist_image", "image")))
    np.testing.assert_array_equal(part.images, pixels[:, ::-1])
    np.testing.assert_array_equal(part.valid, ~found.columns.padded)
    with pytest.raises(UsageError, match="'left'"):
        found.samples(dataclasses.replace(MODEL, cameras=("left",)))


def test_tables_grouped_by_another_writer_are_read_as_well(copy, png):
    table = pq.read_table(copy / TABLE)
    pq.write_table(table, copy / TABLE, row_group_size=7)
    for ours, theirs in zip(Demonstrations(copy), Demonstrations(png), strict=True):
        assert np.array_equal(ours.images["image"], theirs.images["image"])


def edit_info(dataset: Path, **changes) -> None:
    path = dataset / "meta/info.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def drop_column(dataset: Path, column: str) -> None:
    pq.write_table(pq.read_table(dataset / TABLE).drop_columns([column]), dataset / TABLE)


def cut_rows(dataset: Path) -> None:
    pq.write_table(pq.read_table(dataset / TABLE).slice(0, 20), dataset / TABLE)


def shuffle_episodes(dataset: Path) -> None:
    table = pq.read_table(dataset / EPISODES)
    pq.write_table(table.take([1, 0, 2, 3]), dataset / EPISODES)


def renumber_frames(dataset: Path) -> None:
    table = pq.read_table(dataset / TABLE)
    column = table.schema.get_field_index("index")
    pq.write_table(table.set_column(column, "index", pa.array([5] * len(table))), dataset / TABLE)


def overwrite(file: Path, column: str) -> None:
    """Noise where the pages of a column are."""
    chunk = next(
        chunk
        for chunk in map(pq.read_metadata(file).row_group(0).column, itertools.count())
        if chunk.path_in_schema.startswith(column)
    )
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
        (lambda at: edit_info(at, codebase_version="v2.1"), "v2.1; this reads v3.0.*from_episodes"),
        (lambda at: edit_info(at, features={}), "no column 'oxygen.action_chunk'.*from_episodes"),
        (lambda at: edit_info(at, features=without(at, "oxygen.truth")), "no column .*; collect again with"),
        (lambda at: edit_info(at, total_frames=31), "4 episodes and 30 frames, but .* says 4 and 31"),
        (lambda at: (at / EPISODES).unlink(), "no table in meta/episodes"),
        (lambda at: (at / TABLE).write_bytes(b"PAR1 but no more"), "cannot be read as Parquet"),
        (lambda at: drop_column(at, "oxygen.truth"), "no column 'oxygen.truth'"),
        (lambda at: overwrite(at / TABLE, "observation.state"), f"{TABLE}: cannot be read as Parquet"),
        (cut_rows, "20 rows, the episodes need 30"),
        (shuffle_episodes, "episode 0 has frames 6 to 15"),
        (renumber_frames, "'index' does not count from 0"),
    ],
)
def test_what_is_broken_is_named_in_one_line(copy, breaks, said):
    breaks(copy)
    with pytest.raises(UsageError, match=said) as raised:
        Demonstrations(copy)
    assert "\n" not in str(raised.value)


def test_a_folder_without_demonstrations_is_told_the_nearest_or_how_to_collect_some(copy, tmp_path):
    with pytest.raises(UsageError, match=rf"Nearest: {copy}$"):
        Demonstrations(tmp_path / "coyp")
    shutil.rmtree(copy)
    with pytest.raises(UsageError, match=r"Collect some: python -m eval\.collect .* --output .*coyp$"):
        Demonstrations(tmp_path / "coyp")


@pytest.mark.parametrize("image_bytes", [b"no picture", None, PNG[:40]], ids=range(3))
def test_an_image_that_is_damaged_is_named(copy, image_bytes):
    table = pq.read_table(copy / TABLE)
    column = table.schema.get_field_index("observation.images.image")
    images = table[column].to_pylist()
    images[7]["bytes"] = image_bytes
    field = table.schema.field(column)
    pq.write_table(table.set_column(column, field, pa.array(images, field.type)), copy / TABLE)
    broken = Demonstrations(copy)
    assert broken.frame(6).images
    with pytest.raises(UsageError, match=f"{TABLE}: an image of frame 7 cannot be decoded") as caught:
        broken.frame(7)
    assert "\n" not in str(caught.value)


def test_a_video_that_is_missing_is_named(video, tmp_path):
    broken = Path(shutil.copytree(video, tmp_path / "broken"))
    next(broken.rglob("*.mp4")).unlink()
    with pytest.raises(UsageError, match=r"file-000\.mp4: cannot read 6 frames from 0\.00 s"):
        Demonstrations(broken).frame(0)
