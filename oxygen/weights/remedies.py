"""Forms of checkpoints that are not read, and what to do about each; where those lie that are read."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from contracts.errors import UsageError, nearest_first

METADATA = "_METADATA"
SUFFIX = ".safetensors"
SINGLE_FILE = f"model{SUFFIX}"
"""The tensors in a folder of our format."""
INDEX_FILE = f"{SINGLE_FILE}.index.json"
"""Tells in which of several files each tensor is, as Hugging Face's libraries write it."""
_WANTED = (
    f"A checkpoint is openpi's folder with params/{METADATA}, a folder with {SINGLE_FILE} or {INDEX_FILE}, "
    f"or a {SUFFIX} file"
)
_UNFINISHED = ".orbax-checkpoint-tmp"  # part of the name of what Orbax has not finished writing
_PARTS_OF_ORBAX = ("manifest.ocdbt", "_sharding", "d", "ocdbt.process_0")
_TORCH_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt")
_TORCH = (
    "weights of PyTorch, which this engine does not read: serve a LeRobot policy with "
    "examples/serve_lerobot.py and give --policy ws://localhost:8000, or give openpi's JAX checkpoint, "
    "which has params/"
)


def require_finished(path: Path) -> None:
    """Refuse what Orbax had not finished writing when its training was interrupted."""
    for part in (path, *path.parents):
        if _UNFINISHED in part.name:
            finished = newest_step(part.parent)
            instead = f"; give the newest that is complete: {finished}" if finished else ""
            raise UsageError(f"{part} is unfinished, the training ended or was still saving{instead}")


def newest_step(folder: Path) -> Path | None:
    """The newest complete checkpoint in a folder of steps (`2000`, `step_0002000`); None if it has none."""
    steps = []
    for entry in folder.iterdir() if folder.is_dir() else ():
        number = re.fullmatch(r"(?:\w*[-_])?(\d+)", entry.name)
        holds = (f"params/{METADATA}", METADATA, SINGLE_FILE, INDEX_FILE)
        if number and any((entry / file).is_file() for file in holds):
            steps.append((int(number[1]), entry))
    return max(steps)[1] if steps else None


def no_weights(path: Path) -> UsageError:
    """The error for a path without a checkpoint: what is there instead, and the remedy."""
    if path.is_dir():
        return UsageError(f"{path} is not a checkpoint: {next(_in_folder(path))}")
    if path.exists():
        return UsageError(f"{path} is {_kind_of(path)}")
    near = ""
    if path.parent.is_dir():
        names = nearest_first(path.name, (entry.name for entry in path.parent.iterdir()))[:3]
        near = f"; {path.parent} holds {', '.join(names) or 'nothing'}"
    elif path.parent.parent.is_dir():
        name = "/".join(path.parts[-2:])
        near = (
            f"; if {name} is a repository of Hugging Face, download it (hf download {name} --local-dir "
            "FOLDER) and give the folder"
        )
    return UsageError(f"there is no checkpoint at {path}{near}")


def _kind_of(file: Path) -> str:
    if file.name.endswith(f"{SUFFIX}.index.json"):
        return f"the index of a checkpoint; give its folder, {file.parent}"
    if file.suffix in _TORCH_SUFFIXES:
        return _TORCH
    return f"a file, but not one that ends in {SUFFIX}. {_WANTED}"


def _in_folder(folder: Path) -> Iterator[str]:
    """What a folder holds instead of a checkpoint; the first is the most helpful."""
    names = sorted(entry.name for entry in folder.iterdir())
    if (step := newest_step(folder)) is not None:
        yield f"it holds several; give one, such as the newest that is complete: {step}"
    if unfinished := [name for name in names if _UNFINISHED in name]:
        yield f"it holds only {unfinished[-1]}, which is unfinished; give another"
    parts = [name for name in names if name.endswith(SUFFIX)]
    if len(parts) > 1:
        yield (
            f"it holds {len(parts)} files that end in {SUFFIX}, and no {INDEX_FILE}, which tells "
            f"their tensors; fetch that, too, or give one file, such as {folder / parts[0]}"
        )
    if parts and "adapter" in parts[0]:
        yield f"it holds {parts[0]}, an adapter alone; merge it into the weights that it was trained on"
    if parts:
        yield f"it has no {SINGLE_FILE}; give its file, {folder / parts[0]}"
    for name in names:
        if name.endswith((*_TORCH_SUFFIXES, ".bin.index.json")):
            yield f"it holds {name}, {_TORCH}"
    for inner in (folder / "params", folder):
        if inner.is_dir() and any((inner / part).exists() for part in _PARTS_OF_ORBAX):
            yield f"{inner} lacks {METADATA}, so it is incomplete: fetch it again, or give another"
    yield f"it holds {', '.join(names[:5]) or 'nothing'}. {_WANTED}"


def damage(file: Path, reason: str) -> str:
    """What is wrong with a safetensors file that its library cannot read, for this reason."""
    if not file.is_file():
        return f"cannot be read ({reason})"
    if not file.stat().st_size:
        return "is empty"
    if "not fully covered" in reason:
        return f"is cut off after {file.stat().st_size} bytes"
    with file.open("rb") as content:
        first = content.read(4)
    if first[:2] in (b"PK", b"\x80\x02"):
        return "is not a safetensors file, but PyTorch's or an archive, under its name"
    return f"is not a safetensors file, or damaged ({reason})"


def form_of(source: str, foreign: Iterable[str]) -> UsageError | None:
    """The error for a checkpoint of a form that its foreign tensors' names show; None if they show none."""
    names = sorted(foreign)
    if of_lora := [name for name in names if re.search(r"lora_[ab]$", name)]:
        return UsageError(
            f"{source} holds weights of LoRA that are not merged ({of_lora[0]}), which this engine does not "
            "read: serve the policy with openpi and give --policy ws://localhost:8000, or fine-tune without"
        )
    if of_lora := [name for name in names if re.search(r"\.lora_(A|B|embedding)", name)]:
        return UsageError(
            f"{source} holds weights of LoRA by PyTorch ({of_lora[0]}): merge them there (`merge_and_unload` "
            "of peft), and serve the policy with examples/serve_lerobot.py"
        )
    if of_torch := [name for name in names if name.endswith((".weight", ".bias", ".in_proj_weight"))]:
        return UsageError(f"{source} holds {of_torch[0]}: {_TORCH}")
    return None
