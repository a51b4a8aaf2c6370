"""Inputs and outputs are openpi's, and what goes in is undone on the way out."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from configs.errors import UsageError
from oxygen import tokenizer, transforms
from oxygen.transforms import LIBERO_UNIT_NORMS, QuantileNorm


@pytest.mark.golden
@pytest.mark.parametrize("name", ["square256", "droid", "tall", "small", "same"])
def test_images_are_resized_as_openpi_does(golden, name):
    with np.load(golden / "openpi_transforms.npz") as file:
        image, expected = file[f"resize.{name}.in"], file[f"resize.{name}.out"]
    ours = transforms.resize_with_pad(image, 224).astype(int)
    assert np.abs(ours - expected).max() <= 1


@given(st.integers(1, 70), st.integers(1, 70), st.integers(1, 50))
def test_an_image_of_any_shape_fills_the_square_in_one_direction(height, width, side):
    white = np.full((height, width, 3), 255, np.uint8)
    square = transforms.resize_with_pad(white, side)
    assert square.shape == (side, side, 3)
    lit = (square == 255).all(axis=2)
    assert max(lit.any(axis=0).sum(), lit.any(axis=1).sum()) >= side - 1, (
        "openpi rounds down, to a pixel less"
    )


@pytest.mark.golden
def test_quantiles_normalise_as_openpis_do(golden):
    with np.load(golden / "openpi_transforms.npz") as file:
        norm = QuantileNorm(q01=tuple(file["norm.q01"].tolist()), q99=tuple(file["norm.q99"].tolist()))
        x, there, back = file["norm.x"], file["norm.quantile"], file["norm.quantile_back"]
    np.testing.assert_allclose(norm.normalise(x), there, atol=1e-6)
    np.testing.assert_allclose(norm.restore(there), back, atol=1e-6)


finite = st.floats(-1e3, 1e3)


@given(st.lists(st.tuples(finite, finite, finite), min_size=1, max_size=9))
def test_what_is_normalised_is_restored(channels):
    lows, ranges, x = np.array(channels).T
    norm = QuantileNorm(q01=tuple(lows.tolist()), q99=tuple((lows + np.abs(ranges)).tolist()))
    np.testing.assert_allclose(norm.restore(norm.normalise(x)), x, atol=1e-6)


def test_unit_norms_leave_numbers_as_they_are():
    x = np.linspace(-1, 1, 7)
    np.testing.assert_allclose(LIBERO_UNIT_NORMS.actions.restore(x), x, atol=1e-6)


def test_quantiles_must_be_finite_and_as_many():
    with pytest.raises(UsageError, match="as many finite numbers"):
        QuantileNorm(q01=(0.0,), q99=(1.0, 2.0))
    with pytest.raises(UsageError, match="as many finite numbers"):
        QuantileNorm(q01=(float("nan"),), q99=(1.0,))


@pytest.mark.golden
def test_prompts_are_cleaned_as_openpi_does(golden):
    with np.load(golden / "openpi_transforms.npz") as file:
        task, expected = str(file["prompt.task"]), str(file["prompt.without_state"])
    assert transforms.clean_prompt(task) == expected


@pytest.mark.parametrize("language", ["", "  ", "Ünïcode 汉字", "pick_up\nthe bowl"])
def test_a_prompt_begins_with_bos_and_ends_with_a_line_break(language):
    vocabulary = tokenizer.tiny()
    tokens = transforms.prompt_tokens(language, vocabulary, 64).tolist()
    (newline,) = vocabulary.encode("\n")
    assert tokens[0] == vocabulary.bos
    assert tokens[-1] == newline
    assert newline not in tokens[1:-1]


def test_a_long_prompt_is_cut_and_says_by_how_much():
    vocabulary = tokenizer.tiny()
    with pytest.warns(UserWarning, match="prompt cut by 23 of its 33 tokens"):
        tokens = transforms.prompt_tokens(" bowl" * 30, vocabulary, 10)
    assert len(tokens) == 10
