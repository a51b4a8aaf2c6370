"""Selects a run's best video.

Of the solved episodes, the one with the highest narration accuracy at request; then with the most texts; then
the shortest. If none was solved: the one with the most completed actions; then with the most distinct stages
of the task; then by the rule for solved ones.
"""

import dataclasses
from pathlib import Path

from eval.metrics.language import HEADLINES
from eval.records.query_logs import read_queries
from eval.records.reader import read_episodes, read_identity
from eval.records.schema import EpisodeResult, Outcome, RunFolder, Share
from sim_envs.truth.wording import narrate


@dataclasses.dataclass(frozen=True, kw_only=True)
class BestVideo:
    """A run's best video, with one line on the choice and the episode's results (`why`)."""

    path: Path
    episode: EpisodeResult
    why: str


def find_best_video(run: RunFolder) -> BestVideo | None:
    """The run's best video; None if no graded episode left one.

    Raises:
        UsageError: if a record cannot be read.
    """
    graded = [e for e in read_episodes(run).values() if e.outcome is not Outcome.ERROR]
    shown = [episode for episode in graded if episode.video is not None]
    if not shown:
        return None
    solved = [episode for episode in shown if episode.outcome is Outcome.SUCCESS]
    mode = read_identity(run).mode
    if solved:
        best = min(solved, key=_sort_key)
        why = f"Best of the {len(solved)} solved in mode {mode}: {_describe(best)}."
    else:
        stages = {episode.key: _stages(run, episode) for episode in shown}
        best = min(shown, key=lambda episode: (stages[episode.key][0], *_sort_key(episode)))
        last = stages[best.key][1]
        why = f"None of {len(shown)} was solved in mode {mode}. The furthest: {_describe(best)}"
        why += f"; its last stage: “{last}”" if last else "."
    return BestVideo(path=run.path / str(best.video), episode=best, why=why)


def _stages(run: RunFolder, episode: EpisodeResult) -> tuple[tuple[int, int], str]:
    """Negative numbers of completed actions and of distinct stages, and the last new stage in words."""
    truths = [query.truth for query in read_queries(run, episode.key) if query.truth is not None]
    stages = list(dict.fromkeys(truth.narration for truth in truths))
    done = len(truths[-1].memory.done) if truths else 0
    return (-done, -len(stages)), narrate(stages[-1], nouns=truths[-1].nouns) if stages else ""


def _sort_key(episode: EpisodeResult) -> tuple[float, int, int]:
    """Smaller is better."""
    right = _narrations(episode)
    share = right.hits / right.of if right.of else 0.0
    return -share, -episode.requests.finished, episode.steps


def _narrations(episode: EpisodeResult) -> Share:
    scores = episode.texts.get("narration")
    return Share() if scores is None else scores.at_request.get(HEADLINES["narration"], Share())


def _describe(episode: EpisodeResult) -> str:
    right = _narrations(episode)
    narrations = f"narration right {right.hits:g} of {right.of} times" if right.of else "no narration graded"
    return f"{episode.language}, {narrations}, {episode.requests.finished} texts, {episode.steps} steps"
