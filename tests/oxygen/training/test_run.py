"""Trainings of a few steps: their folders and logs, resuming, and divergence."""

import dataclasses
import os
import re
import shutil
import struct
from pathlib import Path

import jax
import numpy as np
import pytest
from tensorboardX.proto.event_pb2 import Event

from contracts.errors import UsageError
from oxygen.robots import transforms
from oxygen.robots.transforms import LIBERO, Transform
from oxygen.training import checkpoint, run_folder
from oxygen.training.batches import TrainingBatches
from oxygen.training.config import TrainingConfig
from oxygen.training.run import _checkpoint_writer, _statistics, train
from oxygen.training.run_folder import EVENTS, LINES, RUN_FILE, TrainingLog, read_log
from oxygen.training.samples import Samples, measure
from oxygen.weights.loading import load
from tests.oxygen.training.conftest import MODEL, TASKS, VOCABULARY, bits, samples, stop_at, training, writer

pytestmark = pytest.mark.usefixtures("compiled_soon")

STEPS = 12


def short(**recipe) -> TrainingConfig:
    """A training of a few steps, saved after every fourth."""
    return training(**{"steps": STEPS, "log_every": 2, "save_every": 4, **recipe})


OFTEN = short(log_every=50, save_every=2)


@pytest.fixture(autouse=True, scope="module")
def without_curves():
    """Drawing them takes longer than the training."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("oxygen.training.run.draw_curves", lambda folder: None)
        yield


@pytest.fixture(scope="module")
def trained(tmp_path_factory, mixture):
    """A finished training's folder, and its last state."""
    folder = tmp_path_factory.mktemp("training")
    return folder, train(folder, short(), mixture, VOCABULARY)


def test_checkpoints_hold_the_ema_of_the_parameters_and_the_newest_the_training_state(trained):
    folder, state = trained
    served = load(checkpoint.newest(folder / "checkpoints"), MODEL)
    assert bits(served) == bits(state.average)
    assert bits(served) != bits(state.params)
    states = [path.parent.name for path in folder.glob("checkpoints/*/state.safetensors")]
    assert states == [f"step_{STEPS:07d}"]
    policies = {path.parent.name for path in folder.glob("checkpoints/*/model.safetensors")}
    assert policies == {f"step_{step:07d}" for step in range(4, STEPS + 1, 4)}


def test_a_share_of_the_initial_weights_is_served(trained, mixture, tmp_path):
    start, state = trained[0] / "checkpoints/step_0000004", trained[1]
    options = short(start_share=0.25, start_from=str(start))
    blended = dataclasses.replace(options, start_from=str(start))
    saver = _checkpoint_writer(blended, mixture, measure(mixture, LIBERO), VOCABULARY)
    served, given = load(saver.save(tmp_path, state), MODEL), load(start, MODEL)
    expected = jax.tree.map(lambda new, old: old + 0.75 * (new - old), state.average, given)
    assert bits(served) == bits(expected)
    assert bits(served) != bits(state.average)


@pytest.mark.slow
def test_training_starts_from_given_weights_and_resumes_without_them(trained, mixture, tmp_path):
    start = tmp_path / "start"
    shutil.copytree(checkpoint.newest(trained[0] / "checkpoints"), start)
    given = load(start, MODEL)
    onward = dataclasses.replace(short(), start_from=str(start))

    def until(steps):
        return train(tmp_path / "onward", onward, mixture, VOCABULARY, should_stop=stop_at(steps))

    begun = until(1).params  # the learning rate of the first step is 0
    jax.tree.map(np.testing.assert_array_equal, begun, given)
    shutil.rmtree(start)
    assert int(until(2).step) == 3


@pytest.mark.slow
def test_given_statistics_are_used_and_stored_in_every_checkpoint(mixture, tmp_path):
    train(tmp_path / "other", short(steps=1), mixture, VOCABULARY)
    base = checkpoint.newest(tmp_path / "other/checkpoints")
    few = samples(2, seed=3)
    tuned = dataclasses.replace(short(steps=2, batch=2, text_rows=2), norm_stats=str(base))
    train(tmp_path / "mine", tuned, few, VOCABULARY, should_stop=stop_at(1))
    shutil.rmtree(base)
    train(tmp_path / "mine", tuned, few, VOCABULARY)
    kept = checkpoint.newest(tmp_path / "mine/checkpoints")
    measured = _statistics(training(), mixture, None)
    assert transforms.of_checkpoint(LIBERO, kept) == Transform.of(LIBERO, measured)


def test_statistics_are_of_the_actions_that_the_model_predicts(mixture):
    assert mixture.actions.shape[1] > MODEL.horizon
    predicted = mixture.actions[:, : MODEL.horizon][mixture.valid[:, : MODEL.horizon]]
    measured = _statistics(training(), mixture, None)["actions"]
    assert measured["mean"] == pytest.approx(predicted.mean(axis=0, dtype=np.float64).tolist())
    assert measured["q99"] == pytest.approx(np.quantile(predicted, 0.99, axis=0).tolist())


def test_training_does_not_resume_with_changed_options_demonstrations_or_vocabulary(
    trained, mixture, other_vocabulary
):
    folder, _ = trained
    with pytest.raises(UsageError, match=r"recipe\.batch = 8, not 16"):
        train(folder, short(batch=16), mixture, VOCABULARY)
    first, second = samples(4, seed=0), samples(4, seed=1)
    grown = Samples.joined([first, samples(5, seed=1)])
    with pytest.raises(UsageError, match=r"demonstrations\.frames = 8, not 9"):
        train(folder, short(), grown, VOCABULARY)
    for change in (
        {"state": second.state + 1},
        {"language": ("wait",) * 4},
        {"images": (255 - second.images[0],)},
        {"texts": {**second.texts, "memory": ("Done.",) * 4}},
    ):
        other = Samples.joined([first, dataclasses.replace(second, **change)])
        with pytest.raises(UsageError, match=r"demonstrations\.digest = "):
            train(folder, short(), other, VOCABULARY)
    with pytest.raises(UsageError, match=r"a training with vocabulary = .*, not .*; give another folder"):
        train(folder, short(), mixture, other_vocabulary)


@pytest.mark.parametrize(
    ("typo", "said"),
    [
        ({"embodiment": "libreo"}, "did you mean 'libero'"),
        ({"model": dataclasses.replace(MODEL, cameras=("left",))}, "'left'"),
        ({"model": dataclasses.replace(MODEL, horizon=99)}, "needs 99"),
        ({"tasks": (dataclasses.replace(TASKS[0], name="poem"),)}, "language task 'poem'"),
        ({"start_from": "no/such/checkpoint"}, "no/such/checkpoint"),
    ],
)
def test_refused_options_leave_nothing(typo, said, mixture, tmp_path):
    folder = tmp_path / "mine"
    with pytest.raises(UsageError, match=said):
        train(folder, dataclasses.replace(short(steps=1), **typo), mixture, VOCABULARY)
    assert not folder.exists()


@pytest.mark.parametrize("torn", [b"", b'{"model": {"na', b"[]", b"\xff"])
def test_a_damaged_run_file_is_a_one_line_error(torn, mixture, tmp_path):
    (tmp_path / RUN_FILE).write_bytes(torn)
    with pytest.raises(UsageError, match=r"run\.json: .*remove the damaged file"):
        train(tmp_path, short(), mixture, VOCABULARY)


def test_a_diverged_training_keeps_and_names_its_last_good_checkpoint(mixture, tmp_path, monkeypatch):
    """Losses are checked before every checkpoint, also where no log entry is due."""
    sound = TrainingBatches.batch

    def spoilt(batches, number):
        batch = sound(batches, number)
        return batch if number < 2 else dataclasses.replace(batch, actions=batch.actions * np.nan)

    monkeypatch.setattr(TrainingBatches, "batch", spoilt)
    with pytest.raises(
        UsageError, match=r"by step 4: flow_loss is nan.*--learning-rate below 0\.003;"
    ) as told:
        train(tmp_path, OFTEN, mixture, VOCABULARY)
    (good,) = (tmp_path / "checkpoints").iterdir()
    assert str(good) in str(told.value)
    assert checkpoint.newest(tmp_path / "checkpoints") == good
    assert [line["step"] for line in read_log(tmp_path)] == [2]


def test_on_checkpoint_is_called_for_every_checkpoint_and_its_metrics_are_logged(mixture, tmp_path, capsys):
    calls = []

    def on_checkpoint(step, path):
        calls.append((step, path.name))
        return {"libero_object_pc_success": 50.0}

    train(tmp_path, OFTEN, mixture, VOCABULARY, should_stop=stop_at(3), on_checkpoint=on_checkpoint)
    assert calls == [(2, "step_0000002"), (3, "step_0000003")]
    said = r"compiling the training step, [\d.]+ million .* a minute or more the first time \.\.\. [\d.]+ s\n"
    assert re.fullmatch(said, capsys.readouterr().err)  # once: the other steps are not waited for
    assert [line["step"] for line in read_log(tmp_path) if "libero_object_pc_success" in line] == [2, 3]


def test_a_checkpoint_is_on_disk_before_the_previous_state_is_removed(
    trained, mixture, tmp_path, monkeypatch
):
    """A power cut leaves one of them."""
    state, saver = trained[1], writer(short(), mixture)
    older, synced = saver.save(tmp_path, state) / checkpoint.STATE_FILE, set()
    monkeypatch.setattr(os, "fsync", lambda file: synced.add((os.fstat(file).st_ino, older.exists())))
    newer = saver.save(tmp_path, state.replace(step=state.step + 1))
    assert not older.exists()
    assert synced >= {(path.stat().st_ino, True) for path in (tmp_path, newer, *newer.rglob("*"))}


NUMBERS = {"loss": 1.5, "flow_loss": 1.0, "narration_loss": 5.0, "narration_accuracy": 0.5}
TAGS = {"loss", "loss/flow", "loss/narration", "accuracy/narration"}


def records(file: Path):
    """The events of a file, each between its length with a checksum and another checksum."""
    content, place = file.read_bytes(), 0
    while place < len(content):
        (length,) = struct.unpack_from("<Q", content, place)
        yield Event.FromString(content[place + 12 : place + 12 + length])
        place += length + 16


def shown(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Tag to steps and numbers as TensorBoard shows them: a start purges what is there from its step on."""
    found: dict[str, list[tuple[int, float]]] = {}
    for file in sorted((folder / EVENTS).iterdir()):
        for event in records(file):
            if event.HasField("session_log"):
                found = {tag: [p for p in points if p[0] < event.step] for tag, points in found.items()}
            for value in event.summary.value:
                found.setdefault(value.tag, []).append((event.step, value.simple_value))
    return found


def test_like_numbers_lie_side_by_side_in_tensorboard_and_a_killed_rewriting_keeps_the_log(
    tmp_path, monkeypatch
):
    with TrainingLog(tmp_path, resumed_at=0) as log:
        log.write(20, NUMBERS)
        log.write(20, {"libero_object_pc_success": 50.0})
    found = shown(tmp_path)
    assert set(found) == TAGS | {"success/libero_object"}
    assert found["loss/flow"] == [(20, 1.0)]
    assert found["success/libero_object"] == [(20, 50.0)]
    before = (tmp_path / LINES).read_bytes()

    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(run_folder.json, "dumps", killed)
    with pytest.raises(KeyboardInterrupt):
        TrainingLog(tmp_path, resumed_at=20)
    assert (tmp_path / LINES).read_bytes() == before


def test_what_is_done_again_is_noted_once_everywhere(tmp_path):
    for resumed_at, loss in ((0, 4.0), (40, 2.0), (20, 1.0)):
        with TrainingLog(tmp_path, resumed_at=resumed_at) as log:
            for step in (20, 40, 60):
                if step > resumed_at:
                    log.write(step, {"loss": loss})
    assert [(line["step"], line["loss"]) for line in read_log(tmp_path)] == [(20, 4.0), (40, 1.0), (60, 1.0)]
    assert shown(tmp_path) == {"loss": [(20, 4.0), (40, 1.0), (60, 1.0)]}
