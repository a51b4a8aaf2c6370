"""Numbers are normalised as openpi does it; statistics that are none are refused, whatever they are."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from configs.errors import UsageError
from oxygen.robots.norms import QUANTILES, QuantileNorm, checkpoint_norms, read_statistics


@pytest.fixture(scope="module")
def reference(golden):
    with np.load(golden / "openpi_transforms.npz") as file:
        return {key.removeprefix("norm."): file[key] for key in file.files if key.startswith("norm.")}


@pytest.mark.golden
def test_quantiles_normalise_as_openpis_do(reference):
    norm = QuantileNorm(q01=tuple(reference["q01"].tolist()), q99=tuple(reference["q99"].tolist()))
    np.testing.assert_allclose(norm.normalise(reference["x"]), reference["quantile"], atol=1e-6)
    np.testing.assert_allclose(norm.restore(reference["quantile"]), reference["quantile_back"], atol=1e-6)


finite = st.floats(-1e3, 1e3)
channels = st.lists(st.tuples(finite, finite, finite), min_size=1, max_size=9)


@given(channels)
def test_what_is_normalised_is_restored(numbers):
    lows, ranges, x = np.array(numbers).T
    norm = QuantileNorm(q01=tuple(lows.tolist()), q99=tuple((lows + np.abs(ranges)).tolist()))
    np.testing.assert_allclose(norm.restore(norm.normalise(x)), x, atol=1e-6)
    np.testing.assert_allclose(norm.normalise(norm.restore(x)), x, atol=1e-3)


@pytest.mark.parametrize(
    ("why", "q01", "q99"),
    [
        ("same number of channels", (0.0,), (1.0, 2.0)),
        ("all finite", (float("nan"),), (1.0,)),
        ("not a range", (0.0, 1.0), (1.0, 0.5)),
        ("not a range", (-1.7e308,), (1.7e308,)),
    ],
)
def test_quantiles_that_cannot_be_are_refused(why, q01, q99):
    with pytest.raises(UsageError, match=why):
        QuantileNorm(q01=q01, q99=q99)


def stats_of(size, **changes):
    """One robot's worth of openpi's statistics."""
    offsets = {"mean": 0.0, "std": 1.0, "q01": -2.0, "q99": 2.0}
    return {name: [0.1 * i + by for i in range(size)] for name, by in offsets.items()} | changes


def written(path, content):
    content = content if isinstance(content, str | bytes) else json.dumps(content)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize("sizes", [(8, 7), (32, 32)], ids=["its channels", "padded to the model's width"])
def test_openpis_file_is_read(tmp_path, sizes):
    state, actions = map(stats_of, sizes)
    path = written(tmp_path / "norm_stats.json", {"norm_stats": {"state": state, "actions": actions}})
    assert read_statistics(path, state=8, actions=7) == {"state": stats_of(8), "actions": stats_of(7)}


def with_state(size=8, **changes):
    return {"norm_stats": {"state": stats_of(size, **changes), "actions": stats_of(7)}}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("{", "not readable JSON"),
        ("[" * 200_000, "not readable JSON"),
        (b"\xff\xfe{}", "not readable JSON"),
        ({}, "lacks 'norm_stats'"),
        ({"norm_stats": {"state": stats_of(8)}}, "lacks 'actions'.*'state'"),
        (with_state(q01=None), "state lacks 'q01'"),
        (with_state(7), "7 channels; this robot has 8"),
        *((with_state(q99=[bad] * 8), "list of finite") for bad in ("a", True, float("nan"), 10**400)),
        (with_state(q01=[9.0] * 8), "state: quantiles .* not a range"),
    ],
    ids=range(12),
)
def test_a_damaged_file_says_what_is_wrong_in_one_line(tmp_path, content, why):
    with pytest.raises(UsageError, match=why) as caught:
        read_statistics(written(tmp_path / "norm_stats.json", content), state=8, actions=7)
    assert len(str(caught.value)) < 600
    assert "\n" not in str(caught.value)
    for name in ("absent.json", "."):
        with pytest.raises(UsageError, match="not readable JSON"):
            read_statistics(tmp_path / name, state=8, actions=7)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
column = st.lists(st.floats() | st.integers(), min_size=1, max_size=3) | anything
member = st.fixed_dictionaries({"q01": column, "q99": column}) | anything
content = st.fixed_dictionaries({"norm_stats": st.fixed_dictionaries({"state": member, "actions": member})})


@pytest.fixture(scope="module")
def one_file(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzzed") / "norm_stats.json"


@given(content | anything)
def test_any_content_is_read_or_refused_in_one_line(one_file, content):
    path = written(one_file, content)
    try:
        found = read_statistics(path, state=1, actions=2, fields=QUANTILES)
    except UsageError as refused:
        message = str(refused)
        assert len(message.splitlines()) == 1
    else:
        assert np.isfinite(QuantileNorm.of(found["state"]).normalise(np.zeros(1))).all()


def test_statistics_are_found_beside_a_checkpoints_weights(tmp_path):
    place = tmp_path / "assets" / "physical-intelligence" / "libero"
    place.mkdir(parents=True)
    path = written(place / "norm_stats.json", "{}")
    assert checkpoint_norms(tmp_path, "physical-intelligence/libero") == path
    assert checkpoint_norms(place, "droid") == path
    named = written(place / "mine.json", "{}")
    assert checkpoint_norms(named, "droid") == named
    with pytest.raises(FileNotFoundError):
        checkpoint_norms(place / "absent.json", "droid")
    (tmp_path / "model.safetensors").touch()
    for weights in ("params", "model.safetensors"):
        assert checkpoint_norms(tmp_path / weights, "physical-intelligence/libero") == path
    with pytest.raises(UsageError, match=r"'assets/droid'; did you mean 'assets/physical-intelligence/lib"):
        checkpoint_norms(tmp_path, "droid")
    with pytest.raises(UsageError, match="there is none"):
        checkpoint_norms(tmp_path / "assets" / "physical-intelligence" / "nowhere", "droid")
