"""Serves a LeRobot policy with LIBERO's observations; run it in LeRobot's own environment.

    uv pip install lerobot==0.4.4 websockets msgpack
    python examples/serve_lerobot.py --checkpoint lerobot/some_libero_policy --port 8000
    python -m eval.libero --policy ws://localhost:8000

Without --checkpoint, a small ACT with random weights is served, to try the connection.
"""

import argparse
from typing import Any

import numpy as np
import torch
from lerobot.configs.policies import PreTrainedConfig
from lerobot.configs.types import FeatureType, PolicyFeature
from lerobot.policies.act.configuration_act import ACTConfig
from lerobot.policies.factory import get_policy_class, make_pre_post_processors
from openpi_server import policy_server

IMAGES = {
    "observation.images.image": "observation/image",
    "observation.images.image2": "observation/wrist_image",
}
"""The policy's cameras and openpi's. LeRobot's own LIBERO environment calls the wrist camera image2."""


class LeRobotPolicy:
    """Maps openpi's observations to LeRobot's, and returns whole action chunks."""

    def __init__(self, checkpoint: str | None) -> None:
        config = PreTrainedConfig.from_pretrained(checkpoint) if checkpoint else small_act()
        policy_class = get_policy_class(config.type)
        self._policy = policy_class.from_pretrained(checkpoint) if checkpoint else policy_class(config)
        self._policy.eval()
        on_device = {"device_processor": {"device": str(config.device)}}  # not that of its training
        self._before, self._after = make_pre_post_processors(
            config, pretrained_path=checkpoint, preprocessor_overrides=on_device
        )
        self.horizon = config.n_action_steps

    @torch.inference_mode()
    def infer(self, observation: dict[str, Any]) -> np.ndarray:
        """Actions [horizon, 7]."""
        batch: dict[str, Any] = {
            name: torch.from_numpy(observation[key].copy()).permute(2, 0, 1).float() / 255
            for name, key in IMAGES.items()
        }
        batch["observation.state"] = torch.from_numpy(observation["observation/state"].copy()).float()
        chunk = self._policy.predict_action_chunk(self._before({**batch, "task": observation["prompt"]}))
        return self._after(chunk)[0, : self.horizon].numpy()


def small_act() -> ACTConfig:
    """An ACT of a few million parameters, to be initialised at random."""
    images = {name: PolicyFeature(FeatureType.VISUAL, (3, 224, 224)) for name in IMAGES}
    return ACTConfig(
        input_features={**images, "observation.state": PolicyFeature(FeatureType.STATE, (8,))},
        output_features={"action": PolicyFeature(FeatureType.ACTION, (7,))},
        pretrained_backbone_weights=None,
        dim_model=64,
        dim_feedforward=128,
        chunk_size=10,
        n_action_steps=10,
        device="cpu",
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint")
    parser.add_argument("--port", type=int, default=8000)
    arguments = parser.parse_args()
    policy = LeRobotPolicy(arguments.checkpoint)
    metadata = {"embodiment": "libero", "horizon": policy.horizon}
    with policy_server(policy.infer, metadata, port=arguments.port) as server:
        server.serve_forever()
