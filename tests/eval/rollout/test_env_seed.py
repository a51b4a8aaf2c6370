"""How the environment is seeded is part of a run's protocol; runs that do not say it were `fixed`."""

import pytest

from configs.schema import RunConfig
from configs.training import CollectConfig
from contracts.errors import UsageError
from eval import droid
from eval import run as eval_run
from eval.collect import collection
from eval.records.protocol import describe_suite, suite_hash
from eval.records.reader import read_episodes, read_identity
from eval.records.run_folders import find_unfinished
from eval.rollout.executors.executor import SERIAL
from eval.rollout.merging import merge
from eval.rollout.plan import make_plan
from sim_envs.fake import FakeSuite
from sim_envs.suite import InitIds
from tests.eval.conftest import evaluate
from tests.eval.factory import compare
from tests.eval.rollout.scaled import played, suite_file

STILL = {"policy": "noop", "mode": "actions", "video": "none"}


class SeededSuite(FakeSuite):
    """Its worlds follow `env_seed`. Four stored initial states, and sampled ones."""

    supports = ("env_seed",)

    def init_ids(self, task):
        return InitIds(stored=4, sampled_from=1000)


@pytest.fixture
def suite(tmp_path):
    return suite_file(tmp_path, "fake", SeededSuite, env_seed="stream 7")


def hash_of(suite: str, **options) -> str:
    plan = make_plan(RunConfig(suites=(suite,), **STILL, **options))
    (opened,) = plan.suites.values()
    return suite_hash(describe_suite(opened, states=plan.sources(opened)))


def test_the_protocol_hash_tells_seedings_apart_and_is_that_of_older_runs_where_they_are_the_same(
    tmp_path, suite
):
    (tmp_path / "older").mkdir()
    older = hash_of(suite_file(tmp_path / "older", "fake", SeededSuite))
    assert hash_of(suite, env_seed="fixed") == hash_of(suite, env_seed="fixed 7") == older
    assert hash_of(suite) == hash_of(suite, env_seed="stream") == hash_of(suite, seeds=(8,))
    different = ("fixed", "fixed 8", "stream 7", "stream 8", "offset 7")
    assert len({hash_of(suite, env_seed=each) for each in different}) == len(different)


def test_the_seeding_of_stored_states_is_no_part_of_the_protocol_of_sampled_ones(suite):
    sampled = {hash_of(suite, env_seed=each, init_ids=(1000, 1001)) for each in ("fixed", "stream 7", None)}
    assert len(sampled) == 1
    assert hash_of(suite, init_ids=(0, 1000)) != hash_of(suite, init_ids=(0, 1000), env_seed="fixed")


def test_runs_that_were_seeded_otherwise_are_not_compared_which_one_line_explains(tmp_path, suite):
    configs = [RunConfig(suites=(suite,), env_seed=each, **STILL) for each in (None, "fixed")]
    a, b = (played(tmp_path / str(n), config, executor=SERIAL)[0].folder for n, config in enumerate(configs))
    with pytest.raises(UsageError, match=r"env_seed stream 7 and fixed"):
        compare(a, b)
    assert [read_identity(each).overrides["env_seed"] for each in (a, b)] == ["stream 7", None]


def test_an_older_unfinished_run_is_resumed_as_it_was_begun(tmp_path):
    older = suite_file(tmp_path, "fake", SeededSuite)
    config = RunConfig(suites=(older,), **STILL)
    (run,) = played(tmp_path / "runs", config, executor=SERIAL)
    manifest = run.folder.read_manifest()
    del manifest["config"]["env_seed"]
    run.folder.write_manifest({**manifest, "status": "interrupted"})
    lines = run.folder.episodes_path.read_text().splitlines(keepends=True)
    run.folder.episodes_path.write_text(lines[0])
    suite_file(tmp_path, "fake", SeededSuite, env_seed="stream 7")  # as newer versions ship
    evaluate(*find_unfinished(tmp_path / "runs", {"suites": [older]}))
    assert len(read_episodes(run.folder)) == len(lines)
    assert run.folder.read_manifest()["protocol"] == manifest["protocol"]


def test_shares_of_stored_and_sampled_states_are_joined_unless_they_are_seeded_otherwise(tmp_path, suite):
    def share(name: str, *init_ids: int, **options):
        config = RunConfig(suites=(suite,), init_ids=init_ids, **STILL, **options)
        return played(tmp_path / name, config, executor=SERIAL)[0].folder

    stored, sampled, whole = share("a", 0, 1), share("b", 1000), share("c", 0, 1, 1000)
    for order in ([stored, sampled], [sampled, stored]):
        (joined,) = merge(order, tmp_path / "joined")
        assert joined.read_manifest()["protocol_hash"] == whole.read_manifest()["protocol_hash"]
    suite_file(tmp_path, "fake", SeededSuite, env_seed="offset 7")
    with pytest.raises(UsageError, match=r"has env seed \{'fake': 'offset 7'\}"):
        merge([stored, share("d", 2, 3)], tmp_path / "refused")


@pytest.mark.parametrize(
    ("app", "suite"), [(eval_run.app, "gym_reacher"), (droid.app, "droid_tabletop")], ids=["gym", "droid"]
)
def test_worlds_that_are_always_seeded_anew_refuse_other_seedings(refused, tmp_path, app, suite):
    given = ["--suite", suite, "--policy", "noop", "--task-ids", "0", "--output-dir", tmp_path / "runs"]
    said = refused(app, *given, "--env-seed", "stream 7")
    assert f"env seed stream 7: {suite} seeds its world with the episode's seed" in said
    assert "leave out --env-seed" in said
    assert "env seed fixed 9" in refused(app, *given, "--env-seed", "fixed 9")
    assert "did you mean 'stream:S'" in refused(app, *given, "--env-seed", "streem 7")
    assert make_plan(RunConfig(suites=(suite,), env_seed="fixed 7")).keys


def test_demonstrations_of_a_stored_state_differ_with_the_seed_unless_told_otherwise():
    for given, expected in (({}, "fixed"), ({"env_seed": "stream 7"}, "stream 7")):
        config = CollectConfig(suites=("libero_spatial",), seeds=(8,), **given)
        (suite,) = make_plan(collection._run_config(config)).suites.values()
        assert str(suite.protocol.env_seed) == expected
