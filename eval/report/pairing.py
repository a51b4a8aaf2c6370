"""Runs may be compared if they have the same episodes in the same world; others are refused in one line."""

from collections.abc import Mapping, Sequence
from typing import Any

from configs.cli import ranges
from contracts.clock import PAUSED
from contracts.episode import EpisodeKey, EpisodeResult
from contracts.errors import UsageError, pluralize
from contracts.motion import Static
from contracts.perturbation import UNPERTURBED
from eval.records.protocol import differences_of
from eval.records.reader import RunIdentity, RunRecords

Episodes = Mapping[EpisodeKey, EpisodeResult]

_PUBLISHED = (str(PAUSED), str(Static()), str(UNPERTURBED))
_MOST_NAMED = 3  # missing episodes in a message
_CHOSEN_BY = {"seeds": "--seeds", "tasks": "--task-ids", "initial states": "--init-ids"}
"""What tells episodes of one suite apart, and the option that chooses it."""


def require_one_world(
    run_a: RunRecords, run_b: RunRecords, *, partial: bool = False
) -> tuple[RunIdentity, RunIdentity]:
    """The identities of two runs that may be compared, finished or not; texts in the prompt may differ.

    A run of perturbed episodes may be compared with its control, which is the same without perturbations.
    With `partial`, one may have suites that the other lacks.

    Raises:
        UsageError: A run cannot be read, or the two differ in assets or protocol.
    """
    a, b = run_a.identity, run_b.identity
    if a.imported or b.imported:
        _require_one_stated(a, b)
        return a, b
    if a.assets.digest != b.assets.digest and a.suite_hashes.keys() & b.suite_hashes.keys():
        raise UsageError(
            f"{a.run_id} and {b.run_id} used different assets, {a.assets} and {b.assets}; "
            "run both with the same"
        )
    of_a, of_b = (
        each.world_hashes if bool(a.perturb) == bool(b.perturb) else each.control_hashes for each in (a, b)
    )
    common = of_a.keys() & of_b.keys()
    if common and of_a.keys() != of_b.keys() and all(of_a[suite] == of_b[suite] for suite in common):
        if partial:
            return a, b
        raise UsageError(
            f"{a.run_id} has suites {', '.join(of_a)}, and {b.run_id} has {', '.join(of_b)}; give --partial "
            f"to compare them on {', '.join(sorted(common))}"
        )
    if of_a != of_b:
        one, other = (run.folder.read_manifest().get("protocol") for run in (run_a, run_b))
        told = differences_of(one, other) if one and other else [f"{a.protocol_hash} and {b.protocol_hash}"]
        names = dict.fromkeys(filter(None, (a.protocol_name, b.protocol_name)))
        named = f", {' and '.join(names)}" if len(names) > 1 else ""
        raise UsageError(
            f"{a.run_id} and {b.run_id} ran under different protocols{named} ({'; '.join(told)}); "
            "play one of them again with what the other has"
        )
    return a, b


def _require_one_stated(a: RunIdentity, b: RunIdentity) -> None:
    """Refuse runs, one of which is imported, that are not said to be of one protocol by name."""
    stated = [_stated(run) for run in (a, b)]
    if a.protocol_name and set(stated[0]) == set(stated[1]):
        return
    told = [
        f"{run.run_id} {'is imported as' if run.imported else 'was played under'} "
        f"{'; '.join(each) if run.protocol_name else 'a protocol without a name'}"
        for run, each in zip((a, b), stated, strict=True)
    ]
    raise UsageError(
        f"{' and '.join(told)}: different protocols are not compared; play one with --protocol as the other, "
        "or import it with the protocol under which it was played"
    )


def _stated(run: RunIdentity) -> list[str]:
    """The name of a run's protocol, and what differs from it."""
    others = {"clock": run.clock, "motion": run.overrides.get("motion"), "perturb": run.perturb}
    told = [f"{name} {value}" for name, value in others.items() if value and str(value) not in _PUBLISHED]
    return [run.protocol_name, *run.protocol_changes, *told]


def of_common_tasks(run_a: RunRecords, run_b: RunRecords, *, partial: bool) -> tuple[Episodes, Episodes]:
    """The episodes of the tasks that both runs have.

    Raises:
        UsageError: There is none, or without `partial`, a run has others.
    """
    runs = run_a, run_b
    tasks_a, tasks_b = ({(key.suite, key.task_id) for key in run.episodes} for run in runs)
    common = tasks_a & tasks_b
    if not common or (not partial and tasks_a != tasks_b):
        told = ", ".join(
            f"{run.folder.run_id} has {pluralize(len(tasks), 'task')}"
            for run, tasks in zip(runs, (tasks_a, tasks_b), strict=True)
        )
        remedy = f"; give --partial to compare the {len(common)} that both have" if common else ""
        raise UsageError(f"{told}, and they are not the same{remedy}")
    of_a, of_b = (
        {key: each for key, each in run.episodes.items() if (key.suite, key.task_id) in common}
        for run in runs
    )
    return of_a, of_b


def require_same_episodes(*runs: RunRecords) -> None:
    """Refuse two runs that were not given the same episodes, whether these are played or not.

    Raises:
        UsageError: Says what differs, and what to do.
    """
    manifests, episodes = [run.folder.read_manifest() for run in runs], [run.episodes for run in runs]
    given = [_given(manifest, keys) for manifest, keys in zip(manifests, episodes, strict=True)]
    named = list(zip((run.folder.run_id for run in runs), given, strict=True))
    differing = [
        part for part in given[0] if all(part in each for each in given) and given[0][part] != given[1][part]
    ]
    missing = {
        run.folder.run_id: sorted(other.episodes.keys() - run.episodes.keys())
        for run, other in zip(runs, reversed(runs), strict=True)
    }
    is_complete = all(manifest["status"] == "complete" for manifest in manifests)
    if not any(missing.values()) or not (differing or is_complete):
        return
    told = [f"{part} {', '.join(f'{each[part]} in {name}' for name, each in named)}" for part in differing]
    if not told:
        told = [f"{name} lacks {_listed(keys)}" for name, keys in missing.items() if keys]
    remedies = ["join the shards of each run with `oxygen-eval merge`"] if "shard" in differing else []
    if options := [_CHOSEN_BY[part] for part in differing if part in _CHOSEN_BY and not remedies]:
        remedies.append(f"play one of them again with the other's {' and '.join(options)}")
    if common := len(episodes[0].keys() & episodes[1].keys()):
        remedies.append(f"give --partial to compare the {pluralize(common, 'episode')} that both have")
    names = " and ".join(name for name, _ in named)
    raise UsageError(f"{names} hold different episodes: {'; '.join(told)}; {', or '.join(remedies)}")


def _given(manifest: Mapping[str, Any], keys: Mapping[EpisodeKey, EpisodeResult]) -> dict[str, str]:
    """The seeds, tasks and initial states that a run was given, as far as they are known, and its shard."""
    config = manifest.get("config", {})
    seeds, tasks, states = ({getattr(key, part) for key in keys} for part in ("seed", "task_id", "init_id"))
    if manifest["status"] != "complete":  # it has yet to play some
        seeds = set(config.get("seeds") or ())
        tasks = set(config.get("task_ids") or ())
        states = set(config.get("init_ids") or range(config.get("num_trials_per_task") or 0))
    numbers = dict(zip(_CHOSEN_BY, (seeds, tasks, states), strict=True))
    shard = config.get("shard") or "none"
    return {part: ",".join(ranges(of)) for part, of in numbers.items() if of} | {"shard": shard}


def _listed(keys: Sequence[EpisodeKey]) -> str:
    more = f", … ({len(keys)} in all)" if len(keys) > _MOST_NAMED else ""
    return ", ".join(map(str, keys[:_MOST_NAMED])) + more
