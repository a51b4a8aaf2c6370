"""Ground truth of language as columns: texts and JSON."""

import dataclasses
import json
from typing import Any

from oxygen.training import layout
from sim_envs.truth.ground_truth import Memory, Truth
from sim_envs.truth.wording import narrate, remember


def columns_of(truth: Truth | None) -> dict[str, str]:
    """The language columns of one frame, in the first wording; empty without ground truth."""
    if truth is None:
        return dict.fromkeys((layout.NARRATION, layout.MEMORY, layout.TRUTH), "")
    structure = {"narration": dataclasses.asdict(truth.narration), "memory": _memory(truth.memory)}
    return {
        layout.NARRATION: narrate(truth.narration, nouns=truth.nouns),
        layout.MEMORY: remember(truth.memory, nouns=truth.nouns),
        layout.TRUTH: json.dumps(structure),
    }


def _memory(memory: Memory) -> dict[str, Any]:
    """Completed actions in order, and facts, sorted since a set has no order."""
    return {
        "done": [dataclasses.asdict(action) for action in memory.done],
        "facts": [dataclasses.asdict(fact) for fact in sorted(memory.facts)],
    }
