"""The compiled programs: prefill, denoise, fork, decode. Compiled ahead of time, once, for fixed shapes.

All modes call these same programs, so the same numbers come out whatever is scheduled around them.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from oxygen import kv_pool, pi05
from oxygen.config import Pi05Config
from oxygen.kv_pool import KvPool, Texts
from oxygen.pi05 import Births, Prefix, Weights
from oxygen.typing import Array, Float32, Int32, UInt8, UInt32

_COMPILED = "/jax/core/compile/backend_compile_duration"


class CompileCounter:
    """Counts every compilation in this process, from its making on."""

    def __init__(self) -> None:
        self.count = 0
        jax.monitoring.register_event_duration_secs_listener(self._note)

    def _note(self, event: str, duration_secs: float, **_: str | int) -> None:
        del duration_secs
        self.count += event == _COMPILED


compile_counter = functools.cache(CompileCounter)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sizes:
    """The shapes that the language programs are compiled for.

    Attributes:
        slots: Places in the KV pool.
        rows: Requests decoded in one batch.
        births: Requests that one fork can begin.
        suffix: Tokens of the longest suffix.
        limit: Tokens of the longest text.
    """

    slots: int
    rows: int
    births: int
    suffix: int
    limit: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelInput:
    """One observation as the model takes it. The batch is one robot wide for now.

    Attributes:
        images: Pixels of every camera.
        prompt: Tokens, padded to a bucket.
        length: Valid tokens of the prompt.
    """

    images: UInt8[np.ndarray, "1 camera side side 3"]
    prompt: Int32[np.ndarray, "1 token"]
    length: Int32[np.ndarray, " 1"]


def noise(
    seed: UInt32[Array, "batch 2"], query: UInt32[Array, " batch"], shape: tuple[int, int]
) -> Float32[Array, "batch horizon action"]:
    """The flow's noise: a function of a 64-bit episode seed (two words, the high one first) and the query."""

    def of_one(words: Array, which: Array) -> Array:
        key = jax.random.key(0)
        for data in (words[0], words[1], which):
            key = jax.random.fold_in(key, data)
        return jax.random.normal(key, shape, jnp.float32)

    return jax.vmap(of_one)(seed, query)


def _prefill(config: Pi05Config, weights: Weights, images: Array, prompt: Array, length: Array) -> Prefix:
    embedded = pi05.embed_prefix(weights, config, images, prompt)
    return pi05.prefill(weights, embedded, length + config.image_tokens)[0]


def _denoise(config: Pi05Config, weights: Weights, prefix: Prefix, seed: Array, query: Array) -> Array:
    start = noise(seed, query, (config.horizon, config.action_dim))
    return pi05.denoise(weights, prefix, start, config.denoise_steps)


def _decode(weights: Weights, rows: Array, pool: KvPool, texts: Texts) -> tuple[KvPool, Texts]:
    return pi05.decode(weights, rows, pool, texts)[:2]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Programs:
    """The compiled programs; those that read a prompt or its prefix, one per bucket of prompt lengths."""

    prefill: Mapping[int, Callable[..., Prefix]]
    denoise: Mapping[int, Callable[..., Array]]
    fork: Mapping[int, Callable[..., tuple[KvPool, Texts]]]
    decode: Callable[..., tuple[KvPool, Texts]]


class Runner:
    """A policy's weights and compiled programs. It holds no state of an episode, so engines may share it."""

    def __init__(self, config: Pi05Config, weights: Weights, sizes: Sizes) -> None:
        self.config = config
        self.sizes = sizes
        self._weights = weights
        counter = compile_counter()
        self._programs = self._compiled()
        self._run_everything_once()
        self._compiles_at_warm_up = counter.count

    @property
    def compiles_after_warm_up(self) -> int:
        """Compilations in this process since this runner was ready; 0 if nothing else compiles."""
        return compile_counter().count - self._compiles_at_warm_up

    def prefill(self, seen: ModelInput) -> Prefix:
        """Read an observation."""
        program = self._programs.prefill[seen.prompt.shape[1]]
        return program(self._weights, seen.images, seen.prompt, seen.length)

    def denoise(self, prefix: Prefix, seed: int, query: int) -> Float32[Array, "1 horizon action"]:
        """Draw a chunk of normalised actions, with the noise of a 64-bit episode seed and a query."""
        words = np.array([[seed >> 32 & 0xFFFF_FFFF, seed & 0xFFFF_FFFF]], np.uint32)
        which = np.array([query], np.uint32)
        return self._programs.denoise[self._bucket(prefix)](self._weights, prefix, words, which)

    def fork(self, prefix: Prefix, births: Births, pool: KvPool, texts: Texts) -> tuple[KvPool, Texts]:
        """Put newborn requests in their slots. The pool given is used up."""
        return self._programs.fork[self._bucket(prefix)](self._weights, prefix, births, pool, texts)

    def decode(self, rows: Sequence[int], pool: KvPool, texts: Texts) -> tuple[KvPool, Texts]:
        """Write one token in every slot of `rows`. The pool given is used up."""
        padded = np.full((self.sizes.rows,), self.sizes.slots, np.int32)
        padded[: len(rows)] = rows
        return self._programs.decode(self._weights, padded, pool, texts)

    def births(self, slots: Sequence[int], suffixes: Sequence[Sequence[int]]) -> Births:
        """Requests to fork: their slots and the tokens of their suffixes. Rows left over are padding."""
        size = self.sizes
        heads = np.zeros((size.births, max(1, size.suffix - 1)), np.int32)
        lengths, tokens = np.zeros((size.births,), np.int32), np.zeros((size.births,), np.int32)
        places = np.full((size.births,), size.slots, np.int32)
        for row, (slot, suffix) in enumerate(zip(slots, suffixes, strict=True)):
            *head, tokens[row] = suffix
            heads[row, : len(head)] = head
            lengths[row], places[row] = len(head), slot
        parents = np.zeros((size.births,), np.int32)
        arrays = jax.device_put((places, parents, heads, lengths, tokens))
        return Births(*arrays)

    def empty(self) -> tuple[KvPool, Texts]:
        """A pool and texts with every slot idle."""
        size = self.sizes
        pool = kv_pool.allocate(self.config, slots=size.slots, room=size.suffix + size.limit)
        return pool, kv_pool.no_texts(slots=size.slots, limit=size.limit)

    def blank(self, bucket: int) -> ModelInput:
        """An observation of nothing, with a prompt of that bucket: for warming up and for measuring."""
        side, cameras = self.config.image_size, len(self.config.cameras)
        return ModelInput(
            images=np.zeros((1, cameras, side, side, 3), np.uint8),
            prompt=np.zeros((1, bucket), np.int32),
            length=np.full((1,), bucket, np.int32),
        )

    def _bucket(self, prefix: Prefix) -> int:
        return prefix.k[0].shape[1] - self.config.image_tokens

    def _compiled(self) -> _Programs:
        """Every program, compiled for shapes alone: nothing is run."""
        weights, births = jax.tree.map(_abstract, (self._weights, self.births((), ())))
        pool, texts = jax.eval_shape(self.empty)
        words, which = jax.ShapeDtypeStruct((1, 2), jnp.uint32), jax.ShapeDtypeStruct((1,), jnp.uint32)
        prefills, denoises, forks = {}, {}, {}
        for bucket in self.config.prompt_buckets:
            seen = jax.tree.map(_abstract, dataclasses.astuple(self.blank(bucket)))
            lowered = jax.jit(functools.partial(_prefill, self.config)).lower(weights, *seen)
            prefix = jax.tree.map(_abstract, lowered.out_info)
            prefills[bucket] = lowered.compile()
            lowered = jax.jit(functools.partial(_denoise, self.config)).lower(weights, prefix, words, which)
            denoises[bucket] = lowered.compile()
            lowered = jax.jit(pi05.fork, donate_argnames="pool").lower(weights, prefix, births, pool, texts)
            forks[bucket] = lowered.compile()
        rows = jax.ShapeDtypeStruct((self.sizes.rows,), jnp.int32)
        decode = jax.jit(_decode, donate_argnames="pool").lower(weights, rows, pool, texts).compile()
        return _Programs(prefill=prefills, denoise=denoises, fork=forks, decode=decode)

    def _run_everything_once(self) -> None:
        pool, texts = self.empty()
        for bucket in self.config.prompt_buckets:
            prefix = self.prefill(self.blank(bucket))
            jax.block_until_ready(self.denoise(prefix, 0, 0))
            pool, texts = self.fork(prefix, self.births((), ()), pool, texts)
            pool, texts = self.decode((), pool, texts)
        jax.block_until_ready((pool, texts))


def _abstract(leaf: Array | np.ndarray | jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)
