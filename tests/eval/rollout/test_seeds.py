"""Several seeds are one run: planned, joined, resumed, compared and shown together."""

import pytest

from configs.schema import RunConfig
from eval import compare as eval_compare
from eval import run as eval_run
from eval.metrics.results_file import results_of
from eval.records.reader import read_episodes, read_identity
from eval.records.run_folders import find_unfinished
from eval.report.leaderboard import leaderboard_latex, leaderboard_markdown, read_leaderboard
from eval.rollout.executors.executor import SERIAL
from eval.rollout.plan import make_plan
from tests.eval.conftest import evaluate
from tests.eval.factory import RunBuilder, compare, episode, key, run_rows
from tests.eval.rollout.scaled import played, suite_file
from tests.eval.rollout.test_env_seed import STILL, SeededSuite
from tests.eval.rollout.test_merging import joined_as_whole

SEEDS = (7, 8, 9)


@pytest.fixture
def config(tmp_path):
    suite = suite_file(tmp_path, "fake", SeededSuite, env_seed="stream 7")
    return RunConfig(suites=(suite,), init_ids=(0, 1), seeds=SEEDS, **STILL)


def test_every_initial_state_is_played_with_each_seed(config):
    keys = make_plan(config).keys
    assert [(key.seed, key.init_id) for key in keys] == [(s, i) for s in SEEDS for i in (0, 1)]


@pytest.mark.parametrize(
    ("given", "seeds", "recorded"),
    [
        (None, SEEDS, "stream 7"),
        ("stream", SEEDS, "stream"),
        ("stream", (8,), "stream 8"),
        ("fixed 7", (7,), "fixed"),
        ("fixed 7", SEEDS, "fixed 7"),
        ("fixed", SEEDS, "fixed"),
    ],
)
def test_the_environment_has_the_protocols_seed_and_each_seed_where_that_has_none(
    config, given, seeds, recorded
):
    plan = make_plan(config.model_copy(update={"env_seed": given, "seeds": seeds}))
    (suite,) = plan.suites.values()
    assert str(suite.protocol.env_seed) == recorded


def test_the_command_takes_several_seeds_and_refuses_one_given_twice(refused, started, tmp_path):
    for words, seeds in (("--seeds 7 8-9", SEEDS), ("--seed 8", (8,)), ("", (7,))):
        given = ["--suite", "gym_reacher", "--policy", "noop", *words.split()]
        with pytest.raises(SystemExit):
            eval_run.app(given, result_action="sys_exit_zero")
        assert started[-1].seeds == seeds
    said = refused(eval_run.app, "--suite", "gym_reacher", "--policy", "noop", "--seeds", "7,8", "7")
    assert "7 is given twice in 7,8 7; give each number once" in said


@pytest.mark.parametrize("env_seed", [None, "stream", "fixed 8", "fixed"])
def test_runs_that_differ_in_seeds_are_joined_into_the_run_of_all(config, tmp_path, env_seed):
    seeded = config.model_copy(update={"env_seed": env_seed} if env_seed else {})
    seeded = RunConfig.model_validate(seeded.model_dump())
    parts = []
    for seeds in ((7, 9), (8,)) if env_seed == "stream" else ((7,), (8,), (9,)):
        share = seeded.model_copy(update={"seeds": seeds})
        parts.append(played(tmp_path / str(seeds), share, executor=SERIAL)[0].folder)
    whole = seeded.model_copy(update={"seeds": (7, 9, 8) if env_seed == "stream" else SEEDS})
    joined_as_whole(whole, parts, tmp_path)


def test_a_run_of_a_version_that_had_one_seed_is_read_and_resumed(config, tmp_path):
    (run,) = played(tmp_path / "runs", config.model_copy(update={"seeds": (8,)}), executor=SERIAL)
    manifest = run.folder.read_manifest()
    older = {**manifest["config"], "seed": manifest["config"].pop("seeds")[0]}
    del older["seeds"]
    run.folder.write_manifest({**manifest, "config": older, "status": "interrupted"})
    lines = run.folder.episodes_path.read_text().splitlines(keepends=True)
    run.folder.episodes_path.write_text(lines[0])
    assert read_identity(run.folder).overrides["seeds"] == [8]
    evaluate(*find_unfinished(tmp_path / "runs", {"suites": list(config.suites), "seeds": (8,)}))
    assert [key.seed for key in read_episodes(run.folder)] == [8, 8]


def seeded(path, *outcomes, **manifest) -> RunBuilder:
    """A string of outcomes of initial states 0, 1, 2 … for each seed."""
    run = RunBuilder.at(path, n_planned=sum(map(len, outcomes)), config={"seeds": list(SEEDS)}, **manifest)
    for seed, of_seed in zip(SEEDS, outcomes, strict=True):
        for state, letter in enumerate(of_seed):
            run.add(episode(key(state, seed=seed), "success" if letter == "s" else "timeout"))
    return run


A, B = ("sssstttttt", "ssssstttt" + "t", "sssttttttt"), ("ssssssssst", "ssssssssst", "sssssssstt")


def test_a_row_pools_the_seeds_over_initial_states_and_has_their_mean_and_deviation(tmp_path):
    written = results_of(run_rows(seeded(tmp_path / "a", *A).folder))
    overall = written["overall"]
    assert overall["pc_success"] == pytest.approx(40)
    assert overall["seeds"] == {"rates": {7: 40, 8: 50, 9: 30}, "mean": pytest.approx(40), "sd": 10}
    assert [(each["seed"], each["pc_success"]) for each in written["per_seed"]] == [(7, 40), (8, 50), (9, 30)]
    one = results_of(run_rows(RunBuilder.at(tmp_path / "one").add_all("sssstttttt").folder))
    low, high = overall["pc_success_ci95"]
    alone = one["overall"]["pc_success_ci95"]
    assert high - low > 0.9 * (alone[1] - alone[0]), "seeds that agree tell little more than one"
    assert one["overall"]["seeds"] is None


def test_a_comparison_is_over_initial_states(tmp_path, capsys):
    a, b = seeded(tmp_path / "a", *A), seeded(tmp_path / "b", *B)
    pairs = compare(a.folder, b.folder).overall
    assert (pairs.graded, pairs.only_a, pairs.only_b) == (30, 0, 14)
    assert pairs.independent < 0.6
    assert pairs.p_value == pytest.approx(2 / 2**6), "of six states in which the runs differ"
    eval_compare.app([str(a.path), str(b.path)], result_action="return_value")
    said = capsys.readouterr().out
    assert "40.0 ± 10.0 %" in said
    assert "86.7 ± 5.8 %" in said
    assert "interval and p are over initial states" in " ".join(said.split())


def test_a_leaderboard_ranks_over_all_seeds_and_prints_mean_and_deviation(tmp_path):
    for name, outcomes in (("a", A), ("b", B)):
        seeded(tmp_path / name, *outcomes, policy=name)
    board = read_leaderboard([tmp_path])
    (table,) = board.tables
    assert [(entry.run.policy, entry.rank.best) for entry in table.table.rows] == [("b", 1), ("a", 2)]
    assert "seeds 7, 8, 9" in table.title
    assert "| 86.7 ± 5.8 |" in leaderboard_markdown(board)
    assert r"86.7 $\pm$ 5.8" in leaderboard_latex(board)
