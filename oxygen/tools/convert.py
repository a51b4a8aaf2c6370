"""`python -m oxygen.tools.convert SOURCE TARGET`: convert a checkpoint of a known policy to safetensors."""

import dataclasses
import json
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import jax.numpy as jnp
import numpy as np

from configs.exits import OneLineParser, exit_code_of
from configs.load import load, names
from configs.paths import usable_file
from configs.schema import PolicyConfig
from contracts.errors import UsageError, unknown
from contracts.redaction import redact
from oxygen.model.config import PRESETS, Pi05Config
from oxygen.presets.policies import completed, evaluation_command, read_model_policy
from oxygen.robots import transforms
from oxygen.robots.norms import FILE_NAME
from oxygen.robots.tokenizer import load as load_tokenizer
from oxygen.weights.formats import SINGLE_FILE, SUFFIX, Checkpoint, open_checkpoint, write_safetensors
from oxygen.weights.loading import DTYPES, check_parameters, fitting_configs, nearest_config
from oxygen.weights.lora import merged
from oxygen.weights.source import CARD, CONFIG_FILE, RECORD, TOKENIZER, card_text, fetch

_ASSETS = "assets"


def convert(
    source: str | Path,
    target: Path,
    *,
    dtype: str | None = None,
    model: str | None = None,
    embodiment: str | None = None,
    tokenizer: str | None = None,
    merge_lora: float | None = None,
) -> Path:
    """Write a checkpoint's parameters as safetensors. Host memory peaks at the size of the new file.

    Args:
        source: What `oxygen.weights.load` takes.
        target: A new `.safetensors` file; or a new folder for `model.safetensors`, `config.json` (the model
            configuration), the source's `assets` (norm stats) and, if the policy is known, its card.
        dtype: `float32` or `bfloat16`; None keeps every tensor's own.
        model: The policy, or the one it was fine-tuned from. Default: the only one with these shapes; of
            several, the only one for whose robot the source has norm stats.
        embodiment: The robot. Default: that policy's.
        tokenizer: The SentencePiece model: a file or a URL. Default: that policy's.
        merge_lora: See `oxygen.weights.lora.merged`. None merges nothing.

    Returns:
        The safetensors file.

    Raises:
        UsageError: The source cannot be read or fits no known configuration, the target exists, or no card is
            written that could name the given robot or tokenizer.
    """
    if dtype not in (None, *DTYPES):
        raise unknown("dtype", dtype, DTYPES)
    if target.exists():
        raise UsageError(f"{target} exists already; name a new one, or remove it first")
    single = target.suffix == SUFFIX
    in_card = {"--embodiment": embodiment, "--tokenizer": tokenizer}
    given = " ".join(f"{option} {value}" for option, value in in_card.items() if value is not None)
    if given and single:
        raise UsageError(f"{given} is for {CARD}, which a single file lacks; leave it out, or name a folder")
    if embodiment is not None:
        transforms.embodiment(embodiment)  # checks the name
    if tokenizer is not None and "://" not in tokenizer:
        load_tokenizer(tokenizer)
        tokenizer = str(Path(tokenizer).resolve())  # the card's own paths are relative to its folder
    local = fetch(source)
    home = local.parent if local.name == "params" else local  # has the card and norm stats
    _check_card(home / CARD, given)
    checkpoint = open_checkpoint(local)
    if merge_lora is not None:
        checkpoint = merged(checkpoint, merge_lora, str(source))
    fits, config = _fitting(checkpoint, model, str(source))
    arrays = _read_arrays(checkpoint, dtype)  # before anything is written: it may be damaged
    draft = _draft_of(target)
    if not single:
        _copy_companions(home, draft)
        _write_card(draft, model or _likely_model(fits, draft), embodiment, tokenizer, name=target.name)
        _write_config(draft / CONFIG_FILE, config, fits, source=redact(str(source)))
    write_safetensors(draft if single else draft / SINGLE_FILE, arrays, fits=" ".join(fits))
    draft.rename(target)
    return target if single else target / SINGLE_FILE


def _fitting(checkpoint: Checkpoint, model: str | None, source: str) -> tuple[list[str], Pi05Config]:
    """The known policies with these shapes, which must include `model`, and their sizes."""
    fits = fitting_configs(checkpoint.tensors)
    config = PRESETS[fits[0]] if fits else nearest_config(checkpoint.tensors)
    check_parameters(checkpoint.tensors, config, source)
    if model is not None and model not in fits:
        raise unknown("model", model, fits, remedy=f"{source} fits only these.")
    return fits, config


def _read_arrays(checkpoint: Checkpoint, dtype: str | None) -> dict[str, np.ndarray]:
    """All tensors, in `dtype` or their own."""
    arrays = {
        path: np.empty(tensor.shape, jnp.dtype(dtype or tensor.dtype))
        for path, tensor in checkpoint.tensors.items()
    }
    for path, array in arrays.items():
        checkpoint.read(path, array)
    return arrays


def _draft_of(target: Path) -> Path:
    """Where the target is written, to be renamed; what an interrupted conversion left there is removed."""
    draft = target.with_name(f"{target.name}.partial")
    shutil.rmtree(draft, ignore_errors=True)
    draft.unlink(missing_ok=True)
    draft.parent.mkdir(parents=True, exist_ok=True)
    return draft


def _write_config(path: Path, config: Pi05Config, fits: Sequence[str], *, source: str) -> None:
    """Write the sizes that shape a model's parameters."""
    shaping = ("siglip", "trunk", "expert", "vocab_size", "image_size", "action_dim")
    sizes = {name: size for name, size in dataclasses.asdict(config).items() if name in shaping}
    description = {"source": source, "fits": fits, "sizes": sizes}
    path.write_text(json.dumps(description, indent=2) + "\n")


def _copy_companions(home: Path, draft: Path) -> None:
    """Create the folder with copies of the norm stats and of what training wrote."""
    draft.mkdir()
    if (home / _ASSETS).is_dir():  # openpi's norm stats
        shutil.copytree(home / _ASSETS, draft / _ASSETS)
    for name in (CARD, TOKENIZER, RECORD):
        if (home / name).is_file():
            shutil.copyfile(home / name, draft / name)


def _check_card(card: Path, given: str) -> None:
    if not card.is_file():
        return
    if given:
        raise UsageError(f"{given} is for a new card, and {card} is copied; leave it out, and edit the copy")
    policy = load(PolicyConfig, str(card))
    for what, named in (("tokenizer", policy.tokenizer), ("norm_stats", policy.norm_stats)):
        if named is not None and "://" not in named and not (card.parent / Path(named).expanduser()).exists():
            raise UsageError(f"{card} names the {what} {named}, which does not exist; correct it")


def _likely_model(fits: Sequence[str], draft: Path) -> str | None:
    """The policy with these sizes whose robot has norm stats here; None if there is not exactly one."""
    if len(fits) == 1:
        return fits[0]
    presets = [load(PolicyConfig, name) for name in fits if name in names(PolicyConfig)]
    likely = [
        preset.model for preset in presets if preset.norm_stats is None and _stats(draft, _robot(preset))
    ]
    return likely[0] if len(likely) == 1 else None


def _robot(preset: PolicyConfig) -> str:
    """The embodiment of a policy, by its checkpoint's card if the preset refers to one."""
    return str(completed(preset).embodiment)


def _stats(draft: Path, robot: str) -> bool:
    return (draft / _ASSETS / transforms.embodiment(robot).asset_id / FILE_NAME).is_file()


def _write_card(
    draft: Path, model: str | None, robot: str | None, tokenizer: str | None, *, name: str
) -> None:
    """Write a card, unless there is one, or the policy or its tokenizer is unknown."""
    if model is None or (draft / CARD).is_file():
        return
    preset = load(PolicyConfig, model)
    vocabulary = tokenizer or preset.tokenizer
    if vocabulary is None:
        return
    robot = robot or _robot(preset)
    content = {
        "name": re.sub(r"[^A-Za-z0-9_.-]", "-", name),
        "kind": "oxygen",
        "description": f"Converted, with the sizes of {model}.",
        "model": model,
        "embodiment": robot,
        "weights": ".",
        "tokenizer": vocabulary,
        "language_tasks": {},
    }
    stats = None
    if not _stats(draft, robot):
        files = list((draft / _ASSETS).rglob(FILE_NAME))  # the only ones, under whatever asset id
        stats = str(files[0].relative_to(draft)) if len(files) == 1 else preset.norm_stats
    (draft / CARD).write_text(card_text(content | ({"norm_stats": stats} if stats else {})), encoding="utf-8")


def main(arguments: Sequence[str]) -> int:
    """Run the command line; returns the exit code."""
    parser = OneLineParser(prog="python -m oxygen.tools.convert", description=__doc__)
    parser.add_argument("source", help="a checkpoint: openpi's folder, safetensors, or a URL of either")
    parser.add_argument("target", type=Path, help="a new folder, or a new .safetensors file")
    parser.add_argument("--dtype", help="float32 or bfloat16; default: each tensor's own")
    parser.add_argument(
        "--model", help="the policy, or the one it was fine-tuned from; default: by sizes and norm stats"
    )
    parser.add_argument("--embodiment", help="the robot; default: that policy's")
    parser.add_argument("--tokenizer", help="a file or URL; default: that policy's")
    parser.add_argument(
        "--merge-lora",
        type=float,
        metavar="SCALE",
        help="merge openpi's LoRA weights; alpha over rank of the attention's, 1 in its configurations",
    )

    def run() -> None:
        options = parser.parse_args(arguments)
        if not options.target.exists():
            usable_file(options.target, "the target")
        file = convert(**vars(options))
        sys.stdout.write(f"{file}: {file.stat().st_size / 1e6:.1f} MB\n")
        if (options.target / CARD).is_file():
            robot = str(read_model_policy(str(options.target / CARD)).embodiment)
            sys.stdout.write(f"The policy: {evaluation_command(str(options.target), robot)}\n")
        elif file != options.target:
            sys.stdout.write("No policy.yaml: give --model, and --tokenizer if that policy has none\n")

    return exit_code_of(run)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
