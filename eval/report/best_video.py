"""Which of a run's videos to open first, by a stated rule.

Of the solved episodes, the one with the largest share of narrations that were right at request; then
the one that said most; then the shortest. Where none was solved, the one that came furthest: that had done
most; then that truly went through the most different stages of its task; then by the rule for solved ones.
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
    """The video to open first.

    Attributes:
        path: Its file.
        episode: What it shows.
        why: One line that says so, and how it did.
    """

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
        best = min(solved, key=_merit)
        why = f"Best of the {len(solved)} solved in mode {mode}: {_describe(best)}."
    else:
        stages = {episode.key: _Progress.of(run, episode) for episode in shown}
        best = min(shown, key=lambda episode: (stages[episode.key].lack, *_merit(episode)))
        why = f"None of {len(shown)} was solved in mode {mode}. The furthest: {_describe(best)}"
        why += f"; it came to “{stages[best.key].last}”" if stages[best.key].last else "."
    return BestVideo(path=run.path / str(best.video), episode=best, why=why)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Progress:
    """How far an episode came, by the world's own account.

    Attributes:
        lack: Smaller the further it came.
        last: The last stage that it had not been in before, in words; empty if unknown.
    """

    lack: tuple[int, int]
    last: str

    @classmethod
    def of(cls, run: RunFolder, episode: EpisodeResult) -> "_Progress":
        truths = [query.truth for query in read_queries(run, episode.key)]
        told = [truth for truth in truths if truth is not None]
        stages = list(dict.fromkeys(truth.narration for truth in told))
        done = len(told[-1].memory.done) if told else 0
        last = narrate(stages[-1], nouns=told[-1].nouns) if stages else ""
        return cls(lack=(-done, -len(stages)), last=last)


def _merit(episode: EpisodeResult) -> tuple[float, int, int]:
    """Smaller is better."""
    right = _narrations(episode)
    share = right.hits / right.of if right.of else 0.0
    return -share, -episode.requests.finished, episode.steps


def _narrations(episode: EpisodeResult) -> Share:
    scores = episode.texts.get("narration")
    return Share() if scores is None else scores.at_request.get(HEADLINES["narration"], Share())


def _describe(episode: EpisodeResult) -> str:
    right = _narrations(episode)
    said = f"narration right {right.hits} times of {right.of}" if right.of else "no narration graded"
    return f"{episode.language}, {said}, {episode.requests.finished} texts, {episode.steps} steps"
