"""`python -m oxygen.convert SOURCE TARGET`: any checkpoint of a known policy becomes safetensors."""

import argparse
import dataclasses
import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from configs.errors import UsageError, unknown
from oxygen.config import PRESETS, Pi05Config
from oxygen.weights import layout
from oxygen.weights.checkpoint import Checkpoint, Stored
from oxygen.weights.loading import DTYPES, SINGLE_FILE, open_checkpoint
from oxygen.weights.safetensors import SUFFIX, write_safetensors
from oxygen.weights.source import fetch

CONFIG_FILE = "config.json"
_ASSETS = "assets"


def convert(source: str | Path, target: Path, *, dtype: str | None = None) -> Path:
    """Write a checkpoint's parameters as safetensors, one tensor at a time.

    Args:
        source: What `oxygen.weights.load` takes.
        target: A new `.safetensors` file; or a new folder for `model.safetensors`, for `config.json`, which
            says what the parameters fit, and for the source's `assets` (norm stats).
        dtype: `float32` or `bfloat16`; None keeps every tensor's own.

    Returns:
        The file of tensors.

    Raises:
        UsageError: The source cannot be read or fits no known configuration, or the target exists.
    """
    if dtype not in (None, *DTYPES):
        raise unknown("dtype", dtype, DTYPES)
    if target.exists():
        raise UsageError(f"{target} exists already; name a new one, or remove it first")
    local = fetch(source)
    checkpoint = open_checkpoint(local)
    fits = _fitting(checkpoint, source)
    single = target.suffix == SUFFIX
    draft = target.with_name(f"{target.name}.partial")
    _remove(draft)
    draft.parent.mkdir(parents=True, exist_ok=True)
    if not single:
        draft.mkdir()
        _copy_assets(local, draft)
        (draft / CONFIG_FILE).write_text(json.dumps(_description(source, fits), indent=2) + "\n")
    _write(checkpoint, draft if single else draft / SINGLE_FILE, dtype, fits)
    draft.rename(target)
    return target if single else target / SINGLE_FILE


def _fitting(checkpoint: Checkpoint, source: str | Path) -> list[Pi05Config]:
    fits = layout.fitting(checkpoint.tensors)
    layout.check(
        checkpoint.tensors, PRESETS[fits[0]] if fits else layout.nearest(checkpoint.tensors), str(source)
    )
    return [PRESETS[name] for name in fits]


def _write(checkpoint: Checkpoint, file: Path, dtype: str | None, fits: Sequence[Pi05Config]) -> None:
    tensors = {
        path: Stored(shape=tensor.shape, dtype=dtype or tensor.dtype)
        for path, tensor in checkpoint.tensors.items()
    }
    write_safetensors(file, tensors, checkpoint.read, {"fits": " ".join(config.name for config in fits)})


def _description(source: str | Path, fits: Sequence[Pi05Config]) -> Mapping[str, Any]:
    """What `config.json` says: where the parameters are from, which configurations they fit, their sizes."""
    sizes = dataclasses.asdict(fits[0])
    shaping = ("siglip", "trunk", "expert", "vocab_size", "image_size", "action_dim")
    return {
        "source": str(source),
        "fits": [config.name for config in fits],
        "sizes": {name: sizes[name] for name in shaping},
    }


def _copy_assets(local: Path, draft: Path) -> None:
    """Take along the norm stats that openpi keeps beside `params`."""
    assets = (local.parent if local.name == "params" else local) / _ASSETS
    if assets.is_dir():
        shutil.copytree(assets, draft / _ASSETS)


def _remove(draft: Path) -> None:
    """Remove what an interrupted conversion left."""
    if draft.is_dir():
        shutil.rmtree(draft)
    draft.unlink(missing_ok=True)


class _Parser(argparse.ArgumentParser):
    """Refuses in one line."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}. See --help")


def main(arguments: Sequence[str]) -> int:
    """Convert what the command line names; returns the exit code."""
    parser = _Parser(prog="python -m oxygen.convert", description=__doc__)
    parser.add_argument("source", help="a checkpoint: openpi's folder, safetensors, or a URL of either")
    parser.add_argument("target", type=Path, help=f"a new folder, or a new file that ends in {SUFFIX}")
    parser.add_argument(
        "--dtype", help=f"cast to one of {', '.join(DTYPES)}; by default every tensor keeps its type"
    )
    try:
        options = parser.parse_args(arguments)
        file = convert(options.source, options.target, dtype=options.dtype)
    except UsageError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    sys.stdout.write(f"{file}: {file.stat().st_size / 1e6:.1f} MB\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
