"""A training's numbers as it goes on: JSON lines, TensorBoard events, and curves as a picture."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

LINES = "log.jsonl"
EVENTS = "events"
CURVES = "curves.png"
_PANELS = {"loss": "_loss", "accuracy": "_accuracy", "success, %": "pc_success"}
"""The curves' panels, and how the names of what they show end."""
_GROUPS = {"loss": "_loss", "accuracy": "_accuracy", "success": "_pc_success"}
"""TensorBoard's groups, and how the names of what they show end."""
_TAGS = {
    "loss": "loss/total",
    "gradient_norm": "optimiser/gradient_norm",
    "learning_rate": "optimiser/learning_rate",
    "samples_per_s": "throughput/samples_per_s",
}
"""Where numbers of other names are shown there."""


class TrainingLog:
    """The log of a training, in its folder. One that is resumed goes on in the same files."""

    def __init__(self, folder: Path, *, resumed_at: int) -> None:
        """Open the log; what an interrupted run noted after `resumed_at` is dropped, for it comes again."""
        from tensorboardX import SummaryWriter

        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        _keep(folder, resumed_at)
        self._file = (folder / LINES).open("a", encoding="utf-8")
        events = folder / EVENTS
        before = len(list(events.glob("*")))  # names are in seconds, of which two may begin in one
        self._events = SummaryWriter(str(events), purge_step=resumed_at + 1, filename_suffix=f".{before:04d}")

    def note(self, step: int, numbers: Mapping[str, float]) -> None:
        """Note some numbers of a step, at once on disk."""
        self._file.write(json.dumps({"step": step, **numbers}) + "\n")
        self._file.flush()
        for name, number in numbers.items():
            self._events.add_scalar(tag_of(name), number, step)
        self._events.flush()

    def draw(self) -> None:
        """Draw what has been noted so far."""
        draw_curves(self._folder)

    def __enter__(self) -> "TrainingLog":
        return self

    def __exit__(self, *_: object) -> None:
        self._events.close()
        self._file.close()
        draw_curves(self._folder)


def tag_of(name: str) -> str:
    """A number's place in TensorBoard: like numbers side by side, as `loss/flow` and `loss/narration`."""
    for group, ending in _GROUPS.items():
        if name.endswith(ending):
            return f"{group}/{name.removesuffix(ending)}"
    return _TAGS.get(name, name)


def _keep(folder: Path, last: int) -> None:
    """Drop a log's lines after a step; until the rest is written, the whole log stays."""
    file = folder / LINES
    partial = file.with_suffix(".partial")
    kept = [line for line in read_log(folder) if line["step"] <= last]
    partial.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")
    partial.replace(file)


def read_log(folder: Path) -> list[dict[str, Any]]:
    """All lines of a training's log, in order; a last line that was cut short is left out."""
    file = folder / LINES
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True) if file.is_file() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def draw_curves(folder: Path) -> Path | None:
    """Draw what the log of a training holds; None if that is nothing yet."""
    lines = read_log(folder)
    panels = {
        label: names
        for label, ending in _PANELS.items()
        if (names := sorted({name for line in lines for name in line if name.endswith(ending)}))
    }
    if not panels:
        return None
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 2.6 * len(panels)), layout="constrained")
    axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    for axis, (label, names) in zip(axes, panels.items(), strict=True):
        for name in names:
            points = [(line["step"], line[name]) for line in lines if name in line]
            axis.plot(*zip(*points, strict=True), label=name, marker="." if len(points) < 40 else None)
        axis.set_ylabel(label)
        axis.grid(visible=True, alpha=0.3)
        axis.legend(frameon=False, fontsize="small")
        if label == "loss":
            axis.set_yscale("log")
    axes[-1].set_xlabel("step")
    file = folder / CURVES
    figure.savefig(file, dpi=120)
    return file
