"""The log of a training: lines, TensorBoard's events and curves that agree, also after a resume."""

import struct
from pathlib import Path

import pytest
from tensorboardX.proto.event_pb2 import Event

from oxygen.training import run_folder
from oxygen.training.run_folder import EVENTS, LINES, TrainingLog, read_log

NUMBERS = {
    "loss": 1.5,
    "flow_loss": 1.0,
    "narration_loss": 5.0,
    "narration_accuracy": 0.5,
    "gradient_norm": 2.0,
    "learning_rate": 1e-3,
    "samples_per_s": 60.0,
}
TAGS = {
    *("loss/total", "loss/flow", "loss/narration", "accuracy/narration", "optimiser/gradient_norm"),
    *("optimiser/learning_rate", "throughput/samples_per_s"),
}


def records(file: Path):
    """The events of a file; each has its length and a checksum before it, and another behind it."""
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


def test_like_numbers_lie_side_by_side_in_tensorboard(tmp_path):
    with TrainingLog(tmp_path, resumed_at=0) as log:
        log.write(20, NUMBERS)
        log.write(20, {"libero_object_pc_success": 50.0})
    found = shown(tmp_path)
    assert set(found) == TAGS | {"success/libero_object"}
    assert found["loss/flow"] == [(20, 1.0)]
    assert found["success/libero_object"] == [(20, 50.0)]


def test_what_is_done_again_is_noted_once_everywhere(tmp_path):
    for resumed_at, loss in ((0, 4.0), (40, 2.0), (20, 1.0)):
        with TrainingLog(tmp_path, resumed_at=resumed_at) as log:
            for step in (20, 40, 60):
                if step > resumed_at:
                    log.write(step, {"loss": loss})
    assert [(line["step"], line["loss"]) for line in read_log(tmp_path)] == [(20, 4.0), (40, 1.0), (60, 1.0)]
    assert shown(tmp_path) == {"loss/total": [(20, 4.0), (40, 1.0), (60, 1.0)]}


def test_a_log_whose_rewriting_is_killed_is_whole(tmp_path, monkeypatch):
    with TrainingLog(tmp_path, resumed_at=0) as log:
        log.write(20, NUMBERS)
    before = (tmp_path / LINES).read_bytes()

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(run_folder.json, "dumps", killed)
        with pytest.raises(KeyboardInterrupt):
            TrainingLog(tmp_path, resumed_at=20)
    assert (tmp_path / LINES).read_bytes() == before
