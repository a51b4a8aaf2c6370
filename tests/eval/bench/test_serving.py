"""A configuration is served with the shapes it needs by itself."""

import dataclasses

import pytest

from eval.bench.serving import Bench, sizes_of
from eval.bench.workloads import BenchConfiguration
from oxygen.serving.runner import ProgramSizes
from oxygen.serving.scheduler import Mode
from tests.eval.bench.conftest import MODEL, workload

pytestmark = pytest.mark.usefixtures("compiled_soon")


def sizes(asked, mode, k=None) -> ProgramSizes:
    return sizes_of(asked, BenchConfiguration(mode=Mode(mode), tokens_per_frame=k))


@pytest.mark.parametrize(("k", "texts"), [(1, 30), (2, 15), (5, 6), (30, 1)])
def test_the_pool_and_the_batch_of_unified_hold_all_unfinished_texts(k, texts):
    size = sizes(workload(), "unified", k)
    assert (size.slots, size.rows, size.forks) == (texts, (texts,), (1,))


def test_modes_that_decode_one_text_at_a_time_have_the_same_shapes():
    assert len({sizes(workload(), mode) for mode in ("actions", "isolated", "shared", "parallel")}) == 1
    assert sizes(workload(), "isolated") == sizes(workload(), "unified", 30)


@pytest.mark.parametrize(
    ("room", "slots", "rows"),
    [
        ({"slots": 8}, 8, 8),
        ({"slots": 8, "rows": 4}, 8, 4),
        ({"slots": 4, "rows": 8}, 4, 4),
        ({"rows": 99}, 30, 30),
        ({"rows": 4}, 30, 4),
    ],
)
def test_a_batch_has_no_more_rows_than_slots_and_texts(room, slots, rows):
    size = sizes(workload(**room), "unified", 1)
    assert (size.slots, size.rows) == (slots, (rows,))


def test_texts_requested_together_have_a_slot_each_even_if_they_are_decoded_one_by_one():
    burst = workload("burst:4:8", robots=2)
    assert sizes(burst, "isolated").slots == sizes(burst, "shared").slots == 8
    assert (sizes(burst, "isolated").rows, sizes(burst, "shared").rows) == ((2,), (2, 8))
    assert (sizes(burst, "isolated").forks, sizes(burst, "shared").forks) == ((2,), (8,))
    assert sizes(burst, "actions").slots == 2
    few = workload("burst:4:8", robots=2, slots=3, rows=1)
    assert (sizes(few, "shared").rows, sizes(few, "shared").forks) == ((1,), (3,))


@pytest.mark.slow
def test_isolated_alone_drops_no_texts():
    burst = workload("burst:3:2", text_tokens=4)
    with Bench(MODEL).prepare(burst, [BenchConfiguration(mode=Mode.ISOLATED)]) as (runner,):
        run = runner.run(4)
    assert [len(query.request_ms) for query in run] == [3, 0, 3, 0]
    assert sum(query.dropped for query in run) == 0


@pytest.mark.slow
def test_pools_of_several_sizes_share_prefill_and_denoise():
    bench = Bench(MODEL)
    small = sizes(workload(text_tokens=4), "unified", 4)
    large = dataclasses.replace(small, slots=3, rows=(3,))
    runners = bench.runners(1, [small, large])
    one, other = (runners[size].programs for size in (small, large))
    assert one.prefill is other.prefill
    assert one.denoise is other.denoise
    assert one.fork is not other.fork
    assert bench.runners(1, [large])[large] is runners[large], "kept for the next workload"
