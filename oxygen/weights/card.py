"""A policy's card: the preset that lies in the folder of its weights, so that the folder is a policy."""

import json
from collections.abc import Mapping
from typing import Any

CARD = "policy.yaml"
TOKENIZER = "tokenizer.model"
"""What a card calls the vocabulary that lies beside it."""
RECORD = "training.json"
"""Where a checkpoint that training wrote says how it came about."""


def card_text(content: Mapping[str, Any]) -> str:
    """A card in YAML, a line for every key. Paths in it are seen from the folder it lies in."""
    return "".join(f"{key}: {json.dumps(value, ensure_ascii=False)}\n" for key, value in content.items())
