"""Model configurations of π0.5, hashable and hence jit-static; and model inputs, one row per robot."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from contracts.errors import UsageError, unknown
from oxygen.typing import Int32, UInt8


@dataclasses.dataclass(frozen=True, kw_only=True)
class SiglipConfig:
    """A SigLIP vision transformer."""

    width: int  # channels of a token
    depth: int  # encoder blocks
    mlp_dim: int  # hidden channels of a block's MLP
    num_heads: int  # attention heads; `width` is a multiple of it
    patch: int  # side of a square patch, in pixels
    # Channels after each stage of a multi-stage patch embedding: pixels are embedded in smaller patches, then
    # merged 2x2, with a GELU in between. Small towers learn faster with it (arXiv 2106.14881). Empty: a
    # single linear patch embedding, as published.
    stem: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.width % self.num_heads:
            raise UsageError(f"SigLIP width {self.width} is not a multiple of its {self.num_heads} heads")
        if self.patch % 2 ** len(self.stem):
            raise UsageError(
                f"SigLIP patch {self.patch} cannot be merged {len(self.stem)} times from halves; "
                f"give a multiple of {2 ** len(self.stem)}"
            )


_VIT_SIZES = {  # name: (width, depth, mlp_dim, num_heads), as in big_vision
    "mu": (32, 1, 128, 2),
    "Ti": (192, 12, 768, 3),
    "So400m": (1152, 27, 4304, 16),
}


def siglip_variant(name: str) -> SiglipConfig:
    """The tower named `size/patch`, e.g. `So400m/14` or `mu/16`."""
    size, _, patch = name.partition("/")
    width, depth, mlp_dim, num_heads = _VIT_SIZES[size]
    return SiglipConfig(width=width, depth=depth, mlp_dim=mlp_dim, num_heads=num_heads, patch=int(patch))


@dataclasses.dataclass(frozen=True, kw_only=True)
class GemmaConfig:
    """One expert of the mixture of transformers."""

    width: int  # channels of a token
    depth: int  # layers; equal in both experts
    mlp_dim: int  # hidden channels of the gated MLP
    num_heads: int  # query heads; a multiple of `num_kv_heads`
    num_kv_heads: int  # key and value heads; equal in both experts
    head_dim: int  # channels of a head; equal in both experts

    def __post_init__(self) -> None:
        if self.num_heads % self.num_kv_heads:
            raise UsageError(
                f"{self.num_heads} query heads cannot be shared among {self.num_kv_heads} KV heads"
            )


GEMMA_2B = GemmaConfig(width=2048, depth=18, mlp_dim=16_384, num_heads=8, num_kv_heads=1, head_dim=256)
GEMMA_300M = GemmaConfig(width=1024, depth=18, mlp_dim=4096, num_heads=8, num_kv_heads=1, head_dim=256)


_CHOICES = {"dtype": ("float32", "bfloat16"), "resize": ("pad", "stretch")}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pi05Config:
    """Everything that fixes the shapes and the arithmetic of a π0.5."""

    name: str  # the preset's name, for messages and manifests
    siglip: SiglipConfig  # the vision tower
    trunk: GemmaConfig  # the expert that reads images and text and writes text (PaliGemma's Gemma)
    expert: GemmaConfig  # the action expert
    vocab_size: int  # rows of the tied embedding
    # The cameras of an observation, in the order their tokens take. Absent ones are not listed.
    cameras: tuple[str, ...]
    image_size: int = 224  # side of the square image the tower sees, in pixels
    # How images are resized to that square: `pad` keeps the aspect ratio and adds black bars, as published;
    # `stretch` does not.
    resize: str = "pad"
    action_dim: int = 32  # channels of the flow; a robot uses the first few
    horizon: int = 10  # actions in a chunk
    denoise_steps: int = 10  # euler steps from noise (t = 1) to actions (t = 0)
    # Factor of the initial noise at inference, not in training. 1 samples from the learnt distribution; 0
    # starts from zeros and makes actions deterministic.
    noise_scale: float = 1.0
    # Lengths a prompt is padded to, ascending; one program is compiled for each.
    prompt_buckets: tuple[int, ...] = (32, 64, 128, 200)
    dtype: str = "float32"  # compute type of the transformers: `float32` or `bfloat16`

    def __post_init__(self) -> None:
        for field, allowed in _CHOICES.items():
            if getattr(self, field) not in allowed:
                raise unknown(field, getattr(self, field), allowed)
        if not 0.0 <= self.noise_scale <= 1.0:
            raise UsageError(f"noise scale is {self.noise_scale}; give 0 to 1")
        for field in ("depth", "num_heads", "num_kv_heads", "head_dim"):
            ours, theirs = getattr(self.trunk, field), getattr(self.expert, field)
            if ours != theirs:
                raise UsageError(f"{field} is {ours} in the trunk and {theirs} in the expert; they share KV")
        if self.image_size % self.siglip.patch:
            raise UsageError(f"image size {self.image_size} is not a multiple of patch {self.siglip.patch}")

    @property
    def tokens_per_image(self) -> int:
        """Image tokens of one camera."""
        return (self.image_size // self.siglip.patch) ** 2

    @property
    def image_tokens(self) -> int:
        """Image tokens of all cameras; the prompt begins at this position."""
        return self.tokens_per_image * len(self.cameras)

    @property
    def max_prompt(self) -> int:
        """Tokens of the longest prompt that fits."""
        return self.prompt_buckets[-1]

    def bucket(self, prompt_length: int) -> int:
        """The smallest bucket that holds `prompt_length` tokens; refuses a longer prompt."""
        for bucket in self.prompt_buckets:
            if prompt_length <= bucket:
                return bucket
        raise UsageError(f"a prompt of {prompt_length} tokens is longer than {self.name}'s {self.max_prompt}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelInput:
    """One observation of every robot."""

    # Pixels of every camera, in the model's order; the model scales them to [-1, 1].
    images: UInt8[np.ndarray, "robot camera side side 3"]
    prompt: Int32[np.ndarray, "robot token"]  # tokens, padded
    length: Int32[np.ndarray, " robot"]  # valid tokens of each prompt


def batched(inputs: Sequence[ModelInput | None], config: Pi05Config) -> ModelInput:
    """Stack the inputs of single robots, with prompts padded to the bucket of the longest.

    None is a robot without a query: black images and an empty prompt.
    """
    robots, side = len(inputs), config.image_size
    images = np.zeros((robots, len(config.cameras), side, side, 3), np.uint8)
    length = np.ones((robots,), np.int32)
    given = [(robot, one) for robot, one in enumerate(inputs) if one is not None]
    for robot, one in given:
        images[robot], length[robot] = one.images[0], one.length[0]
    prompt = np.zeros((robots, config.bucket(int(length.max()))), np.int32)
    for robot, one in given:
        prompt[robot, : length[robot]] = one.prompt[0]
    return ModelInput(images=images, prompt=prompt, length=length)


TINY = Pi05Config(
    name="tiny",
    siglip=SiglipConfig(width=128, depth=4, mlp_dim=384, num_heads=4, patch=16, stem=(32, 64)),
    trunk=GemmaConfig(width=128, depth=4, mlp_dim=256, num_heads=4, num_kv_heads=1, head_dim=32),
    expert=GemmaConfig(width=128, depth=4, mlp_dim=256, num_heads=4, num_kv_heads=1, head_dim=32),
    vocab_size=768,
    cameras=("image", "wrist_image"),
    image_size=112,
    action_dim=8,
    noise_scale=0.0,
    prompt_buckets=(32,),
)
"""2.4 million parameters: trained in hours and queried in tens of milliseconds on two CPU cores."""

TINY_MEMORY = dataclasses.replace(TINY, name="tiny_memory", prompt_buckets=(48, 72))
"""The same with a longer prompt, for texts of its own."""

TINY_DROID = dataclasses.replace(
    TINY,
    name="tiny_droid",
    cameras=("exterior_image_1_left", "wrist_image_left"),
    resize="stretch",
    noise_scale=1.0,  # from no noise most of its failures repeat one command
    prompt_buckets=(48,),
)
"""The same for DROID, whose wide images would leave 44 % of a padded square black."""

SMALL = Pi05Config(
    name="small",
    siglip=siglip_variant("Ti/14"),
    trunk=GemmaConfig(width=512, depth=8, mlp_dim=1536, num_heads=8, num_kv_heads=1, head_dim=64),
    expert=GemmaConfig(width=256, depth=8, mlp_dim=1024, num_heads=8, num_kv_heads=1, head_dim=64),
    vocab_size=768,
    cameras=("image", "wrist_image"),
    prompt_buckets=(32, 64),
)
"""41 million parameters with as many image tokens as the published policies, for CPU measurements."""

SMALL_DROID = dataclasses.replace(
    SMALL, name="small_droid", cameras=TINY_DROID.cameras, horizon=15, prompt_buckets=(200,)
)
"""The same with DROID's cameras and pi05_droid's horizon and prompt length."""

PI05_LIBERO = Pi05Config(
    name="pi05_libero",
    siglip=siglip_variant("So400m/14"),
    trunk=GEMMA_2B,
    expert=GEMMA_300M,
    vocab_size=257_152,
    cameras=("image", "wrist_image"),
    dtype="bfloat16",
)
"""The published policy for LIBERO (3.35 B parameters), without its third camera, which LIBERO lacks."""

PI05_DROID = dataclasses.replace(
    PI05_LIBERO, name="pi05_droid", cameras=("exterior_image_1_left", "wrist_image_left"), horizon=15
)
"""The published policy for DROID: chunks of 15 joint velocities."""

PI05_BASE = dataclasses.replace(PI05_LIBERO, name="pi05_base", horizon=50)
"""The published base model for fine-tuning: chunks of 50."""

PRESETS = {
    preset.name: preset
    for preset in (TINY, TINY_MEMORY, TINY_DROID, SMALL, SMALL_DROID, PI05_LIBERO, PI05_DROID, PI05_BASE)
}


def preset(name: str) -> Pi05Config:
    """The configuration called `name`."""
    if name not in PRESETS:
        raise unknown("policy configuration", name, PRESETS)
    return PRESETS[name]
