"""Parses `--clock`."""

import math
from collections.abc import Sequence
from pathlib import Path

from configs.errors import UsageError, unknown
from configs.load import load
from configs.profile import ProfileConfig
from configs.schema import RunConfig
from eval.records.reader import read_identity
from eval.records.schema import RunFolder
from eval.rollout.clock import PAUSED, Clock, FixedClock, MeasuredClock, ProfileClock, ReplayClock
from eval.rollout.latency_model import LatencyModel
from sim_envs.world import EpisodeKey

KINDS = ("paused", "fixed:A,B", "profile:NAME", "measured", "replay:RUN")


def find_clock(config: RunConfig, episodes: Sequence[EpisodeKey]) -> Clock:
    """The clock that a run's configuration names.

    Args:
        config: The run.
        episodes: Its episodes.

    Raises:
        UsageError: The clock, profile or run does not exist, or lacks the latencies of this run.
    """
    kind, _, rest = config.clock.partition(":")
    match kind:
        case "paused" | "measured" if rest:
            raise UsageError(f"clock {config.clock!r}: {kind} takes no value; write {kind}")
        case "paused":
            return PAUSED
        case "measured":
            return MeasuredClock()
        case "fixed":
            return _fixed(config.clock, rest)
        case "profile":
            profile = load(ProfileConfig, rest)
            guided = LatencyModel(profile, config.mode, guided=True) if config.overlap == "rtc" else None
            return ProfileClock(profile, LatencyModel(profile, config.mode), guided)
        case "replay":
            return _replayed(RunFolder(Path(rest)), config, episodes)
    raise unknown("clock", config.clock, KINDS)


def _fixed(given: str, rest: str) -> FixedClock:
    try:
        numbers = [float(number) for number in rest.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) not in (1, 2) or not all(0 <= number < math.inf for number in numbers):
        raise UsageError(
            f"clock {given!r}: write fixed:A,B, milliseconds until the actions and until the next query can "
            "start, such as fixed:100,300"
        )
    if numbers[-1] < numbers[0]:
        raise UsageError(
            f"clock {given!r}: the next query cannot start before the actions are available; write "
            f"fixed:{numbers[1]:g},{numbers[0]:g}"
        )
    return FixedClock(numbers[0], numbers[-1])


def _replayed(folder: RunFolder, config: RunConfig, episodes: Sequence[EpisodeKey]) -> ReplayClock:
    """The latencies of a run, or of the variant of its evaluation in the requested mode."""
    named = read_identity(folder)
    variants = {named.mode: folder}
    if config.mode != named.mode:
        others = [RunFolder(folder.path.parent / name) for name in named.variants if name != named.run_id]
        variants |= {read_identity(other).mode: other for other in others}
    if config.mode not in variants:
        raise UsageError(
            f"clock {config.clock!r}: {named.run_id} was run in mode {', '.join(variants)}; give --mode "
            f"{' '.join(variants)}"
        )
    found = variants[config.mode]
    clocks = [suite.get("clock") for suite in found.read_manifest()["protocol"].values()]
    if not clocks or not clocks[0]:
        raise UsageError(
            f"clock {config.clock!r}: {found.run_id} ran on clock paused, so there is nothing to replay; "
            "give another run"
        )
    missing = [key for key in episodes if not found.queries_path(key).is_file()]
    if missing:
        raise UsageError(
            f"clock {config.clock!r}: {found.run_id} has no episode {missing[0]}; replay episodes that it has"
        )
    recorded = clocks[0].get("overlap", "skip")
    if (recorded == "rtc") != (config.overlap == "rtc"):
        raise UsageError(
            f"clock {config.clock!r}: {found.run_id} ran with overlap {recorded}, and guided denoising takes "
            f"longer; give --overlap {recorded}"
        )
    rules = ("while_waiting", "overlap")
    return ReplayClock(found, {key: value for key, value in clocks[0].items() if key not in rules})
