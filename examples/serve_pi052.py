"""Serves LeRobot's PI052, which reads its own memory and subtask; run it in LeRobot's own environment.

    git clone https://github.com/huggingface/lerobot
    git -C lerobot fetch origin pull/4184/head && git -C lerobot checkout FETCH_HEAD    # if it has no pi052
    uv pip install -e 'lerobot[pi,dataset]' websockets msgpack
    python examples/serve_pi052.py --checkpoint FOLDER --instruction 'Update memory from …' --port 8000
    oxygen-eval libero --policy ws://localhost:8000 --mode isolated --clock measured

The checkpoint is one trained with `memory_scratchpad`; --instruction is what its recipe (`subtask_mem.yaml`)
says after the fields of the prompt. The harness decides by time stamps which texts are in a prompt, so
LeRobot's own history of them is not used: the actions of a query that writes still read the subtask delivered
before, or the goal if there is none.

Tried with LeRobot at f2c8867, torch 2.11.0 and transformers 5.5.4 on a CPU, with random weights (25 million,
in float32 and bfloat16) and made-up tokenizers. Tokens, images, state and actions equal, bit for bit, those
of its runtime with the scratchpad adapter of 070dd40 carried over. Untried: trained checkpoints, PaliGemma's
tokenizer, a GPU.
"""

import argparse
import re
from typing import Any

import torch
from lerobot.configs.policies import PreTrainedConfig
from lerobot.policies.factory import get_policy_class, make_pre_post_processors
from lerobot.policies.pi052.text_processor_pi052 import discretize_state_str, register_paligemma_loc_tokens
from lerobot.utils.constants import OBS_LANGUAGE_ATTENTION_MASK, OBS_LANGUAGE_TOKENS, OBS_STATE
from openpi_server import policy_server
from transformers import AutoTokenizer

IMAGES = {
    "observation.images.image": "observation/image",
    "observation.images.image2": "observation/wrist_image",
}
"""The policy's cameras and openpi's. LeRobot's own LIBERO environment calls the wrist camera image2."""
MEMORY = {"field": "memory", "format": "Memory: {text}", "answer": "Memory: {text}", "lookback_s": 1.0}
SUBTASK = {"field": "subtask", "format": "Current subtask: {text}", "answer": "Subtask: {text}"}
FEEDBACK = {"plan": [MEMORY, SUBTASK]}
"""In training, text prompts have the memory and subtask of a second ago, and actions the present subtask. One
field serves both here: text prompts have the right subtask unless it was delivered within that second."""

_ANSWER = re.compile(r"Memory:(?P<memory>.*?)\nSubtask:(?P<subtask>[^\n]+)", re.DOTALL)


class Pi052:
    """Maps openpi's observations to LeRobot's; writes texts every n queries, or if it has no subtask."""

    def __init__(self, checkpoint: str, instruction: str, every: int) -> None:
        config = PreTrainedConfig.from_pretrained(checkpoint)
        config.compile_model = False  # or each length of a prompt would be compiled
        self._policy = get_policy_class(config.type).from_pretrained(checkpoint, config=config).eval()
        on_device = {"device_processor": {"device": str(config.device)}}
        self._before, self._after = make_pre_post_processors(
            config, pretrained_path=checkpoint, preprocessor_overrides=on_device
        )
        tokenizer = AutoTokenizer.from_pretrained("google/paligemma-3b-pt-224")
        self._tokenizer = register_paligemma_loc_tokens(tokenizer)
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
        batch[OBS_STATE] = torch.from_numpy(observation["observation/state"].copy()).float()
        seen = self._before({**batch, "task": goal})
        texts = {}
        if not subtask or self._queries >= self._every:
            lines = [f"Goal: {goal}", f"Memory: {memory}", f"Current subtask: {subtask}", self._instruction]
            texts, self._queries = self._written({**seen, **self._prompt("\n".join(lines), "Assistant:")}), 0
        self._queries += 1
        state = discretize_state_str(seen[OBS_STATE][0])
        prompt = self._prompt(f"{subtask or goal}, State: {state};")
        chunk = self._after(self._policy.predict_action_chunk({**seen, **prompt}))
        return {**texts, "actions": chunk[0, : self.horizon].numpy()}

    def _prompt(self, content: str, answer: str = "") -> dict[str, torch.Tensor]:
        """The user's message as PI052 was trained on it, up to its `answer`."""
        encoded = self._tokenizer(f"User: {content}\n{answer}", return_tensors="pt")
        encoded = encoded.to(self._policy.config.device)
        return {
            OBS_LANGUAGE_TOKENS: encoded["input_ids"],
            OBS_LANGUAGE_ATTENTION_MASK: encoded["attention_mask"].bool(),
        }

    def _written(self, batch: dict[str, Any]) -> dict[str, str]:
        """The two fields of an answer; none if one is missing."""
        answer = self._policy.select_message(batch, tokenizer=self._tokenizer, suppress_loc_tokens=True)
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
