"""Compares the model with fixtures: inputs and outputs of the reference implementation.

A fixture has inputs, a recipe for the weights (`meta`), the reference's outputs, and tolerances. Cameras that
the reference masks are left out here. Some fixtures also have a suffix adapter, and the texts with it.
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
from oxygen.model import adapter as adapters
from oxygen.model import params, pi05
from oxygen.model.config import GemmaConfig, Pi05Config, siglip_variant
from oxygen.serving import decode, kv_pool
from oxygen.serving.decode import NewRequests
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
    tree = {}
    for path, shape in params.shapes(config).items():
        if path.endswith(("bias", "scale")):
            gain = 0.1
        elif path.endswith("input_embedding"):
            gain = 0.05
        else:
            gain = meta["gain_qkv"] if "q_einsum" in path or "kv_einsum" in path else meta["gain"]
            gain = gain / np.sqrt(shape[-2] if len(shape) > 1 else 1)
        tree[path] = params.standard_normal(meta["seed"], path, shape) * np.float32(gain)
    return params.nested(tree)


def compare(fixture: Fixture) -> list[Check]:
    """Run our model on a fixture and compare everything it holds.

    Raises:
        UsageError: Its arrays do not belong to the configuration in its `meta`.
    """
    tolerances = fixture.meta["tolerance"]
    limit_of = {name: tolerances.get(name) for name in ("prefix_tokens", "actions_1", "actions_10", "logits")}
    limit_of |= dict.fromkeys(("kv_k", "kv_v"), tolerances.get("kv"))
    limit_of["tokens"] = 0.0 if tolerances.get("tokens_equal") else None
    for group in ("lora", "oxy_lora"):
        limit_of[f"{group}_logits"] = tolerances.get(f"{group}_logits")
        limit_of[f"{group}_tokens"] = 0.0 if tolerances.get(f"{group}_tokens_equal") else None
    limit_of |= {"oxy_logits": limit_of["oxy_lora_logits"], "oxy_tokens": limit_of["oxy_lora_tokens"]}
    limit_of |= {"cast_oxy_lora_logits": limit_of["oxy_lora_logits"]}
    limit_of |= {name: tolerances.get("lora_kv") for name in ("lora_kv_k", "lora_kv_v")}
    limit_of |= {name: tolerances.get("stale_kv") for name in ("stale_k", "stale_v")}
    limit_of["lora_actions"] = limit_of["actions_10"]
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
        if f"lora_actions_{steps}" in arrays:
            yield "lora_actions", _error(actions, arrays[f"lora_actions_{steps}"])
    texts = [name.removeprefix("text_") for name in sorted(arrays) if name.startswith("text_")]
    for which in texts:
        yield from _text_errors(fixture, weights, prefix, which)
    if "adapter" in fixture.meta:
        yield from _adapter_errors(fixture, weights, prefix, texts)


def _text_errors(
    fixture: Fixture, weights: pi05.Weights, prefix: pi05.Prefix, which: str, group: str = ""
) -> Iterator[tuple[str, float]]:
    """Compare a text; its logits are compared as long as both texts have been the same."""
    theirs, their_logits = fixture.arrays[f"{group}text_{which}"], fixture.arrays[f"{group}logits_{which}"]
    ours, our_logits, _ = continuation(weights, prefix, *_row_and_suffix(fixture, which), tokens=len(theirs))
    for step, expected in enumerate(their_logits):
        if (ours[:step] == theirs[:step]).all() and step in our_logits:
            yield f"{group}logits", _error(our_logits[step], expected)
    yield f"{group}tokens", float((ours != theirs).sum())


def _row_and_suffix(fixture: Fixture, which: str) -> tuple[int, np.ndarray]:
    row, suffix = which.split("_")
    return int(row[1:]), fixture.arrays[f"suffix_{suffix[1:]}"].astype(np.int32)


def adapter_arrays(fixture: Fixture) -> dict[str, np.ndarray]:
    """The adapter in a fixture, by the names of its own file."""
    return {name: fixture.arrays[name] for name in fixture.meta["adapter"]["arrays"]}


def fixture_adapter(
    fixture: Fixture, weights: pi05.Weights, mask: adapters.Mask, *, bypassed: bool = False
) -> adapters.Adapter:
    """A fixture's adapter with one of both masks; bypassed, it is zero."""
    arrays = {
        name: np.zeros_like(array) if bypassed else array for name, array in adapter_arrays(fixture).items()
    }
    alpha, slots = fixture.meta["adapter"]["alpha"], fixture.meta["max_token_len"]
    return adapters.prepare(arrays, fixture.config, weights, alpha=alpha, mask=mask, prompt_slots=slots)


def _adapter_errors(
    fixture: Fixture, weights: pi05.Weights, prefix: pi05.Prefix, texts: Sequence[str]
) -> Iterator[tuple[str, float]]:
    """Compare texts with the adapter, seen through the exact mask and through OxyGen's own."""
    arrays = fixture.arrays
    adapters.rank_of(adapter_arrays(fixture), fixture.config, "the fixture's adapter")
    exact = fixture_adapter(fixture, weights, "exact").on(weights)
    published = fixture_adapter(fixture, weights, "published").on(weights)
    bypassed = fixture_adapter(fixture, weights, "published", bypassed=True).on(weights)
    if published.stale_slots is not None:
        shown = jax.jit(published.stale_slots.in_place_of_prompt)(published, prefix)
        start = fixture.config.image_tokens
        for row in range(len(arrays["tokenized_prompt"])):
            count = len(arrays[f"stale_slots_b{row}"])
            for side, ours in (("k", shown.k), ("v", shown.v)):
                stacked = np.stack(
                    [np.asarray(leaf[row, start : start + count], np.float32) for leaf in ours]
                )
                yield f"stale_{side}", _error(stacked, arrays[f"stale_{side}_b{row}"])
    for which in texts:
        row, suffix = _row_and_suffix(fixture, which)
        seeds, expected = (
            [suffix[: end + 1] for end in range(len(suffix))],
            arrays[f"lora_seed_logits_{which}"],
        )
        for seed, of_seed in zip(seeds, expected, strict=True):
            yield "lora_logits", _error(continuation(exact, prefix, row, seed, tokens=1)[1][0], of_seed)
        for group, adapted in (("lora_", exact), ("oxy_lora_", published), ("oxy_", bypassed)):
            yield from _text_errors(fixture, adapted, prefix, which, group)
            yield from _fed_errors(fixture, adapted, prefix, which, group)
        if f"cast_oxy_lora_text_{which}" in arrays:
            yield from _fed_errors(fixture, published, prefix, which, "cast_oxy_lora_")
        start = int(prefix.length[row])
        *_, pool = continuation(exact, prefix, row, suffix, tokens=16, fed=arrays[f"lora_text_{which}"])
        stop = start + arrays[f"lora_kv_k_{which}"].shape[1]
        keys = np.stack([np.asarray(layer.k[0, :, :, start:stop], np.float32) for layer in pool.layers])
        yield "lora_kv_k", _error(keys.transpose(0, 3, 1, 2), arrays[f"lora_kv_k_{which}"])
        values = np.stack([np.asarray(layer.v[0, start:stop], np.float32) for layer in pool.layers])
        yield "lora_kv_v", _error(values, arrays[f"lora_kv_v_{which}"])


def _fed_errors(
    fixture: Fixture, weights: pi05.Weights, prefix: pi05.Prefix, which: str, group: str
) -> Iterator[tuple[str, float]]:
    """Compare the logits of every step after the reference's tokens."""
    theirs, expected = fixture.arrays[f"{group}text_{which}"], fixture.arrays[f"{group}logits_{which}"]
    row_and_suffix = _row_and_suffix(fixture, which)
    _, scores, _ = continuation(weights, prefix, *row_and_suffix, tokens=len(expected), fed=theirs)
    for step, ours in scores.items():
        yield f"{group}logits", _error(ours, expected[step])


def continuation(
    weights: pi05.Weights,
    prefix: pi05.Prefix,
    row: int,
    suffix: np.ndarray,
    *,
    tokens: int,
    fed: np.ndarray | None = None,
) -> tuple[np.ndarray, dict[int, Array], kv_pool.KvPool]:
    """The greedy text that follows one row of a prefix and a suffix.

    Returns:
        The text; the logits of every step, without the first if the fork chooses its token; and the pool.
        With `fed`, every step follows these tokens instead of its own.
    """
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
    by_fork = weights.stale_slots is not None
    empty_texts = kv_pool.empty_decode_state(slots=1, limit=tokens, first_by_fork=by_fork)
    pool, texts = _fork(weights, prefix, new, pool, empty_texts)
    scores: dict[int, Array] = {}
    for step in range(tokens):
        pool, texts, of_step = _decode(weights, jnp.zeros((1,), jnp.int32), pool, texts)
        if step > 0 or not by_fork:
            scores[step] = of_step[0]
        if fed is not None:
            texts = dataclasses.replace(texts, token=texts.token.at[0].set(int(fed[step])))
    return np.asarray(texts.written[0]), scores, pool


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
        lines.append(f"  {check.name:20} {check.error:10.3g}  {limit:14} {'ok' if check.passed else 'FAIL'}")
    return "\n".join(lines)
