"""Plays one episode and makes a table of it, one row per query."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from configs.collection import CollectConfig
from configs.feedback import INSTRUCTION, FeedbackByTask
from eval.collect.demonstrator import Demonstrator
from eval.collect.labels import action_labels, learnable
from eval.collect.plan import Job
from eval.collect.statistics import Histogram, histogram
from eval.collect.tables import arrow_schema, png_cells, row_features
from eval.records.query_logs import QueryRecord
from eval.rollout.feedback import EpisodeFeedback
from eval.rollout.interrupts import DeferredSignals
from eval.rollout.rollout import rollout
from oxygen.training import layout
from sim_envs.truth.ground_truth import Truth
from sim_envs.truth.textual_memory import write_textual_memory
from sim_envs.truth.wording import narrate, remember
from sim_envs.world import World


@dataclasses.dataclass(frozen=True, kw_only=True)
class Demonstration:
    """An episode as a table.

    Attributes:
        solved: Whether it succeeded; if not, none of its actions is a training target.
        rows: A row per query, without the columns that depend on its position in the dataset.
        histograms: Camera to the histogram of its images, per channel.
    """

    job: Job
    solved: bool
    language: str
    rows: pa.Table
    histograms: Mapping[str, Histogram]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Failure:
    """A failed episode that is not kept."""

    job: Job


def demonstrate(
    world: World,
    policy: Demonstrator,
    job: Job,
    config: CollectConfig,
    interrupts: DeferredSignals,
    feedback: FeedbackByTask | None = None,
) -> Demonstration | Failure:
    """Play an episode in a world with its task loaded; `interrupts` is checked after each query."""
    queries: list[QueryRecord] = []
    intended: list[np.ndarray | None] = []
    fed = None
    if feedback:
        hz = job.plan.protocol.control_hz
        fed = EpisodeFeedback(feedback, config.feedback or "own", control_hz=hz)
    for query in rollout(world, policy, job.key.episode, job.plan.suite, feedback=fed):
        queries.append(query)
        intended.append(policy.intended)
        interrupts.check()
    policy.finish()
    solved = queries[-1].success
    if not (solved or config.keep_failures):
        return Failure(job=job)
    images = {
        camera: [query.observation.images[camera] for query in queries]
        for camera in queries[0].observation.images
    }
    truths = [_truth_columns(query.truth) for query in queries]
    columns = {
        **{layout.IMAGES + camera: png_cells(frames) for camera, frames in images.items()},
        **_numbers(job, queries),
        **_labels(queries, intended if solved else [None] * len(intended), config.horizon),
        **{name: [row[name] for row in truths] for name in truths[0]},
    }
    if config.feedback is not None:
        read = [{field: text.text for field, text in query.fed.items()} for query in queries]
        columns[layout.FED] = [json.dumps(texts) for texts in read]
    first = queries[0].observation
    return Demonstration(
        job=job,
        solved=solved,
        language=first.feedback.get(INSTRUCTION, first.language),
        rows=pa.Table.from_pydict(
            columns, schema=arrow_schema(row_features(config, job.plan.suite.interface))
        ),
        histograms={camera: histogram(np.stack(frames)) for camera, frames in images.items()},
    )


def _numbers(job: Job, queries: Sequence[QueryRecord]) -> dict[str, Any]:
    key = job.key
    same = {
        layout.SUITE: key.suite,
        layout.TASK_ID: key.task_id,
        layout.INIT_ID: key.init_id,
        layout.SEED: key.seed,
        layout.ASSETS: key.assets,
        layout.NOISE: key.noise,
    }
    return {
        **{name: [value] * len(queries) for name, value in same.items()},
        layout.STATE: [query.observation.state.astype(np.float32) for query in queries],
        layout.STEP: [query.step for query in queries],
        "timestamp": [query.step / job.plan.protocol.control_hz for query in queries],
        "frame_index": [query.index for query in queries],
    }


def _labels(
    queries: Sequence[QueryRecord], intended: Sequence[np.ndarray | None], horizon: int
) -> dict[str, Any]:
    """Intended actions, singly and in chunks; without intended ones, the executed ones, marked as padding."""
    steps = [query.steps for query in queries]
    chunks = [
        np.asarray(query.actions, np.float64) if chunk is None else chunk
        for query, chunk in zip(queries, intended, strict=True)
    ]
    actions, padded = action_labels(chunks, steps, horizon=horizon)
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
        return dict.fromkeys((layout.NARRATION, layout.MEMORY, layout.TEXTUAL_MEMORY, layout.TRUTH), "")
    memory = {
        "done": [dataclasses.asdict(action) for action in truth.memory.done],
        "facts": [dataclasses.asdict(fact) for fact in sorted(truth.memory.facts)],
    }
    return {
        layout.NARRATION: narrate(truth.narration, nouns=truth.nouns),
        layout.MEMORY: remember(truth.memory, nouns=truth.nouns),
        layout.TEXTUAL_MEMORY: ""
        if truth.textual_memory is None
        else write_textual_memory(truth.textual_memory),
        layout.TRUTH: json.dumps({"narration": dataclasses.asdict(truth.narration), "memory": memory}),
    }
