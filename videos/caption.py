"""The texts and numbers of a video frame."""

import dataclasses

from configs.latency import Latency
from videos.theme import Mark
from videos.timeline import QueryTimeline


@dataclasses.dataclass(frozen=True, kw_only=True)
class CaptionText:
    """A text of the policy.

    Attributes:
        text: The text.
        seen_s: Simulated time of the observation that it describes.
        mark: Its grade on delivery; None if there is no ground truth.
        parts: The parts of a memory or textual memory, oldest first, with their grades.
    """

    text: str
    seen_s: float
    mark: Mark | None = None
    parts: tuple[tuple[str, Mark | None], ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Caption:
    """The texts and numbers of a frame.

    Attributes:
        task: The instruction.
        episode: Name of the episode, e.g. `libero_object · task 3 · init 12`.
        mode: The scheduling mode.
        time_s: Simulated seconds since the first query.
        limit_s: The episode's limit, simulated seconds; None without one.
        latencies: The latest queries, oldest first, the current one included.
        narration: The latest narration; None if there is none.
        memory: The latest memory; None if there is none.
        textual_memory: The latest textual memory; None if there is none.
        clock: The latency profile that is charged, e.g. `jetson-thor`; empty if none.
        timeline: The timeline; None if simulated time does not pass during queries.
    """

    task: str
    episode: str
    mode: str
    time_s: float
    limit_s: float | None = None
    latencies: tuple[Latency, ...] = ()
    narration: CaptionText | None = None
    memory: CaptionText | None = None
    textual_memory: CaptionText | None = None
    clock: str = ""
    timeline: QueryTimeline | None = None
