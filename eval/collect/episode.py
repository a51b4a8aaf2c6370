"""Records one episode of a demonstrator as a table, one row per query, with action chunks as labels.

Why labels are intended actions, and why a learner and an expert act in turns: docs/training.md.
"""

import dataclasses
import functools
import io
import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import Bool, Float64, UInt8
from PIL import Image

from configs.training import CollectConfig
from contracts.episode import EpisodeKey, Outcome
from contracts.errors import one_line
from contracts.interface import Interface
from contracts.observation import Observation
from contracts.prompt import INSTRUCTION
from contracts.query import QueryRecord
from contracts.text import EpisodeEnd, Reply
from contracts.text_source import TrueText
from contracts.truth import Truth
from eval.collect.dataset import arrow_schema
from eval.collect.store import DemonstrationKey, EpisodeStore, Histogram
from eval.metrics.language import true_text
from eval.policies.base import Policy
from eval.policies.scripted import Scripted
from eval.records.query_logs import truth_to_json
from eval.records.run_folders import Run
from eval.rollout.plan import TaskPlan
from oxygen.training import layout
from sim_envs.suite import Suite
from sim_envs.world import World

_LEARNER_TURN = (3, 96)
_EXPERT_TURN = (6, 14)
"""The fewest and the most queries of a turn, for the expert its first one. Some of the learner's are long,
since it may get stuck late."""

_STUCK_QUERIES = 8
_STUCK_WITHIN = 0.01
"""A learner that moved by no more than this (m, rad) in that many queries is stuck, which ends its turn."""


class CorrectedLearner:
    """Learner and expert in turns, the learner first. Turn lengths are a function of the episode key."""

    charged_ms = None

    def __init__(self, learner: Policy, expert: Scripted, *, keeps_writing: bool = False) -> None:
        """Start with the learner, which may answer the expert's queries, too, to keep writing its texts."""
        self._learner, self._expert, self._keeps_writing = learner, expert, keeps_writing
        self._draws = np.random.default_rng(0)
        self._learning, self._left, self._corrections = True, 0, 0
        self._states: deque[Float64[np.ndarray, " state"]] = deque(maxlen=_STUCK_QUERIES)

    @property
    def interface(self) -> Interface:
        """The learner's conventions."""
        return self._learner.interface

    @property
    def intended(self) -> Float64[np.ndarray, "horizon action"] | None:
        """The expert's intended actions of the last query; None if the learner acted."""
        return None if self._learning else self._expert.intended

    def reset(self, key: EpisodeKey) -> None:
        """Begin an episode."""
        self._key = key
        self._draws = np.random.default_rng([key.digest(), 1])
        self._learner.reset(key)
        self._learning, self._left, self._corrections = True, self._length(_LEARNER_TURN), 0
        self._states.clear()

    def act(self, observation: Observation) -> np.ndarray:
        """Answer one query with the acting policy."""
        still = len(self._states) == _STUCK_QUERIES and np.ptp(self._states, axis=0).max() <= _STUCK_WITHIN
        if self._left == 0 or (self._learning and still):
            self._learning = not self._learning
            self._states.clear()
            self._left = self._length(_LEARNER_TURN if self._learning else _EXPERT_TURN)
            if not self._learning:  # at the start of each of its turns
                self._expert.reset(self._key)
                self._left *= 3**self._corrections
                self._corrections += 1
        self._states.append(observation.state)
        self._left -= 1
        if self._keeps_writing and not self._learning:
            self._learner.act(observation)
        return self._acting.act(observation)

    def complete(self) -> Reply:
        """Complete the query."""
        reply = self._acting.complete()
        return self._learner.complete() if self._keeps_writing and not self._learning else reply

    def finish(self) -> EpisodeEnd:
        """End the episode."""
        self._expert.finish()
        return self._learner.finish()

    @property
    def _acting(self) -> Policy:
        return self._learner if self._learning else self._expert

    def _length(self, turn: tuple[int, int]) -> int:
        """Queries of the next turn, sampled log-uniformly."""
        shortest, longest = turn
        return int(np.exp(self._draws.uniform(np.log(shortest), np.log(longest + 1))))


@dataclasses.dataclass(frozen=True, kw_only=True)
class EpisodeReport:
    """The outcome of an episode."""

    # The store has a demonstration of a success, and of another end if failures are kept; else a failure.
    # Errors are not stored.
    outcome: Outcome
    frames: int = 0  # frames kept
    error: str | None = None  # one line about an error


class DemonstrationRecorder:
    """Collects the queries of one episode and stores them in the dataset, the folder of its run.

    See `eval.rollout.episode.Recorder`.
    """

    picture_steps = None

    def __init__(self, config: CollectConfig, run: Run, plan: TaskPlan, key: EpisodeKey) -> None:
        self._config = config
        self._store = EpisodeStore(run.folder.path)
        self._plan = plan
        self._key = DemonstrationKey.of(key, plan, config)
        self._policy: Policy | None = None
        self._queries: list[QueryRecord] = []
        self._intended: list[np.ndarray | None] = []

    def begin(self, policy: Policy, suite: Suite, world: World) -> Policy:
        """The policy, corrected by the expert if it is a learner."""
        if self._config.learner is not None:
            noise, source = self._config.expert_noise, self._config.feedback
            age_s = source.age_s if isinstance(source, TrueText) else 0.0
            expert = Scripted("expert", suite, world, noise=noise, memory_age_s=age_s)
            policy = CorrectedLearner(policy, expert, keeps_writing=self._config.feedback is not None)
        self._policy = policy
        return policy

    def add(self, query: QueryRecord) -> None:
        """Keep a query, with the actions that the policy says it intended, else with those executed."""
        executed = np.asarray(query.actions, np.float64)
        self._queries.append(query)
        self._intended.append(getattr(self._policy, "intended", executed))

    def add_episode_end(self, end: EpisodeEnd) -> None:
        """Do nothing: unfinished texts are not recorded."""

    def result(self, outcome: Outcome, error: BaseException | None = None) -> EpisodeReport:
        """Store a demonstration, or that the episode failed; errors are not stored."""
        if outcome is Outcome.ERROR and error is not None:
            return EpisodeReport(outcome=outcome, error=one_line(error))
        solved = outcome is Outcome.SUCCESS
        if error is not None or not (solved or self._config.keep_failures):
            self._store.add_failure(self._key)
            return EpisodeReport(outcome=outcome)
        first = self._queries[0].observation
        images = {
            camera: [query.observation.images[camera] for query in self._queries] for camera in first.images
        }
        self._store.add(
            self._key,
            self._rows(images, solved=solved),
            solved=solved,
            language=first.feedback.get(INSTRUCTION, first.language),
            histograms={camera: histogram(np.stack(frames)) for camera, frames in images.items()},
        )
        return EpisodeReport(outcome=outcome, frames=len(self._queries))

    def abandon(self) -> None:
        """Do nothing: nothing is written before the end of an episode."""

    def _rows(self, images: Mapping[str, Sequence[np.ndarray]], *, solved: bool) -> pa.Table:
        """A row per query; none of the actions of a failed episode is a training target."""
        queries, config, suite = self._queries, self._config, self._plan.suite
        truths = [_truth_columns(query.truth) for query in queries]
        steps = [query.steps for query in queries]
        intended = self._intended if solved else [None] * len(queries)
        chunks = [  # without intended actions, the executed ones, marked as padding
            np.asarray(query.actions, np.float64) if chunk is None else chunk
            for query, chunk in zip(queries, intended, strict=True)
        ]
        hold = functools.partial(suite.interface.hold_action, queries[-1].observation.state)
        actions, padded = action_labels(chunks, steps, hold, horizon=config.horizon)
        padded |= ~learnable([chunk is not None for chunk in intended], steps, horizon=config.horizon)
        actions = actions.astype(np.float32)
        columns = {
            **{layout.IMAGES + camera: png_cells(frames) for camera, frames in images.items()},
            **{
                layout.OWN + field: [getattr(self._key, field)] * len(queries)
                for field in ("suite", "task_id", "init_id", "seed", "assets", "noise")
            },
            layout.STATE: [query.observation.state.astype(np.float32) for query in queries],
            layout.STEP: [query.step for query in queries],
            "timestamp": [query.step / self._plan.protocol.control_hz for query in queries],
            "frame_index": [query.index for query in queries],
            layout.ACTION: actions[:, 0].tolist(),
            layout.CHUNK: actions.tolist(),
            layout.PADDED: padded.tolist(),
            **{name: [row[name] for row in truths] for name in truths[0]},
        }
        if fed := config.feedback is not None:
            read = [{field: text.text for field, text in query.fed.items()} for query in queries]
            columns[layout.FED] = [json.dumps(texts) for texts in read]
        features = layout.features(suite.interface, images="image", horizon=config.horizon, fed=fed)
        for positional in ("episode_index", "index", "task_index"):
            del features[positional]
        return pa.Table.from_pydict(columns, schema=arrow_schema(features))


def png_cells(images: Sequence[UInt8[np.ndarray, "height width 3"]]) -> list[dict[str, Any]]:
    """Images as a column of PNG files."""
    cells = []
    for image in images:
        file = io.BytesIO()
        Image.fromarray(image).save(file, "PNG", compress_level=1)
        cells.append({"bytes": file.getvalue(), "path": None})
    return cells


def histogram(images: UInt8[np.ndarray, "frame height width 3"]) -> Histogram:
    """Counts of the 256 levels in each channel."""
    return np.stack([np.bincount(images[..., channel].ravel(), minlength=256) for channel in range(3)])


def _truth_columns(truth: Truth | None) -> dict[str, str]:
    """The language columns of one frame: texts in the first wording, and JSON; empty without ground truth."""
    if truth is None:
        return dict.fromkeys((*layout.TEXTS, layout.TRUTH), "")
    record: Any = truth_to_json(truth)
    memory = {part: record[part] for part in ("done", "facts")}
    return {
        **{column: true_text(task, truth) or "" for column, task in layout.TEXTS.items()},
        layout.TRUTH: json.dumps({"narration": record["narration"], "memory": memory}),
    }


def action_labels(
    intended: Sequence[Float64[np.ndarray, "_ action"]],
    steps: Sequence[int],
    hold: Callable[[Float64[np.ndarray, " action"]], Float64[np.ndarray, " action"]],
    *,
    horizon: int,
) -> tuple[Float64[np.ndarray, "query horizon action"], Bool[np.ndarray, "query horizon"]]:
    """The action chunk of each query, and a mask of its actions beyond the episode's end.

    Beyond the end the robot holds still: `hold` is the action that keeps it still after another. Takes the
    intended actions of each query, at least as many as its executed `steps`.
    """
    executed = np.concatenate([chunk[:count] for chunk, count in zip(intended, steps, strict=True)])
    extended = np.concatenate([executed, np.tile(hold(executed[-1]), (horizon, 1))])
    starts = np.cumsum([0, *steps[:-1]])
    index = starts[:, None] + np.arange(horizon)
    return extended[index.clip(max=len(executed))], index >= len(executed)


def learnable(
    by_expert: Sequence[bool], steps: Sequence[int], *, horizon: int
) -> Bool[np.ndarray, "query horizon"]:
    """A mask of the actions of each query's chunk that lie within the demonstrator's current turn.

    Takes whether the demonstrator acted, and the executed control steps, by query.
    """
    by_step = np.repeat(by_expert, steps)
    ends = np.flatnonzero(np.diff(by_step, append=~by_step[-1:])) + 1
    starts = np.cumsum([0, *steps[:-1]])
    left = ends[np.searchsorted(ends, starts, side="right")] - starts
    return np.asarray(by_expert)[:, None] & (np.arange(horizon) < left[:, None])
