"""Doubles of a collection without physics: worlds, a policy and a picklable source."""

import dataclasses
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jaxtyping import Float64

from configs.collection import CollectConfig
from configs.errors import UsageError
from configs.schema import RunConfig
from eval.collect.collection import collect_from
from eval.collect.demonstrators import CorrectedLearner, OpenDemonstrator
from eval.collect.playing import Simulation
from eval.policies.base import LoadedPolicy
from eval.rollout.episode import WorldCache
from eval.rollout.plan import TaskPlan
from oxygen.policy.reply import EpisodeEnd, Reply
from sim_envs.fake import FakeWorld
from sim_envs.libero.tasks import LIBERO_INTERFACE
from sim_envs.world import AdvanceResult, EpisodeKey, Observation, PhysicsError, World
from tests.eval.doubles import FakeAssets, reply, without_physics

NEVER, BROKEN, FATAL, DIVERGING = 3, 4, 5, 6
"""Initial states of `Errand` that are never solved, break the simulator, end the process, and let the physics
diverge."""


@dataclasses.dataclass
class Errand(FakeWorld):
    """Takes longer from one initial state to the next."""

    pause_s: float = 0.0
    mended: bool = False
    _fatal: bool = False
    _diverging: bool = False

    def reset(self, *, init_id: int, seed: int, settle_steps: int) -> None:
        super().reset(init_id=init_id, seed=seed, settle_steps=settle_steps)
        self.success_at = None if init_id == NEVER else 6 + 3 * init_id
        self._fatal = init_id == FATAL and not self.mended
        self._diverging = init_id == DIVERGING
        self.fails_at = 2 if init_id == BROKEN and not self.mended else None

    def advance(self, actions: Float64[np.ndarray, "steps action"]) -> AdvanceResult:
        time.sleep(self.pause_s)
        if self._fatal:
            os._exit(3)
        if self._diverging:
            raise PhysicsError("the fake physics diverges, as it was told to")
        return super().advance(actions)


NOISE = 0.5
"""Noise of `Counting`, along the first axis."""


class Counting:
    """Intends i / 100 + j / 10,000 at row j of query i; the gripper closes."""

    interface = LIBERO_INTERFACE

    def reset(self, key: EpisodeKey) -> None:
        self._query = 0

    def act(self, observation: Observation) -> np.ndarray:
        actions = np.full((10, 7), self._query / 100) + np.arange(10)[:, None] / 10_000
        actions[:, 6] = 1.0
        self._query += 1
        self.intended = actions
        return actions + np.array([NOISE, 0, 0, 0, 0, 0, 0])

    def complete(self) -> Reply:
        return reply()

    def finish(self) -> EpisodeEnd:
        return EpisodeEnd()


class FakeWorlds(WorldCache):
    def __init__(self, world: Errand) -> None:
        self.world = world

    def of(self, plan: TaskPlan) -> World:
        self.world.language = plan.task.language
        return self.world

    def discard(self) -> None:
        pass

    def __enter__(self) -> "FakeWorlds":
        return self

    def __exit__(self, *_: object) -> None:
        pass


@dataclasses.dataclass(frozen=True, kw_only=True)
class FakeDemonstrationSource(Simulation):
    kind: str = "expert"
    noise: float = 0.0
    pause_s: float = 0.0
    mended: bool = False
    image_size: int = 8
    no_policy: str | None = None
    model: RunConfig | None = None

    def worlds(self) -> FakeWorlds:
        return FakeWorlds(Errand(pause_s=self.pause_s, mended=self.mended, image_size=self.image_size))

    def demonstrator(self, model: LoadedPolicy | None) -> OpenDemonstrator:
        if self.no_policy is not None:
            raise UsageError(self.no_policy)
        return lambda suite, world: Counting()


@dataclasses.dataclass(frozen=True, kw_only=True)
class FakeCorrections(FakeDemonstrationSource):
    """An expert corrects a learner, by_step turn is first: short episodes are the learner's alone."""

    def demonstrator(self, model: LoadedPolicy | None) -> OpenDemonstrator:
        return lambda suite, world: CorrectedLearner(Counting(), Counting())


def config(**changes: Any) -> CollectConfig:
    """Four tasks, two initial states each."""
    few = {
        "suites": ("libero_object", "libero_goal"),
        "task_ids": (0, 1),
        "init_ids": (0, 1),
        "max_steps": 40,
        "replan_steps": 5,
        "image_size": 8,
    }
    return CollectConfig(**{**few, **changes})


def collect(
    dataset: Path,
    *,
    source: FakeDemonstrationSource = FakeDemonstrationSource(),
    workers: int = 1,
    assets: str = "a",
    **changes: Any,
) -> int:
    """Collect into a folder; returns the exit code."""
    with pytest.MonkeyPatch.context() as patch:
        without_physics(patch, find_assets=_named)
        return collect_from(source, config(assets=assets, **changes), dataset, workers=workers)


def _named(source: str) -> FakeAssets:
    """Assets by their name, each of a content of its own."""
    return FakeAssets(name=source, digest=f"{source:0<12}")


def contents(dataset: Path) -> dict[str, bytes]:
    """Every file of a dataset but its provenance."""
    parts = ("data", "videos", "meta")
    files = [file for part in parts for file in (dataset / part).rglob("*") if file.is_file()]
    return {
        str(file.relative_to(dataset)): file.read_bytes()
        for file in sorted(files)
        if file.name != "oxygen.json"
    }
