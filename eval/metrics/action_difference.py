"""Largest action difference of two runs, query by query, and whether all actions are bitwise equal."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64

from contracts.episode import EpisodeKey
from contracts.errors import UsageError
from contracts.query import QueryRecord

Chunk = Float64[np.ndarray, "horizon action"]


class EpisodeQueries(NamedTuple):
    """The queries of one episode in both runs."""

    key: EpisodeKey
    a: Sequence[QueryRecord]
    b: Sequence[QueryRecord]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ActionDifference:
    """The largest absolute difference over the common queries of every episode."""

    # In the action's own units; infinite where one run's number is NaN and the other's is not; None without
    # common queries.
    largest: float | None
    key: EpisodeKey | None  # the first episode in which it is reached; None if actions do not differ
    query: int | None  # the query of that episode
    bitwise_equal: bool  # whether both runs made the same number of queries everywhere, with the same bits
    n_queries: int  # common queries compared
    n_uneven: int  # episodes in which the runs made different numbers of queries


def action_difference(episodes: Iterable[EpisodeQueries]) -> ActionDifference:
    """Compare the actions of two runs on the same episodes; different widths are a UsageError."""
    gaps: list[tuple[float, EpisodeKey, int]] = []
    n_uneven, same_bits = 0, True
    for episode in episodes:
        n_uneven += len(episode.a) != len(episode.b)
        for index, (a, b) in enumerate(zip(episode.a, episode.b, strict=False)):
            # Bits differ between 0 and -0 and between two NaNs, which compare otherwise.
            same_bits &= a.actions.shape == b.actions.shape and a.actions.tobytes() == b.actions.tobytes()
            gaps.append((_largest_gap(a.actions, b.actions, episode.key), episode.key, index))
    largest, key, query = max(gaps, key=lambda gap: gap[0], default=(None, None, None))
    return ActionDifference(
        largest=largest,
        key=key if largest else None,
        query=query if largest else None,
        bitwise_equal=bool(gaps) and same_bits and not n_uneven,
        n_queries=len(gaps),
        n_uneven=n_uneven,
    )


def _largest_gap(a: Chunk, b: Chunk, key: EpisodeKey) -> float:
    """Maximum over the actions that both chunks have. Two NaNs, or two equal infinities, do not differ."""
    if a.shape[1] != b.shape[1]:
        raise UsageError(f"{key}: actions have {a.shape[1]} numbers in one run and {b.shape[1]} in the other")
    horizon = min(len(a), len(b))
    a, b = a[:horizon], b[:horizon]
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore", over="ignore"):
        gaps = np.where(same, 0.0, np.abs(a - b))
    return float(np.nan_to_num(gaps, nan=np.inf, posinf=np.inf).max(initial=0.0))
