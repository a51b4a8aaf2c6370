"""Writes a small LeRobot policy of random weights for DROID: `python lerobot_checkpoint.py act FOLDER`."""

import sys
from pathlib import Path

import torch
from lerobot.configs import FeatureType, PolicyFeature
from lerobot.policies import get_policy_class, make_policy_config, make_pre_post_processors

SMALL = {
    "act": {"dim_model": 64, "n_heads": 2, "dim_feedforward": 128, "chunk_size": 10, "n_action_steps": 10},
    "diffusion": {
        "horizon": 16,
        "n_action_steps": 8,
        "down_dims": (32, 64),
        "num_inference_steps": 3,
        "crop_shape": None,
    },
}
CAMERAS = [f"observation.images.{name}" for name in ("exterior_image_1_left", "wrist_image_left")]
SIZES = {"observation.state": (8,), "action": (8,)}

kind, folder = sys.argv[1], Path(sys.argv[2])
torch.manual_seed(0)
config = make_policy_config(
    kind,
    device="cpu",
    push_to_hub=False,
    pretrained_backbone_weights=None,
    input_features={
        **{name: PolicyFeature(FeatureType.VISUAL, (3, 96, 96)) for name in CAMERAS},
        "observation.state": PolicyFeature(FeatureType.STATE, SIZES["observation.state"]),
    },
    output_features={"action": PolicyFeature(FeatureType.ACTION, SIZES["action"])},
    **SMALL[kind],
)
get_policy_class(kind)(config).save_pretrained(folder)
sizes = SIZES | dict.fromkeys(CAMERAS, (3, 1, 1))
values = {"mean": 0.0, "std": 0.1, "min": -0.1, "max": 0.1}
stats = {
    name: {key: torch.full(size, value) for key, value in values.items()} for name, size in sizes.items()
}
for processor in make_pre_post_processors(config, dataset_stats=stats):
    processor.save_pretrained(folder)
