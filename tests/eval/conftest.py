"""A whole run on worlds without physics: what is run, who acts in it, and how it is told to run."""

import pytest

from configs.schema import RunConfig
from eval.metrics.success import Results
from eval.records.run_folders import Run
from eval.report.console import EvaluationConsole
from eval.rollout import evaluation
from eval.rollout.executors import executor
from tests.eval.doubles import FakePolicy, opened, without_physics

CONFIG = RunConfig(
    suites=("libero_object", "libero_goal"),
    task_ids=(0, 1),
    num_trials_per_task=2,
    max_steps=20,
    video="none",
)


def evaluate(*runs: Run, **how: int) -> list[Results]:
    """Run what is left of an evaluation, as the command line does."""
    return evaluation.run_evaluation(*runs, monitor=EvaluationConsole, **how)


@pytest.fixture
def policy(monkeypatch) -> FakePolicy:
    """The policy of every run in the test; worlds are solved after seven steps."""
    fake = FakePolicy()
    monkeypatch.setattr(
        executor,
        "open_policies",
        lambda resolved, variants, **_: [opened(fake, fake.inputs) for _ in variants],
    )
    without_physics(monkeypatch)
    return fake
