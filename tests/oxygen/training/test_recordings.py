"""Training on your own recordings: `Samples.from_episodes` and the example of docs/training.md."""

import dataclasses
import io
import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from configs.errors import UsageError
from oxygen.model import config
from oxygen.model.config import PRESETS
from oxygen.robots.images import resize_with_pad
from oxygen.training import checkpoint
from oxygen.training.samples import Recording, Samples
from tests.oxygen.training.conftest import MODEL

DOCUMENT = Path(__file__).parents[3] / "docs/training.md"
STEPS = 5


def recording(seed: int = 0, *, steps: int = STEPS, **changed) -> Recording:
    """An episode with numbered actions and landscape images."""
    rng = np.random.default_rng(seed)
    cameras, shape = ("spare", *MODEL.cameras), (steps, 20, 30, 3)
    content = {
        "images": {camera: rng.integers(0, 256, shape, dtype=np.uint8) for camera in cameras},
        "state": rng.normal(size=(steps, 8)),
        "actions": np.repeat(np.arange(steps, dtype=np.float64)[:, None], 7, axis=1),
        "language": f"errand {seed}",
        "texts": {"narration": [f"Step {step}." for step in range(steps)]},
    }
    return Recording(**{**content, **changed})


def test_a_frame_has_the_next_actions_of_its_episode_and_the_models_cameras_resized():
    episode = recording()
    found = Samples.from_episodes(iter([episode]), MODEL)
    ahead = np.arange(STEPS)[:, None] + np.arange(MODEL.horizon)
    np.testing.assert_array_equal(found.valid, ahead < STEPS)
    np.testing.assert_array_equal(found.actions[..., 0], np.minimum(ahead, STEPS - 1))
    assert found.actions.dtype == np.float32
    for step in range(STEPS):
        for place, camera in enumerate(MODEL.cameras):
            seen = resize_with_pad(episode.images[camera][step], MODEL.image_size)
            np.testing.assert_array_equal(found.images[0][step, place], seen)


def test_episodes_are_concatenated_and_no_chunk_reaches_into_the_next():
    found = Samples.from_episodes([recording(0), recording(1, steps=4)], MODEL, every=2)
    assert found.language == ("errand 0",) * 3 + ("errand 1",) * 2
    assert found.texts["narration"] == ("Step 0.", "Step 2.", "Step 4.", "Step 0.", "Step 2.")
    left = np.minimum([5, 3, 1, 4, 2], MODEL.horizon)
    np.testing.assert_array_equal(found.valid.sum(axis=1), left)
    np.testing.assert_array_equal(found.state[3:], recording(1, steps=4).state[::2].astype(np.float32))


def test_mismatched_recordings_are_refused():
    with pytest.raises(UsageError, match=r"'errand 0'.*'narration': 1.*the same number"):
        recording(texts={"narration": ["Done."]})
    with pytest.raises(UsageError, match="no episodes"):
        Samples.from_episodes([], MODEL)
    with pytest.raises(UsageError, match="episodes do not match"):
        Samples.from_episodes([recording(), recording(texts={})], MODEL)
    with pytest.raises(UsageError, match="unknown camera 'image'"):
        Samples.from_episodes([recording(images={"left": np.zeros((STEPS, 9, 9, 3), np.uint8)})], MODEL)


def png(image: np.ndarray) -> dict[str, object]:
    """An image as LeRobot stores it in a table."""
    file = io.BytesIO()
    Image.fromarray(image).save(file, "png")
    return {"bytes": file.getvalue(), "path": None}


def write_lerobot(root: Path, episodes: list[Recording]) -> None:
    """A dataset of LeRobot's version 2.0, as openpi's conversion of LIBERO writes it."""
    (root / "data/chunk-000").mkdir(parents=True)
    (root / "meta").mkdir()
    tasks = [{"task_index": number, "task": each.language} for number, each in enumerate(episodes)]
    (root / "meta/tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
    for number, episode in enumerate(episodes):
        columns = {camera: list(map(png, episode.images[camera])) for camera in MODEL.cameras}
        columns |= {"state": episode.state.tolist(), "actions": episode.actions.tolist()}
        columns |= {"task_index": [number] * len(episode)}
        pq.write_table(pa.table(columns), root / f"data/chunk-000/episode_{number:06d}.parquet")


@pytest.mark.slow
def test_the_documented_loop_trains_on_a_lerobot_dataset_and_prints_its_progress(
    tmp_path, monkeypatch, capsys
):
    """The example as printed, with a small model and two steps of four samples."""
    model = dataclasses.replace(MODEL, name="small-for-recordings", prompt_buckets=(32,))
    monkeypatch.setitem(PRESETS, model.name, model)
    monkeypatch.setattr(config, "TINY", model)
    monkeypatch.chdir(tmp_path)
    write_lerobot(tmp_path / "my_dataset", [recording(seed) for seed in range(2)])
    (example,) = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    short = example.replace("steps=5000,", "steps=2, batch=4,")
    assert short != example
    exec(compile(short, str(DOCUMENT), "exec"), {})  # noqa: S102
    assert checkpoint.newest(Path("runs/train/mine/checkpoints")).name == "step_0000002"
    assert capsys.readouterr().out.startswith("2 {")
