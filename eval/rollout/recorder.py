"""Records one episode: writes its query log and video as it runs, and aggregates its result."""

import contextlib
import dataclasses
import time
import traceback
from collections import defaultdict
from pathlib import Path
from typing import Any

from configs.schema import RunConfig
from eval.metrics.language import EpisodeGrader
from eval.metrics.motion_quality import EpisodeMotion
from eval.metrics.statistics import quantiles
from eval.records.json_files import json_line
from eval.records.query_logs import parse_query
from eval.records.schema import EpisodeResult, Outcome, RequestCounts, RunFolder
from eval.records.timing import Delivery
from eval.rollout.captions import EpisodeCaptions, first_caption
from eval.rollout.live_picture import LivePicture
from eval.rollout.plan import TaskPlan
from eval.rollout.rollout import Query
from oxygen.policy.reply import Tail
from sim_envs.truth.ground_truth import Truth
from sim_envs.world import EpisodeKey
from videos.mp4 import VideoError
from videos.recorder import EpisodeVideo


class EpisodeRecorder:
    """Reads the queries of a rollout, writes the episode's files and builds its `EpisodeResult`."""

    def __init__(self, folder: RunFolder, plan: TaskPlan, key: EpisodeKey, config: RunConfig) -> None:
        self._folder = folder
        self._plan = plan
        self._key = key
        self._config = config
        self._timed = config.clock != "paused"
        self._began = time.perf_counter()
        self._latencies: defaultdict[str, list[float]] = defaultdict(list)
        self._requests = {"requested": 0, "finished": 0, "cancelled": 0, "dropped": 0}
        self._steps = self._queries = self._tokens = 0
        self._held = self._continued = self._skipped = 0
        self._progress = 0.0
        self._grader = EpisodeGrader(control_hz=plan.protocol.control_hz)
        self._motion = EpisodeMotion(plan.suite.interface.action)
        self._compiles: int | None = None
        protocol = plan.protocol
        caption = first_caption(
            key,
            task=plan.instruction(key),
            mode=config.mode,
            clock=config.clock,
            limit_s=protocol.max_steps / protocol.control_hz,
        )
        self._captions = EpisodeCaptions(caption, control_hz=protocol.control_hz)
        self._video: EpisodeVideo | None = None
        if config.video != "none":
            stem = folder.path / "videos" / key.suite / f"task{key.task_id:02d}_ep{key.init_id:03d}"
            self._video = EpisodeVideo(stem, control_hz=plan.protocol.control_hz)
        path = folder.queries_path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._log = path.open("wb")
        self._live_picture = LivePicture(folder.picture_path(key))

    @property
    def picture_steps(self) -> int | None:
        """Control steps between pictures of the video; None without a video."""
        return None if self._video is None else self._config.video_every

    def add(self, query: Query) -> None:
        """Record one query."""
        reply = query.reply
        for stage, milliseconds in query.timings_ms.items():
            self._latencies[stage].append(milliseconds)
        self._queries += 1
        self._steps += query.steps
        self._tokens += reply.tokens
        self._requests["requested"] += len(reply.requested)
        self._requests["finished"] += len(query.deliveries)
        self._requests["cancelled"] += len(query.undelivered)
        self._requests["dropped"] += len(reply.dropped)
        self._held += query.held
        self._continued += query.continued
        self._skipped += query.skipped
        self._progress = query.progress
        record = _query_record(query, timed=self._timed)
        self._log.write(json_line(record))
        if self._live_picture.show(query.observation.images):
            self._log.flush()
        self._grader.add(query.step, query.truth, query.deliveries, query.truths)
        chunks = [span.chunk for span in query.spans for _ in range(span.steps)]
        self._motion.add(query.executed, chunks, query.end_effector)
        if self._video is not None:
            self._captions.add(parse_query(record))
            self._add_pictures(query, self._video)

    def add_tail(self, tail: Tail) -> None:
        """Record the texts cancelled at the end of the episode, and the compilations so far."""
        self._requests["cancelled"] += tail.cancelled
        self._compiles = tail.compiles_after_warm_up

    def result(self, outcome: Outcome, error: BaseException | None = None) -> EpisodeResult:
        """Close the files and return the result."""
        self._log.close()
        self._live_picture.remove()
        video = self._close_video(outcome)
        latencies = {stage: quantiles(values) for stage, values in self._latencies.items()}
        return EpisodeResult(
            key=self._key,
            task=self._plan.task.name,
            instruction=self._plan.task.language,
            language=self._plan.instruction(self._key),
            outcome=outcome,
            steps=self._steps,
            queries=self._queries,
            latency_ms={stage: summary for stage, summary in latencies.items() if summary},
            tokens=self._tokens,
            requests=RequestCounts(**self._requests),
            compiles_after_warm_up=self._compiles,
            policy_s=sum(self._latencies.get("frame", ())) / 1e3,
            wall_s=time.perf_counter() - self._began,
            simulated_s=self._steps / self._plan.protocol.control_hz,
            held_steps=self._held,
            continued_steps=self._continued,
            skipped_actions=self._skipped,
            progress=None if outcome is Outcome.ERROR else self._progress,
            texts=self._grader.scores(),
            motion=self._motion.quality(),
            video=None if video is None else str(video.relative_to(self._folder.path)),
            error=None if error is None else " ".join(f"{type(error).__name__}: {error}".split()),
            traceback=None if error is None else "".join(traceback.format_exception(error)),
        )

    def abandon(self) -> None:
        """Delete the files of an interrupted episode."""
        with contextlib.suppress(OSError):  # no space for the last lines
            self._log.close()
        self._live_picture.remove()
        self._folder.queries_path(self._key).unlink(missing_ok=True)
        if self._video is not None:
            self._video.abandon()

    def _close_video(self, outcome: Outcome) -> Path | None:
        if self._video is None:
            return None
        if self._config.video == "failures" and outcome is Outcome.SUCCESS:
            self._video.discard()
            return None
        if outcome.has_traceback:
            # The encoder itself may have failed; recording that must not fail too.
            with contextlib.suppress(VideoError, OSError):
                return self._video.close(outcome.value)
            return None
        return self._video.close(outcome.value)

    def _add_pictures(self, query: Query, video: EpisodeVideo) -> None:
        """Add each picture until the next one, with the texts delivered by then."""
        images = dict(query.observation.images)
        steps = [query.step, *(picture.step for picture in query.pictures), query.step + query.steps]
        video.add(images, steps[1] - steps[0], caption=self._captions.at(query.step))
        for picture, end in zip(query.pictures, steps[2:], strict=True):
            images[picture.camera] = picture.image
            video.add(images, end - picture.step, caption=self._captions.at(picture.step))


def _query_record(query: Query, *, timed: bool) -> dict[str, Any]:
    """One line of the query log: timings, the chunk, texts requested, finished and dropped, the truth."""
    return {
        "query": query.index,
        "step": query.step,
        "steps": query.steps,
        "timings_ms": {stage: round(milliseconds, 4) for stage, milliseconds in query.timings_ms.items()},
        **(_timing_record(query) if timed else {}),
        "tokens": query.reply.tokens,
        "actions": query.actions.tolist(),
        "requested": [dataclasses.asdict(text) for text in query.reply.requested],
        "finished": [_delivery_record(delivery, query) for delivery in query.deliveries],
        "dropped": [dataclasses.asdict(text) for text in query.reply.dropped],
        "truth": _truth_record(query.truth),
    }


def _timing_record(query: Query) -> dict[str, Any]:
    """The latency charged, and the actions executed during it."""
    prefix = query.observation.action_prefix
    return {
        "latency": dataclasses.asdict(query.latency),
        "actions_step": query.actions_step,
        "free_step": query.free_step,
        "continued": query.continued,
        "held": query.held,
        "skipped": query.skipped,
        "spans": [dataclasses.astuple(span) for span in query.spans],
        **({"blended": query.blended} if query.blended else {}),
        **({} if prefix is None else {"action_prefix": dataclasses.asdict(prefix)}),
    }


def _delivery_record(delivery: Delivery, query: Query) -> dict[str, Any]:
    """A text, with the truth on delivery if it differs in time from the query."""
    record = {**dataclasses.asdict(delivery.text), "step": delivery.step}
    return record if delivery.step == query.step else {**record, "truth": _truth_record(delivery.truth)}


def _truth_record(truth: Truth | None) -> dict[str, Any] | None:
    """The truth as JSON: facts sorted, completed actions in order, nouns if the world has its own."""
    if truth is None:
        return None
    record: dict[str, Any] = {
        "narration": dataclasses.asdict(truth.narration),
        "done": [dataclasses.asdict(action) for action in truth.memory.done],
        "facts": [dataclasses.asdict(fact) for fact in sorted(truth.memory.facts)],
    }
    if truth.textual_memory is not None:
        record["textual_memory"] = [dataclasses.asdict(fact) for fact in truth.textual_memory]
    if nouns := truth.nouns:
        names = {"movable": sorted(nouns.movable), "parts": sorted(nouns.parts)}
        record["nouns"] = {**names, "places": dict(sorted(nouns.places))}
    return record
