"""The policy card: a preset (`policy.yaml`) in the folder of its weights, which makes the folder a policy."""

import json
from collections.abc import Mapping
from typing import Any

CARD = "policy.yaml"
TOKENIZER = "tokenizer.model"
"""The vocabulary's file name in a policy folder."""
CONFIG_FILE = "config.json"
"""The description of converted weights in a policy folder."""
RECORD = "training.json"
"""The training's record in a policy folder."""


def card_text(content: Mapping[str, Any]) -> str:
    """A card in YAML, one line per key. Paths in it are relative to its folder."""
    return "".join(f"{key}: {json.dumps(value, ensure_ascii=False)}\n" for key, value in content.items())
