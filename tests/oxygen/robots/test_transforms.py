"""What goes into a policy is undone on the way out, for every robot it was trained on."""

import dataclasses
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from configs.errors import UsageError
from oxygen.robots import tokenizer, transforms
from oxygen.robots.norms import QuantileNorm
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

    interface = embodiment.interface
    return Transform(
        embodiment=embodiment,
        state_norm=norm(interface.observation.state_size),
        action_norm=norm(interface.action.size),
    )


def model(embodiment):
    """A small model that looks through the robot's cameras and reads long prompts."""
    cameras = embodiment.interface.observation.camera_names
    return dataclasses.replace(SMALL, cameras=cameras, prompt_buckets=(200,))


def observation(embodiment, **changes):
    interface = embodiment.interface
    rng = np.random.default_rng(0)
    images = {
        name: rng.integers(0, 256, (30, 40, 3), np.uint8) for name in interface.observation.camera_names
    }
    state = rng.uniform(-1, 1, interface.observation.state_size)
    return {"images": images, "state": state, "prompt": "open the drawer", **changes}


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
        np.testing.assert_allclose(
            transform.outputs(moved, later), transform.outputs(chunk, STATE), atol=1e-6
        )
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
        *((state, "state") for state in (np.zeros(7), np.zeros((1, 8)), [], "high", ["a"] * 8, None)),
        *((state, "state") for state in ([[1.0], 2.0], {}, object())),
        ({"joint_position": STATE[:7]}, "lacks 'gripper_position'"),
        ({"joint_position": STATE[:7], "gripper_position": STATE[:2]}, r"'gripper_position' has shape \(2,"),
        *((np.where(np.arange(8) == 3, bad, 0.0), f"state holds {bad} at 3") for bad in (np.nan, np.inf)),
        (ENDLESS, "state holds -inf at 1"),
    ],
)
def test_what_is_no_state_is_refused_in_one_line(state, why):
    with pytest.raises(UsageError, match=why) as caught:
        inputs(DROID, state=state)
    assert "\n" not in str(caught.value)


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


def test_statistics_come_from_the_checkpoint(tmp_path):
    place = tmp_path / "assets" / DROID.asset_id
    place.mkdir(parents=True)
    stats = {"q01": [-1.0] * 32, "q99": [1.0] * 32}
    (place / "norm_stats.json").write_text(json.dumps({"norm_stats": {"state": stats, "actions": stats}}))
    assert transforms.of_checkpoint(DROID, tmp_path) == transforms.untrained(DROID)
    with pytest.raises(UsageError, match=r"physical-intelligence/libero'; did you mean 'assets/droid'"):
        transforms.of_checkpoint(LIBERO, tmp_path)


def test_a_model_must_fit_the_robot():
    trained(DROID).check_fits(model(DROID))
    trained(LIBERO).check_fits(dataclasses.replace(model(LIBERO), cameras=("wrist_image",)))
    with pytest.raises(UsageError, match="camera of small-for-tests for a DROID policy: 'image'"):
        trained(DROID).check_fits(model(LIBERO))
    with pytest.raises(UsageError, match="LIBERO policy has 7 action channels, small-for-tests 6"):
        trained(LIBERO).check_fits(dataclasses.replace(model(LIBERO), action_dim=6))
