"""What language does to actions, and neighbours to each other: nothing, to the last bit."""

import dataclasses
import functools
import hashlib
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from contracts.errors import UsageError
from oxygen.model import params, pi05
from oxygen.model.config import ModelInput
from oxygen.serving.requests import Request, Sampling
from oxygen.serving.runner import ProgramSizes, Runner
from tests.commands import printed
from tests.oxygen.compiling import DTYPES
from tests.oxygen.conftest import SMALL

ROBOTS, SLOTS, BATCH, LIMIT = 3, 6, 4, 8
SUFFIXES = ((5, 9, 301), (44,), (8, 8))
WARM = Sampling(temperature=0.9, top_k=20)


@functools.cache
def runner_of(dtype: str, *, top_k: int) -> Runner:
    config = dataclasses.replace(SMALL, dtype=dtype)
    weights = pi05.prepare(params.random_params(config, 3), config)
    sizes = ProgramSizes(
        robots=ROBOTS, slots=SLOTS, rows=(1, BATCH), forks=(2,), suffix=3, limit=LIMIT, top_k=top_k
    )
    return Runner(config, weights, sizes)


@pytest.fixture(scope="module", params=DTYPES)
def served(request) -> Runner:
    return runner_of(request.param, top_k=20)


@pytest.fixture(scope="module")
def greedy() -> Runner:
    return runner_of("float32", top_k=0)


def seen_by(numbers) -> ModelInput:
    """An observation of each robot, each a function of its number."""
    sampled = [np.random.default_rng(number) for number in numbers]
    return ModelInput(
        images=np.stack([rng.integers(0, 256, (2, 28, 28, 3), dtype=np.uint8) for rng in sampled]),
        prompt=np.stack([rng.integers(4, 768, 24).astype(np.int32) for rng in sampled]),
        length=np.array([5 + number % 20 for number in numbers], np.int32),
    )


def digest(tree) -> str:
    return hashlib.sha256(b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree))).hexdigest()


def request_in(slot, *, task=0, robot=0, query=0, seed=7, **how) -> Request:
    return Request(slot=slot, robot=robot, suffix=SUFFIXES[task], seed=seed, query=query, task=task, **how)


def texts_of(served, requests, *, company=()):
    """The tokens of requests that are decoded together, beside company that is not asked for."""
    prefix = served.prefill(seen_by(range(ROBOTS)))
    pool, texts = served.empty()
    everyone = [*company, *requests]
    for start in range(0, len(everyone), 2):
        pool, texts = served.fork(prefix, served.new_requests(everyone[start : start + 2]), pool, texts)
    for _ in range(LIMIT):
        pool, texts = served.decode([each.slot for each in everyone], pool, texts, batch=BATCH)
    written = np.asarray(texts.written)
    return [written[each.slot].tolist() for each in requests]


def test_a_robots_actions_do_not_depend_on_what_the_others_see(served):
    alone = [np.asarray(served.denoise(served.prefill(seen_by([1, n, n + 1])), [7, n, 9], [3, 0, n]))[0]
             for n in (10, 20, 30)]  # fmt: skip
    assert len({each.tobytes() for each in alone}) == 1
    moved = np.asarray(served.denoise(served.prefill(seen_by([5, 6, 1])), [0, 0, 7], [0, 0, 3]))
    assert moved[0].tobytes() != alone[0].tobytes()


def test_actions_are_the_same_bits_before_between_and_after_decoding_at_any_occupancy(served):
    rng = np.random.default_rng(0)
    pool, texts = served.empty()
    pool = jax.tree.map(lambda leaf: jnp.full_like(leaf, np.nan), pool)
    seen = seen_by([4, 5, 6])
    wanted = digest(served.denoise(served.prefill(seen), [1, 2, 3], [9, 9, 9]))
    prefix = served.prefill(seen)
    checksum = digest(prefix)
    for _ in range(6):
        slots = rng.permutation(SLOTS)[: rng.integers(1, BATCH + 1)].tolist()
        new = [
            request_in(slot, task=int(rng.integers(3)), robot=int(rng.integers(ROBOTS)), sampling=WARM)
            for slot in slots[:2]
        ]
        pool, texts = served.fork(prefix, served.new_requests(new), pool, texts)
        for _ in range(int(rng.integers(1, 4))):
            pool, texts = served.decode(slots, pool, texts, batch=BATCH)
            assert digest(served.denoise(prefix, [1, 2, 3], [9, 9, 9])) == wanted
    assert digest(prefix) == checksum
    assert digest(served.denoise(served.prefill(seen), [1, 2, 3], [9, 9, 9])) == wanted


def test_greedy_rows_of_a_program_that_draws_take_the_greedy_programs_tokens(greedy):
    draws = runner_of("float32", top_k=20)
    requests = [request_in(0, task=0), request_in(1, task=1, robot=2)]
    warm = [request_in(2, task=2, sampling=WARM)]
    expected = texts_of(greedy, requests, company=[request_in(2, task=2)])
    assert texts_of(draws, requests, company=warm) == expected
    best = [request_in(0, task=0, sampling=Sampling(temperature=5.0, top_k=1))]
    assert texts_of(draws, best) == texts_of(greedy, requests[:1])


def test_what_is_sampled_is_a_function_of_episode_query_task_and_ordinal(served):
    def sampled(**changed):
        return texts_of(served, [request_in(1, sampling=Sampling(temperature=3.0), **changed)])[0]

    assert sampled() == sampled()
    others = [sampled(**{key: value}) for key, value in (("query", 1), ("seed", 8), ("seed", 7 + 2**40))]
    others += [sampled(ordinal=1), sampled(ordinal=2), texts_of(served, [request_in(1)])[0]]
    assert len({tuple(each) for each in (sampled(), *others)}) == 7


def test_sampling_that_was_not_compiled_is_refused(served, greedy):
    for runner, top_k in ((greedy, None), (served, 21)):
        with pytest.raises(UsageError, match=f"top_k {top_k}; the programs were compiled for"):
            runner.new_requests([request_in(0, sampling=Sampling(temperature=0.5, top_k=top_k))])


def test_the_pool_is_written_in_place_and_nothing_of_its_size_is_held_beside_it(greedy):
    """Not even a layer of the pool, which is 7 rows."""
    pool, _ = jax.eval_shape(greedy.empty)
    size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(pool))
    row = size // (SMALL.trunk.depth * (SLOTS + 1))
    for program in (*greedy.programs.decode.values(), *greedy.programs.fork.values()):
        memory = program.memory_analysis()
        assert memory.alias_size_in_bytes == size
        assert memory.temp_size_in_bytes < 6 * row, "at most a few of one layer's rows"


def after_others(served):
    """A pool that others have written in, and all else that serving them leaves behind."""
    prefix = served.prefill(seen_by([40, 50, 60]))
    served.denoise(prefix, [1, 2, 3], [4, 5, 6])
    pool, texts = served.empty()
    new = served.new_requests([request_in(3, seed=99, sampling=WARM), request_in(0, task=2, robot=1)])
    pool, texts = served.fork(prefix, new, pool, texts)
    for batch in (1, BATCH, BATCH):
        pool, texts = served.decode([3], pool, texts, batch=batch)
    return pool, texts


def digest_of_an_episode(served, pool, texts) -> str:
    """Of all that three queries bring: prefixes, actions, and texts over two frames, greedy and sampled."""
    brought = []
    for query in range(3):
        prefix = served.prefill(seen_by(range(query, query + ROBOTS)))
        brought.append((prefix, served.denoise(prefix, [7, 8, 2**40], [query] * ROBOTS)))
        first = 2 * query
        requests = [request_in(first, query=query), request_in(first + 1, task=1, robot=query, sampling=WARM)]
        pool, texts = served.fork(prefix, served.new_requests(requests), pool, texts)
        for _ in range(LIMIT // 2):
            pool, texts = served.decode(range(max(0, first - 2), first + 2), pool, texts, batch=BATCH)
    written = np.asarray(texts.written)[:SLOTS]
    assert (written[:4] >= 0).all()
    return digest((brought, written))


@pytest.mark.slow
def test_two_processes_give_the_same_bytes():
    """The other one hashes in another order, and has served others before."""
    program = (
        "from tests.oxygen.policy.test_exactness import *\n"
        "for dtype in ('float32', 'bfloat16'):\n"
        "    served = runner_of(dtype, top_k=20)\n"
        "    print(dtype, digest_of_an_episode(served, *after_others(served)))\n"
    )
    said = printed(sys.executable, "-c", program, PYTHONHASHSEED="1")
    for line, dtype in zip(said.splitlines(), ("float32", "bfloat16"), strict=True):
        served = runner_of(dtype, top_k=20)
        assert line == f"{dtype} {digest_of_an_episode(served, *served.empty())}"
