"""Copies a checkpoint into the package, with its provenance, results and model card."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from configs.errors import UsageError
from configs.hashing import hash_file
from eval.bundle.card import CARD_FILE, render
from eval.bundle.provenance import MANIFEST, provenance, write_manifest
from eval.bundle.results import read_results, results_of, write_results
from eval.policies.names import read_policy
from eval.records.json_files import write_json
from oxygen.model.config import preset
from oxygen.presets.checkpoints import no_checkpoint
from oxygen.robots.norms import checkpoint_norms
from oxygen.robots.transforms import embodiment
from oxygen.weights import layout
from oxygen.weights.card import CARD, RECORD, TOKENIZER
from oxygen.weights.loading import SINGLE_FILE
from oxygen.weights.safetensors import open_safetensors

MAX_BYTES = 16_000_000
"""Size limit, since every installation of the package downloads it."""


def bundle(checkpoint: Path, runs: Sequence[Path], target: Path) -> None:
    """Write a bundle: the files that serving needs, their manifest, results and the model card.

    Args:
        checkpoint: The folder of a checkpoint; may be `target`, to add results.
        runs: Runs of it, or folders of runs. Results that `target` has of the same weights are kept.
        target: The folder of the bundle, which is replaced when all is written.

    Raises:
        UsageError: The checkpoint is incomplete, too large, or does not fit its model; or a run is not
            complete, or of other weights; or `target` holds something else.
    """
    if target.is_dir() and any(target.iterdir()) and not (target / MANIFEST).is_file():
        raise UsageError(f"{target} holds other files than a bundle; give another folder")
    served = _served(checkpoint)
    record, data = provenance(checkpoint)
    weights = hash_file(checkpoint / SINGLE_FILE)
    results = results_of(runs, weights=weights)
    if (target / SINGLE_FILE).is_file() and hash_file(target / SINGLE_FILE) == weights:
        results = [*read_results(target), *results]
    target.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as scratch:
        draft = Path(scratch) / target.name
        write_json(draft / RECORD, record)
        for path in served:
            (draft / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(checkpoint / path, draft / path)
        write_manifest(draft, [*served, RECORD], data)
        write_results(draft, results)
        (draft / CARD_FILE).write_text(render(draft), encoding="utf-8")
        if target.exists():
            target.rename(Path(scratch) / "before")
        draft.rename(target)


def _served(checkpoint: Path) -> list[str]:
    """The files needed for serving, by their paths in the checkpoint, without the optimiser's state."""
    if not checkpoint.is_dir():
        raise no_checkpoint(str(checkpoint), checkpoint)
    policy = read_policy(str(checkpoint))
    norms = checkpoint_norms(checkpoint, embodiment(str(policy.embodiment)).asset_id)
    files = [SINGLE_FILE, norms.relative_to(checkpoint).as_posix(), TOKENIZER, CARD]
    for path in files:
        if not (checkpoint / path).is_file():
            raise UsageError(f"{checkpoint} is not a complete checkpoint: it has no {path}; give another")
    layout.check(
        open_safetensors(checkpoint / SINGLE_FILE).tensors, preset(str(policy.model)), str(checkpoint)
    )
    size = sum((checkpoint / path).stat().st_size for path in files)
    if size > MAX_BYTES:
        raise UsageError(f"{checkpoint} has {size} bytes to serve; at most {MAX_BYTES} are bundled")
    return files
