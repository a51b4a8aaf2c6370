"""`python -m oxygen.tools.convert SOURCE TARGET`: convert a checkpoint of a known policy to safetensors."""

import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import jax.numpy as jnp
import numpy as np

from configs.exits import OneLineParser, exit_code_of
from configs.load import load
from configs.paths import usable_file
from configs.schema import PolicyConfig
from contracts.errors import UsageError, unknown
from contracts.redaction import redact
from oxygen.model.config import PRESETS
from oxygen.presets.policies import completed, evaluation_command, read_model_policy
from oxygen.robots import transforms
from oxygen.robots.norms import FILE_NAME
from oxygen.robots.tokenizer import load as load_tokenizer
from oxygen.weights.formats import SINGLE_FILE, Checkpoint, open_checkpoint, write_safetensors
from oxygen.weights.loading import DTYPES, check_parameters, fitting_configs, nearest_config
from oxygen.weights.source import CARD, RECORD, TOKENIZER, card_text, fetch

_ASSETS = "assets"


def convert(
    source: str | Path,
    target: Path,
    *,
    dtype: str | None = None,
    model: str | None = None,
    embodiment: str | None = None,
    tokenizer: str | None = None,
) -> Path:
    """Write a checkpoint as a policy's folder. Host memory peaks at the size of the new file.

    The folder has `model.safetensors`, the source's `assets` (norm stats) and its card, or a new one.

    Args:
        source: What `oxygen.weights.load` takes.
        target: A new folder.
        dtype: `float32` or `bfloat16`; None keeps every tensor's own.
        model: The policy, or the one it was fine-tuned from. Default: the only one with these shapes.
        embodiment: The robot. Default: that policy's.
        tokenizer: The SentencePiece model: a file or a URL. Default: that policy's.

    Returns:
        The safetensors file.

    Raises:
        UsageError: The source cannot be read or fits no known configuration, the target exists, or a new card
            could not name the policy or its tokenizer.
    """
    if dtype not in (None, *DTYPES):
        raise unknown("dtype", dtype, DTYPES)
    if target.exists():
        raise UsageError(f"{target} exists already; name a new one, or remove it first")
    if embodiment is not None:
        transforms.embodiment(embodiment)  # checks the name
    if tokenizer is not None and "://" not in tokenizer:
        load_tokenizer(tokenizer)
        tokenizer = str(Path(tokenizer).resolve())  # the card's own paths are relative to its folder
    local = fetch(source)
    home = local.parent if local.name == "params" else local  # has the card and norm stats
    checkpoint = open_checkpoint(local)
    fits = _fitting(checkpoint, model, str(source))
    card = None
    if (home / CARD).is_file():
        _check_card(home / CARD, embodiment=embodiment, tokenizer=tokenizer)
    else:
        card = _new_card(
            home,
            model or _only(fits, str(source)),
            embodiment,
            tokenizer,
            name=target.name,
            source=redact(str(source)),
        )
    arrays = _read_arrays(checkpoint, dtype)  # before anything is written: it may be damaged
    _write_folder(target, arrays, card, home)
    return target / SINGLE_FILE


def _write_folder(target: Path, arrays: Mapping[str, np.ndarray], card: str | None, home: Path) -> None:
    """Write the folder of a policy, whole or not at all; None is the card of the source in `home`."""
    draft = target.with_name(f"{target.name}.partial")
    shutil.rmtree(draft, ignore_errors=True)  # what an interrupted conversion left
    draft.mkdir(parents=True)
    if (home / _ASSETS).is_dir():  # openpi's norm stats
        shutil.copytree(home / _ASSETS, draft / _ASSETS)
    for name in (CARD, TOKENIZER, RECORD):
        if (home / name).is_file():
            shutil.copyfile(home / name, draft / name)
    if card is not None:
        (draft / CARD).write_text(card, encoding="utf-8")
    write_safetensors(draft / SINGLE_FILE, arrays)
    draft.rename(target)


def _fitting(checkpoint: Checkpoint, model: str | None, source: str) -> list[str]:
    """The known policies with these shapes, which must include `model`."""
    fits = fitting_configs(checkpoint.tensors)
    nearest = PRESETS[fits[0]] if fits else nearest_config(checkpoint.tensors)
    check_parameters(checkpoint.tensors, nearest, source)
    if model is not None and model not in fits:
        raise unknown("model", model, fits, remedy=f"{source} fits only these.")
    return fits


def _only(fits: Sequence[str], source: str) -> str:
    if len(fits) > 1:
        raise UsageError(f"{source} has the sizes of {', '.join(fits)}; say with --model which it is")
    return fits[0]


def _read_arrays(checkpoint: Checkpoint, dtype: str | None) -> dict[str, np.ndarray]:
    """All tensors, in `dtype` or their own."""
    arrays = {
        path: np.empty(tensor.shape, jnp.dtype(dtype or tensor.dtype))
        for path, tensor in checkpoint.tensors.items()
    }
    for path, array in arrays.items():
        checkpoint.read(path, array)
    return arrays


def _check_card(card: Path, **given: str | None) -> None:
    """Refuse options that are for a new card, and a card that names what does not exist."""
    if options := " ".join(f"--{name} {value}" for name, value in given.items() if value is not None):
        raise UsageError(
            f"{options} is for a new card, and {card} is copied; leave it out, and edit the copy"
        )
    policy = load(PolicyConfig, str(card))
    for what, named in (("tokenizer", policy.tokenizer), ("norm_stats", policy.norm_stats)):
        if named is not None and "://" not in named and not (card.parent / Path(named).expanduser()).exists():
            raise UsageError(f"{card} names the {what} {named}, which does not exist; correct it")


def _new_card(
    home: Path, model: str, robot: str | None, tokenizer: str | None, *, name: str, source: str
) -> str:
    """The card of a checkpoint that has none."""
    policy = completed(load(PolicyConfig, model))
    robot, tokenizer = robot or str(policy.embodiment), tokenizer or policy.tokenizer
    if tokenizer is None:
        raise UsageError(f"{model} has no vocabulary of its own; give --tokenizer FILE")
    content = {
        "name": re.sub(r"[^A-Za-z0-9_.-]", "-", name),
        "kind": "oxygen",
        "description": f"Converted from {source}, with the sizes of {model}.",
        "model": model,
        "embodiment": robot,
        "weights": ".",
        "tokenizer": tokenizer,
        "language_tasks": {},
    }
    if not (home / _ASSETS / transforms.embodiment(robot).asset_id / FILE_NAME).is_file():
        files = list((home / _ASSETS).rglob(FILE_NAME))  # the only ones, under whatever asset id
        stats = str(files[0].relative_to(home)) if len(files) == 1 else policy.norm_stats
        content |= {"norm_stats": stats} if stats else {}
    return card_text(content)


def main(arguments: Sequence[str]) -> int:
    """Run the command line; returns the exit code."""
    parser = OneLineParser(prog="python -m oxygen.tools.convert", description=__doc__)
    parser.add_argument("source", help="a checkpoint: openpi's folder, safetensors, or a URL of either")
    parser.add_argument("target", type=Path, help="a new folder")
    parser.add_argument("--dtype", help="float32 or bfloat16; default: each tensor's own")
    parser.add_argument(
        "--model", help="the policy, or the one it was fine-tuned from; default: the only one of these sizes"
    )
    parser.add_argument("--embodiment", help="the robot; default: that policy's")
    parser.add_argument("--tokenizer", help="a file or URL; default: that policy's")

    def run() -> None:
        options = parser.parse_args(arguments)
        if not options.target.exists():
            usable_file(options.target, "the target")
        file = convert(**vars(options))
        sys.stdout.write(f"{file}: {file.stat().st_size / 1e6:.1f} MB\n")
        robot = str(read_model_policy(str(options.target / CARD)).embodiment)
        sys.stdout.write(f"The policy: {evaluation_command(str(options.target), robot)}\n")

    return exit_code_of(run)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
