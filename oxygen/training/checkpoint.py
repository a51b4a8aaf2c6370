"""Training checkpoints, written atomically: a policy folder that can be served, and the training state."""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from configs.paths import sync
from contracts.errors import UsageError
from oxygen.robots.norms import FILE_NAME, Statistics, write_statistics
from oxygen.robots.transforms import embodiment
from oxygen.training.config import TrainingConfig
from oxygen.training.optimiser import TrainState
from oxygen.typing import Params
from oxygen.weights.adapter import write_adapter
from oxygen.weights.formats import SINGLE_FILE, SUFFIX, open_safetensors, write_safetensors
from oxygen.weights.source import CARD, RECORD, TOKENIZER, card_text, fetch

ADAPTER = "adapter.npz"
"""An adapter's file in its folder."""
STATE_FILE = f"state{SUFFIX}"
_NAME = "step_{:07d}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckpointWriter:
    """Writes the checkpoints of one training."""

    training: TrainingConfig  # what is trained
    statistics: Statistics  # normalisation statistics of the demonstrations
    tokenizer: bytes  # the SentencePiece model
    frames: int  # frames of the demonstrations
    start: Params | None = None  # the initial weights, if a share of them is served

    def save(self, folder: Path, state: TrainState) -> Path:
        """Write a checkpoint under `folder`, whose own folder is named after the step and returned.

        Older checkpoints keep the policy but lose the training state.
        """
        target = folder / _NAME.format(int(state.step))
        if target.exists():
            return target
        draft = target.with_name(f"{target.name}.partial")
        shutil.rmtree(draft, ignore_errors=True)
        served, share = state.average, self.training.options.start_share
        if self.start is not None:
            # What was not trained stays as it is, to the bit.
            served = jax.tree.map(lambda new, old: old + (1 - share) * (new - old), served, self.start)
        try:
            self.write_policy(draft, served, step=int(state.step))
            write_safetensors(draft / STATE_FILE, _flat(state))
            for written in (draft, *draft.rglob("*")):
                sync(written)
            draft.rename(target)
        finally:
            shutil.rmtree(draft, ignore_errors=True)  # where the disk is full
        sync(folder)  # before the previous state is removed, in case of a power cut
        for older in folder.glob(f"step_*/{STATE_FILE}"):
            if older.parent != target:
                older.unlink()
        return target

    def write_policy(self, folder: Path, params: Params, *, step: int) -> None:
        """Write a policy folder: parameters, statistics, tokenizer, `policy.yaml` and `training.json`.

        For an adapter, it holds the adapter with its card, and a `policy.yaml` that puts it on its policy.
        """
        folder.mkdir(parents=True)
        training, base = self.training, self.training.base
        tasks = {task.name: task.prompt for task in training.tasks}
        if base is None:
            write_safetensors(folder / SINGLE_FILE, _flat(params))
            (folder / TOKENIZER).write_bytes(self.tokenizer)
            card: dict[str, Any] = {
                "name": f"{training.model.name}-trained",
                "kind": "oxygen",
                "description": f"Trained here for {step} steps; see {RECORD}.",
                "model": training.model.name,
                "embodiment": training.embodiment,
                "weights": ".",
                "tokenizer": TOKENIZER,
                "language_tasks": tasks,
            }
            feedback = {
                task.name: [dataclasses.asdict(field) for field in task.feedback]
                for task in training.tasks
                if task.feedback
            }
            card |= {"feedback": feedback} if feedback else {}
        else:
            rank, name = training.options.adapter, base.get("name")
            places = ("weights", "norm_stats", "tokenizer")
            local = [place for place in places if "://" not in base.get(place, "://")]
            # The card's own paths are relative to its folder.
            base = {**base, **{place: str(fetch(base[place]).resolve()) for place in local}}
            about = {
                "rank": rank,
                "alpha": rank,
                "mask": "exact",
                "base_checkpoint": base.get("weights"),
                "language_tasks": tasks,
                "training_step": step,
            }
            arrays = {path: np.asarray(leaf) for path, leaf in _flat(params).items()}
            write_adapter(folder / ADAPTER, arrays, about)
            card = {
                **base,
                "name": f"{training.model.name}-adapter",
                "description": f"{name} with an adapter trained here for {step} steps; see {RECORD}.",
                "language_tasks": tasks,
                "adapter": ADAPTER,
            }
        (folder / CARD).write_text(card_text(card), encoding="utf-8")
        asset_id = embodiment(training.embodiment).asset_id
        write_statistics(folder / "assets" / asset_id / FILE_NAME, self.statistics)
        record = {"step": step, **training.identity(), "frames": self.frames}
        (folder / RECORD).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def newest(folder: Path) -> Path | None:
    """The latest checkpoint under `folder` that training can resume from."""
    states = sorted(folder.glob(f"step_*[0-9]/{STATE_FILE}"))
    return states[-1].parent if states else None


def step_of(checkpoint: Path) -> int:
    """The training step of a checkpoint."""
    return int(checkpoint.name.removeprefix("step_"))


def restore(checkpoint: Path, template: TrainState) -> TrainState:
    """Read a checkpoint's training state, exact to the bit, into the structure of a template, which it must
    fit.
    """
    file = open_safetensors(checkpoint / STATE_FILE)
    leaves = {}
    for path, leaf in _flat(template).items():
        stored = file.tensors.get(path)
        if stored is None or stored.shape != leaf.shape:
            raise UsageError(f"{checkpoint} holds the state of another training: {path} is {stored}")
        leaves[path] = np.empty(leaf.shape, leaf.dtype)
    for path, array in leaves.items():
        file.read(path, array)
    return jax.tree.unflatten(jax.tree.structure(template), map(jnp.array, leaves.values()))


def _flat(tree: Any) -> dict[str, Any]:
    """Leaves by path, in the tree's order; parameters have openpi's paths."""
    paths, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in paths}
