"""The folder of a training: `run.json`, which identifies it, so that no two write to one, and its log.

The log is JSON lines, TensorBoard events, and curves as a PNG.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from configs.paths import read_json_object
from contracts.errors import UsageError
from contracts.redaction import redact

RUN_FILE = "run.json"
"""Identifies a training, and has the command line's options as `options`."""
CHECKPOINTS = "checkpoints"
"""The subfolder for checkpoints."""

LINES = "log.jsonl"
EVENTS = "events"
CURVES = "curves.png"
_PANELS = {"loss": "_loss", "accuracy": "_accuracy", "success, %": "_pc_success"}
"""Panel of the curves, and group in TensorBoard, to the suffix of the metrics it shows."""


def check_same_run(folder: Path, identity: Mapping[str, Any]) -> None:
    """Refuse a folder that holds another training; names the first option that differs."""
    if not (folder / RUN_FILE).is_file():
        return
    existing = _leaves(_read(folder))
    for path, expected in _leaves(identity).items():
        if existing.get(path) != expected:
            raise UsageError(
                f"{folder} holds a training with {path} = {existing.get(path)}, not {expected}; give another "
                "folder, or the same options to resume"
            )


def write_run_file(folder: Path, identity: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    """Write `run.json` atomically; the options of a resumed training replace the earlier ones."""
    content = {**identity, "options": redact(options)}
    file = folder / RUN_FILE
    partial = file.with_suffix(f".{os.getpid()}.partial")
    partial.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    partial.replace(file)


def read_options(folder: Path) -> Mapping[str, Any]:
    """The options of the training in a folder; empty if there are none."""
    given = _read(folder).get("options")
    if not isinstance(given, dict):
        return {}
    return {name: value for name, value in given.items() if value is not None}


def _read(folder: Path) -> dict[str, Any]:
    try:
        return read_json_object(folder / RUN_FILE)
    except UsageError as error:
        raise UsageError(f"{error}; remove the damaged file, or use another folder") from None


def _leaves(content: Mapping[str, Any]) -> dict[str, Any]:
    from flax.traverse_util import empty_node, flatten_dict  # JAX, which --help does not need

    flat = flatten_dict(dict(content), keep_empty_nodes=True, sep=".")
    return {path: {} if leaf is empty_node else leaf for path, leaf in flat.items()}


class TrainingLog:
    """The log in a training's folder. A resumed training appends to the same files."""

    def __init__(self, folder: Path, *, resumed_at: int) -> None:
        """Open the log and drop entries after step `resumed_at`, which will be computed again."""
        from tensorboardX import SummaryWriter

        self._folder = folder
        file = folder / LINES
        partial = file.with_suffix(".partial")
        kept = [line for line in read_log(folder) if line["step"] <= resumed_at]
        partial.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")
        partial.replace(file)
        self._file = file.open("a", encoding="utf-8")
        events = folder / EVENTS
        before = len(list(events.glob("*")))  # file names have a resolution of one second
        self._events = SummaryWriter(str(events), purge_step=resumed_at + 1, filename_suffix=f".{before:04d}")

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Log metrics of a step and flush."""
        self._file.write(json.dumps({"step": step, **metrics}) + "\n")
        self._file.flush()
        for name, value in metrics.items():
            self._events.add_scalar(tag_of(name), value, step)
        self._events.flush()

    def __enter__(self) -> "TrainingLog":
        return self

    def __exit__(self, *_: object) -> None:
        self._events.close()
        self._file.close()
        draw_curves(self._folder)


def tag_of(name: str) -> str:
    """A metric's TensorBoard tag, e.g. `loss/flow` for `flow_loss`; its name if it is in no group."""
    for panel, ending in _PANELS.items():
        if name.endswith(ending):
            return f"{panel.removesuffix(', %')}/{name.removesuffix(ending)}"
    return name


def read_log(folder: Path) -> list[dict[str, Any]]:
    """All lines of a training's log, without a last line that was cut short."""
    file = folder / LINES
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True) if file.is_file() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def has_rollouts(folder: Path, step: int) -> bool:
    """Whether a training's log has metrics of a checkpoint's rollouts."""
    return any(line["step"] == step and "loss" not in line for line in read_log(folder))


def draw_curves(folder: Path) -> None:
    """Draw the curves of a training's log, if it has any."""
    lines = read_log(folder)
    panels = {
        label: names
        for label, ending in _PANELS.items()
        if (names := sorted({name for line in lines for name in line if name.endswith(ending)}))
    }
    if not panels:
        return
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
    figure.savefig(folder / CURVES, dpi=120)
