"""README media of a finished evaluation: still, clip and Markdown table."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from configs.cli import pluralize
from configs.errors import UsageError
from eval.metrics.language import HEADLINES
from eval.metrics.success import Results, summarize
from eval.records.reader import RunIdentity, read_identity
from eval.records.run_folders import attempts_of, seconds_played
from eval.records.schema import Outcome, RunFolder
from eval.report.best_video import BestVideo, find_best_video
from eval.report.clock_words import MEASURED, PAUSED, format_clock_of
from eval.report.comparison import Comparison, compare
from eval.report.comparison_verdict import judge_all
from eval.report.labels import number
from eval.report.plain_text import in_markdown, in_markdown_code, markdown_table
from eval.report.side_by_side import EpisodePair, suite_field
from eval.report.table_columns import Row
from videos.clip import read_pictures, save_clip, save_still

CLIP_WIDTH = 880
CLIP_BYTES = 2_000_000
"""Width in pixels and maximum size of the clip."""

_PICTURES_HZ = 10
_MAX_PICTURES = 120
"""Long episodes have fewer pictures a second."""
_LAST_MS = 2500
"""Duration of the last picture, which shows the outcome, milliseconds."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReadmeMedia:
    """The video and the table to show of a finished evaluation.

    Attributes:
        folders: The variants, the reference first.
        best: The best video.
        shown: The run of the best video.
        pair: An episode of two runs to show side by side instead; None for the best video.
    """

    folders: Sequence[RunFolder]
    best: BestVideo
    shown: RunIdentity
    pair: EpisodePair | None = None

    @property
    def why(self) -> str:
        """One line on the chosen episode."""
        return self.best.why if self.pair is None else self.pair.why

    @property
    def alternative_text(self) -> str:
        """Alternative text of the picture."""
        if self.pair is None:
            return "A rollout: both cameras, what is said, time and latency"
        return "An episode of two runs side by side: camera, what is said, time and latency"

    @property
    def variants(self) -> dict[str, Results]:
        """Mode to results."""
        return {read_identity(folder).mode: summarize(folder.path) for folder in self.folders}


def find_readme_media(run: RunFolder, pair: EpisodePair | None = None) -> ReadmeMedia:
    """Find the variants of the run's evaluation and their best video, of mode `unified` if available.

    Args:
        run: A run of the evaluation.
        pair: The episode to show side by side instead.

    Raises:
        UsageError: A run is unfinished or cannot be read, or there is no video.
    """
    folders = [RunFolder(run.path.parent / name) for name in read_identity(run).variants] or [run]
    identities = [read_identity(folder) for folder in folders]
    for identity in identities:
        if identity.status != "complete":
            raise UsageError(f"{identity.run_id} is {identity.status}; complete it with --resume")
    modes = [identity.mode for identity in identities]
    at = modes.index("unified") if "unified" in modes else -1
    best = find_best_video(folders[at])
    if best is None:
        raise UsageError(f"{folders[at].run_id} has no video of a graded episode; run it with --video all")
    return ReadmeMedia(folders=folders, best=best, shown=identities[at], pair=pair)


def write_pictures(media: ReadmeMedia, *, still: Path, clip: Path) -> None:
    """Write a still at two thirds of the episode, and a clip at about ten pictures per second.

    Raises:
        VideoError: The video is damaged.
    """
    if media.pair is None:
        folder = RunFolder(media.best.path.parents[2])
        episode = media.best.episode
        control_hz, last = suite_field(folder, episode.key, "control_hz"), episode.steps - 1
    else:
        control_hz, last = media.pair.control_hz, media.pair.frames - 1
    apart = max(1, round(control_hz / _PICTURES_HZ), math.ceil(last / _MAX_PICTURES))
    frames = [*range(apart // 2, last, apart), last]
    if media.pair is None:
        pictures = read_pictures(media.best.path, frames)
    else:
        pictures = [picture for frame, picture in enumerate(media.pair.pictures()) if frame in frames]
    save_still(still, pictures[2 * len(pictures) // 3])
    save_clip(
        clip,
        pictures,
        milliseconds=[*[round(1e3 * apart / control_hz)] * (len(pictures) - 1), _LAST_MS],
        width=CLIP_WIDTH,
        most_bytes=CLIP_BYTES,
    )


def to_markdown(media: ReadmeMedia) -> str:
    """Caption of the clip, table of the variants, and their comparison."""
    parts = [_caption(media), _variants_table(media.variants, media.shown.clock), _compared(media)]
    return "\n\n".join(part for part in parts if part)


def _variants_table(variants: Mapping[str, Results], clock: str) -> str:
    """A row for each mode, with measured latency on clock `paused`, else with charged times."""
    columns = (
        {**_SOLVED, **_MEASURED, **_TEXTS} if clock == PAUSED else {**_SOLVED, **_CHARGED, **_TEXTS, **_STALE}
    )
    rows = [
        [f"`{in_markdown_code(mode)}`", *(cell(results["overall"]) for cell in columns.values())]
        for mode, results in variants.items()
    ]
    return markdown_table(["mode", *columns], rows, align="---:")


def _caption(media: ReadmeMedia) -> str:
    episode, shown = media.best.episode, media.shown
    ended = "solved after" if episode.outcome is Outcome.SUCCESS else "not solved within"
    oracle = any(scores.oracle for scores in episode.texts.values())
    aside = " Its texts are written from the simulator's ground truth: an upper bound." if oracle else ""
    if media.pair is not None:
        name, assets = in_markdown_code(shown.policy), in_markdown(shown.assets.name)
        return f"*`{name}`, assets {assets}, {in_markdown(media.pair.why)}{aside}*"
    return (
        f"*`{in_markdown_code(shown.policy)}` in mode {in_markdown(shown.mode)}, assets "
        f"{in_markdown(shown.assets.name)}: {in_markdown(episode.language)} "
        f"({in_markdown(episode.key.suite)}, initial state {episode.key.init_id}), {ended} "
        f"{episode.steps} steps.{aside}*"
    )


def _compared(media: ReadmeMedia) -> str:
    """Verdicts on each variant against the first, and how the runs were played."""
    first, *others = media.folders
    comparisons = [compare(first, other) for other in others]
    verdicts = "\n".join(line for each in comparisons for line in _verdicts(each))
    manifests = [folder.read_manifest() for folder in media.folders]
    ends = "Texts are graded when they were requested → on delivery."
    own_latency = media.shown.clock in (PAUSED, MEASURED)
    played = f"{_machines(manifests[0], 'Measured' if own_latency else 'Played')}{_duration(manifests)}."
    elsewhere = (
        "Another processor may round the last bits otherwise, and a text differs where two tokens are almost "
        "equally likely."
    )
    note = " ".join(
        [*map(_format_comparison, comparisons), *_format_clock(media.shown), ends, played, elsewhere]
    )
    return f"{verdicts}\n\n{note}" if verdicts else note


def _verdicts(comparison: Comparison) -> list[str]:
    """Verdicts on success and time to success; none on clock `paused`, where modes act alike."""
    if comparison.a.clock == PAUSED:
        return []
    judged = judge_all(comparison, comparison.a.margin, comparison.a.time_margin)
    return [f"- {in_markdown(each.sentence)}" for each in (judged.success, judged.time) if each is not None]


def _format_clock(run: RunIdentity) -> list[str]:
    """A sentence on the charged latency; none on clock `paused`."""
    if run.clock == PAUSED:
        return []
    return [f"Simulated time passes while the policy computes: {in_markdown(format_clock_of(run))}."]


def _machines(manifest: Mapping[str, Any], played: str) -> str:
    """The machines of all attempts at the run."""
    hardware = [attempt["hardware"] for attempt in attempts_of(manifest) if attempt["hardware"]]
    machines = dict.fromkeys(
        f"{each['cores']} cores ({in_markdown(str(each['processor']))})" for each in hardware
    )
    return f"{played} on {' and '.join(machines)}; " if machines else ""


def _duration(manifests: Sequence[Mapping[str, Any]]) -> str:
    """Wall-clock time of the runs, pauses excluded."""
    took = max(len(attempts_of(manifest)) for manifest in manifests)
    over = "from start to finish" if took == 1 else f"in {took} attempts"
    minutes, seconds = divmod(round(seconds_played(manifests)), 60)
    if minutes < 60:
        return f"{minutes} min {seconds} s {over}" if minutes else f"{seconds} s {over}"
    return f"{minutes // 60} h {minutes % 60} min {over}"


def _format_comparison(comparison: Comparison) -> str:
    pairs = comparison.overall
    turns = ", each played in both before the next" if comparison.in_turns else ""
    same = f"the same {pluralize(pairs.graded, 'episode')}{turns}"
    return (
        f"`{in_markdown_code(comparison.a.mode)}` and `{in_markdown_code(comparison.b.mode)}`: {same}; "
        f"{_format_actions(comparison)}outcomes that differ in {pairs.only_a + pairs.only_b} of "
        f"{pairs.graded}."
    )


def _format_actions(comparison: Comparison) -> str:
    """Difference of the actions; empty on clocks that charge latency, where observations differ."""
    actions = comparison.actions
    if comparison.a.clock != PAUSED:
        return ""
    queries = pluralize(actions.n_queries, "query")
    if actions.bitwise_equal:
        return f"actions equal bit for bit over all {queries}, "
    return f"actions that differ by up to {actions.largest} over {queries}, "


def _score(row: Row, task: str) -> str:
    """Score of the texts at request and on delivery."""
    times = [
        row["texts"].get(task, {}).get(time, {}).get(HEADLINES[task])
        for time in ("at_request", "on_delivery")
    ]
    known = [f"{score['pc']:.1f}" for score in times if score is not None]
    return f"{' → '.join(known)} %" if known else "–"


def _interval(row: Row) -> str:
    low, high = row["pc_success_ci95"] or (None, None)
    return "–" if low is None else f"{low:.0f} – {high:.0f} %"


def _latency(row: Row, stage: str) -> str:
    return number(row["latency_ms"].get(stage, {}).get("p50"), ".1f", " ms")


Columns = Mapping[str, Callable[[Row], str]]
"""Heading to the cell of a row of results."""

_SOLVED: Columns = {
    "solved": lambda row: f"{row['n_success']} of {row['n_episodes']}",
    "95 %": _interval,
}
_MEASURED: Columns = {
    "actions after": lambda row: _latency(row, "action"),
    "query done after": lambda row: _latency(row, "frame"),
}
_CHARGED: Columns = {
    "time to success": lambda row: number((row["time_to_success_s"] or {}).get("median"), ".1f", " s"),
    "query rate": lambda row: number(row["query_hz"], ".2f", " Hz"),
}
_TEXTS: Columns = {
    "narration right": lambda row: _score(row, "narration"),
    "memory F1": lambda row: _score(row, "memory"),
}
_STALE: Columns = {
    "texts delivered after": lambda row: number(row["staleness_ms"], ".0f", " ms"),
}
