"""Shards joined are the run that was not divided; what does not belong together is refused."""

import dataclasses
import datetime as dt
import os
from pathlib import Path

import pytest

from configs.schema import RunConfig
from contracts.errors import UsageError
from contracts.mode import Mode
from eval.records.reader import read_episodes
from eval.records.run_folders import Run
from eval.records.schema import RunFolder
from eval.rollout.executors.executor import SERIAL
from eval.rollout.merging import merge
from eval.rollout.plan import make_plan
from sim_envs.fake import FakeSuite
from sim_envs.suite import InitIds
from tests.eval.factory import compare
from tests.eval.rollout.scaled import played, suite_file, timeless

SHARDS = ("1/3", "2/3", "3/3")
STILL = {"policy": "noop", "mode": "actions", "video": "none"}


class SampledSuite(FakeSuite):
    """Four stored initial states, and sampled ones."""

    def init_ids(self, task):
        return InitIds(stored=4, sampled_from=4)


@pytest.fixture
def config(tmp_path):
    suite = suite_file(tmp_path, "fake", FakeSuite, environment={"success_at": 7})
    return RunConfig(suites=(suite,), init_ids=tuple(range(8)), **STILL)


def shard(config, share, folder, **changes):
    (run,) = played(folder, config.model_copy(update={"shard": share, **changes}), executor=SERIAL)
    return run.folder


@pytest.fixture
def shards(config, tmp_path):
    return [shard(config, share, tmp_path / share.replace("/", "of")) for share in SHARDS]


def test_every_episode_is_in_one_shard_and_stays_there_whatever_else_is_planned(config):
    shares = [make_plan(config.model_copy(update={"shard": share})).keys for share in SHARDS]
    assert sorted(key for share in shares for key in share) == sorted(make_plan(config).keys)
    fewer = config.model_copy(update={"init_ids": (1, 5, 6)})
    for share, keys in zip(SHARDS, shares, strict=True):
        if wanted := {key for key in keys if key.init_id in fewer.init_ids}:
            assert set(make_plan(fewer.model_copy(update={"shard": share})).keys) == wanted


def joined_as_whole(config, parts, tmp_path) -> RunFolder:
    """The parts joined, which are as the run that was not divided."""
    (whole,) = played(tmp_path / "whole", config, executor=SERIAL)
    (joined,) = merge(parts, tmp_path / "joined")
    assert timeless(whole) == timeless(Run(config=config, folder=joined))
    assert list(read_episodes(joined)) == list(read_episodes(whole.folder)), "in the order of the plan"
    ours, theirs = joined.read_manifest(), whole.folder.read_manifest()
    for part in ("config", "protocol", "protocol_hash", "suite_hashes", "n_planned", "status"):
        assert ours[part] == theirs[part]
    return joined


def test_joined_shards_are_the_run_that_was_not_divided(config, shards, tmp_path):
    joined = joined_as_whole(config, [shards[2], shards[0], shards[1]], tmp_path)
    assert len(joined.read_manifest()["attempts"]) == 3
    assert joined.results_path.is_file()


def test_videos_of_shards_that_were_named_without_the_seed_stay_apart(config, tmp_path):
    parts = [shard(config, None, tmp_path / str(seed), seeds=(seed,)) for seed in (1, 2)]
    for part in parts:
        for key, episode in read_episodes(part).items():
            name = f"videos/{key.suite}/ep{key.init_id}_success.mp4"
            (part.path / name).parent.mkdir(parents=True, exist_ok=True)
            (part.path / name).write_text(str(key))
            part.append(dataclasses.replace(episode, video=name))
    (joined,) = merge(parts, tmp_path / "joined")
    videos = {key: joined.path / episode.video for key, episode in read_episodes(joined).items()}
    assert {str(key) for key in videos} == {path.read_text() for path in videos.values()}
    assert len(videos) == 16


def test_a_shard_of_a_version_that_lacked_an_option_had_its_default(config, shards, tmp_path):
    older = shard(config, "2/3", tmp_path / "older")
    manifest = older.read_manifest()
    del manifest["config"]["feedback"], manifest["config"]["video_every"]
    older.write_manifest(manifest)
    for order in ([shards[0], older, shards[2]], [older, shards[0], shards[2]]):
        joined_as_whole(config, order, tmp_path / order[0].path.parent.name)


def test_attempts_are_in_the_order_of_time_and_one_killed_before_its_last_write_has_an_end(shards, tmp_path):
    times = (
        ("02:00:00+00:00", "03:00:00+00:00"),
        ("09:30:00+09:00", "10:30:00+09:00"),
        ("01:00:00+00:00", None),
    )
    for folder, (started, finished) in zip(shards, times, strict=True):
        attempt = {"started": f"2026-01-01T{started}", "finished": finished and f"2026-01-01T{finished}"}
        folder.write_manifest(folder.read_manifest() | {"attempts": [attempt]})
    written = dt.datetime(2026, 1, 1, 1, 20, tzinfo=dt.UTC).timestamp()
    os.utime(shards[2].episodes_path, times=(written, written))
    (joined,) = merge(shards, tmp_path / "joined")
    manifest = joined.read_manifest()
    assert [each["started"][11:16] for each in manifest["attempts"]] == ["09:30", "01:00", "02:00"]
    assert dt.datetime.fromisoformat(manifest["attempts"][1]["finished"]).timestamp() == written
    assert (manifest["started"][11:16], manifest["finished"][11:16]) == ("09:30", "03:00")


def test_runs_of_other_initial_states_are_joined_as_shards_are(config, tmp_path):
    parts = ((0, 1, 2), (3, 4, 5, 6, 7))
    halves = [shard(config, None, tmp_path / str(ids[0]), init_ids=ids) for ids in parts]
    joined = joined_as_whole(config, halves, tmp_path)
    stored = shard(config, None, tmp_path / "stored", init_ids=())
    with pytest.raises(UsageError, match="has initial states 'stored'"):
        merge([halves[0], stored], tmp_path / "refused")
    with pytest.raises(UsageError, match="both have episode"):
        merge([halves[0], joined], tmp_path / "refused")


@pytest.mark.parametrize("by", ["shard", "init_ids"])
def test_shares_without_a_suite_or_a_sampled_state_are_joined(tmp_path, by):
    fake = Path(suite_file(tmp_path, "fake", SampledSuite))
    other = tmp_path / "other.yaml"
    other.write_text(fake.read_text().replace("name: fake", "name: other"))
    config = RunConfig(suites=(str(fake), str(other)), init_ids=(0, 4), **STILL)
    numbers = sorted({key.digest() % 9 + 1 for key in make_plan(config).keys})
    assert len(numbers) > 2, "a shard has a single episode"
    shares = {"shard": [f"{number}/9" for number in numbers], "init_ids": [(0,), (4,)]}[by]
    runs = [shard(config, None, tmp_path / f"{by}{n}", **{by: share}) for n, share in enumerate(shares)]
    joined_as_whole(config, runs, tmp_path)


@pytest.mark.parametrize("in_turns", [True, False])
def test_modes_stay_apart_and_are_variants_of_one_evaluation_if_their_shards_are(config, tmp_path, in_turns):
    halves = []
    for share in ("1/2", "2/2"):
        variants = [
            config.model_copy(update={"mode": Mode(mode), "shard": share}) for mode in ("actions", "unified")
        ]
        for evaluation in [variants] if in_turns else [[variant] for variant in variants]:
            halves += [run.folder for run in played(tmp_path / share[0], *evaluation, executor=SERIAL)]
    joined = merge(halves, tmp_path / "joined")
    assert [folder.read_manifest()["mode"] for folder in joined] == ["actions", "unified"]
    assert compare(*joined).in_turns == in_turns
    names = [folder.run_id for folder in joined]
    alone = [[name] for name in names]
    assert [folder.read_manifest()["variants"] for folder in joined] == ([names] * 2 if in_turns else alone)


def test_what_does_not_belong_together_is_refused_and_nothing_is_written(config, shards, tmp_path):
    target = tmp_path / "joined"
    longer = shard(config, "3/3", tmp_path / "longer", max_steps=9)
    again = shard(config, "2/3", tmp_path / "again")
    retrained = shard(config, "3/3", tmp_path / "retrained")
    retrained.write_manifest(retrained.read_manifest() | {"adapter": {"sha256": "c0ffee", "mask": "exact"}})
    retold = shard(config, "3/3", tmp_path / "retold")
    retold.write_manifest(retold.read_manifest() | {"language_tasks": [{"max_tokens": 7}]})
    whole = shard(config, None, tmp_path / "undivided")
    for given, said in (
        (shards[:2], r"episodes are missing \(\d of shard 3/3\); play them with --shard"),
        ([*shards, again], "both have episode .*; give each shard once"),
        ([*shards[:2], longer], "has protocol .* join runs that differ in --shard, --init-ids or --seeds"),
        ([*shards[:2], retrained], "has adapter weights .*c0ffee.* join runs that differ"),
        ([*shards[:2], retold], "has content of language tasks .*'max_tokens': 7"),
        ([whole], "is the only run of its mode"),
        ([*shards, whole], "has number of shards ''"),
    ):
        with pytest.raises(UsageError, match=said):
            merge(given, target)
    assert not target.exists()
    few = config.model_copy(update={"init_ids": (0,), "task_ids": (0,)})
    empty = next(f"{number}/4" for number in range(1, 5) if make_plan(few).keys[0].digest() % 4 != number - 1)
    with pytest.raises(UsageError, match=f"--shard {empty} has none of the 1 episodes"):
        make_plan(few.model_copy(update={"shard": empty}))
