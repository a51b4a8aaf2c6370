"""Images reach the model as openpi's do, whatever their shape; what is no RGB image is refused in a line."""

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from configs.errors import UsageError
from oxygen.robots import images


@pytest.mark.golden
@pytest.mark.parametrize("name", ["square256", "droid", "tall", "small", "same"])
def test_images_are_resized_as_openpi_does(golden, name):
    with np.load(golden / "openpi_transforms.npz") as file:
        image, expected = file[f"resize.{name}.in"], file[f"resize.{name}.out"]
    ours = images.resize_with_pad(image, 224).astype(int)
    assert np.abs(ours - expected).max() <= 1


@given(st.integers(1, 70), st.integers(1, 70), st.integers(1, 50))
def test_an_image_of_any_shape_fills_the_square_in_one_direction(height, width, side):
    white = np.full((height, width, 3), 255, np.uint8)
    square = images.resize_with_pad(white, side)
    assert square.shape == (side, side, 3)
    lit = (square == 255).all(axis=2)
    assert max(lit.any(axis=0).sum(), lit.any(axis=1).sum()) >= side - 1  # openpi rounds down


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_floats_from_0_to_1_become_bytes_rounded_down(dtype):
    grey = np.linspace(0, 1, 3 * 256, dtype=dtype).reshape(16, 16, 3)
    assert (images.rgb(grey, "front") == (255 * grey).astype(np.uint8)).all()
    overshoot = np.array([[[-1e-4, 0.5, 1 + 1e-4]]], np.float32)
    assert images.rgb(overshoot, "front").tolist() == [[[0, 127, 255]]]


@pytest.mark.parametrize(
    ("image", "why"),
    [
        *((np.zeros(shape, np.uint8), "has shape") for shape in [(4, 4), (4, 4, 4), (3, 8, 8), (0, 4, 3)]),
        (np.zeros((4, 4, 3), np.int64), "int64"),
        (np.full((4, 4, 3), 200.0), "from 200.0 to 200.0"),
        (np.full((4, 4, 3), -1.0, np.float32), "floats from 0 to 1"),
        (np.full((4, 4, 3), np.nan), "nan"),
        ([[[0, 0, 0]]], "is a list"),
    ],
)
def test_what_is_no_rgb_image_is_refused_in_one_line(image, why):
    with pytest.raises(UsageError, match=why) as caught:
        images.camera_images({"front": image}, ["front"], 8)
    assert "'front'" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_cameras_come_in_the_policys_order_others_are_left_out_and_a_missing_one_is_named():
    names = ["front", "left", "wrist_image"]
    levels = {name: np.full((5, 9, 3), level, np.uint8) for level, name in enumerate(names)}
    assert images.camera_images(levels, ["wrist_image", "front"], 8).max(axis=(1, 2, 3)).tolist() == [2, 0]
    with pytest.raises(UsageError, match="unknown camera 'wrist'; did you mean 'wrist_image'"):
        images.camera_images(levels, ["wrist_image", "wrist"], 8)


@pytest.mark.parametrize("resize", ["pad", "stretch"])
def test_an_image_of_the_models_size_needs_no_pillow(monkeypatch, resize):
    monkeypatch.setitem(sys.modules, "PIL", None)
    image = np.full((8, 8, 3), 7, np.uint8)
    np.testing.assert_array_equal(images.squared(image, 8, resize), image)
