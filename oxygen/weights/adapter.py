"""Reads a suffix adapter: OxyGen's `.npz`, and the `adapter_config.json` that may lie beside it."""

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from configs.paths import read_npz
from contracts.errors import UsageError, unknown
from contracts.hashing import hash_file
from oxygen.model import adapter as adapters
from oxygen.model.adapter import Adapter, Arrays, Mask
from oxygen.model.config import Pi05Config
from oxygen.model.pi05 import Weights
from oxygen.weights.source import ADAPTER_CARD, adapter_card, fetch

RANK = 16
"""Rank of random adapters."""
_MASKS: tuple[Mask, ...] = ("exact", "published")


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdapterSource:
    """An adapter that any process can load."""

    file: str | None = None  # its `.npz`, or a URL; None for a random one
    mask: Mask | None = None  # what generated tokens see; None for what its card says, else `exact`
    # Scale of the attention's products, times the rank; None for what its card says, else the rank.
    alpha: float | None = None
    rank: int | None = None  # its rank; None for any, or 16 if it is random
    sha256: str | None = None  # the file's checksum; None for what its card says, if anything

    def load(self, config: Pi05Config, weights: Weights) -> Adapter:
        """Read, check and prepare it for a model, which it must fit."""
        if self.file is None:
            rank, arrays = self.rank or RANK, adapters.random_arrays(config, rank=self.rank or RANK, seed=0)
            alpha, mask = self.alpha, self.mask
        else:
            file = fetch(self.file)
            arrays, card = read_npz(file), adapter_card(file)
            rank = adapters.rank_of(arrays, config, self.file)
            for source, wanted in (("the policy", self.rank), (ADAPTER_CARD, card.get("rank"))):
                if wanted not in (None, rank):
                    raise UsageError(
                        f"{self.file} has rank {rank}, and {source} says {wanted!r}; correct that"
                    )
            wanted = self.sha256 or card.get("sha256")
            if wanted is not None and (found := hash_file(file)) != wanted:
                raise UsageError(
                    f"{file} has SHA-256 {found[:12]}…, not {str(wanted)[:12]}…; it is another adapter, or "
                    "damaged: delete it, and it is downloaded again"
                )
            alpha = card.get("alpha") if self.alpha is None else self.alpha
            mask = self.mask or card.get("mask")
        if mask not in (None, *_MASKS):
            raise unknown("mask", str(mask), _MASKS)
        if alpha is None:
            alpha = rank
        if not isinstance(alpha, int | float) or not math.isfinite(alpha):
            raise UsageError(
                f"alpha of adapter {self.file} is {alpha!r}; give a number, such as its rank, {rank}"
            )
        return adapters.prepare(arrays, config, weights, alpha=float(alpha), mask=mask or "exact")


def write_adapter(file: Path, arrays: Arrays, card: Mapping[str, Any]) -> None:
    """Write an adapter in OxyGen's layout, and its card beside it."""
    contents: dict[str, Any] = dict(arrays)
    np.savez(file, **contents)
    content = {"adapter_type": "suffix_lora", **card, "sha256": hash_file(file)}
    file.with_name(ADAPTER_CARD).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
