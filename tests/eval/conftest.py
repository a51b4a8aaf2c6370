"""A whole run on worlds without physics: what is run, and whoever acts in it."""

from pathlib import Path

import pytest

from configs.schema import RunConfig
from eval.rollout import evaluation
from sim_envs.fake import FakeWorld
from tests.eval.doubles import FakeAssets, FakePolicy

CONFIG = RunConfig(
    suites=("libero_object", "libero_goal"),
    task_ids=(0, 1),
    num_trials_per_task=2,
    max_steps=20,
    video="none",
)


@pytest.fixture
def policy(monkeypatch) -> FakePolicy:
    """The policy of every run in the test; worlds are solved after seven steps."""
    fake = FakePolicy()
    monkeypatch.setattr(evaluation, "open_policies", lambda cast, arms: [fake for _ in arms])
    monkeypatch.setattr(evaluation, "find_assets", lambda source: FakeAssets(name="none", path=Path()))
    monkeypatch.setattr("eval.rollout.worlds.LiberoSim", lambda task, **_: FakeWorld(success_at=7))
    return fake
