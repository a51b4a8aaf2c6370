"""Merges shares of the same episodes, by `--shard`, `--init-ids` or `--seeds`, into one run or one sweep."""

import dataclasses
import datetime as dt
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from configs.errors import check
from configs.schema import EpisodesConfig, RunConfig
from contracts.env_seed import BY_EPISODE, EnvSeed, parse_env_seed
from contracts.episode import EpisodeKey, EpisodeResult
from contracts.errors import UsageError
from eval.metrics.results_file import results_of
from eval.metrics.rows import RunRows
from eval.records.json_files import write_json
from eval.records.protocol import protocol_hash, suite_hash, without
from eval.records.reader import RunRecords, read_episodes, read_identity
from eval.records.run_folders import (
    SweepFolder,
    begin,
    locked_run,
    new_run,
    new_sweep,
    past_attempts,
)
from eval.records.schema import RunFolder
from eval.rollout.plan import make_plan
from eval.rollout.sweep import recorded_cells

_OF_STATES = ("initial_states", "env_seed")
"""The parts of a protocol in which shares by `--init-ids` or `--seeds` may differ: the first is there if some
of their initial states are sampled, the second if some are stored, with the number of an only seed."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Merged:
    """A merged run."""

    config: RunConfig
    protocol: Mapping[str, Any]
    episodes: Mapping[EpisodeKey, tuple[RunFolder, EpisodeResult]]  # with their shards
    shards: Mapping[RunFolder, Mapping[str, Any]]  # to their manifests


def merge(folders: Sequence[RunFolder], output_dir: Path) -> list[RunFolder]:
    """Merge shards, in any order, into runs in `output_dir`. Shards in several modes become one run per mode.

    Raises:
        UsageError: Before anything is written: two runs differ in more than their shares, have an episode in
            common, or some of the episodes are missing.
    """
    modes: dict[str, list[RunFolder]] = {}
    for folder in folders:
        read_identity(folder)  # refuses other versions
        modes.setdefault(folder.read_manifest()["mode"], []).append(folder)
    return _write_all([_merged(shards) for shards in modes.values()], output_dir)


def merge_sweeps(shards: Sequence[SweepFolder], output_dir: Path) -> tuple[SweepFolder, list[RunRows]]:
    """Merge shards of a sweep, in any order, cell by cell, into a sweep in `output_dir`; with its results.

    Raises:
        UsageError: As `merge`, or a sweep is not complete or lacks a cell.
    """
    for shard in shards:
        shard.read_finished()  # refuses others
    configs = [shard.config() for shard in shards]
    whole = configs[0].model_copy(update=_whole(configs))
    for shard, config in zip(shards, configs, strict=True):
        if config.model_copy(update=_whole(configs)) != whole:
            raise UsageError(
                f"{shards[0].path.name} and {shard.path.name} are not shares of one sweep: they differ in "
                "more than --shard, --init-ids and --seeds"
            )
    cells = zip(*(recorded_cells(shard) for shard in shards), strict=True)
    merged = [_merged([run.folder for run in cell]) for cell in cells]
    sweep = new_sweep(output_dir, whole)
    runs = _write_all(merged, sweep.path)
    return sweep, [RunRows(RunRecords(run)) for run in runs]


def _merged(shards: Sequence[RunFolder]) -> _Merged:
    manifests = {shard: shard.read_manifest() for shard in shards}
    for shard in (shard for shard in shards if "imported" in manifests[shard]):
        raise UsageError(f"{shard.run_id} is imported; join files before that, or runs that were played here")
    configs = [
        check(RunConfig, each["config"], source=str(folder.manifest_path))
        for folder, each in manifests.items()
    ]
    whole = configs[0].model_copy(update=_whole(configs))
    env_seeds = _env_seeds(list(manifests.values()), whole.seeds)
    _refuse_unlike(manifests, configs, env_seeds)
    protocol = {
        suite: {
            part: value
            for each in manifests.values()
            for part, value in each["protocol"][suite].items()
            if part != "env_seed"
        }
        for suite in next(iter(manifests.values()))["protocol"]
    }
    for suite, env_seed in env_seeds.items():
        protocol[suite] |= {"env_seed": str(env_seed)} if env_seed != BY_EPISODE else {}
    episodes = _joined(shards, whole, configs[0].shard)
    return _Merged(config=whole, protocol=protocol, episodes=episodes, shards=manifests)


def _whole(shares: Sequence[EpisodesConfig]) -> dict[str, Any]:
    """The options of the whole that may differ between its shares."""
    joined = {
        name: tuple(dict.fromkeys(number for share in shares for number in getattr(share, name)))
        for name in ("init_ids", "seeds")
    }
    return {"shard": None, **joined}


def _write_all(merged: Sequence[_Merged], output_dir: Path) -> list[RunFolder]:
    """Write merged runs, as the variants of one evaluation if their shards are variants of the same ones."""
    evaluations = [{tuple(shard["variants"]) for shard in each.shards.values()} for each in merged]
    written = []
    for run in merged:
        manifests, protocol = list(run.shards.values()), run.protocol
        attempts = sorted(
            (attempt for shard in run.shards for attempt in past_attempts(shard)),
            key=lambda attempt: dt.datetime.fromisoformat(attempt["started"]),
        )
        with locked_run(new_run(output_dir, run.config)) as reserved:
            folder = reserved.folder
            manifest = {
                **manifests[0],
                "protocol": protocol,
                "protocol_hash": protocol_hash(protocol),
                "suite_hashes": {suite: suite_hash(described) for suite, described in protocol.items()},
                "run_id": folder.run_id,
                "config": reserved.config.model_dump(mode="json"),
                "n_planned": len(run.episodes),
                "variants": [folder.run_id],
                "shards": [shard["run_id"] for shard in manifests],
                "attempts": attempts,
                "started": attempts[0]["started"],
                "finished": max((past["finished"] for past in attempts), key=dt.datetime.fromisoformat),
                "status": "complete",
            }
            begin([reserved], [{**manifest, "status": "running", "finished": None}])

            for key, (shard, result) in run.episodes.items():
                files = [(shard.queries_path(key), folder.queries_path(key))]
                kept = result
                if result.video is not None:  # former names lack the seed
                    stem = folder.video_stem(key)
                    video = stem.with_name(f"{stem.name}_{result.outcome}.mp4")
                    files.append((shard.path / result.video, video))
                    kept = dataclasses.replace(result, video=str(video.relative_to(folder.path)))
                for source, target in files:
                    if source.exists():
                        target.parent.mkdir(parents=True, exist_ok=True)
                        shutil.copy2(source, target)
                folder.append(kept)
            write_json(folder.results_path, results_of(RunRows(RunRecords(folder))))
            folder.write_manifest(manifest)
            written.append(folder)
    for folder, own in zip(written, evaluations, strict=True):  # by the names that they have now
        variants = [other.run_id for other, theirs in zip(written, evaluations, strict=True) if theirs == own]
        folder.write_manifest({**folder.read_manifest(), "variants": variants})
    return written


def _refuse_unlike(
    manifests: Mapping[RunFolder, Mapping[str, Any]],
    configs: Sequence[RunConfig],
    env_seeds: Mapping[str, EnvSeed | None],
) -> None:
    """Reject runs that are not shards of one run, whose environments have a common seeding unless None."""
    identities = {}
    unlike = [suite for suite, env_seed in env_seeds.items() if env_seed is None]
    for (folder, manifest), given in zip(manifests.items(), configs, strict=True):
        config = given.model_dump(mode="json")
        shard, states = str(config.pop("shard", None)), config.pop("init_ids")
        named = config.pop("protocol")
        del config["seeds"]
        seeding = {suite: str(_env_seed(manifest["protocol"][suite])) for suite in unlike}
        identities[folder] = {
            "protocol": f"{named or ''} {protocol_hash(without(_OF_STATES, manifest['protocol']))}".strip(),
            "env seed": seeding,
            "policy inputs": manifest["policy_inputs"],
            "content of language tasks": manifest.get("language_tasks"),
            "weights": manifest.get("weights_sha256"),
            "adapter weights": manifest.get("adapter"),
            **config,
            "number of shards": shard.partition("/")[2],
            "initial states": "named" if states else "stored",
        }
    (first, expected), *others = identities.items()
    for folder, found in others:
        for name, value in expected.items():
            if found[name] != value:
                raise UsageError(
                    f"{folder.run_id} has {name} {found[name]!r}, {first.run_id} has {value!r}; join runs "
                    "that differ in --shard, --init-ids or --seeds alone"
                )
    if not others:
        raise UsageError(f"{first.run_id} is the only run of its mode; name those to join with it")


def _env_seed(described: Mapping[str, Any]) -> EnvSeed:
    return parse_env_seed(described.get("env_seed", str(BY_EPISODE)))


def _env_seeds(manifests: Sequence[Mapping[str, Any]], seeds: Sequence[int]) -> dict[str, EnvSeed | None]:
    """The seeding of each suite's environment in a run of all seeds; None if its shards do not agree.

    A shard whose states are sampled, which may be all of them, says nothing. `stream 7` of seed 7 and
    `stream 8` of seed 8 are `stream` of both.
    """
    found: dict[str, EnvSeed | None] = {}
    for suite in manifests[0]["protocol"]:
        shards = [
            (_env_seed(described), each["config"]["seeds"])
            for each in manifests
            for described in [each["protocol"].get(suite, {})]
            if "env_seed" in described or (described and "initial_states" not in described)
        ]
        either = [
            each for own, (seed, *_) in shards for each in (own, EnvSeed(own.kind), EnvSeed(own.kind, seed))
        ]
        common = (each for each in either if all(each.resolved(*of) == own for own, of in shards))
        if shards:
            found[suite] = next((each.resolved(*seeds) for each in common), None)
    return found


def _joined(
    shards: Sequence[RunFolder], whole: RunConfig, shard_of_first: str | None
) -> dict[EpisodeKey, tuple[RunFolder, EpisodeResult]]:
    """The merged run's episodes in the order of the plan, each with its shard."""
    found: dict[EpisodeKey, tuple[RunFolder, EpisodeResult]] = {}
    for shard in shards:
        for key, result in read_episodes(shard).items():
            if key in found:
                raise UsageError(
                    f"{found[key][0].run_id} and {shard.run_id} both have episode {key}; give each shard once"
                )
            found[key] = shard, result
    planned = make_plan(whole).keys
    if missing := [key for key in planned if key not in found]:
        count = (shard_of_first or "1/1").partition("/")[2]
        by_shard = Counter(1 + key.digest() % int(count) for key in missing)
        counts = ", ".join(f"{number} of shard {shard}/{count}" for shard, number in sorted(by_shard.items()))
        counts = f"the first is {missing[0]}" if count == "1" else counts
        raise UsageError(
            f"{len(missing)} episodes are missing ({counts}); play them with --shard, or "
            "complete a shard that was interrupted with --resume"
        )
    return {key: found[key] for key in planned}
