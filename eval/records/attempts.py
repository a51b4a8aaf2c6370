"""When a run was played, and on what: one that was interrupted may go on later, somewhere else."""

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from eval.records.schema import RunFolder

Sitting = Mapping[str, Any]
"""What `sitting` makes: command, commit, versions and hardware of a sitting, its start and its end."""

_PLAYED_ON = ("command", "git", "versions", "hardware")


def sitting(described: Mapping[str, Any], *, started: str, finished: str | None) -> Sitting:
    """One sitting, as the manifest keeps it.

    Args:
        described: What holds of it, among it what it was played on; a manifest will do.
        started: When it began, in ISO format with the offset from UTC.
        finished: When it ended, likewise; None while it goes on.
    """
    played_on = {name: described.get(name) for name in _PLAYED_ON}
    return {**played_on, "started": started, "finished": finished}


def sittings_of(manifest: Mapping[str, Any]) -> Sequence[Sitting]:
    """All sittings of a run. A manifest from before there was a list tells of one."""
    if "sittings" not in manifest:
        return [sitting(manifest, started=manifest["started"], finished=manifest["finished"])]
    sittings: Sequence[Sitting] = manifest["sittings"]
    return sittings


def past_sittings(folder: RunFolder) -> Sequence[Sitting]:
    """Those of a run that is to go on. One that was killed ended when it last recorded an episode."""
    *before, last = sittings_of(folder.read_manifest())
    return [*before, {**last, "finished": last["finished"] or _last_record(folder, last["started"])}]


def seconds_played(manifests: Iterable[Mapping[str, Any]]) -> float:
    """Seconds by the clock in which any of these finished runs was played: pauses count in none."""
    spans = sorted(
        (dt.datetime.fromisoformat(each["started"]), dt.datetime.fromisoformat(each["finished"]))
        for manifest in manifests
        for each in sittings_of(manifest)
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
