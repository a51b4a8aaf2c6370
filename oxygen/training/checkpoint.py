"""What training leaves, whole or not at all: a folder that can be served, and the state to go on from."""

import dataclasses
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from configs.errors import UsageError
from oxygen.model.config import Pi05Config
from oxygen.robots.norms import FILE_NAME
from oxygen.serving.language import LanguageTask
from oxygen.training.optimiser import TrainState
from oxygen.training.statistics import write_statistics
from oxygen.typing import Params
from oxygen.weights.card import CARD, RECORD, TOKENIZER, card_text
from oxygen.weights.checkpoint import Stored
from oxygen.weights.loading import SINGLE_FILE
from oxygen.weights.safetensors import SUFFIX, open_safetensors, write_safetensors

STATE_FILE = f"state{SUFFIX}"
_NAME = "step_{:07d}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Served:
    """What a checkpoint must say of itself beside its parameters, so that a policy can be made of it.

    Attributes:
        model: The model's sizes.
        embodiment: Name of the robot, see `oxygen.robots.transforms`.
        asset_id: Where a checkpoint keeps that robot's statistics.
        statistics: Of the demonstrations.
        tokenizer: The SentencePiece model.
        tasks: The language tasks whose texts were learnt.
        record: What else a reader may want to know: the recipe, the demonstrations.
    """

    model: Pi05Config
    embodiment: str
    asset_id: str
    statistics: dict[str, dict[str, list[float]]]
    tokenizer: bytes
    tasks: tuple[LanguageTask, ...]
    record: Mapping[str, Any]


def save(folder: Path, state: TrainState, served: Served) -> Path:
    """Write the checkpoint of a state under `folder`; older ones keep what is served and lose their state.

    Returns:
        The checkpoint's folder, named by the step.
    """
    target = folder / _NAME.format(int(state.step))
    if target.exists():
        return target
    draft = target.with_name(f"{target.name}.partial")
    shutil.rmtree(draft, ignore_errors=True)
    write_served(draft, state.average, served, step=int(state.step))
    _write_tree(draft / STATE_FILE, state)
    draft.rename(target)
    for older in folder.glob(f"step_*/{STATE_FILE}"):
        if older.parent != target:
            older.unlink()
    return target


def write_served(folder: Path, params: Params, served: Served, *, step: int) -> None:
    """Write what a policy is made of: parameters, statistics, tokenizer, and the card that names them."""
    folder.mkdir(parents=True)
    _write_tree(folder / SINGLE_FILE, params)
    write_statistics(folder / "assets" / served.asset_id / FILE_NAME, served.statistics)
    (folder / TOKENIZER).write_bytes(served.tokenizer)
    (folder / CARD).write_text(_card(served, step), encoding="utf-8")
    record = {"step": step, **served.record, "model": dataclasses.asdict(served.model)}
    (folder / RECORD).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def newest(folder: Path) -> Path | None:
    """The latest checkpoint under `folder` that training can go on from."""
    states = sorted(folder.glob(f"step_*[0-9]/{STATE_FILE}"))
    return states[-1].parent if states else None


def step_of(checkpoint: Path) -> int:
    """The number of batches that a checkpoint's parameters have learnt from."""
    return int(checkpoint.name.removeprefix("step_"))


def restore(checkpoint: Path, template: TrainState) -> TrainState:
    """The state of a checkpoint, to the last bit.

    Args:
        checkpoint: Its folder.
        template: A state of the same shapes, such as the one training begins with.

    Raises:
        UsageError: It is damaged, or of another model or optimiser.
    """
    stored = open_safetensors(checkpoint / STATE_FILE)
    wanted = _flat(template)
    for path, leaf in wanted.items():
        found = stored.tensors.get(path)
        if found is None or found != _stored(leaf):
            raise UsageError(f"{checkpoint} holds the state of another training: {path} is {found}")
    leaves = {}
    for path, leaf in wanted.items():
        array = np.empty(leaf.shape, _kept_as(leaf))
        stored.read(path, array)
        leaves[path] = jnp.array(array.astype(leaf.dtype))
    return jax.tree.unflatten(jax.tree.structure(template), [leaves[path] for path in wanted])


def _write_tree(file: Path, tree: Any) -> None:
    arrays = _flat(tree)

    def read(path: str, out: np.ndarray) -> None:
        out[...] = arrays[path]

    write_safetensors(file, {path: _stored(leaf) for path, leaf in arrays.items()}, read, {})


def _flat(tree: Any) -> dict[str, Any]:
    """Leaves by their paths, in the tree's own order; of parameters, openpi's paths."""
    paths, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in paths}


def _stored(leaf: Any) -> Stored:
    return Stored(shape=tuple(leaf.shape), dtype=_kept_as(leaf).name)


def _kept_as(leaf: Any) -> np.dtype[Any]:
    """A leaf's type in a file. Checkpoints hold floats alone: counters become float64, which is exact."""
    return np.dtype(np.float64) if jnp.issubdtype(leaf.dtype, jnp.integer) else np.dtype(leaf.dtype)


def _card(served: Served, step: int) -> str:
    """The policy's preset, in YAML."""
    description = f"Trained here for {step} steps; see {RECORD}."
    lines = {
        "name": f"{served.model.name}-trained",
        "kind": "oxygen",
        "description": description,
        "model": served.model.name,
        "embodiment": served.embodiment,
        "weights": ".",
        "tokenizer": TOKENIZER,
    }
    texts = {task.name: task.prompt for task in served.tasks}
    return card_text({**lines, "language_tasks": texts})
