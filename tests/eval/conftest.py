"""A whole run on worlds without physics: what is run, who acts in it, and how it is told to run."""

from collections.abc import Callable

import pytest
from cyclopts import App

from configs.cli import run_app
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


def call(app: App, *arguments: object) -> int:
    """The exit code of a command."""
    with pytest.raises(SystemExit) as stopped:
        run_app(app, [str(each) for each in arguments])
    return stopped.value.code


@pytest.fixture
def refused(capsys) -> Callable[..., str]:
    """Calls a command that has to end in one line on stderr with exit code 2; returns the line."""

    def refused(app: App, *arguments: object) -> str:
        assert call(app, *arguments) == 2
        out, err = capsys.readouterr()
        assert (out, err.count("\n"), err[:7]) == ("", 1, "error: ")
        return err

    return refused


@pytest.fixture
def started(monkeypatch) -> list[RunConfig]:
    """The configurations that command lines would have run."""
    runs: list[RunConfig] = []
    monkeypatch.setattr(
        "eval.rollout.evaluation.run_evaluation",
        lambda *variants, **how: runs.extend(variant.config for variant in variants) or [],
    )
    return runs


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
