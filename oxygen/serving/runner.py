"""The compiled programs: prefill, denoise, fork, decode. Compiled ahead of time, once, for fixed shapes.

All modes call these same programs, so actions are the same bits whatever is scheduled around them.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.stages import Compiled

from configs.errors import UsageError
from oxygen.model import pi05
from oxygen.model.compile_counter import compile_counter
from oxygen.model.config import Pi05Config
from oxygen.model.guidance import Guidance
from oxygen.model.inputs import ModelInput
from oxygen.model.pi05 import Prefix, Weights
from oxygen.serving import decode, drawing, kv_pool
from oxygen.serving.kv_pool import KvPool, Texts
from oxygen.serving.new_requests import NewRequests, new_requests, words_of
from oxygen.serving.requests import Request
from oxygen.typing import Array, Float32, Int32


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sizes:
    """The shapes that the programs are compiled for.

    Attributes:
        robots: Observations read at once.
        slots: Places in the KV pool. It has a spare one behind them, numbered `slots`, for padding rows.
        rows: Requests decoded in one batch: the sizes to choose from, ascending.
        forks: New requests begun in one fork: the sizes to choose from, ascending.
        suffix: Tokens of the longest suffix.
        limit: Tokens of the longest text.
        top_k: The largest `top_k` of a request; 0 where every request is greedy, and nothing is drawn.
        guided: Whether denoising can be guided: one program more.
    """

    robots: int = 1
    slots: int
    rows: tuple[int, ...]
    forks: tuple[int, ...]
    suffix: int
    limit: int
    top_k: int = 0
    guided: bool = False

    def __post_init__(self) -> None:
        for what, sizes in (("decode batches", self.rows), ("forks of", self.forks)):
            if not sizes or list(sizes) != sorted(set(sizes)):
                raise UsageError(f"{what} {sizes} are not in ascending order")

    def batch_of(self, rows: int) -> int:
        """The smallest decode batch with so many rows."""
        return next(size for size in self.rows if size >= rows)


def _prefill(config: Pi05Config, weights: Weights, images: Array, prompt: Array, length: Array) -> Prefix:
    embedded = pi05.embed_prefix(weights, config, images, prompt)
    return pi05.read(weights, embedded, length + config.image_tokens)


def _denoise(
    config: Pi05Config,
    weights: Weights,
    prefix: Prefix,
    seed: Array,
    query: Array,
    guidance: Guidance | None = None,
) -> Array:
    start = drawing.noise(seed, query, (config.horizon, config.action_dim))
    return pi05.denoise(weights, prefix, config.noise_scale * start, config.denoise_steps, guidance)


def _decode(top_k: int, weights: Weights, rows: Array, pool: KvPool, texts: Texts) -> tuple[KvPool, Texts]:
    return decode.decode(weights, rows, pool, texts, top_k)[:2]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Programs:
    """The compiled programs: per bucket of prompt lengths; of `decode` per batch size, of `fork` per both.

    There are none of `guided_denoise` but where `Sizes` asks for it.
    """

    prefill: Mapping[int, Compiled]
    denoise: Mapping[int, Compiled]
    guided_denoise: Mapping[int, Compiled]
    fork: Mapping[tuple[int, int], Compiled]
    decode: Mapping[int, Compiled]


@dataclasses.dataclass
class _Ready:
    """Compilations in this process until runners that share their programs were ready."""

    compiles: int = 0


class Runner:
    """A policy's weights and compiled programs. It holds no state of an episode, so engines may share it."""

    def __init__(
        self, config: Pi05Config, weights: Weights, sizes: Sizes, *, like: "Runner | None" = None
    ) -> None:
        self.config = config
        self.sizes = sizes
        self._weights = weights
        # Step after step decodes the same rows: these stay on the device.
        self._rows = functools.lru_cache(maxsize=4)(functools.partial(_rows, sizes.slots))
        counter = compile_counter()
        self.programs = self._compiled(like.programs if like else None)
        self._run_everything_once()
        self._ready = like._ready if like else _Ready()
        self._ready.compiles = counter.count

    def resized(self, sizes: Sizes) -> "Runner":
        """One with another pool, for as many robots; its prefill and denoise are the very same programs."""
        assert sizes.robots == self.sizes.robots, "another number of robots is another prefill"
        assert sizes.guided == self.sizes.guided, "guidance takes a program of its own"
        return Runner(self.config, self._weights, sizes, like=self)

    @property
    def compiles_after_warm_up(self) -> int:
        """Compilations in this process since this runner, and all resized from it or before it, were ready.

        It is 0 if nothing else compiles.
        """
        return compile_counter().count - self._ready.compiles

    def prefill(self, inputs: ModelInput) -> Prefix:
        """Read an observation of every robot."""
        program: Callable[..., Prefix] = self.programs.prefill[inputs.prompt.shape[1]]
        return program(self._weights, inputs.images, inputs.prompt, inputs.length)

    def denoise(
        self, prefix: Prefix, seeds: Sequence[int], queries: Sequence[int]
    ) -> Float32[Array, "robot horizon action"]:
        """Draw every robot's chunk of normalised actions.

        The noise of each is a function of its 64-bit episode seed and its query alone.
        """
        program: Callable[..., Array] = self.programs.denoise[self._bucket(prefix)]
        return program(self._weights, prefix, *_origins(seeds, queries))

    def guided_denoise(
        self, prefix: Prefix, seeds: Sequence[int], queries: Sequence[int], guidance: Guidance
    ) -> Float32[Array, "robot horizon action"]:
        """Draw the same from the same noise, guided towards the actions under way."""
        program: Callable[..., Array] = self.programs.guided_denoise[self._bucket(prefix)]
        return program(self._weights, prefix, *_origins(seeds, queries), guidance)

    def fork(self, prefix: Prefix, new: NewRequests, pool: KvPool, texts: Texts) -> tuple[KvPool, Texts]:
        """Begin new requests in their slots. The pool given is used up."""
        sizes = self._bucket(prefix), len(new.slots)
        program: Callable[..., tuple[KvPool, Texts]] = self.programs.fork[sizes]
        return program(self._weights, prefix, new, pool, texts)

    def decode(self, slots: Sequence[int], pool: KvPool, texts: Texts, *, batch: int) -> tuple[KvPool, Texts]:
        """Write one token in each of `slots`. The pool given is used up.

        Args:
            slots: Places of requests that have been forked; at most `batch` of them.
            pool: What they have read.
            texts: Their texts.
            batch: One of `Sizes.rows`. A text's tokens depend on it in the last bits of their scores, but
                neither on its company in the batch nor on its slot.
        """
        rows = self._rows(tuple(slots), batch)
        program: Callable[..., tuple[KvPool, Texts]] = self.programs.decode[batch]
        return program(self._weights, rows, pool, texts)

    def new_requests(self, requests: Sequence[Request], *, batch: int | None = None) -> NewRequests:
        """Send requests to the device, for `fork`. Rows left over are padding.

        Args:
            requests: At most `batch` of them.
            batch: One of `Sizes.forks`; the largest if None. A text's scores may depend on it in their last
                bits, but not on its company.

        Raises:
            UsageError: The programs were not compiled for the sampling of one of them.
        """
        size = self.sizes
        rows = size.forks[-1] if batch is None else batch
        return new_requests(requests, rows=rows, spare=size.slots, suffix=size.suffix, top_k=size.top_k)

    def empty(self) -> tuple[KvPool, Texts]:
        """A pool and texts with every slot idle."""
        size = self.sizes
        pool = kv_pool.allocate(self.config, slots=size.slots, room=size.suffix + size.limit)
        texts = kv_pool.no_texts(slots=size.slots, limit=size.limit, drawn=size.top_k > 0)
        return pool, texts

    def blank(self, bucket: int) -> ModelInput:
        """Black images and a prompt that fills that bucket, for warming up and measuring."""
        side, cameras, robots = self.config.image_size, len(self.config.cameras), self.sizes.robots
        return ModelInput(
            images=np.zeros((robots, cameras, side, side, 3), np.uint8),
            prompt=np.zeros((robots, bucket), np.int32),
            length=np.full((robots,), bucket, np.int32),
        )

    def unguided(self) -> Guidance:
        """Nothing under way, for warming up and measuring."""
        return Guidance.none((self.sizes.robots, self.config.horizon, self.config.action_dim))

    def _bucket(self, prefix: Prefix) -> int:
        return prefix.k[0].shape[1] - self.config.image_tokens

    def _compiled(self, acting: Programs | None) -> Programs:
        """Every program that `acting` does not have, compiled for shapes alone: nothing is run."""
        weights = jax.tree.map(_abstract, self._weights)
        acting = acting or self._acting(weights)
        pool, texts = jax.eval_shape(self.empty)
        forks, decodes = {}, {}
        for bucket, prefill in acting.prefill.items():
            prefix = jax.tree.map(_abstract, prefill.out_info)
            for batch in self.sizes.forks:
                new = jax.tree.map(_abstract, self.new_requests((), batch=batch))
                fork = jax.jit(decode.fork, donate_argnames="pool")
                forks[bucket, batch] = fork.lower(weights, prefix, new, pool, texts).compile()
        for batch in self.sizes.rows:
            rows = jax.ShapeDtypeStruct((batch,), jnp.int32)
            step = jax.jit(functools.partial(_decode, self.sizes.top_k), donate_argnames="pool")
            decodes[batch] = step.lower(weights, rows, pool, texts).compile()
        return dataclasses.replace(acting, fork=forks, decode=decodes)

    def _acting(self, weights: Weights) -> Programs:
        """Those that use neither the pool nor a text."""
        robots = self.sizes.robots
        words = jax.ShapeDtypeStruct((robots, 2), jnp.uint32)
        which = jax.ShapeDtypeStruct((robots,), jnp.uint32)
        guidance = jax.tree.map(_abstract, self.unguided())
        prefills, denoises, guided = {}, {}, {}
        for bucket in self.config.prompt_buckets:
            inputs = jax.tree.map(_abstract, dataclasses.astuple(self.blank(bucket)))
            lowered = jax.jit(functools.partial(_prefill, self.config)).lower(weights, *inputs)
            prefix = jax.tree.map(_abstract, lowered.out_info)
            prefills[bucket] = lowered.compile()
            denoise = jax.jit(functools.partial(_denoise, self.config))
            denoises[bucket] = denoise.lower(weights, prefix, words, which).compile()
            if self.sizes.guided:
                guided[bucket] = denoise.lower(weights, prefix, words, which, guidance).compile()
        return Programs(prefill=prefills, denoise=denoises, guided_denoise=guided, fork={}, decode={})

    def _run_everything_once(self) -> None:
        pool, texts = self.empty()
        zeros = [0] * self.sizes.robots
        for bucket in self.config.prompt_buckets:
            prefix = self.prefill(self.blank(bucket))
            jax.block_until_ready(self.denoise(prefix, zeros, zeros))
            if self.sizes.guided:
                jax.block_until_ready(self.guided_denoise(prefix, zeros, zeros, self.unguided()))
            for batch in self.sizes.forks:
                pool, texts = self.fork(prefix, self.new_requests((), batch=batch), pool, texts)
        for batch in self.sizes.rows:
            pool, texts = self.decode((), pool, texts, batch=batch)
        jax.block_until_ready((pool, texts))


def _origins(seeds: Sequence[int], queries: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """What the noise of each robot's chunk is a function of, as programs take it."""
    return np.array([words_of(seed) for seed in seeds], np.uint32), np.array(queries, np.uint32)


def _rows(spare: int, slots: tuple[int, ...], batch: int) -> Int32[Array, " row"]:
    """A batch of so many rows on the device; those left over are the spare slot."""
    padded = np.full((batch,), spare, np.int32)
    padded[: len(slots)] = slots
    return jax.device_put(padded)


def _abstract(leaf: Array | np.ndarray | jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)
