"""The programs prefill, denoise, fork and decode, compiled ahead of time for fixed shapes.

All modes call the same prefill and denoise programs, so their actions are equal to the bit.
"""

import collections
import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.stages import Compiled, Lowered

from configs.progress import stage
from contracts.errors import UsageError
from oxygen.model import int8, params, pi05
from oxygen.model.adapter import Adapter
from oxygen.model.compile_cache import compiler_options
from oxygen.model.config import ModelInput, Pi05Config
from oxygen.model.guidance import Guidance
from oxygen.model.pi05 import Prefix, Weights
from oxygen.serving import decode, kv_pool, sampler
from oxygen.serving.decode import NewRequests
from oxygen.serving.kv_pool import DecodeState, KvPool
from oxygen.serving.requests import Request
from oxygen.serving.sampler import SamplingState
from oxygen.typing import Array, Float32, Int32

_MOST_PROGRAMS = 16  # kept of policies that may be opened again
_LARGE = 1e9  # parameters from which compilation takes minutes, on a GPU too


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProgramSizes:
    """The shapes that the programs are compiled for."""

    robots: int = 1  # observations in one batch
    slots: int  # slots of the KV pool; a spare one, numbered `slots`, follows for padding rows
    rows: tuple[int, ...]  # available decode batch sizes, ascending
    forks: tuple[int, ...]  # available numbers of new requests per fork, ascending
    suffix: int  # tokens of the longest suffix
    limit: int  # tokens of the longest text
    top_k: int = 0  # the largest `top_k` of a request; 0 if every request is greedy
    guided: bool = False  # whether to compile a guided denoise program
    int8_decode: bool = False  # whether texts are decoded with int8 weights

    def batch_of(self, rows: int) -> int:
        """The smallest decode batch with at least this many rows."""
        return next(size for size in self.rows if size >= rows)


def _prefill(config: Pi05Config, weights: Weights, images: Array, prompt: Array, length: Array) -> Prefix:
    embedded = pi05.embed_prefix(weights, config, images, prompt)
    return pi05.prefill_kv(weights, embedded, length + config.image_tokens)


def _denoise(
    config: Pi05Config,
    weights: Weights,
    prefix: Prefix,
    seed: Array,
    query: Array,
    guidance: Guidance | None = None,
) -> Array:
    start = sampler.noise(seed, query, (config.horizon, config.action_dim))
    return pi05.denoise(weights, prefix, config.noise_scale * start, config.denoise_steps, guidance)


def _decode(
    weights: Weights, rows: Array, pool: KvPool, texts: DecodeState, *, top_k: int
) -> tuple[KvPool, DecodeState]:
    return decode.decode(weights, rows, pool, texts, top_k)[:2]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Programs:
    """The compiled programs by prompt bucket; `denoise` also by whether it is guided.

    `decode` is by batch size, `fork` by bucket and batch size.
    """

    prefill: Mapping[int, Compiled]
    denoise: Mapping[tuple[int, bool], Compiled]
    fork: Mapping[tuple[int, int], Compiled]
    decode: Mapping[int, Compiled]


class Runner:
    """A policy's weights and compiled programs. Holds no episode state, so engines may share it."""

    def __init__(
        self,
        config: Pi05Config,
        weights: Weights,
        sizes: ProgramSizes,
        *,
        adapter: Adapter | None = None,
        like: "Runner | None" = None,
    ) -> None:
        """Compile the programs, and run each once.

        An adapter is active for texts alone; the prefill and denoise programs of `like` are shared.
        """
        self._compiles_when_ready = 0
        self.config = config
        self.sizes = sizes
        self.adapter = adapter
        self._weights = weights
        self._int8_weights = None
        if sizes.int8_decode:
            self._int8_weights = (like and like._int8_weights) or int8.for_decoding(weights)
        self._fork_weights, self._decode_weights = (
            adapter.on(plain) if adapter else plain for plain in (weights, self._int8_weights or weights)
        )
        # Successive steps decode the same rows: keep these on the device.
        self._rows = functools.lru_cache(maxsize=4)(functools.partial(_rows, sizes.slots))
        compilations = _compilations()
        prompts, batches = (", ".join(map(str, lengths)) for lengths in (config.prompt_buckets, sizes.rows))
        takes = ", minutes the first time" if params.count(config) > _LARGE else ""
        acts, forks, decodes = jax.tree.map(_abstract, (weights, self._fork_weights, self._decode_weights))
        if like is None:
            with stage(f"compiling prefill and denoising for prompts of {prompts} tokens{takes}"):
                about = (config, sizes.robots, sizes.guided, acts)
                acting = _compiled_once(lambda: self._compile_acting(acts), about)
        else:
            acting = like.programs
        with stage(f"compiling the decoding of texts in batches of {batches}{takes}"):
            about = (config, sizes, acts, forks, decodes)
            self.programs = _compiled_once(lambda: self._compile_texts(acting, forks, decodes), about)
        with stage("running every program once"):
            self._run_everything_once()
        self._first: Runner = like._first if like else self
        self._first._compiles_when_ready = compilations[_COMPILED]

    def resized(self, sizes: ProgramSizes, adapter: Adapter | None) -> "Runner":
        """A runner with other pool sizes or adapter that shares the prefill and denoise programs."""
        assert sizes.robots == self.sizes.robots, "the number of robots is fixed by the prefill program"
        assert sizes.guided == self.sizes.guided, "guidance needs its own program"
        return Runner(self.config, self._weights, sizes, adapter=adapter, like=self)

    @property
    def compiles_after_warm_up(self) -> int:
        """Compilations in this process since this runner, and all runners resized from it, were ready."""
        return _compilations()[_COMPILED] - self._first._compiles_when_ready

    def prefill(self, inputs: ModelInput) -> Prefix:
        """Prefill an observation of every robot."""
        program = self.programs.prefill[inputs.prompt.shape[1]]
        return program(self._weights, inputs.images, inputs.prompt, inputs.length)

    def denoise(
        self,
        prefix: Prefix,
        seeds: Sequence[int],
        queries: Sequence[int],
        guidance: Guidance | None = None,
    ) -> Float32[Array, "robot horizon action"]:
        """Generate every robot's chunk of normalised actions, guided towards the chunk in execution, if any.

        The noise is a function of the robot's 64-bit episode seed and its query alone.
        """
        program = self.programs.denoise[self._bucket(prefix), guidance is not None]
        seed, query = np.array([_words_of(seed) for seed in seeds], np.uint32), np.array(queries, np.uint32)
        return program(self._weights, prefix, seed, query, guidance)

    def fork(
        self, prefix: Prefix, new: NewRequests, pool: KvPool, texts: DecodeState
    ) -> tuple[KvPool, DecodeState]:
        """Start new requests in their slots. Donates the pool."""
        program = self.programs.fork[self._bucket(prefix), len(new.slots)]
        return program(self._fork_weights, prefix, new, pool, texts)

    def decode(
        self, slots: Sequence[int], pool: KvPool, texts: DecodeState, *, batch: int
    ) -> tuple[KvPool, DecodeState]:
        """Decode one token in each of `slots`, at most `batch`, one of `ProgramSizes.rows`. Donates the pool.

        The last bits of a text's logits depend on `batch`, but not on the other rows or its slot.
        """
        return self.programs.decode[batch](self._decode_weights, self._rows(tuple(slots), batch), pool, texts)

    def new_requests(self, requests: Sequence[Request], *, batch: int | None = None) -> NewRequests:
        """Send requests to the device, for `fork`, padded to `batch` rows, the most of `forks` if None.

        The last bits of a text's logits may depend on `batch`, but not on the other rows. Refuses sampling
        that the programs were not compiled for.
        """
        size = self.sizes
        rows = size.forks[-1] if batch is None else batch
        suffix = np.zeros((rows, max(1, size.suffix - 1)), np.int32)
        slots, robots, lengths, tokens, top_k = np.zeros((5, rows), np.int32)
        origin, temperature = np.zeros((rows, 4), np.uint32), np.zeros((rows,), np.float32)
        slots[:] = size.slots
        for row, request in enumerate(requests):
            sampling = request.sampling
            if not sampling.greedy and (sampling.top_k or 1) > size.top_k:
                raise UsageError(
                    f"temperature {sampling.temperature:g} with top_k {sampling.top_k}; the programs were "
                    f"compiled for a top_k of {size.top_k} at most (0: greedy)"
                )
            *head, tokens[row] = request.suffix
            suffix[row, : len(head)] = head
            lengths[row], slots[row], robots[row] = len(head), request.slot, request.robot
            task = request.task | request.ordinal << 16
            origin[row] = (*_words_of(request.seed), request.query, task)
            temperature[row], top_k[row] = sampling.temperature, sampling.top_k or 0
        on_device = jax.device_put((slots, robots, suffix, lengths, tokens))
        draws = SamplingState(*jax.device_put((origin, temperature, top_k))) if size.top_k else None
        return NewRequests(*on_device, draws=draws)

    def empty(self) -> tuple[KvPool, DecodeState]:
        """A KV pool and decode state with every slot idle."""
        size = self.sizes
        pool = kv_pool.allocate(self.config, slots=size.slots, capacity=size.suffix + size.limit)
        texts = kv_pool.empty_decode_state(
            slots=size.slots,
            limit=size.limit,
            sampled=size.top_k > 0,
            first_by_fork=self._fork_weights.stale_slots is not None,
        )
        return pool, texts

    def blank(self, bucket: int) -> ModelInput:
        """Black images and a prompt that fills a bucket, for warm-up and measurements."""
        side, cameras, robots = self.config.image_size, len(self.config.cameras), self.sizes.robots
        return ModelInput(
            images=np.zeros((robots, cameras, side, side, 3), np.uint8),
            prompt=np.zeros((robots, bucket), np.int32),
            length=np.full((robots,), bucket, np.int32),
        )

    def unguided(self) -> Guidance:
        """Guidance without effect, for warm-up and measurements."""
        return Guidance.none((self.sizes.robots, self.config.horizon, self.config.action_dim))

    def _bucket(self, prefix: Prefix) -> int:
        return prefix.k[0].shape[1] - self.config.image_tokens

    def _compile_texts(self, acting: Programs, forking: Weights, decoding: Weights) -> Programs:
        """Compile forks and decode steps, from shapes alone, beside the programs of `acting`."""
        pool, texts = jax.eval_shape(self.empty)
        forks, decodes = {}, {}
        for bucket, prefill in acting.prefill.items():
            prefix = jax.tree.map(_abstract, prefill.out_info)
            for batch in self.sizes.forks:
                new = jax.tree.map(_abstract, self.new_requests((), batch=batch))
                fork = jax.jit(functools.partial(decode.fork, top_k=self.sizes.top_k), donate_argnames="pool")
                forks[bucket, batch] = _compile(fork.lower(forking, prefix, new, pool, texts))
        for batch in self.sizes.rows:
            rows = jax.ShapeDtypeStruct((batch,), jnp.int32)
            step = jax.jit(functools.partial(_decode, top_k=self.sizes.top_k), donate_argnames="pool")
            decodes[batch] = _compile(step.lower(decoding, rows, pool, texts))
        return dataclasses.replace(acting, fork=forks, decode=decodes)

    def _compile_acting(self, weights: Weights) -> Programs:
        robots = self.sizes.robots
        words = jax.ShapeDtypeStruct((robots, 2), jnp.uint32)
        which = jax.ShapeDtypeStruct((robots,), jnp.uint32)
        guidances = [None, jax.tree.map(_abstract, self.unguided())] if self.sizes.guided else [None]
        prefills, denoises = {}, {}
        for bucket in self.config.prompt_buckets:
            inputs = jax.tree.map(_abstract, dataclasses.astuple(self.blank(bucket)))
            lowered = jax.jit(functools.partial(_prefill, self.config)).lower(weights, *inputs)
            prefix = jax.tree.map(_abstract, lowered.out_info)
            prefills[bucket] = _compile(lowered)
            denoise = jax.jit(functools.partial(_denoise, self.config))
            for guidance in guidances:
                lowered = denoise.lower(weights, prefix, words, which, guidance)
                denoises[bucket, guidance is not None] = _compile(lowered)
        return Programs(prefill=prefills, denoise=denoises, fork={}, decode={})

    def _run_everything_once(self) -> None:
        pool, texts = self.empty()
        zeros = [0] * self.sizes.robots
        for bucket in self.config.prompt_buckets:
            prefix = self.prefill(self.blank(bucket))
            for guidance in (None, self.unguided()) if self.sizes.guided else (None,):
                jax.block_until_ready(self.denoise(prefix, zeros, zeros, guidance))
            for batch in self.sizes.forks:
                pool, texts = self.fork(prefix, self.new_requests((), batch=batch), pool, texts)
        for batch in self.sizes.rows:
            pool, texts = self.decode((), pool, texts, batch=batch)
        jax.block_until_ready((pool, texts))


_COMPILED = "/jax/core/compile/backend_compile_duration"


@functools.cache
def _compilations() -> "collections.Counter[str]":
    """Counts of JAX's timed events in this process, from the first call on; `_COMPILED` is one of them."""
    counts: collections.Counter[str] = collections.Counter()

    def note(event: str, duration_secs: float, **_: str | int) -> None:
        del duration_secs
        counts[event] += 1

    jax.monitoring.register_event_duration_secs_listener(note)
    return counts


_programs: dict[tuple[object, ...], Programs] = {}
"""The last programs of this process, by what they were compiled for: policies may be opened again."""


def _compiled_once(compiling: Callable[[], Programs], about: tuple[object, ...]) -> Programs:
    """The programs for what `about` describes, down to the shapes of weights."""
    leaves, structure = jax.tree.flatten(about)
    key = (structure, *leaves)
    _programs[key] = _programs.pop(key, None) or compiling()
    while len(_programs) > _MOST_PROGRAMS:
        del _programs[next(iter(_programs))]
    return _programs[key]


def _compile(program: Lowered) -> Compiled:
    return program.compile(compiler_options=dict(compiler_options(jax.default_backend())))


def _words_of(seed: int) -> tuple[int, int]:
    """The high and the low half of a 64-bit seed."""
    return seed >> 32 & 0xFFFF_FFFF, seed & 0xFFFF_FFFF


def _rows(spare: int, slots: tuple[int, ...], batch: int) -> Int32[Array, " row"]:
    """Slots on the device, padded to `batch` rows with the spare slot."""
    padded = np.full((batch,), spare, np.int32)
    padded[: len(slots)] = slots
    return jax.device_put(padded)


def _abstract(leaf: Array | np.ndarray | jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)
