"""Finds the checkpoint of a model of the Hugging Face Hub."""

from pathlib import Path

import huggingface_hub
from huggingface_hub.errors import GatedRepoError, HFValidationError, RepositoryNotFoundError

from configs.paths import absolute
from contracts.errors import UsageError

CONFIG = "config.json"
"""The file that every checkpoint has."""


def checkpoint_folder(checkpoint: str, name: str) -> Path:
    """The folder of a checkpoint, which is downloaded if it is a model of the Hub."""
    place = absolute(checkpoint)
    if place.is_dir():
        if not (place / CONFIG).is_file():
            inside = "checkpoints/last/pretrained_model"
            raise UsageError(f"policy {name}: the folder has no {CONFIG}; give one that has ({inside})")
        return place
    model, _, revision = checkpoint.partition("@")
    try:
        found = huggingface_hub.snapshot_download(
            model, revision=revision or None, allow_patterns=["*.json", "*.safetensors"]
        )
    except GatedRepoError as error:
        raise UsageError(f"policy {name}: accept the model's terms on the Hub, and set HF_TOKEN") from error
    except (RepositoryNotFoundError, HFValidationError) as error:
        remedy = "check its spelling; for a private one, set HF_TOKEN"
        raise UsageError(f"policy {name}: there is no such folder, and no such model; {remedy}") from error
    except (OSError, RuntimeError, ValueError) as error:  # offline, no network, no such revision
        first: BaseException = error
        while (cause := first.__cause__ or first.__context__) is not None:
            first = cause
        raise UsageError(
            f"policy {name}: there is no such folder, and no such model can be downloaded ({first}); check "
            "its spelling, or download it where there is a network, and give its folder"
        ) from error
    return Path(found)
