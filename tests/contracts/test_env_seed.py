"""`fixed S`, `stream S` and `offset S`: spelling, and the draws of a stored initial state."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.env_seed import BY_EPISODE, EnvSeed, parse_env_seed
from contracts.errors import UsageError

KINDS = st.sampled_from(["fixed", "stream", "offset"])
SEEDS = st.integers(0, 2**32 - 1)
VALUES = st.builds(EnvSeed, KINDS, st.none() | SEEDS)


@given(VALUES)
def test_a_value_is_read_as_it_is_printed_and_reaches_other_processes(value):
    assert parse_env_seed(str(value)) == parse_env_seed(f"{value} ".replace(" ", ":", 1).rstrip(":")) == value
    assert pickle.loads(pickle.dumps(value)) == value


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("streem 7", "unknown env seed 'streem 7'; did you mean 'stream:S'"),
        ("7", "unknown env seed '7'"),
        ("fixed -1", "unknown env seed"),
        ("stream 7.5", "unknown env seed"),
        ("offset 4294967296", "give a seed from 0 to 4294967295"),
    ],
)
def test_another_spelling_is_refused(text, complaint):
    with pytest.raises(UsageError, match=complaint):
        parse_env_seed(text)


@given(seed=SEEDS, run_seed=SEEDS, init_id=st.integers(0, 49))
def test_the_draws_of_a_state(seed, run_seed, init_id):
    """The seed of NumPy's generator, and the resets between."""
    draws = {kind: EnvSeed(kind, seed).draws(init_id, run_seed) for kind in ("fixed", "stream", "offset")}
    assert draws == {
        "fixed": (seed, 0),
        "stream": (seed, init_id),
        "offset": ((seed + init_id) % 2**32, 0),
    }


@given(value=VALUES, run_seed=SEEDS, init_id=st.integers(0, 49))
def test_without_a_number_it_is_the_run_s_seed_and_fixed_with_that_seed_is_the_default(
    value, run_seed, init_id
):
    resolved = value.resolved(run_seed)
    assert resolved.draws(init_id, run_seed) == value.draws(init_id, run_seed)
    assert (resolved.seed is None) == (resolved == BY_EPISODE)
    assert EnvSeed("fixed", run_seed).resolved(run_seed) == BY_EPISODE
