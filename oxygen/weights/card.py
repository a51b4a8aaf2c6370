"""The policy card, a preset (`policy.yaml`) beside the weights, and the other files of a policy folder."""

import json
from collections.abc import Mapping
from typing import Any

CARD = "policy.yaml"
TOKENIZER = "tokenizer.model"
CONFIG_FILE = "config.json"
"""Describes converted weights."""
RECORD = "training.json"
"""The training's record."""


def card_text(content: Mapping[str, Any]) -> str:
    """A card in YAML, one line per key. Paths in it are relative to its folder."""
    return "".join(f"{key}: {json.dumps(value, ensure_ascii=False)}\n" for key, value in content.items())
