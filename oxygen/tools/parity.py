"""`python -m oxygen.tools.parity FIXTURE.npz [...]`: compare the model with reference outputs."""

import dataclasses
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from configs.exits import OneLineParser, exit_code_of
from configs.paths import parse_json, read_npz
from contracts.errors import UsageError
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


@dataclasses.dataclass(frozen=True)
class Check:
    """One comparison."""

    name: str  # what was compared
    error: float  # the largest absolute difference; for tokens, the number that differ
    tolerance: float | None  # the largest error that passes; None if any does

    @property
    def passed(self) -> bool:
        """Whether the error is within the tolerance; never for NaN."""
        return self.tolerance is None or self.error <= self.tolerance


@dataclasses.dataclass(frozen=True)
class Fixture:
    """Inputs and reference outputs, and in `meta` a recipe for the weights, and tolerances.

    Cameras that the reference masks are left out here. Some fixtures also have a suffix adapter.
    """

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
    """Read a fixture; refuses any other file."""
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

    Matrix products of float32 have full precision, also on GPUs, whose default is 10 bits of mantissa.
    Refuses arrays that do not belong to the configuration in `meta`.
    """
    worst: dict[str, Check] = {}
    try:
        with jax.default_matmul_precision("float32" if fixture.config.dtype == "float32" else None):
            for check in _checks(fixture):
                error = np.maximum(check.error, worst[check.name].error if check.name in worst else 0.0)
                worst[check.name] = dataclasses.replace(check, error=float(error))  # keeps NaN
    except (LookupError, TypeError, ValueError) as error:
        raise UsageError(f"the fixture's arrays do not fit its meta: {error!r}") from error
    return list(worst.values())


def _checks(fixture: Fixture) -> Iterator[Check]:
    config, arrays, tolerance = fixture.config, fixture.arrays, fixture.meta["tolerance"].get
    tree = recipe_params(config, fixture.meta)
    weights = pi05.prepare(tree, config)
    images = np.stack([arrays[f"image_{name}"] for name in fixture.cameras], axis=1)
    prompt = arrays["tokenized_prompt"].astype(np.int32)
    length = config.image_tokens + arrays["tokenized_prompt_mask"].sum(axis=1).astype(np.int32)
    embedded = _embed(weights, config, jnp.asarray(images), jnp.asarray(prompt))
    prefix, out = _prefill(weights, embedded, jnp.asarray(length))

    error = _sampled_error(fixture, embedded, arrays["prefix_tokens_sample"], every=16)
    yield Check("prefix_tokens", error, tolerance("prefix_tokens"))
    yield Check("prefix_out", _sampled_error(fixture, out, arrays["prefix_out_sample"], every=16), None)
    for name, ours in (("kv_k", prefix.k), ("kv_v", prefix.v)):
        for layer, theirs in zip(ours, arrays[f"{name}_sample"], strict=True):
            yield Check(name, _sampled_error(fixture, layer, theirs, every=32), tolerance("kv"))
    for steps in (1, 10):
        flow = pi05.prepare(tree, dataclasses.replace(config, denoise_steps=steps))
        if f"actions_{steps}" not in arrays:
            continue
        actions = _denoise(flow, prefix, jnp.asarray(arrays["noise"]), steps)
        limit = tolerance(f"actions_{steps}")
        yield Check(f"actions_{steps}", _error(actions, arrays[f"actions_{steps}"]), limit)
        if f"lora_actions_{steps}" in arrays:
            error = _error(actions, arrays[f"lora_actions_{steps}"])
            yield Check("lora_actions", error, tolerance("actions_10"))
    texts = [name.removeprefix("text_") for name in sorted(arrays) if name.startswith("text_")]
    for which in texts:
        yield from _text_checks(fixture, weights, prefix, which)
    if "adapter" in fixture.meta:
        yield from _adapter_checks(fixture, weights, prefix, texts)


def _text_checks(
    fixture: Fixture,
    weights: pi05.Weights,
    prefix: pi05.Prefix,
    which: str,
    group: str = "",
    *,
    fed: bool = False,
) -> Iterator[Check]:
    """Compare a text; its logits are compared as long as both texts have been the same.

    With `fed`, only logits are compared, each after the reference's tokens.
    """
    theirs, their_logits = fixture.arrays[f"{group}text_{which}"], fixture.arrays[f"{group}logits_{which}"]
    row_and_suffix, reference = _row_and_suffix(fixture, which), theirs if fed else None
    ours, our_logits, _ = continuation(weights, prefix, *row_and_suffix, tokens=len(theirs), fed=reference)
    tolerances, like = fixture.meta["tolerance"], "oxy_lora_" if "oxy_" in group else group
    for step, expected in enumerate(their_logits):
        if step in our_logits and (fed or (ours[:step] == theirs[:step]).all()):
            error = _error(our_logits[step], expected)
            yield Check(f"{group}logits", error, tolerances.get(f"{like}logits"))
    if not fed:
        limit = 0.0 if tolerances.get(f"{like}tokens_equal") else None
        yield Check(f"{group}tokens", float((ours != theirs).sum()), limit)


def _row_and_suffix(fixture: Fixture, which: str) -> tuple[int, np.ndarray]:
    row, suffix = which.split("_")
    return int(row[1:]), fixture.arrays[f"suffix_{suffix[1:]}"].astype(np.int32)


def _adapter_checks(
    fixture: Fixture, weights: pi05.Weights, prefix: pi05.Prefix, texts: Sequence[str]
) -> Iterator[Check]:
    """Compare texts with the adapter, seen through the exact mask and through OxyGen's own."""
    arrays, tolerance = fixture.arrays, fixture.meta["tolerance"].get
    trained = {name: arrays[name] for name in fixture.meta["adapter"]["arrays"]}
    adapters.rank_of(trained, fixture.config, "the fixture's adapter")

    def adapted(matrices: Mapping[str, np.ndarray], mask: adapters.Mask) -> pi05.Weights:
        alpha, slots = fixture.meta["adapter"]["alpha"], fixture.meta["max_token_len"]
        prepared = adapters.prepare(
            matrices, fixture.config, weights, alpha=alpha, mask=mask, prompt_slots=slots
        )
        return prepared.on(weights)

    exact, published = adapted(trained, "exact"), adapted(trained, "published")
    bypassed = adapted({name: np.zeros_like(array) for name, array in trained.items()}, "published")
    if published.stale_slots is not None:
        shown = jax.jit(published.stale_slots.in_place_of_prompt)(published, prefix)
        start = fixture.config.image_tokens
        for row in range(len(arrays["tokenized_prompt"])):
            stop = start + len(arrays[f"stale_slots_b{row}"])
            for side, ours in (("k", shown.k), ("v", shown.v)):
                stacked = np.stack([np.asarray(leaf[row, start:stop], np.float32) for leaf in ours])
                error = _error(stacked, arrays[f"stale_{side}_b{row}"])
                yield Check(f"stale_{side}", error, tolerance("stale_kv"))
    for which in texts:
        row, suffix = _row_and_suffix(fixture, which)
        for end, of_seed in enumerate(arrays[f"lora_seed_logits_{which}"], start=1):
            _, scores, _ = continuation(exact, prefix, row, suffix[:end], tokens=1)
            yield Check("lora_logits", _error(scores[0], of_seed), tolerance("lora_logits"))
        for group, with_adapter in (("lora_", exact), ("oxy_lora_", published), ("oxy_", bypassed)):
            for fed in (False, True):
                yield from _text_checks(fixture, with_adapter, prefix, which, group, fed=fed)
        if f"cast_oxy_lora_text_{which}" in arrays:
            yield from _text_checks(fixture, published, prefix, which, "cast_oxy_lora_", fed=True)
        start = int(prefix.length[row])
        *_, pool = continuation(exact, prefix, row, suffix, tokens=16, fed=arrays[f"lora_text_{which}"])
        stop = start + arrays[f"lora_kv_k_{which}"].shape[1]
        keys = np.stack([np.asarray(layer.k[0, :, :, start:stop], np.float32) for layer in pool])
        values = np.stack([np.asarray(layer.v[0, start:stop], np.float32) for layer in pool])
        for side, ours in (("k", keys.transpose(0, 3, 1, 2)), ("v", values)):
            error = _error(ours, arrays[f"lora_kv_{side}_{which}"])
            yield Check(f"lora_kv_{side}", error, tolerance("lora_kv"))


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
    capacity = 32 * -(-(len(suffix) + tokens) // 32)  # rounded up, so that texts share compiled programs
    empty = kv_pool.KvLayer(
        k=jnp.zeros((1, heads, dim, positions + capacity), prefix.k[0].dtype),
        v=jnp.zeros((1, positions + capacity, heads, dim), prefix.v[0].dtype),
    )
    pool = (empty,) * len(prefix.k)
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


def _sampled_error(fixture: Fixture, ours: Array, theirs: np.ndarray, *, every: int) -> float:
    """The error at every n-th position of the full layout, where that position is valid."""
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


def main(arguments: Sequence[str]) -> int:
    """Compare every fixture named on the command line; returns the exit code."""
    parser = OneLineParser(prog="python -m oxygen.tools.parity", description=__doc__)
    parser.add_argument("fixtures", type=Path, nargs="+", metavar="FIXTURE.npz")

    def run() -> int:
        passed = True
        for file in parser.parse_args(arguments).fixtures:
            try:
                checks = compare(load(file))
            except UsageError as error:
                raise UsageError(f"{file}: {error}") from None
            sys.stdout.write(f"{file.name}\n")
            for check in checks:
                limit = "not compared" if check.tolerance is None else f"≤ {check.tolerance:g}"
                verdict = "ok" if check.passed else "FAIL"
                sys.stdout.write(f"  {check.name:20} {check.error:10.3g}  {limit:14} {verdict}\n")
            passed = passed and all(check.passed for check in checks)
        return 0 if passed else 1

    return exit_code_of(run)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
