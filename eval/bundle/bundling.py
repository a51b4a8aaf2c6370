"""Bundles a checkpoint, or adds results to the one that is bundled; either way the card is rendered anew."""

import dataclasses
import hashlib
import math
import shutil
from collections.abc import Sequence
from pathlib import Path

from configs.errors import UsageError
from eval.bundle.card import CARD_FILE, render
from eval.bundle.manifest import MANIFEST, Contents, FileFacts, read_contents
from eval.bundle.provenance import provenance
from eval.bundle.results import Result, merged, of_runs, read_results, write_results
from eval.policies.checkpoints import no_checkpoint
from eval.policies.names import read_policy
from eval.records.json_files import write_json
from oxygen.model.config import preset
from oxygen.robots.norms import checkpoint_norms
from oxygen.robots.transforms import embodiment
from oxygen.weights import layout
from oxygen.weights.card import CARD, RECORD, TOKENIZER
from oxygen.weights.loading import SINGLE_FILE
from oxygen.weights.safetensors import open_safetensors

MOST_BYTES = 16_000_000
"""What may be bundled at most: everybody who installs the package carries it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bundled:
    """What is bundled now.

    Attributes:
        contents: Its manifest.
        results: Of its runs.
        dropped: Results that were there before, of other weights.
    """

    contents: Contents
    results: tuple[Result, ...]
    dropped: int


def bundle(checkpoint: Path | None, runs: Sequence[Path], target: Path, *, data: Sequence[Path]) -> Bundled:
    """Make `target` the bundled checkpoint with the results of `runs`, whole or not at all.

    Results that are there already stay if they are of the same weights.

    Args:
        checkpoint: A folder that training wrote; what is bundled already if None.
        runs: Folders of runs, or of single runs.
        target: The folder in the package.
        data: Folders of demonstrations that are not where they were in training.

    Raises:
        UsageError: The checkpoint is not whole, of another model than this code has by that name, or too
            large; its demonstrations are not to be found; or a run is not complete, or of other weights.
    """
    _put_back(target)
    before, kept = read_contents(target), read_results(target)
    draft = target.with_name(f".{target.name}.partial")
    shutil.rmtree(draft, ignore_errors=True)
    try:
        if checkpoint is not None:
            contents = _take(checkpoint, data, draft, name=target.name)
        elif before is not None:
            contents = before
            shutil.copytree(target, draft)
        else:
            raise UsageError(f"nothing is bundled at {target}; give the checkpoint of a training")
        same = before is not None and before.weights_sha256 == contents.weights_sha256
        results = merged(kept if same else (), of_runs(runs, weights=contents.weights_sha256))
        write_results(draft, results)
        (draft / CARD_FILE).write_text(render(draft), encoding="utf-8")
        _put_in_place(draft, target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return Bundled(contents=contents, results=results, dropped=0 if same else len(kept))


def _take(checkpoint: Path, data: Sequence[Path], target: Path, *, name: str) -> Contents:
    """Copy what is served of a checkpoint, not the optimiser's state, and write its manifest."""
    if not checkpoint.is_dir():
        raise no_checkpoint(str(checkpoint), checkpoint)
    served = _served(checkpoint)
    for path in served:
        if not (checkpoint / path).is_file():
            raise UsageError(f"{checkpoint} is no whole checkpoint of a training: it has no {path}")
    tensors = open_safetensors(checkpoint / SINGLE_FILE).tensors
    layout.check(tensors, preset(str(read_policy(str(checkpoint)).model)), str(checkpoint))
    record, demonstrated = provenance(checkpoint, data)
    target.mkdir(parents=True)
    for path in served:
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(checkpoint / path, target / path)
    write_json(target / RECORD, record)
    contents = Contents(
        name=name,
        step=record["step"],
        parameters=sum(math.prod(tensor.shape) for tensor in tensors.values()),
        files={path: _facts(target / path) for path in [*served, RECORD]},
        data=demonstrated,
    )
    if contents.bytes > MOST_BYTES:
        raise UsageError(
            f"{checkpoint} has {contents.bytes} bytes to serve; at most {MOST_BYTES} are bundled"
        )
    write_json(target / MANIFEST, dataclasses.asdict(contents))
    return contents


def _served(checkpoint: Path) -> tuple[str, ...]:
    """The files that a policy is made of, by their paths in the folder."""
    robot = embodiment(str(read_policy(str(checkpoint)).embodiment))
    norms = checkpoint_norms(checkpoint, robot.asset_id).relative_to(checkpoint)
    return (SINGLE_FILE, norms.as_posix(), TOKENIZER, CARD)


def _facts(file: Path) -> FileFacts:
    content = file.read_bytes()
    return FileFacts(sha256=hashlib.sha256(content).hexdigest(), bytes=len(content))


def _put_in_place(draft: Path, target: Path) -> None:
    """Replace the target by the draft. Killed on the way, the next bundling finds what was there."""
    aside = _aside(target)
    if target.exists():
        target.rename(aside)
    draft.rename(target)
    shutil.rmtree(aside, ignore_errors=True)


def _put_back(target: Path) -> None:
    """Undo what a kill left half done: the target is set aside and not yet replaced, or not yet removed."""
    aside = _aside(target)
    if aside.exists() and not target.exists():
        aside.rename(target)
    shutil.rmtree(aside, ignore_errors=True)


def _aside(target: Path) -> Path:
    return target.with_name(f".{target.name}.before")
