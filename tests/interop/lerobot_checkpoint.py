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
    "smolvla": {
        "chunk_size": 10,
        "n_action_steps": 10,
        "num_steps": 3,
        "num_vlm_layers": 2,
        "resize_imgs_with_padding": (64, 64),
    },
}
CAMERAS = [f"observation.images.{name}" for name in ("exterior_image_1_left", "wrist_image_left")]
SIZES = {"observation.state": (8,), "action": (8,)}


def write_language_model(folder: Path) -> None:
    """Write a small SmolVLM's configuration and processor, which SmolVLA otherwise reads from the hub."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import (
        LlamaConfig,
        PreTrainedTokenizerFast,
        SmolVLMConfig,
        SmolVLMImageProcessor,
        SmolVLMProcessor,
        SmolVLMVideoProcessor,
    )

    special = {
        "pad_token": "<pad>",
        "fake_image_token": "<fake>",
        "image_token": "<image>",
        "global_image_token": "<global>",
        "end_of_utterance_token": "<end>",
    }
    alphabet = [*special.values(), *sorted(pre_tokenizers.ByteLevel.alphabet())]
    letters = Tokenizer(models.BPE({token: i for i, token in enumerate(alphabet)}, []))
    letters.pre_tokenizer, letters.decoder = pre_tokenizers.ByteLevel(), decoders.ByteLevel()
    names = {name: token for name, token in special.items() if name != "pad_token"}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=letters, pad_token="<pad>", extra_special_tokens=names
    )
    processors = {"image_processor": SmolVLMImageProcessor(), "video_processor": SmolVLMVideoProcessor()}
    processor = SmolVLMProcessor(tokenizer=tokenizer, image_seq_len=4, **processors)
    processor.save_pretrained(folder)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    language = LlamaConfig(
        **sizes, num_key_value_heads=2, head_dim=16, vocab_size=len(alphabet), pad_token_id=0
    )
    vision = {**sizes, "image_size": 64, "patch_size": 16}
    SmolVLMConfig(
        text_config=language, vision_config=vision, image_token_id=2, scale_factor=2, pad_token_id=0
    ).save_pretrained(folder)


kind, folder = sys.argv[1], Path(sys.argv[2])
torch.manual_seed(0)
options = {"pretrained_backbone_weights": None}
if kind == "smolvla":
    options = {"vlm_model_name": str(folder / "smolvlm")}
    write_language_model(folder / "smolvlm")
config = make_policy_config(
    kind,
    device="cpu",
    push_to_hub=False,
    input_features={
        **{name: PolicyFeature(FeatureType.VISUAL, (3, 96, 96)) for name in CAMERAS},
        "observation.state": PolicyFeature(FeatureType.STATE, SIZES["observation.state"]),
    },
    output_features={"action": PolicyFeature(FeatureType.ACTION, SIZES["action"])},
    **SMALL[kind],
    **options,
)
get_policy_class(kind)(config).save_pretrained(folder)
sizes = SIZES | dict.fromkeys(CAMERAS, (3, 1, 1))
values = {"mean": 0.0, "std": 0.1, "min": -0.1, "max": 0.1}
stats = {
    name: {key: torch.full(size, value) for key, value in values.items()} for name, size in sizes.items()
}
for processor in make_pre_post_processors(config, dataset_stats=stats):
    processor.save_pretrained(folder)
