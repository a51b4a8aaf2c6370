"""Bundles a checkpoint, or adds results to the bundled one, and renders the model card."""

import dataclasses
import hashlib
import math
import shutil
from collections.abc import Sequence
from pathlib import Path

from configs.errors import UsageError
from eval.bundle.card import CARD_FILE, render
from eval.bundle.manifest import MANIFEST, BundleManifest, FileDigest, read_bundle_manifest
from eval.bundle.provenance import provenance
from eval.bundle.results import BundledResult, merged, of_runs, read_results, write_results
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

MOST_BYTES = 16_000_000
"""Size limit, since every installation of the package downloads it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class BundleSummary:
    """The bundled checkpoint.

    Attributes:
        manifest: Its manifest.
        results: Its results.
        dropped: Number of earlier results dropped, which were of other weights.
    """

    manifest: BundleManifest
    results: tuple[BundledResult, ...]
    dropped: int


def bundle(
    checkpoint: Path | None, runs: Sequence[Path], target: Path, *, data: Sequence[Path]
) -> BundleSummary:
    """Write a bundle with a checkpoint and the results of `runs`, atomically.

    Existing results of the same weights are kept.

    Args:
        checkpoint: The folder of a checkpoint; None for the bundled one.
        runs: Runs, or folders of runs.
        target: The folder of the bundle.
        data: Datasets that have moved since training.

    Raises:
        UsageError: The checkpoint is incomplete, too large, or does not fit its model; a dataset is missing;
            or a run is not complete, or of other weights.
    """
    _put_back(target)
    before, kept = read_bundle_manifest(target), read_results(target)
    draft = target.with_name(f".{target.name}.partial")
    shutil.rmtree(draft, ignore_errors=True)
    try:
        if checkpoint is not None:
            manifest = _take(checkpoint, data, draft, name=target.name)
        elif before is not None:
            manifest = before
            shutil.copytree(target, draft)
        else:
            raise UsageError(f"nothing is bundled at {target}; give a checkpoint")
        same = before is not None and before.weights_sha256 == manifest.weights_sha256
        results = merged(kept if same else (), of_runs(runs, weights=manifest.weights_sha256))
        write_results(draft, results)
        (draft / CARD_FILE).write_text(render(draft), encoding="utf-8")
        _put_in_place(draft, target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return BundleSummary(manifest=manifest, results=results, dropped=0 if same else len(kept))


def _take(checkpoint: Path, data: Sequence[Path], target: Path, *, name: str) -> BundleManifest:
    """Copy the files needed for serving, not the optimiser's state, and write the manifest."""
    if not checkpoint.is_dir():
        raise no_checkpoint(str(checkpoint), checkpoint)
    served = _served(checkpoint)
    for path in served:
        if not (checkpoint / path).is_file():
            raise UsageError(f"{checkpoint} is not a complete checkpoint: it has no {path}; give another")
    tensors = open_safetensors(checkpoint / SINGLE_FILE).tensors
    layout.check(tensors, preset(str(read_policy(str(checkpoint)).model)), str(checkpoint))
    record, datasets = provenance(checkpoint, data)
    target.mkdir(parents=True)
    for path in served:
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(checkpoint / path, target / path)
    write_json(target / RECORD, record)
    manifest = BundleManifest(
        name=name,
        step=record["step"],
        parameters=sum(math.prod(tensor.shape) for tensor in tensors.values()),
        files={path: _facts(target / path) for path in [*served, RECORD]},
        data=datasets,
    )
    if manifest.bytes > MOST_BYTES:
        raise UsageError(
            f"{checkpoint} has {manifest.bytes} bytes to serve; at most {MOST_BYTES} are bundled"
        )
    write_json(target / MANIFEST, dataclasses.asdict(manifest))
    return manifest


def _served(checkpoint: Path) -> tuple[str, ...]:
    """The files needed for serving, by their paths in the folder."""
    robot = embodiment(str(read_policy(str(checkpoint)).embodiment))
    norms = checkpoint_norms(checkpoint, robot.asset_id).relative_to(checkpoint)
    return (SINGLE_FILE, norms.as_posix(), TOKENIZER, CARD)


def _facts(file: Path) -> FileDigest:
    content = file.read_bytes()
    return FileDigest(sha256=hashlib.sha256(content).hexdigest(), bytes=len(content))


def _put_in_place(draft: Path, target: Path) -> None:
    """Replace the target by the draft. After a kill, the next bundling restores the old target."""
    aside = _aside(target)
    if target.exists():
        target.rename(aside)
    draft.rename(target)
    shutil.rmtree(aside, ignore_errors=True)


def _put_back(target: Path) -> None:
    """Restore the target after a kill between the two renames, and remove what else was set aside."""
    aside = _aside(target)
    if aside.exists() and not target.exists():
        aside.rename(target)
    shutil.rmtree(aside, ignore_errors=True)


def _aside(target: Path) -> Path:
    return target.with_name(f".{target.name}.before")
