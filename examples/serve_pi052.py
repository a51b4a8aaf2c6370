"""Serves LeRobot's PI052, which reads its own memory and subtask; run it in LeRobot's own environment.

    git clone https://github.com/huggingface/lerobot
    uv pip install -e 'lerobot[pi]' websockets msgpack
    python examples/serve_pi052.py --checkpoint FOLDER --instruction 'Update the memory. …' --port 8000
    python -m eval.libero --policy ws://localhost:8000 --mode isolated --clock measured

Untried: it follows LeRobot's source (main, 070dd40), and was never run. The checkpoint is one trained with
`memory_scratchpad`; --instruction is what its recipe says after the fields of the prompt. The harness decides
by time stamps which texts are in a prompt, so LeRobot's own history of them is not used.
"""

import argparse
import re
from typing import Any

import torch
from lerobot.configs.policies import PreTrainedConfig
from lerobot.policies.factory import get_policy_class, make_pre_post_processors
from lerobot.policies.pi052.inference.pi052_adapter import PI052PolicyAdapter
from lerobot.policies.pi052.text_generation import _build_text_batch
from lerobot.runtime import RuntimeState
from lerobot.utils.constants import OBS_LANGUAGE_ATTENTION_MASK, OBS_LANGUAGE_TOKENS
from openpi_server import policy_server
from serve_lerobot import IMAGES

MEMORY = {"field": "memory", "format": "Memory: {text}", "answer": "Memory: {text}", "lookback_s": 1.0}
SUBTASK = {
    "field": "subtask",
    "format": "Current subtask: {text}",
    "answer": "Subtask: {text}",
    "lookback_s": 1.0,
}
FEEDBACK = {"plan": [MEMORY, SUBTASK]}
"""Both inputs are those of a second ago, as in training."""

_ANSWER = re.compile(r"\s*Memory:(?P<memory>.*?)\nSubtask:(?P<subtask>.*)", re.DOTALL)


class Pi052:
    """Maps openpi's observations to LeRobot's; writes texts in every n-th query, before its actions."""

    def __init__(self, checkpoint: str, instruction: str, every: int) -> None:
        config = PreTrainedConfig.from_pretrained(checkpoint)
        self._policy = get_policy_class(config.type).from_pretrained(checkpoint).eval()
        self._before, self._after = make_pre_post_processors(config, pretrained_path=checkpoint)
        self._adapter = PI052PolicyAdapter(self._policy)
        self._instruction, self._every, self._queries = instruction, every, 0
        self.horizon = config.n_action_steps

    @torch.inference_mode()
    def infer(self, observation: dict[str, Any]) -> dict[str, Any]:
        """Actions [horizon, 7], and a new memory and subtask where they are due."""
        goal, memory, subtask = (observation[key] for key in ("instruction", "memory", "subtask"))
        batch: dict[str, Any] = {
            name: torch.from_numpy(observation[key].copy()).permute(2, 0, 1).float() / 255
            for name, key in IMAGES.items()
        }
        batch["observation.state"] = torch.from_numpy(observation["observation/state"].copy()).float()
        seen = self._before({**batch, "task": goal})
        texts = {}
        if not subtask or self._queries % self._every == 0:
            lines = [f"Goal: {goal}", f"Memory: {memory}", f"Current subtask: {subtask}", self._instruction]
            texts = self._written(seen, "\n".join(lines))
        self._queries += 1
        state = RuntimeState(task=goal)
        state.language_context.update(memory=memory, subtask=subtask)
        chunk = self._after(self._adapter.select_action(seen, state))
        return {**texts, "actions": chunk[0, : self.horizon].numpy()}

    def _written(self, seen: dict[str, Any], prompt: str) -> dict[str, str]:
        """The two fields of an answer; none if one is missing."""
        encoded = _build_text_batch(self._policy, [{"role": "user", "content": prompt}])
        language = {
            OBS_LANGUAGE_TOKENS: encoded["lang_tokens"],
            OBS_LANGUAGE_ATTENTION_MASK: encoded["lang_masks"],
        }
        answer = self._policy.select_message({**seen, **language}, tokenizer=encoded["tokenizer"])
        found = _ANSWER.fullmatch(answer)
        return {} if found is None else {name: text.strip() for name, text in found.groupdict().items()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--instruction", required=True)
    parser.add_argument("--every", type=int, default=12, help="queries between two texts")
    parser.add_argument("--port", type=int, default=8000)
    arguments = parser.parse_args()
    policy = Pi052(arguments.checkpoint, arguments.instruction, arguments.every)
    metadata = {"embodiment": "libero", "horizon": policy.horizon, "feedback": FEEDBACK}
    with policy_server(policy.infer, metadata, port=arguments.port) as server:
        server.serve_forever()
