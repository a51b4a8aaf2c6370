"""Whole runs on worlds without physics: what is run, who acts in it, and how it is told to run."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from configs.errors import check
from configs.schema import RunConfig, VariantsConfig
from contracts.episode import EpisodeKey
from eval.metrics.rows import RunRows
from eval.monitors.console import EvaluationConsole
from eval.records.run_folders import Run, new_run
from eval.records.schema import RunFolder
from eval.rollout import evaluation
from eval.rollout.executors import executor
from eval.rollout.prepare import prepare
from sim_envs.fake import FakeWorld
from tests.eval.doubles import FakePolicy, opened, without_physics

_FEW = {"task_ids": (0, 1), "num_trials_per_task": 2, "max_steps": 20, "video": "none"}
CONFIG = RunConfig(suites=("libero_object", "libero_goal"), **_FEW)
VARIANTS = VariantsConfig(mode=("isolated", "unified"), suites=("libero_object",), **_FEW)


def begin(output_dir: Path, asked: VariantsConfig = VARIANTS) -> list[Run]:
    return [new_run(output_dir, variant) for variant in asked.variants()]


def evaluate(*runs: Run, **how: Any) -> list[RunRows]:
    """Run what is left of an evaluation, as the command line does."""
    how = {"monitor": EvaluationConsole, **how}
    playing = {name: how.pop(name) for name in ("monitor", "max_errors") if name in how}
    return evaluation.run_evaluation(prepare(runs, **how), **playing)


def changed(config: RunConfig, **changes: Any) -> RunConfig:
    return check(RunConfig, {**config.model_dump(), **changes}, source="changes")


def play(output_dir: Path, config: RunConfig = CONFIG, how: Mapping = {}, **changes: Any) -> RunFolder:
    """A whole run, with changes to its configuration."""
    run = new_run(output_dir, changed(config, **changes))
    evaluate(run, **how)
    return run.folder


def play_until_ctrl_c(output_dir: Path, config: RunConfig = CONFIG, **changes: Any) -> RunFolder:
    """A run that Ctrl-C ends, in the query `interrupted_at` of its policy."""
    run = new_run(output_dir, changed(config, **changes))
    with pytest.raises(KeyboardInterrupt):
        evaluate(run)
    return run.folder


@pytest.fixture
def started(monkeypatch) -> list[RunConfig]:
    """The configurations that command lines would have run."""
    runs: list[RunConfig] = []

    def prepared(variants, **how):
        runs.extend(variant.config for variant in variants)
        return SimpleNamespace(configs=[variant.config for variant in variants])

    monkeypatch.setattr("eval.rollout.prepare.prepare", prepared)
    monkeypatch.setattr("eval.rollout.evaluation.run_evaluation", lambda *_, **how: [])
    return runs


def acting(patch: pytest.MonkeyPatch) -> FakePolicy:
    """The policy of every run; worlds are solved after seven steps."""
    fake = FakePolicy()
    patch.setattr(
        executor,
        "open_policies",
        lambda resolved, variants, **_: [opened(fake) for _ in variants],
    )
    without_physics(patch)
    return fake


@pytest.fixture
def policy(monkeypatch) -> FakePolicy:
    return acting(monkeypatch)


@dataclasses.dataclass(kw_only=True)
class NotingPolicy(FakePolicy):
    """Also notes, in a list that it shares with the other variants, whose turn it is."""

    mode: str
    turns: list[tuple[str, EpisodeKey]]

    def reset(self, key: EpisodeKey) -> None:
        super().reset(key)
        self.turns.append((self.mode, key))


class Stage:
    """Variants without physics: turns taken, worlds opened, and who acts in which mode."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.turns: list[tuple[str, EpisodeKey]] = []
        self.worlds: list[FakeWorld] = []
        self.policies: dict[str, NotingPolicy] = {}
        patch.setattr(executor, "open_policies", self.open_policies)
        without_physics(patch, self.open_world)

    def open_policies(self, resolved, variants, **_):
        return [opened(self.policy(variant.mode)) for variant in variants]

    def policy(self, mode: str, **changes: Any) -> NotingPolicy:
        return self.policies.setdefault(mode, NotingPolicy(mode=mode, turns=self.turns, **changes))

    def open_world(self, task):
        self.worlds.append(FakeWorld(success_at=7))
        return self.worlds[-1]


@pytest.fixture
def stage(monkeypatch) -> Stage:
    return Stage(monkeypatch)
