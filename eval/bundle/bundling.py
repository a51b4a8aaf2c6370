"""Bundles a checkpoint, or adds results to the one that is bundled; either way the card is rendered anew."""

import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path

from configs.errors import UsageError
from eval.bundle.card import CARD_FILE, render
from eval.bundle.contents import Contents, read_contents, take
from eval.bundle.results import Result, merged, of_runs, read_results, write_results


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bundled:
    """What came of it.

    Attributes:
        contents: What is bundled.
        results: What its card shows.
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
        data: Folders of the demonstrations; as the checkpoint names them if empty.

    Raises:
        UsageError: See `eval.bundle.contents.take` and `eval.bundle.results.of_runs`.
    """
    _put_back(target)
    before, kept = read_contents(target), read_results(target)
    draft = target.with_name(f".{target.name}.partial")
    shutil.rmtree(draft, ignore_errors=True)
    try:
        if checkpoint is not None:
            contents = take(checkpoint, data, draft, name=target.name)
        elif before is not None:
            contents = before
            shutil.copytree(target, draft)
        else:
            raise UsageError(f"nothing is bundled at {target}; give the checkpoint of a training")
        same = before is not None and before.weights_sha256 == contents.weights_sha256
        found = of_runs(runs, weights=contents.weights_sha256, checkpoint=checkpoint)
        results = merged(kept if same else (), found)
        write_results(draft, results)
        (draft / CARD_FILE).write_text(render(draft), encoding="utf-8")
        _put_in_place(draft, target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return Bundled(contents=contents, results=results, dropped=0 if same else len(kept))


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
