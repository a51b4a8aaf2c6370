"""Attempts of a run: the first, and one for each time that it was resumed, maybe on another machine."""

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from eval.records.schema import RunFolder

Attempt = Mapping[str, Any]
"""Command, commit, versions and hardware of one attempt, with its start and end."""

_PROVENANCE = ("command", "git", "versions", "hardware")


def attempt_record(manifest: Mapping[str, Any], *, started: str, finished: str | None) -> Attempt:
    """One attempt, with the provenance of `manifest` and ISO times with UTC offset; None while it runs."""
    return {**{name: manifest.get(name) for name in _PROVENANCE}, "started": started, "finished": finished}


def attempts_of(manifest: Mapping[str, Any]) -> Sequence[Attempt]:
    """All attempts of a run."""
    attempts: Sequence[Attempt] = manifest["attempts"]
    return attempts


def past_attempts(folder: RunFolder) -> Sequence[Attempt]:
    """The attempts of a run before it is resumed. A killed attempt ended with its last record."""
    *before, last = attempts_of(folder.read_manifest())
    return [*before, {**last, "finished": last["finished"] or _last_record(folder, last["started"])}]


def seconds_played(manifests: Iterable[Mapping[str, Any]]) -> float:
    """Wall-clock seconds during which any of these finished runs was active, pauses excluded."""
    spans = sorted(
        (dt.datetime.fromisoformat(each["started"]), dt.datetime.fromisoformat(each["finished"]))
        for manifest in manifests
        for each in attempts_of(manifest)
    )
    total, until = dt.timedelta(), spans[0][0]
    for began, ended in spans:
        total += max(ended - max(began, until), dt.timedelta())
        until = max(until, ended)
    return total.total_seconds()


def _last_record(folder: RunFolder, started: str) -> str:
    if not folder.episodes_path.exists():
        return started
    written = dt.datetime.fromtimestamp(folder.episodes_path.stat().st_mtime).astimezone()
    return max(dt.datetime.fromisoformat(started), written).isoformat(timespec="seconds")
