"""A runner without a model: its device is told whether to be done, and notes what it was given."""

import dataclasses
import functools
from concurrent.futures import Executor, Future

import jax.numpy as jnp
import numpy as np

from oxygen.model.pi05 import Prefix
from oxygen.serving.decode import NewRequests
from oxygen.serving.kv_pool import DecodeState
from oxygen.serving.runner import ProgramSizes, Runner
from tests.oxygen.conftest import SMALL

SIZES = ProgramSizes(slots=6, rows=(1, 6), forks=(2,), suffix=4, limit=30)


class DeviceArray:
    """An array on the device: the host's waits for it are noted, and refused where it is never ready."""

    def __init__(self, value, *, ready=True, note=lambda: None):
        self._value, self._ready, self._note = value, ready, note

    def copy_to_host_async(self):
        pass

    def block_until_ready(self):
        assert self._ready, "the host waits for what the device has not done"
        self._note()
        return self

    def __array__(self, dtype=None, copy=None):
        self.block_until_ready()
        return self._value


class FakeRunner(Runner):
    """Writes the tokens 2, 3, 4, … where it decodes, if that is ever `decoded`; calls `queueing` for each."""

    compiles_after_warm_up = 0

    def __init__(self, sizes=SIZES, *, decoded=True, queueing=lambda: None):
        self.config, self.sizes = SMALL, sizes
        self._decoded, self._queueing = decoded, queueing
        self.queued, self.read = [], []

    def prefill(self, inputs):
        self.queued.append("prefill")
        array = np.zeros((self.sizes.robots, 1, 1, 1), np.float32)
        return Prefix(k=(array,), v=(array,), length=inputs.length)

    def denoise(self, prefix, seeds, queries):
        self.queued.append("denoise")
        shape = (self.sizes.robots, self.config.horizon, self.config.action_dim)
        return jnp.zeros(shape)

    def new_requests(self, requests, *, batch=None):
        slots = np.array([request.slot for request in requests], np.int32)
        return NewRequests(slots=slots, robots=slots, suffix=slots, suffix_length=slots, token=slots)

    def fork(self, prefix, new, pool, texts):
        self.queued.append("fork")
        return pool, self._texts(texts, new.slots, 0)

    def decode(self, slots, pool, texts, *, batch):
        self.queued.append("decode")
        self._queueing()
        return pool, self._texts(texts, list(slots), 1)

    def empty(self):
        count = np.zeros(self.sizes.slots + 1, np.int32)
        texts = DecodeState(token=count, position=count, count=count, written=self._written(count))
        return (), texts

    def _texts(self, texts, slots, more):
        count = texts.count.copy()
        count[slots] = count[slots] + 1 if more else 0
        return dataclasses.replace(texts, count=count, written=self._written(count))

    def _written(self, count):
        number = np.arange(self.sizes.limit)
        tokens = np.where(number[None] < count[:, None], 2 + number[None], -1)
        steps = self.queued.count("decode")
        return DeviceArray(
            tokens,
            ready=self._decoded or not steps,
            note=lambda: self.read.append((steps, self.queued.count("decode"))),
        )


class RunsWhenAsked(Executor):
    """Runs what was submitted in the thread that asks for its result, so that a told clock has one reader."""

    def submit(self, function, /, *args, **kwargs):
        future = Future()
        future.result = functools.partial(function, *args, **kwargs)
        return future
