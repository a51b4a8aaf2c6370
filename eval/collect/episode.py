"""Records one episode as a table, one row per query, with action chunks as labels.

The label of a frame has the actions intended at each of the next `horizon` control steps, in the states
then reached, for two reasons. An expert plans a chunk within one motion and stands still at its end, so the
second half of a chunk often differs from its later actions. And noise on executed actions leads to states
off the path; the actions intended there lead back, and a policy must learn them (DART, Laskey et al. 2017).
Labels have no noise. The first `replan_steps` actions of a chunk are those intended at the frame's own
state; later ones also respond to disturbances that could not be foreseen, with mean zero.

If a learner acts in turns with the demonstrator, a label ends with the demonstrator's turn.
"""

import dataclasses
import functools
import io
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import Bool, Float64, UInt8
from PIL import Image

from configs.errors import one_line
from configs.feedback import INSTRUCTION
from configs.interface import Interface
from configs.training import CollectConfig
from eval.collect.dataset import arrow_schema
from eval.collect.demonstrators import CorrectedLearner, Demonstrator
from eval.collect.plan import DemonstrationKey
from eval.collect.store import EpisodeStore, Histogram
from eval.metrics.language import true_text
from eval.policies.base import Policy
from eval.policies.scripted import Scripted, scripted_policy
from eval.records.query_logs import QueryRecord, truth_to_json
from eval.records.run_folders import Run
from eval.records.schema import Outcome
from eval.rollout.plan import TaskPlan
from oxygen.policy.reply import EpisodeEnd
from oxygen.training import layout
from sim_envs.suite import Suite
from sim_envs.truth.ground_truth import Truth
from sim_envs.world import EpisodeKey, World


@dataclasses.dataclass(frozen=True, kw_only=True)
class EpisodeReport:
    """The outcome of an episode."""

    # The store has a demonstration of a success, and of another end if failures are kept; else a failure.
    # Errors are not stored.
    outcome: Outcome
    frames: int = 0  # frames kept
    error: str | None = None  # one line about an error


class DemonstrationRecorder:
    """Collects the queries of one episode and stores them as a table. See `eval.rollout.episode.Recorder`.

    Args:
        config: What is collected.
        run: Its folder is the dataset.
        plan: The episode's task.
        key: The episode.
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
            expert = functools.partial(scripted_policy, "expert", suite, world, self._config.expert_noise)
            demonstrator = Scripted(suite.interface, expert, world)
            keeps_writing = self._config.feedback is not None
            policy = CorrectedLearner(policy, demonstrator, keeps_writing=keeps_writing)
        self._policy = policy
        return policy

    def add(self, query: QueryRecord) -> None:
        """Keep a query, with its intended actions: those executed, unless the policy reports others."""
        policy = self._policy
        executed = np.asarray(query.actions, np.float64)
        self._queries.append(query)
        self._intended.append(policy.intended if isinstance(policy, Demonstrator) else executed)

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
        queries, config, protocol = self._queries, self._config, self._plan.protocol
        truths = [_truth_columns(query.truth) for query in queries]
        intended = self._intended if solved else [None] * len(queries)
        columns = {
            **{layout.IMAGES + camera: png_cells(frames) for camera, frames in images.items()},
            **{
                layout.OWN + field: [getattr(self._key, field)] * len(queries)
                for field in ("suite", "task_id", "init_id", "seed", "assets", "noise")
            },
            layout.STATE: [query.observation.state.astype(np.float32) for query in queries],
            layout.STEP: [query.step for query in queries],
            "timestamp": [query.step / protocol.control_hz for query in queries],
            "frame_index": [query.index for query in queries],
            **_labels(queries, intended, config.horizon, self._plan.suite.interface),
            **{name: [row[name] for row in truths] for name in truths[0]},
        }
        if config.feedback is not None:
            read = [{field: text.text for field, text in query.fed.items()} for query in queries]
            columns[layout.FED] = [json.dumps(texts) for texts in read]
        interface, fed = self._plan.suite.interface, config.feedback is not None
        features = layout.features(interface, images="image", horizon=config.horizon, fed=fed)
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


def _labels(
    queries: Sequence[QueryRecord],
    intended: Sequence[np.ndarray | None],
    horizon: int,
    interface: Interface,
) -> dict[str, Any]:
    """Intended actions, singly and in chunks; without intended ones, the executed ones, marked as padding."""
    steps = [query.steps for query in queries]
    chunks = [
        np.asarray(query.actions, np.float64) if chunk is None else chunk
        for query, chunk in zip(queries, intended, strict=True)
    ]
    hold = functools.partial(interface.hold_action, queries[-1].observation.state)
    actions, padded = action_labels(chunks, steps, hold, horizon=horizon)
    padded |= ~learnable([chunk is not None for chunk in intended], steps, horizon=horizon)
    actions = actions.astype(np.float32)
    return {
        layout.ACTION: actions[:, 0].tolist(),
        layout.CHUNK: actions.tolist(),
        layout.PADDED: padded.tolist(),
    }


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

    Beyond the end the robot holds still.

    Args:
        intended: Intended actions of each query; at least as many as were executed.
        steps: Executed control steps of each query.
        hold: The action that keeps the robot still after another.
        horizon: Control steps in a chunk.
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

    Args:
        by_expert: Whether the demonstrator acted, by query.
        steps: Executed control steps of each query.
        horizon: Control steps in a chunk.
    """
    by_step = np.repeat(by_expert, steps)
    ends = np.flatnonzero(np.diff(by_step, append=~by_step[-1:])) + 1
    starts = np.cumsum([0, *steps[:-1]])
    left = ends[np.searchsorted(ends, starts, side="right")] - starts
    return np.asarray(by_expert)[:, None] & (np.arange(horizon) < left[:, None])
