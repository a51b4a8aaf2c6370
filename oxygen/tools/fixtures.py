"""Compares the model with fixtures: inputs and outputs of the reference implementation.

A fixture has inputs, a recipe for the weights (`meta`), the reference's outputs, and tolerances. Cameras that
the reference masks are left out here.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from configs.errors import UsageError
from configs.reading import parse_json, read_npz
from oxygen.model import params, pi05
from oxygen.model.config import GemmaConfig, Pi05Config, siglip_variant
from oxygen.serving import decode, kv_pool
from oxygen.serving.new_requests import NewRequests
from oxygen.typing import Array, Params

_CAMERAS = ("base_0_rgb", "left_wrist_0_rgb", "right_wrist_0_rgb")

_embed = jax.jit(pi05.embed_prefix, static_argnames="config")
_prefill = jax.jit(pi05.prefill)
_denoise = jax.jit(pi05.denoise, static_argnames="steps")
_fork = jax.jit(decode.fork)
_decode = jax.jit(decode.decode)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Check:
    """One comparison.

    Attributes:
        name: What was compared.
        error: The largest absolute difference; for tokens, the number that differ.
        tolerance: The largest error that passes; None if any does.
    """

    name: str
    error: float
    tolerance: float | None

    @property
    def passed(self) -> bool:
        """Whether the error is within the tolerance; never for NaN."""
        return self.tolerance is None or self.error <= self.tolerance


@dataclasses.dataclass(frozen=True)
class Fixture:
    """A fixture's arrays and its description."""

    arrays: Mapping[str, np.ndarray]
    meta: Mapping[str, Any]

    @property
    def config(self) -> Pi05Config:
        """The configuration it was made with, without the cameras it masks."""
        sizes = {field.name for field in dataclasses.fields(GemmaConfig)}
        trunk, expert = (
            GemmaConfig(**{key: value for key, value in self.meta[name].items() if key in sizes})
            for name in ("paligemma", "expert")
        )
        return Pi05Config(
            name="fixture",
            siglip=siglip_variant(self.meta["siglip"]),
            trunk=trunk,
            expert=expert,
            vocab_size=self.meta["vocab"],
            cameras=self.cameras,
            image_size=self.arrays[f"image_{_CAMERAS[0]}"].shape[1],
            action_dim=self.meta["action_dim"],
            horizon=self.meta["horizon"],
            prompt_buckets=(self.meta["max_token_len"],),
            dtype=self.meta["dtype"],
        )

    @property
    def cameras(self) -> tuple[str, ...]:
        """Cameras unmasked in every row."""
        return tuple(name for name in _CAMERAS if self.arrays[f"image_mask_{name}"].all())

    @property
    def kept_positions(self) -> np.ndarray:
        """For each of our prefix positions, its place in the layout with all cameras."""
        per_image = self.config.tokens_per_image
        text = self.arrays["tokenized_prompt"].shape[1]
        starts = [_CAMERAS.index(name) * per_image for name in self.cameras]
        images = [np.arange(start, start + per_image) for start in starts]
        return np.concatenate([*images, len(_CAMERAS) * per_image + np.arange(text)])


def load(path: Path) -> Fixture:
    """Read a fixture.

    Raises:
        UsageError: The file is absent, or no fixture.
    """
    arrays = read_npz(path)
    meta = parse_json(str(arrays.pop("meta", "null")), f"meta of {path}")
    if not isinstance(meta, dict) or "tolerance" not in meta:
        raise UsageError(f"{path} is no π0.5 fixture; give an .npz with a JSON `meta`")
    return Fixture(arrays=arrays, meta=meta)


def recipe_params(config: Pi05Config, meta: Mapping[str, Any]) -> Params:
    """The weights that a fixture's recipe describes, each a function of the seed and its own path."""
    return params.nested(
        {
            path: params.standard_normal(meta["seed"], path, shape) * np.float32(_gain(path, shape, meta))
            for path, shape in params.shapes(config).items()
        }
    )


def _gain(path: str, shape: tuple[int, ...], meta: Mapping[str, Any]) -> float:
    if path.endswith(("bias", "scale")):
        return 0.1
    if path.endswith("input_embedding"):
        return 0.05
    gain = meta["gain_qkv"] if "q_einsum" in path or "kv_einsum" in path else meta["gain"]
    return gain / np.sqrt(shape[-2] if len(shape) > 1 else 1)


def compare(fixture: Fixture) -> list[Check]:
    """Run our model on a fixture and compare everything it holds.

    Raises:
        UsageError: Its arrays do not belong to the configuration in its `meta`.
    """
    tolerances = fixture.meta["tolerance"]
    limit_of = {name: tolerances.get(name) for name in ("prefix_tokens", "actions_1", "actions_10", "logits")}
    limit_of |= dict.fromkeys(("kv_k", "kv_v"), tolerances.get("kv"))
    limit_of["tokens"] = 0.0 if tolerances.get("tokens_equal") else None
    errors: dict[str, float] = {}
    try:
        for name, error in _errors(fixture):
            errors[name] = float(np.maximum(error, errors.get(name, 0.0)))  # keeps NaN
    except (LookupError, TypeError, ValueError) as error:
        raise UsageError(f"the fixture's arrays do not fit its meta: {error!r}") from error
    return [Check(name=name, error=error, tolerance=limit_of.get(name)) for name, error in errors.items()]


def _errors(fixture: Fixture) -> Iterator[tuple[str, float]]:
    config, arrays = fixture.config, fixture.arrays
    tree = recipe_params(config, fixture.meta)
    weights = pi05.prepare(tree, config)
    images = np.stack([arrays[f"image_{name}"] for name in fixture.cameras], axis=1)
    prompt = arrays["tokenized_prompt"].astype(np.int32)
    length = config.image_tokens + arrays["tokenized_prompt_mask"].sum(axis=1).astype(np.int32)
    embedded = _embed(weights, config, jnp.asarray(images), jnp.asarray(prompt))
    prefix, out = _prefill(weights, embedded, jnp.asarray(length))

    yield "prefix_tokens", _sampled_error(fixture, embedded, "prefix_tokens_sample", every=16)
    yield "prefix_out", _sampled_error(fixture, out, "prefix_out_sample", every=16)
    for layer, (k, v) in enumerate(zip(prefix.k, prefix.v, strict=True)):
        yield "kv_k", _sampled_error(fixture, k, "kv_k_sample", every=32, layer=layer)
        yield "kv_v", _sampled_error(fixture, v, "kv_v_sample", every=32, layer=layer)
    for steps in (1, 10):
        flow = pi05.prepare(tree, dataclasses.replace(config, denoise_steps=steps))
        if f"actions_{steps}" not in arrays:
            continue
        actions = _denoise(flow, prefix, jnp.asarray(arrays["noise"]), steps)
        yield f"actions_{steps}", _error(actions, arrays[f"actions_{steps}"])
    for name in sorted(arrays):
        if name.startswith("text_"):
            yield from _text_errors(fixture, weights, prefix, name.removeprefix("text_"))


def _text_errors(
    fixture: Fixture, weights: pi05.Weights, prefix: pi05.Prefix, which: str
) -> Iterator[tuple[str, float]]:
    """Compare a text; its logits are compared as long as both texts have been the same."""
    row, suffix_name = which.split("_")
    suffix = fixture.arrays[f"suffix_{suffix_name.removeprefix('s')}"].astype(np.int32)
    theirs, their_logits = fixture.arrays[f"text_{which}"], fixture.arrays[f"logits_{which}"]
    ours, our_logits = continuation(
        weights, prefix, suffix, row=int(row.removeprefix("b")), tokens=len(theirs)
    )
    for step, expected in enumerate(their_logits):
        if (ours[:step] == theirs[:step]).all():
            yield "logits", _error(our_logits[step], expected)
    yield "tokens", float((ours != theirs).sum())


def continuation(
    weights: pi05.Weights, prefix: pi05.Prefix, suffix: np.ndarray, *, row: int, tokens: int
) -> tuple[np.ndarray, list[Array]]:
    """The greedy text that follows one row of a prefix and a suffix, and the logits of every step."""
    positions, heads, dim = prefix.k[0].shape[1:]
    room = 32 * -(-(len(suffix) + tokens) // 32)  # rounded up, so that texts share compiled programs
    empty = kv_pool.KvLayer(
        k=jnp.zeros((1, heads, dim, positions + room), prefix.k[0].dtype),
        v=jnp.zeros((1, positions + room, heads, dim), prefix.v[0].dtype),
    )
    pool = kv_pool.KvPool(layers=(empty,) * len(prefix.k))
    head = np.zeros(32 * -(-len(suffix) // 32), np.int32)
    head[: len(suffix) - 1] = suffix[:-1]
    new = NewRequests(
        slots=jnp.zeros((1,), jnp.int32),
        robots=jnp.full((1,), row, jnp.int32),
        suffix=jnp.asarray(head[None]),
        suffix_length=jnp.full((1,), len(suffix) - 1, jnp.int32),
        token=jnp.asarray(suffix[-1:]),
    )
    pool, texts = _fork(weights, prefix, new, pool, kv_pool.empty_decode_state(slots=1, limit=tokens))
    scores: list[Array] = []
    for _ in range(tokens):
        pool, texts, of_step = _decode(weights, jnp.zeros((1,), jnp.int32), pool, texts)
        scores.append(of_step[0])
    return np.asarray(texts.written[0]), scores


def _sampled_error(
    fixture: Fixture, ours: Array, name: str, *, every: int, layer: int | None = None
) -> float:
    """The error at every n-th position of the full layout, where that position is valid."""
    theirs = fixture.arrays[name] if layer is None else fixture.arrays[name][layer]
    place = {int(position): index for index, position in enumerate(fixture.kept_positions)}
    mask = fixture.arrays["prefix_mask"]
    values = np.asarray(ours, np.float32)
    worst = 0.0
    for index, position in enumerate(range(0, mask.shape[1], every)):
        for row in np.flatnonzero(mask[:, position]):
            error = _error(values[row, place[position]], theirs[row, index])
            worst = float(np.maximum(worst, error))
    return worst


def _error(ours: Array | np.ndarray, theirs: np.ndarray) -> float:
    return float(np.abs(np.asarray(ours, np.float32) - np.asarray(theirs, np.float32)).max())


def report(path: Path, checks: Sequence[Check]) -> str:
    """The comparisons of a fixture as text, a line each."""
    lines = [f"{path.name}"]
    for check in checks:
        limit = "not compared" if check.tolerance is None else f"≤ {check.tolerance:g}"
        lines.append(f"  {check.name:14} {check.error:10.3g}  {limit:14} {'ok' if check.passed else 'FAIL'}")
    return "\n".join(lines)
