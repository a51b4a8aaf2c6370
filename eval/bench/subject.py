"""The policy under test: its sizes, and where its weights come from."""

import dataclasses
import functools

from configs.errors import UsageError
from eval.bench.unending import PROMPT_ENDS
from oxygen.model import config as model_configs
from oxygen.model.config import Pi05Config
from oxygen.weights import load as load_checkpoint
from oxygen.weights.weights_source import Loadable

_SEED = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Subject:
    """Which policy is measured.

    Attributes:
        name: Its preset.
        config: Its sizes. Of its prompt lengths the one used is kept: no other is compiled, and a slot of the
            pool has room for no longer one.
        weights: The seed of random ones, or a function that loads them.
        weights_from: `random`, or where they come from.
        prompt_tokens: Tokens in the prompt, before it is padded.
    """

    name: str
    config: Pi05Config
    weights: Loadable
    weights_from: str
    prompt_tokens: int

    @property
    def bucket(self) -> int:
        """Tokens that the prompt is padded to."""
        return self.config.bucket(self.prompt_tokens)

    def with_cameras(self, cameras: int | None) -> "Subject":
        """The same policy with so many cameras: the first of its own, then those of a second robot.

        Its weights are the same: every image goes through the same tower.

        Args:
            cameras: How many; None for its own.

        Raises:
            UsageError: More than two robots have.
        """
        own = self.config.cameras
        if cameras is None:
            return self
        every = (*own, *(f"second_{camera}" for camera in own))
        if cameras > len(every):
            raise UsageError(
                f"cameras: {cameras}; {self.name} has {len(own)}; at most two robots' worth, {len(every)}"
            )
        return dataclasses.replace(self, config=dataclasses.replace(self.config, cameras=every[:cameras]))


def find(name: str, *, random_weights: bool, dtype: str | None, prompt_tokens: int) -> Subject:
    """The policy called `name`, with random weights or those of its preset.

    Raises:
        UsageError: There is no such policy, or its prompts are not as long.
    """
    if prompt_tokens <= PROMPT_ENDS:
        raise UsageError(f"--prompt-tokens {prompt_tokens}: at least {PROMPT_ENDS + 1}")
    source = _random if random_weights and name in model_configs.PRESETS else _of_preset
    config, weights, weights_from = source(name, dtype)
    if random_weights:
        weights, weights_from = _SEED, "random"
    used = config.bucket(prompt_tokens)
    return Subject(
        name=name,
        config=dataclasses.replace(config, prompt_buckets=(used,)),
        weights=weights,
        weights_from=weights_from,
        prompt_tokens=prompt_tokens,
    )


def _random(name: str, dtype: str | None) -> tuple[Pi05Config, Loadable, str]:
    return _cast(model_configs.preset(name), dtype), _SEED, "random"


def _of_preset(name: str, dtype: str | None) -> tuple[Pi05Config, Loadable, str]:
    """Sizes and weights of a YAML preset; reading one takes a package that random weights do without."""
    try:
        from eval.policies.names import read_policy
    except ModuleNotFoundError as error:
        raise UsageError(
            f"reading preset {name!r} needs {error.name}; install it, or measure "
            f"{', '.join(model_configs.PRESETS)} with --random-weights"
        ) from None
    preset = read_policy(name)
    if preset.model is None:
        raise UsageError(f"policy {name!r} is no model, so there is nothing to measure")
    config = _cast(model_configs.preset(preset.model), dtype)
    if preset.weights is None:
        return config, preset.weights_seed, "random"
    return config, functools.partial(load_checkpoint, preset.weights, config), preset.weights


def _cast(config: Pi05Config, dtype: str | None) -> Pi05Config:
    return dataclasses.replace(config, dtype=dtype or config.dtype)
