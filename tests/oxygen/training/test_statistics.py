"""Statistics measured over demonstrations are those a served policy reads."""

import dataclasses

import numpy as np

from oxygen.robots.norms import QuantileNorm, read_statistics, write_statistics
from oxygen.training.samples import Mixture, measure
from tests.oxygen.training.conftest import samples


def test_what_is_written_is_what_is_read(tmp_path):
    measured = measure(Mixture((samples(50),)))
    write_statistics(tmp_path / "assets" / "norm_stats.json", measured)
    assert read_statistics(tmp_path / "assets" / "norm_stats.json", state=8, actions=7) == measured


def test_actions_after_the_episodes_end_are_not_measured():
    part = samples(20)
    wild = np.where(part.valid[..., None], part.actions, 1e6).astype(np.float32)
    assert measure(Mixture((dataclasses.replace(part, actions=wild),))) == measure(Mixture((part,)))


def test_a_channel_that_hardly_moves_keeps_its_few_movements_in_range():
    part = samples(1000)
    actions = part.actions.copy()
    actions[..., 3] = 0.0
    actions[17, :, 3] = 0.5
    actions[..., 4] = 0.25
    norm = QuantileNorm.of(measure(Mixture((dataclasses.replace(part, actions=actions),)))["actions"])
    normalised = norm.normalise(actions)
    assert np.abs(normalised[..., 3]).max() <= 1
    np.testing.assert_allclose(normalised[..., 4], 0, atol=1e-5)
    np.testing.assert_allclose(norm.restore(normalised), actions, atol=1e-6)
