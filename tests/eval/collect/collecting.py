"""Doubles of a collection without physics: worlds and policies, which workers can open."""

import dataclasses
import functools
import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from jaxtyping import Float64

from configs.training import CollectConfig
from contracts.observation import Observation
from eval.collect.collection import collect_from
from eval.collect.episode import CorrectedLearner
from eval.policies.base import LoadedPolicy, Policy
from sim_envs.fake import FakeWorld
from sim_envs.libero.suite import LiberoSuite
from sim_envs.suite import Task
from sim_envs.world import AdvanceResult, PhysicsError
from tests.eval.doubles import FakeAssets, FakePolicy

NEVER, BROKEN, FATAL, DIVERGING = 3, 4, 5, 6
"""Initial states of `Errand` that are never solved, break the simulator, end the process, and let the physics
diverge."""


@dataclasses.dataclass
class Errand(FakeWorld):
    """Takes longer from one initial state to the next."""

    pause_s: float = 0.0
    mended: bool = False
    _init_id: int = 0

    def reset(self, *, init_id: int, seed: int, settle_steps: int) -> None:
        super().reset(init_id=init_id, seed=seed, settle_steps=settle_steps)
        self.success_at = None if init_id == NEVER else 6 + 3 * init_id
        self._init_id = init_id
        self.fails_at = 2 if init_id == BROKEN and not self.mended else None

    def advance(self, actions: Float64[np.ndarray, "steps action"]) -> AdvanceResult:
        time.sleep(self.pause_s)
        if self._init_id == FATAL and not self.mended:
            os._exit(3)
        if self._init_id == DIVERGING:
            raise PhysicsError("the fake physics diverges, as it was told to")
        return super().advance(actions)


NOISE = 0.5
"""Noise of `Counting`, along the first axis."""


class Counting(FakePolicy):
    """Intends i / 100 + j / 10,000 at row j of query i; the gripper closes."""

    def act(self, observation: Observation) -> np.ndarray:
        actions = np.full((10, 7), self._query / 100) + np.arange(10)[:, None] / 10_000
        actions[:, 6] = 1.0
        self._query += 1
        self.intended = actions
        return actions + np.array([NOISE, 0, 0, 0, 0, 0, 0])


class ErrandSuite(LiberoSuite):
    """LIBERO's suites, whose worlds are errands."""

    errand: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._errand = dict(self.errand)  # is sent to workers

    def check(self, tasks: Iterable[Task]) -> None:
        pass

    def open(self, task: Task) -> Errand:
        return Errand(language=task.language, **self._errand)


def demonstrator(open_one: Callable[[], Policy] = Counting) -> LoadedPolicy:
    """A demonstrator as a collection is handed it."""
    return LoadedPolicy(
        interface=None,
        inputs={},
        in_world=lambda *_: open_one(),
        opener=functools.partial(demonstrator, open_one),
    )


def corrections() -> CorrectedLearner:
    """An expert corrects a learner, whose turn is first: short episodes are the learner's alone."""
    return CorrectedLearner(Counting(), Counting())


def config(**changes: Any) -> CollectConfig:
    """Four tasks, two initial states each."""
    few = {"suites": ("libero_object", "libero_goal"), "task_ids": (0, 1), "init_ids": (0, 1)}
    return CollectConfig(**{**few, "max_steps": 40, "replan_steps": 5, "image_size": 8, **changes})


def collect(
    dataset: Path,
    *,
    acts: Callable[[], Policy] = Counting,
    workers: int = 1,
    assets: str = "a",
    image_size: int = 8,
    pause_s: float = 0.0,
    mended: bool = False,
    contact_sheet: bool = False,
    **changes: Any,
) -> int:
    """Collect errands into a folder, by default without a contact sheet; returns the exit code."""
    errand = {"image_size": image_size, "pause_s": pause_s, "mended": mended}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sim_envs.libero.suite.find_assets", _named)
        patch.setattr("sim_envs.libero.suite.LiberoSuite", ErrandSuite)
        patch.setattr(ErrandSuite, "errand", errand)
        if not contact_sheet:  # drawing it takes as long as all else
            patch.setattr("eval.collect.collection.write_contact_sheet", lambda *_: None)
        options = config(assets=assets, image_size=image_size, **changes)
        return collect_from(lambda _: demonstrator(acts), options, dataset, workers=workers)


def _named(source: str) -> FakeAssets:
    """Assets by their name, each of a content of its own."""
    return FakeAssets(name=source, digest=f"{source:0<12}")


def contents(dataset: Path) -> dict[str, bytes]:
    """Every file of a dataset but its provenance."""
    parts = ("data", "videos", "meta")
    files = [file for part in parts for file in (dataset / part).rglob("*") if file.is_file()]
    data = sorted(file for file in files if file.name != "oxygen.json")
    return {str(file.relative_to(dataset)): file.read_bytes() for file in data}
