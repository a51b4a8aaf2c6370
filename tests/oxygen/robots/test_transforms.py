"""What goes into a policy is undone on the way out, for every robot; images and statistics are openpi's."""

import dataclasses
import json
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from contracts.errors import UsageError
from oxygen.robots import images, tokenizer, transforms
from oxygen.robots.norms import QUANTILES, QuantileNorm, checkpoint_norms, read_statistics
from oxygen.robots.transforms import DROID, LIBERO, Transform, acting_as, tracked
from tests.oxygen.conftest import SMALL

VOCABULARY = tokenizer.tiny()
JOINT_POSITIONS = transforms.embodiment("droid_jointpos")
MODEL_DIM = 32
STATE = np.linspace(-0.5, 0.5, 8)
EMBODIMENTS = transforms.EMBODIMENTS.values()


def trained(embodiment):
    """A transform whose channels all have ranges of their own."""

    def norm(size):
        lows = np.linspace(-0.9, 0.1, size)
        highs = lows + np.linspace(0.3, 1.5, size)
        return QuantileNorm(q01=tuple(lows.tolist()), q99=tuple(highs.tolist()))

    state, action = embodiment.interface.observation.state_size, embodiment.interface.action.size
    return Transform(embodiment=embodiment, state_norm=norm(state), action_norm=norm(action))


def model(embodiment):
    """A small model that looks through the robot's cameras and reads long prompts."""
    cameras = embodiment.interface.observation.camera_names
    return dataclasses.replace(SMALL, cameras=cameras, prompt_buckets=(200,))


def observation(embodiment, **changes):
    observed, rng = embodiment.interface.observation, np.random.default_rng(0)
    seen = {name: rng.integers(0, 256, (30, 40, 3), np.uint8) for name in observed.camera_names}
    state = rng.uniform(-1, 1, observed.state_size)
    return {"images": seen, "state": state, "prompt": "open the drawer", **changes}


def inputs(embodiment, **changes):
    return trained(embodiment).inputs(observation(embodiment, **changes), VOCABULARY, model(embodiment))


def chunks(size):
    return arrays.arrays(np.float64, (3, size), elements=st.floats(-0.95, 0.95))


@given(chunks(8))
def test_actions_come_back_as_they_went_in_droids_with_the_gripper_fully_open_or_closed(actions):
    transform = trained(LIBERO)
    there = transform.targets(actions[:, :7], STATE, MODEL_DIM)
    assert there.shape == (3, MODEL_DIM)
    assert not there[:, 7:].any()
    np.testing.assert_allclose(transform.outputs(there, STATE), actions[:, :7], atol=1e-9)
    transform = trained(DROID)
    back = transform.outputs(transform.targets(actions, STATE, MODEL_DIM), STATE)
    np.testing.assert_allclose(back[:, :7], actions[:, :7], atol=1e-9)
    clear = np.abs(actions[:, 7] - 0.5) > 1e-9
    assert (back[clear, 7] == (actions[clear, 7] > 0.5)).all()


@given(chunks(8))
def test_position_targets_are_differences_from_the_joints_of_the_query_as_in_openpi(actions):
    transform = trained(JOINT_POSITIONS)
    targets = transform.targets(actions, STATE, MODEL_DIM)
    deltas = transform.action_norm.restore(targets[:, :8])
    np.testing.assert_allclose(deltas[:, :7], actions[:, :7] - STATE[:7], atol=1e-9)
    np.testing.assert_allclose(deltas[:, 7], actions[:, 7], atol=1e-9)
    np.testing.assert_allclose(transform.outputs(targets, STATE)[:, :7], actions[:, :7], atol=1e-9)
    both = transform.targets(np.stack([actions, -actions]), np.stack([STATE, STATE + 1]), MODEL_DIM)
    assert (both[0] == targets).all()
    assert (both[1] == transform.targets(-actions, STATE + 1, MODEL_DIM)).all()


@given(chunks(8))
def test_a_chunk_keeps_its_actions_when_the_robot_has_moved(actions):
    later = STATE + 0.1
    for embodiment in (DROID, JOINT_POSITIONS):
        transform = trained(embodiment)
        chunk = transform.targets(actions, STATE, MODEL_DIM).astype(np.float32)
        moved = transform.moved(chunk, STATE, later)
        kept, before = transform.outputs(moved, later), transform.outputs(chunk, STATE)
        np.testing.assert_allclose(kept, before, atol=1e-6)
        assert (moved == chunk).all() == (embodiment is DROID)


def test_velocities_become_targets_that_lead_where_the_arm_is_expected():
    velocities = np.zeros((3, 7))
    velocities[:2, 0] = 1.0, -0.5
    share = 1 - np.exp(-10 / 15)  # the first joint has 40 Nm/rad and 4 Nm s/rad
    targets = tracked(velocities, STATE[:7])
    np.testing.assert_allclose(targets[:, 1:], np.tile(STATE[1:7], (3, 1)))
    expected = [0.2, 0.2 * share - 0.1, 0.2 * share - 0.1 * share]
    np.testing.assert_allclose(targets[:, 0] - STATE[0], expected, atol=1e-12)


@given(chunks(8))
def test_a_policy_of_velocities_gives_their_targets(actions):
    velocities, positions = trained(DROID), trained(transforms.embodiment("droid_velocity_as_jointpos"))
    chunk = velocities.targets(actions, STATE, MODEL_DIM)
    commanded, targets = velocities.outputs(chunk, STATE), positions.outputs(chunk, STATE)
    np.testing.assert_allclose(targets[:, :7], tracked(commanded[:, :7], STATE[:7]), atol=1e-12)
    assert (targets[:, 7] == commanded[:, 7]).all()
    assert (positions.moved(chunk.astype(np.float32), STATE, STATE + 1) == chunk.astype(np.float32)).all()


def test_weights_act_as_they_were_trained_or_track_their_velocities():
    assert acting_as("droid") == ["droid", "droid_velocity_as_jointpos"]
    assert acting_as("droid_compact") == ["droid_compact", "droid_velocity_as_jointpos_compact"]
    for name in ("libero", "droid_jointpos", "droid_velocity_as_jointpos"):
        assert acting_as(name) == [name]


def test_a_gripper_at_the_threshold_opens(monkeypatch):
    monkeypatch.setattr(QuantileNorm, "restore", lambda norm, x: x.copy())  # exact to the last bit
    gripper = np.zeros((3, MODEL_DIM))
    gripper[:, 7] = 0.5, np.nextafter(0.5, 1), np.nextafter(0.5, 0)
    assert trained(DROID).outputs(gripper, STATE)[:, 7].tolist() == [0.0, 1.0, 0.0]


@given(arrays.arrays(np.float32, (2, MODEL_DIM), elements=st.floats(-(2.0**99), 2.0**99, width=32)))
def test_droid_actions_stay_within_limits_and_liberos_are_left_to_robosuite(actions):
    assert np.abs(trained(DROID).outputs(actions, STATE)).max() <= 1
    restored = trained(LIBERO).action_norm.restore(actions[:, :7])
    assert (trained(LIBERO).outputs(actions, STATE) == restored).all()


@pytest.mark.parametrize("embodiment", EMBODIMENTS, ids=transforms.EMBODIMENTS.keys())
def test_an_observation_becomes_images_and_tokens_and_actions_that_are_no_numbers_stay_so(embodiment):
    for channel in (0, embodiment.interface.action.size - 1):
        actions = np.zeros((2, MODEL_DIM), np.float32)
        actions[1, channel] = np.nan
        assert np.isnan(trained(embodiment).outputs(actions, STATE)).sum() == 1
    given = inputs(embodiment)
    assert given.images.shape == (1, 2, 28, 28, 3)
    assert given.length == given.prompt.shape[1]
    assert given.prompt[0, 0] == VOCABULARY.bos
    assert "open the drawer" in VOCABULARY.decode(given.prompt[0, 1:].tolist())


def test_a_state_may_be_given_by_its_channels_names():
    by_name = {"gripper_position": STATE[7], "joint_position": STATE[:7].tolist()}
    assert (inputs(DROID, state=STATE).prompt == inputs(DROID, state=by_name).prompt).all()


ENDLESS = [0.0, float("-inf"), *[0.0] * 6]


@pytest.mark.parametrize(
    ("state", "why"),
    [
        *((bad, "state") for bad in (np.zeros(7), np.zeros((1, 8)), [], "high", ["a"] * 8, None, object())),
        *((bad, "state") for bad in ([[1.0], 2.0], {})),
        ({"joint_position": STATE[:7]}, "lacks 'gripper_position'"),
        ({"joint_position": STATE[:7], "gripper_position": STATE[:2]}, r"'gripper_position' has shape \(2,"),
        *((np.where(np.arange(8) == 3, bad, 0.0), f"state holds {bad} at 3") for bad in (np.nan, np.inf)),
        (ENDLESS, "state holds -inf at 1"),
    ],
)
def test_what_is_no_state_is_refused(state, why):
    with pytest.raises(UsageError, match=why):
        inputs(DROID, state=state)


@pytest.mark.parametrize(("sign", "level"), [(-1, "-1"), (1, "255")])
def test_the_largest_state_is_told_as_out_of_range(sign, level):
    state = np.full(8, sign * np.finfo(np.float64).max)
    tokens = inputs(transforms.embodiment("libero_state"), state=state).prompt[0, 1:]
    assert f", State: {' '.join([level] * 8)};" in VOCABULARY.decode(tokens.tolist())


def test_an_observation_that_lacks_something_says_what():
    for key in ("images", "state", "prompt"):
        partial = {name: value for name, value in observation(LIBERO).items() if name != key}
        with pytest.raises(UsageError, match=f"lacks '{key}'"):
            trained(LIBERO).inputs(partial, VOCABULARY, model(LIBERO))


def test_a_model_must_fit_the_robot():
    trained(DROID).check_fits(model(DROID))
    trained(LIBERO).check_fits(dataclasses.replace(model(LIBERO), cameras=("wrist_image",)))
    with pytest.raises(UsageError, match="camera of small-for-tests for a DROID policy: 'image'"):
        trained(DROID).check_fits(model(LIBERO))
    with pytest.raises(UsageError, match="LIBERO policy has 7 action channels, small-for-tests 6"):
        trained(LIBERO).check_fits(dataclasses.replace(model(LIBERO), action_dim=6))


@pytest.mark.golden
def test_quantiles_normalise_as_openpis_do(openpi_transforms):
    x, normalised, restored = (openpi_transforms[f"norm.{of}"] for of in ("x", "quantile", "quantile_back"))
    low, high = (tuple(openpi_transforms[f"norm.{of}"].tolist()) for of in ("q01", "q99"))
    norm = QuantileNorm(q01=low, q99=high)
    np.testing.assert_allclose(norm.normalise(x), normalised, atol=1e-6)
    np.testing.assert_allclose(norm.restore(normalised), restored, atol=1e-6)


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


def test_other_forms_that_can_only_mean_the_same_are_read(tmp_path):
    whole = {"state": stats_of(8), "actions": stats_of(7)}
    rows = {name: {field: [values] for field, values in of.items()} for name, of in whole.items()}
    text = json.dumps({"norm_stats": whole})
    for content in (whole, {"norm_stats": rows}, text.encode("utf-8-sig"), text.encode("utf-16")):
        assert read_statistics(written(tmp_path / "norm_stats.json", content), state=8, actions=7) == whole


def with_state(size=8, **changes):
    return {"norm_stats": {"state": stats_of(size, **changes), "actions": stats_of(7)}}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("{", "not readable JSON"),
        ("[" * 200_000, "not readable JSON"),
        (b"\xff\xff{}", "not readable JSON"),
        (b"version https://git-lfs.github.com/spec/v1\noid", "is a pointer of Git LFS.*git lfs pull"),
        ({}, "lacks 'norm_stats'; it has nothing"),
        ({"droid": {"state": stats_of(8)}}, "lacks 'norm_stats'; it has 'droid'. Put `state` and `actions`"),
        ({"norm_stats": {"state": stats_of(8), "action": 1}}, "lacks 'actions'; it has 'action', .*Rename"),
        (with_state(q01=None), "state.q01 is null, a missing value. Compute the statistics again"),
        (with_state(q01=-1.0), "state.q01 is -1.0; it should be a list of 8 finite numbers"),
        (with_state(7), "7 channels; this robot has 8"),
        *((with_state(q99=[bad] * 8), "list of 8 finite") for bad in ("a", True, float("nan"), 10**400)),
        (with_state(q01=[9.0] * 8), "state: quantiles .* not a range"),
    ],
    ids=range(15),
)
def test_a_damaged_file_says_what_is_wrong(tmp_path, content, why):
    with pytest.raises(UsageError, match=why) as caught:
        read_statistics(written(tmp_path / "norm_stats.json", content), state=8, actions=7)
    assert len(str(caught.value)) < 600
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
def test_any_content_is_read_or_refused(one_file, content):
    try:
        found = read_statistics(written(one_file, content), state=1, actions=2, fields=QUANTILES)
    except UsageError:
        return
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
    same = stats_of(32, q01=[-1.0] * 32, q99=[1.0] * 32)
    written(path, {"norm_stats": {"state": same, "actions": same}})
    assert transforms.of_checkpoint(LIBERO, tmp_path) == transforms.untrained(LIBERO)


@pytest.mark.golden
@pytest.mark.parametrize("name", ["square256", "droid", "tall", "small", "same"])
def test_images_are_resized_as_openpi_does(openpi_transforms, name):
    ours = images.resized(openpi_transforms[f"resize.{name}.in"], 224).astype(int)
    assert np.abs(ours - openpi_transforms[f"resize.{name}.out"]).max() <= 1


@given(st.integers(1, 70), st.integers(1, 70), st.integers(1, 50))
def test_an_image_of_any_shape_fills_the_square_in_one_direction(height, width, side):
    white = np.full((height, width, 3), 255, np.uint8)
    square = images.resized(white, side)
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
def test_what_is_no_rgb_image_is_refused(image, why):
    with pytest.raises(UsageError, match=why) as caught:
        images.camera_images({"front": image}, ["front"], 8)
    assert "'front'" in str(caught.value)


def test_cameras_come_in_the_policys_order_others_are_left_out_and_a_missing_one_is_named():
    names = ["front", "left", "wrist_image"]
    levels = {name: np.full((5, 9, 3), level, np.uint8) for level, name in enumerate(names)}
    assert images.camera_images(levels, ["wrist_image", "front"], 8).max(axis=(1, 2, 3)).tolist() == [2, 0]
    with pytest.raises(UsageError, match=r"lacks 'wrist'\. Allowed: .*wrist\. Given: wrist_image"):
        images.camera_images(levels, ["wrist_image", "wrist"], 8)


@pytest.mark.parametrize("resize", ["pad", "stretch"])
def test_an_image_of_the_models_size_needs_no_pillow(monkeypatch, resize):
    monkeypatch.setitem(sys.modules, "PIL", None)
    image = np.full((8, 8, 3), 7, np.uint8)
    np.testing.assert_array_equal(images.resized(image, 8, resize), image)
