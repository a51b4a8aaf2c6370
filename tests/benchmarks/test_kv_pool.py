"""A pool's growth is measured within one way of reading it, and not only across the change of ways."""

import pytest

from benchmarks.kv_pool import growth, pool_sizes


@pytest.mark.parametrize("requests", [2, 8, 30])
def test_pool_sizes_cover_the_change_of_reading(requests):
    """Half of the slots, the spare one among them."""
    least, crowded, sparse, most = pool_sizes(requests)
    assert 2 * requests >= crowded + 1
    assert 2 * requests < sparse + 1
    assert least < crowded < sparse < most == 4 * least


def test_growth_is_reported_for_each_way_and_end_to_end():
    """A pool that costs a step as much as it is large, read where it lies, and nothing, read slot by slot."""
    drift = (1.0, 3.0, 2.0)
    taken = {8: drift, 15: [15 / 8 * d for d in drift], 16: drift, 32: drift}
    found = growth(taken, 8)
    assert found["where_it_lies"]["slots"] == [8, 15]
    assert found["where_it_lies"]["larger_over_smaller"]["value"] == pytest.approx(15 / 8)
    assert found["slot_by_slot"]["slots"] == [16, 32]
    assert found["slot_by_slot"]["larger_over_smaller"]["value"] == 1
    assert found["end_to_end"]["slots"] == [8, 32]
    assert found["end_to_end"]["larger_over_smaller"]["value"] == 1
