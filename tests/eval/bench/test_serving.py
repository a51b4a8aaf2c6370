"""The shapes a contender is served with: its own, whoever else is measured, and none that it cannot fill."""

import dataclasses

import pytest

from eval.bench.serving import Bench, sizes_of
from eval.bench.subject import Subject
from eval.bench.workloads import Contender
from oxygen.serving.runner import ProgramSizes
from oxygen.serving.scheduler import Mode
from tests.eval.bench.conftest import workload
from tests.oxygen.conftest import SMALL

pytestmark = pytest.mark.usefixtures("compiled_soon")

SUBJECT = Subject(name="small-for-tests", config=SMALL, weights=0, weights_from="random", prompt_tokens=20)
QUERIES = 40


def sizes(asked, mode, k=None) -> ProgramSizes:
    return sizes_of(asked, Contender(mode=Mode(mode), tokens_per_frame=k), QUERIES)


@pytest.mark.parametrize(("k", "alive"), [(1, 30), (2, 15), (5, 6), (30, 1)])
def test_the_pool_of_unified_holds_the_texts_that_are_under_way_and_a_step_decodes_them_all(k, alive):
    size = sizes(workload(), "unified", k)
    assert (size.slots, size.rows, size.forks) == (alive, (alive,), (1,))


def test_the_modes_that_take_text_by_text_need_the_same_and_share_their_programs():
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
def test_no_row_is_decoded_that_no_text_can_be_in(room, slots, rows):
    size = sizes(workload(**room), "unified", 1)
    assert (size.slots, size.rows) == (slots, (rows,))


def test_texts_born_together_have_a_slot_each_though_they_are_decoded_one_by_one():
    burst = workload("burst:4:8", robots=2)
    assert sizes(burst, "isolated").slots == sizes(burst, "shared").slots == 8
    assert (sizes(burst, "isolated").rows, sizes(burst, "shared").rows) == ((2,), (2, 8))
    assert (sizes(burst, "isolated").forks, sizes(burst, "shared").forks) == ((2,), (8,))
    assert sizes(burst, "actions").slots == 2
    few = workload("burst:4:8", robots=2, slots=3, rows=1)
    assert (sizes(few, "shared").rows, sizes(few, "shared").forks) == ((1,), (3,))


def test_isolated_drops_nothing_where_nobody_else_is_measured():
    burst = workload("burst:3:2", text_tokens=4)
    with Bench(SUBJECT).open(burst, [Contender(mode=Mode.ISOLATED)], 4) as opened:
        (lane,) = opened.lanes
        run = lane.run(4)
    assert [len(query.finished) for query in run] == [3, 0, 3, 0]
    assert sum(query.dropped for query in run) == 0


@pytest.mark.slow
def test_pools_of_several_sizes_are_written_behind_the_same_prefill_and_denoise():
    bench = Bench(SUBJECT)
    small = sizes(workload(text_tokens=4), "unified", 4)
    large = dataclasses.replace(small, slots=3, rows=(3,))
    runners = bench.runners(1, [small, large])
    one, other = (runners[size].programs for size in (small, large))
    assert one.prefill is other.prefill
    assert one.denoise is other.denoise
    assert one.fork is not other.fork
    assert bench.runners(1, [large])[large] is runners[large], "kept for the next workload"
