"""The policy under test: its sizes, and the source of its weights."""

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np

from configs.errors import UsageError
from oxygen.model import config as model_configs
from oxygen.model.config import Pi05Config
from oxygen.weights import load as load_checkpoint
from oxygen.weights.adapter import AdapterSource
from oxygen.weights.loading import Loadable

SPECIAL_TOKENS = 2
"""Tokens of a prompt without its instruction: the start token and the line break."""


class ByteTokenizer:
    """One token per byte, and no end token. Texts are not used, so `decode` returns an empty string."""

    vocab_size = 256
    bos = 1
    eos = -1

    def byte(self, value: int) -> int:
        """The token of a byte: its value."""
        return value

    def encode(self, text: str) -> list[int]:
        """The bytes of `text`."""
        return list(text.encode())

    def decode(self, tokens: Sequence[int]) -> str:
        """The empty string."""
        del tokens
        return ""


_SEED = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelUnderTest:
    """The measured policy."""

    name: str  # its preset
    config: Pi05Config  # its sizes, with the prompt buckets that are used, so that no other is compiled
    weights: Loadable  # the seed of random weights, or a function that loads them
    weights_from: str  # `random`, or their source
    prompt_tokens: int  # tokens in the longest prompt, before padding
    shortest_prompt: int | None = None  # tokens in the shortest; None if all have the same length
    adapter: AdapterSource | None = None  # its adapter; None for a random one

    @property
    def bucket(self) -> int:
        """Length of the longest prompt, padded, in tokens."""
        return self.config.bucket(self.prompt_tokens)

    def prompts(self, count: int) -> list[str]:
        """Instructions whose prompts have evenly spaced lengths, from the shortest to the longest."""
        lengths = np.linspace(self.shortest_prompt or self.prompt_tokens, self.prompt_tokens, count)
        return ["x" * (int(tokens) - SPECIAL_TOKENS) for tokens in lengths]

    def with_cameras(self, cameras: int | None) -> "ModelUnderTest":
        """The same policy and weights with another number of cameras.

        Args:
            cameras: Number of cameras: first its own, then those of a second robot. None: its own.

        Raises:
            UsageError: More than twice its own.
        """
        own = self.config.cameras
        if cameras is None:
            return self
        available = (*own, *(f"second_{camera}" for camera in own))
        if cameras > len(available):
            raise UsageError(
                f"cameras: {cameras}; {self.name} has {len(own)}; at most twice as many, {len(available)}"
            )
        return dataclasses.replace(self, config=dataclasses.replace(self.config, cameras=available[:cameras]))


def find_model(
    name: str,
    *,
    random_weights: bool,
    dtype: str | None,
    prompt_tokens: int,
    shortest_prompt: int | None = None,
) -> ModelUnderTest:
    """The policy `name`, with random weights or those of its preset.

    Raises:
        UsageError: There is no such policy, its longest prompt is shorter than `prompt_tokens`, or
            `shortest_prompt` is longer.
    """
    if shortest_prompt is not None and not SPECIAL_TOKENS < shortest_prompt <= prompt_tokens:
        raise UsageError(
            f"--shortest-prompt {shortest_prompt}: {SPECIAL_TOKENS + 1} to --prompt-tokens, {prompt_tokens}"
        )
    if prompt_tokens <= SPECIAL_TOKENS:
        raise UsageError(f"--prompt-tokens {prompt_tokens}: at least {SPECIAL_TOKENS + 1}")
    if random_weights and name in model_configs.PRESETS:
        config, weights, weights_from = model_configs.preset(name), _SEED, "random"
        adapter = None
    else:
        config, weights, weights_from, adapter = _from_policy_preset(name, dtype)
    if random_weights:
        weights, weights_from, adapter = _SEED, "random", None
    ends = config.bucket(shortest_prompt or prompt_tokens), config.bucket(prompt_tokens)
    used = tuple(bucket for bucket in config.prompt_buckets if ends[0] <= bucket <= ends[1])
    return ModelUnderTest(
        name=name,
        config=dataclasses.replace(config, prompt_buckets=used, dtype=dtype or config.dtype),
        weights=weights,
        weights_from=weights_from,
        prompt_tokens=prompt_tokens,
        shortest_prompt=shortest_prompt,
        adapter=adapter,
    )


def _from_policy_preset(
    name: str, dtype: str | None
) -> tuple[Pi05Config, Loadable, str, AdapterSource | None]:
    """Sizes, weights and adapter of a YAML preset, which needs a package that random weights do not."""
    try:
        from eval.policies.resolved import read_policy
        from oxygen.presets.loading import adapter_source
    except ModuleNotFoundError as error:
        raise UsageError(
            f"reading preset {name!r} needs {error.name}; install it, or measure "
            f"{', '.join(model_configs.PRESETS)} with --random-weights"
        ) from None
    preset = read_policy(name)
    if preset.model is None:
        raise UsageError(f"policy {name!r} is no model, so there is nothing to measure; name one that is")
    config = model_configs.preset(preset.model)
    config = dataclasses.replace(config, dtype=dtype or config.dtype)
    if preset.weights is None:
        return config, preset.weights_seed, "random", None
    loader = functools.partial(load_checkpoint, preset.weights, config)
    return config, loader, preset.weights, adapter_source(preset)
