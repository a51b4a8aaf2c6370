"""Records one episode: writes its query log and captioned video as it runs, and aggregates its result."""

import contextlib
import dataclasses
import itertools
import os
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from configs.assets import badged
from contracts.clock import PAUSED, Clock, clock_name
from contracts.episode import EpisodeKey, EpisodeResult, Outcome, RequestCounts, Share
from contracts.errors import in_user_code, one_line
from contracts.latency import Latency
from contracts.perturbation import UNPERTURBED, Perturbations, format_perturbations
from contracts.prompt import instruction_at
from contracts.query import QueryRecord
from contracts.text import EpisodeEnd, Text
from contracts.truth import Truth
from eval.metrics.language import HEADLINES, EpisodeGrader, grade_part, grade_text
from eval.metrics.motion_quality import EpisodeMotion
from eval.metrics.statistics import quantiles
from eval.policies.base import Policy
from eval.records.json_files import json_line
from eval.records.protocol import NO_ASSETS
from eval.records.query_logs import query_to_json
from eval.records.run_folders import Run, policy_name
from eval.rollout.plan import TaskPlan
from sim_envs.suite import Suite
from sim_envs.world import Perturbable, World
from videos import theme
from videos.mp4 import encoder_problem
from videos.panel import Caption, CaptionText
from videos.recorder import EpisodeVideo
from videos.theme import Mark
from videos.timeline import QuerySpan, QueryTimeline

_COUNTS = ("queries", "steps", "tokens", "idle_steps", "continued_steps", "skipped_actions")
_PICTURE_EVERY_S = 1.0  # wall time between two pictures of a running episode
_PICTURE_HEIGHT = 256  # pixels; higher pictures are scaled down


class EpisodeRecorder:
    """Reads the queries of a rollout, writes the episode's files and builds its `EpisodeResult`."""

    def __init__(self, run: Run, plan: TaskPlan, key: EpisodeKey, *, has_texts: bool = True) -> None:
        """Begin an episode; `has_texts` says whether the policy writes texts, which the video then shows."""
        folder, config = run.folder, run.config
        self._folder = folder
        self._plan = plan
        self._key = key
        self._config = config
        self._began = time.perf_counter()
        self._latencies: defaultdict[str, list[float]] = defaultdict(list)
        self._requests: Counter[str] = Counter()
        self._counts: Counter[str] = Counter(dict.fromkeys(_COUNTS, 0))
        self._progress = 0.0
        self._truth_error: str | None = None
        self._grader = EpisodeGrader(control_hz=plan.protocol.control_hz)
        self._motion = EpisodeMotion(plan.suite.interface.action)
        self._compiles: int | None = None
        self._world: World | None = None
        hz = plan.protocol.control_hz
        self._captions = EpisodeCaptions(
            key,
            assets=(plan.suite.assets or NO_ASSETS).name,
            perturb=plan.protocol.perturb,
            instructions=plan.instructions(key),
            policy=policy_name(config.policy),
            mode=config.mode,
            has_texts=has_texts,
            clock=config.clock,
            limit_s=plan.protocol.max_steps / hz,
            control_hz=hz,
        )
        self._video: EpisodeVideo | None = None
        self._video_error: str | None = None
        if config.video != "none" and (problem := encoder_problem()) is not None:
            self._video_error = problem
        elif config.video != "none":
            self._video = EpisodeVideo(folder.video_stem(key), control_hz=hz)
        path = folder.queries_path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._log = path.open("wb")
        self._live_picture = LivePicture(folder.picture_path(key))

    @property
    def picture_steps(self) -> int | None:
        """Control steps between pictures of the video; None without a video."""
        return None if self._video is None else self._config.video_every

    def begin(self, policy: Policy, suite: Suite, world: World) -> Policy:  # noqa: ARG002 - see `Recorder`
        """See `Recorder`."""
        self._world = world
        return policy

    def add(self, query: QueryRecord) -> None:
        """Record one query."""
        for stage, milliseconds in query.timings_ms.items():
            self._latencies[stage].append(milliseconds)
        self._counts.update(
            queries=1,
            steps=query.steps,
            tokens=query.tokens,
            idle_steps=query.idle,
            continued_steps=query.continued,
            skipped_actions=query.skipped,
        )
        self._requests.update(
            requested=len(query.requested),
            finished=len(query.delivered),
            cancelled=query.cancelled,
            dropped=len(query.dropped),
        )
        self._progress = query.progress
        self._truth_error = self._truth_error or query.truth_error
        self._log.write(json_line(query_to_json(query)))
        if self._live_picture.show(query.observation.images):
            self._log.flush()
        self._grader.add(query)
        self._motion.add(query)
        with self._no_error_of_the_episode():
            if self._video is not None:
                self._show(query, self._video)

    def _show(self, query: QueryRecord, video: EpisodeVideo) -> None:
        """Add the pictures of a query, each until the next one, and its texts from their delivery on."""
        self._captions.add(query)
        images, end = dict(query.observation.images), query.step + query.steps
        pictures = {picture.step: picture for picture in query.pictures}
        changes = {query.step, *pictures, *(text.delivery_step for text in query.delivered)}
        for step, until in itertools.pairwise([*sorted(changes - {end}), end]):
            if step in pictures:
                images[pictures[step].camera] = pictures[step].image
            video.add(images, until - step, caption=self._captions.at(step))

    @contextlib.contextmanager
    def _no_error_of_the_episode(self) -> Iterator[None]:
        """Go on without the video if it fails, and record why."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whatever fails, drawing or encoding
            self._video_error = one_line(error)
            video, self._video = self._video, None
            if video is not None:
                with contextlib.suppress(OSError):
                    video.abandon()

    def add_episode_end(self, end: EpisodeEnd) -> None:
        """Record the texts cancelled at the end of the episode, and the compilations so far."""
        self._requests.update(cancelled=end.cancelled)
        self._compiles = end.compiles_after_warm_up

    def result(self, outcome: Outcome, error: BaseException | None = None) -> EpisodeResult:
        """Close the files and return the result."""
        self._log.close()
        self._live_picture.remove()
        video = self._close_video(outcome)
        latencies = {stage: quantiles(values) for stage, values in self._latencies.items()}
        counts: Any = self._counts
        return EpisodeResult(
            key=self._key,
            task=self._plan.task.name,
            instruction=self._plan.task.language,
            language=self._plan.instruction(self._key),
            category=self._plan.task.category,
            difficulty=self._plan.task.difficulty,
            outcome=outcome,
            **counts,
            latency_ms={stage: summary for stage, summary in latencies.items() if summary is not None},
            requests=RequestCounts(**self._requests),
            compiles_after_warm_up=self._compiles,
            policy_s=sum(self._latencies.get("frame", ())) / 1e3,
            wall_s=time.perf_counter() - self._began,
            simulated_s=self._counts["steps"] / self._plan.protocol.control_hz,
            progress=None if outcome is Outcome.ERROR else self._progress,
            texts=self._grader.scores(),
            truth_error=self._truth_error,
            motion=self._motion.quality(),
            clipped_steps=self._motion.clipped_steps(),
            redraws=self._world.perturber.redraws if isinstance(self._world, Perturbable) else 0,
            video=None if video is None else str(video.relative_to(self._folder.path)),
            video_error=self._video_error,
            error=None if error is None else one_line(error) + in_user_code(error),
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
        with self._no_error_of_the_episode():
            if self._video is not None and self._config.video == "failures" and outcome is Outcome.SUCCESS:
                self._video.discard()
            elif self._video is not None:
                return self._video.close(outcome.value)
        return None


class LivePicture:
    """A JPEG file of an episode's cameras side by side, for `eval.watch`, replaced at most once a second.

    The file exists while the episode runs. A picture that cannot be written is left out.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._partial = path.with_suffix(f".{os.getpid()}.partial")
        self._written = -_PICTURE_EVERY_S

    def show(self, images: Mapping[str, UInt8[np.ndarray, "_ _ 3"]]) -> bool:
        """Write the images, unless the last picture is recent; returns whether a picture was due."""
        if not images or time.monotonic() - self._written < _PICTURE_EVERY_S:
            return False
        with contextlib.suppress(OSError, ValueError):
            pictures = [Image.fromarray(pixels) for pixels in images.values()]
            height = min(_PICTURE_HEIGHT, max(picture.height for picture in pictures))
            widths = [max(1, picture.width * height // picture.height) for picture in pictures]
            whole, left = Image.new("RGB", (sum(widths), height)), 0
            for picture, width in zip(pictures, widths, strict=True):
                whole.paste(picture.resize((width, height)), (left, 0))
                left += width
            whole.save(self._partial, "JPEG", quality=80)
            self._partial.replace(self.path)
        self._written = time.monotonic()
        return True

    def remove(self) -> None:
        """Delete the file."""
        with contextlib.suppress(OSError):
            self._partial.unlink(missing_ok=True)
            self.path.unlink(missing_ok=True)


class EpisodeCaptions:
    """Captions of one episode. Add a query, then ask for the captions of its control steps in order."""

    def __init__(
        self,
        key: EpisodeKey,
        *,
        assets: str,
        instructions: Mapping[int, str],
        policy: str,
        mode: str,
        has_texts: bool,
        clock: Clock,
        limit_s: float,
        control_hz: float,
        perturb: Perturbations = UNPERTURBED,
    ) -> None:
        """Begin an episode on assets of a name; instructions are by the control step from which they hold."""
        changed = f" · {format_perturbations(perturb)}" if perturb else ""
        begun = f"task {key.task_id} · init {key.init_id} · seed {key.seed}"
        self._caption = Caption(
            task=instructions[0],
            episode=f"{badged(key.suite, assets)} · {begun}{changed}",
            policy=policy,
            mode=mode,
            has_texts=has_texts,
            time_s=0.0,
            limit_s=limit_s,
            clock="" if clock == PAUSED else clock_name(clock),
        )
        self._instructions = instructions
        self._control_hz = control_hz
        self._issued: list[int] = []
        self._coming: list[tuple[Text, Truth | None]] = []
        self._said: dict[str, CaptionText] = {}

    def add(self, query: QueryRecord) -> None:
        """Add the next query, with the control steps until the one after."""
        hz, task = self._control_hz, instruction_at(self._instructions, query.step)
        self._caption = dataclasses.replace(self._caption, task=task)
        self._issued.append(query.step)
        self._coming += [(text, query.truth_on_delivery(text)) for text in query.delivered]
        self._coming.sort(key=lambda coming: coming[0].delivery_step)
        latency, before = query.latency, self._caption.timeline or QueryTimeline()
        if latency is None:
            if (actions := query.timings_ms.get("action")) is not None:
                latency = Latency(
                    actions_ms=actions, busy_ms=max(actions, query.timings_ms.get("frame", 0.0))
                )
        else:
            spans: dict[str, list[tuple[float, float]]] = {"idle": [], "continued": [], "new": []}
            since_s = query.step / hz - theme.TIMELINE_S  # what ended before has scrolled away
            for kind, start, end in query.executed_spans():
                spans[kind].append((start / hz, end / hz))
            issued = QuerySpan(
                issued_s=query.step / hz, actions_s=query.actions_step / hz, free_s=query.free_step / hz
            )
            timeline = QueryTimeline(
                queries=(*(each for each in before.queries if each.free_s > since_s), issued),
                idle=(*(each for each in before.idle if each[1] > since_s), *spans["idle"]),
                continued=(*(each for each in before.continued if each[1] > since_s), *spans["continued"]),
            )
            self._caption = dataclasses.replace(self._caption, timeline=timeline)
        if latency is not None:
            shown = dataclasses.replace(latency, texts_ms=())
            latencies = (*self._caption.latencies, shown)[-theme.LATENCIES :]
            self._caption = dataclasses.replace(self._caption, latencies=latencies)

    def at(self, step: int) -> Caption:
        """The caption at a control step, with the texts delivered by then."""
        while self._coming and self._coming[0][0].delivery_step <= step:
            text, truth = self._coming.pop(0)
            if text.task in HEADLINES:
                seen_s = self._issued[text.requested_query] / self._control_hz
                self._said[text.task] = _caption_text(text, truth, seen_s=seen_s)
        return dataclasses.replace(
            self._caption,
            time_s=step / self._control_hz,
            narration=self._said.get("narration"),
            memory=self._said.get("memory"),
            textual_memory=self._said.get("textual_memory"),
        )


def _caption_text(text: Text, truth: Truth | None, *, seen_s: float) -> CaptionText:
    """A delivered text with the grade of its headline measure, and of each part of a memory."""
    pieces = [piece.strip() for piece in text.text.split(";") if piece.strip()]
    if truth is None:
        return CaptionText(text=text.text, seen_s=seen_s, parts=tuple((piece, None) for piece in pieces))
    shares = grade_text(text.task, text.text, truth)
    parts: list[tuple[str, Mark | None]] = [(piece, None) for piece in pieces]
    if text.task != "narration":
        parts = [(piece, _mark(grade_part(text.task, piece, truth))) for piece in pieces]
    mark = _mark(None if shares is None else shares[HEADLINES[text.task]])
    return CaptionText(text=text.text, seen_s=seen_s, mark=mark, parts=tuple(parts))


def _mark(share: Share | None) -> Mark:
    """The mark of a grade; None is an unreadable text. An empty text is right if the truth is empty."""
    if share is None:
        return "unreadable"
    if share.hits == share.of:
        return "right"
    return "partly right" if share.hits else "wrong"
