"""The texts and numbers of a video frame."""

import dataclasses

from configs.latency import Latency
from videos.theme import Mark
from videos.timeline import QueryTimeline


@dataclasses.dataclass(frozen=True, kw_only=True)
class CaptionText:
    """A text of the policy."""

    text: str
    seen_s: float  # simulated time of the observation that it describes
    mark: Mark | None = None  # its grade on delivery; None if there is no ground truth
    # The parts of a memory or textual memory, oldest first, with their grades.
    parts: tuple[tuple[str, Mark | None], ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Caption:
    """The texts and numbers of a frame."""

    task: str  # the instruction
    # Name of the episode, e.g. `libero_object · task 3 · init 12`.
    episode: str
    mode: str  # the scheduling mode
    time_s: float  # simulated seconds since the first query
    limit_s: float | None = None  # the episode's limit, simulated seconds; None without one
    latencies: tuple[Latency, ...] = ()  # the latest queries, oldest first, the current one included
    narration: CaptionText | None = None  # the latest narration; None if there is none
    memory: CaptionText | None = None  # the latest memory; None if there is none
    textual_memory: CaptionText | None = None  # the latest textual memory; None if there is none
    # The latency profile that is charged, e.g. `jetson-thor`; empty if none.
    clock: str = ""
    timeline: QueryTimeline | None = None  # the timeline; None if simulated time does not pass during queries
