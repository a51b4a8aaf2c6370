"""Runs that cannot be compared say in one line what differs and what to do."""

import pytest

from configs.schema import RunConfig
from contracts.errors import UsageError
from eval.records.protocol import describe_suite
from eval.records.schema import RunFolder
from eval.rollout.plan import make_plan
from tests.eval.factory import RunBuilder, compare, episode, key

DONE = {"status": "complete"}
STOPPED = {"status": "interrupted", "n_planned": 50}


def run(path, keys, **manifest) -> RunFolder:
    built = RunBuilder.at(path, **manifest)
    for each in keys:
        built.add(episode(each))
    return built.folder


def keys(states, *, seed=7, task_id=0, suite="libero_object"):
    return [key(state, task_id, suite, seed) for state in states]


def refusal(a, b, **how):
    with pytest.raises(UsageError) as caught:
        compare(a, b, **how)
    return str(caught.value)


@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize("status", [DONE, STOPPED])
def test_runs_of_other_seeds_say_so(tmp_path, status, partial):
    a = run(tmp_path / "a", keys(range(2)), **status, config={"seed": 7})
    b = run(tmp_path / "b", keys(range(2), seed=8), **status, config={"seed": 8})
    said = refusal(a, b, partial=partial)
    assert "a and b hold different episodes: seeds 7 in a, 8 in b" in said
    assert said.endswith("play one of them again with the other's --seeds")
    assert "--resume" not in said


@pytest.mark.parametrize(
    ("of_b", "told", "remedy"),
    [
        (keys([5, 6]), "initial states 0-1 in a, 5-6 in b", "with the other's --init-ids"),
        (keys(range(2), task_id=3), "tasks 0 in a, 3 in b", "with the other's --task-ids"),
        (
            keys([0]),
            "initial states 0-1 in a, 0 in b",
            "or give --partial to compare the 1 episode that both",
        ),
        (
            keys([4], task_id=1, seed=8),
            "seeds 7 in a, 8 in b; tasks 0 in a, 1 in b",
            "--seeds and --task-ids and",
        ),
        ([*keys([0]), *keys([1], task_id=1)], "tasks 0 in a, 0-1 in b", "--partial to compare the 1 episode"),
        ([*keys([0, 1]), *keys([1], seed=8)], "seeds 7 in a, 7-8 in b", "--partial to compare the 2"),
    ],
)
def test_complete_runs_of_other_episodes_are_not_to_be_resumed(tmp_path, of_b, told, remedy):
    said = refusal(run(tmp_path / "a", keys(range(2))), run(tmp_path / "b", of_b))
    assert told in said
    assert remedy in said
    assert "--resume" not in said


def test_an_unfinished_run_is_to_be_resumed_unless_it_has_other_episodes(tmp_path):
    a = run(tmp_path / "a", keys(range(4)), config={"seed": 7, "init_ids": [0, 1, 2, 3]})
    b = run(tmp_path / "b", keys(range(2)), **STOPPED, config={"seed": 7, "num_trials_per_task": 4})
    unfinished = "b has 50 planned episodes and is interrupted; complete it with --resume, or give --partial"
    assert unfinished in refusal(a, b)
    assert compare(a, b, partial=True).overall.graded == 2
    other = run(tmp_path / "c", keys([9]), **STOPPED, config={"seed": 7, "init_ids": [9]})
    assert "initial states 0-3 in a, 9 in c; play one of them again" in refusal(a, other)


def test_shards_are_to_be_joined(tmp_path):
    shards = [
        run(tmp_path / name, keys([state]), config={"shard": shard})
        for name, state, shard in (("a", 0, "1/2"), ("b", 1, "2/2"))
    ]
    said = refusal(*shards)
    assert "shard 1/2 in a, 2/2 in b" in said
    assert said.endswith("join the shards of each run with `oxygen-eval merge`")
    whole = run(tmp_path / "whole", keys([0, 1]))
    assert "shard 1/2 in a, none in whole" in refusal(shards[0], whole)


def test_tasks_with_holes_name_the_missing_episodes(tmp_path):
    a = run(tmp_path / "a", [key(0, 0), key(1, 1), key(1, 0)])
    b = run(tmp_path / "b", [key(0, 0), key(1, 1), key(0, 1)])
    assert "a lacks libero_object.1.0.7; b lacks libero_object.0.1.7" in refusal(a, b)


ASSETS = {"name": "real", "digest": "d1ge57000000"}
WORLD = {"suite": {"max_steps": 200, "control_hz": 20}, "assets": ASSETS, "env_seed": "stream 7"}


@pytest.mark.parametrize(
    ("protocol", "told"),
    [
        ({"libero_object": {**WORLD, "wordings": "held_out"}}, "(wordings none and held_out)"),
        ({"libero_object": {**WORLD, "env_seed": "fixed 7"}}, "(env_seed stream 7 and fixed 7)"),
        (
            {"libero_object": {**WORLD, "suite": {"max_steps": 60, "control_hz": 20}}},
            "(max_steps 200 and 60)",
        ),
        ({"libero_goal": WORLD}, "(suites libero_object and libero_goal)"),
        (
            {"libero_object": WORLD | {"wordings": "training"}, "libero_goal": WORLD},
            "(suites libero_object and libero_object, libero_goal)",
        ),
        (
            {"libero_object": {**WORLD, "feedback": "none", "clock": {"kind": "fixed"}}},
            "(clock.kind none and",
        ),
    ],
)
def test_other_protocols_say_in_what_they_differ(tmp_path, protocol, told):
    a = run(tmp_path / "a", keys(range(2)), protocol={"libero_object": WORLD})
    played = keys(range(2), suite=next(iter(protocol)))
    said = refusal(a, run(tmp_path / "b", played, protocol=protocol))
    assert "a and b ran under different protocols " in said
    assert told in said
    assert "play one of them again with what the other has" in said


def test_a_run_of_more_suites_is_compared_on_those_that_both_have_with_partial(tmp_path):
    one = run(tmp_path / "one", keys(range(2)), protocol={"libero_object": WORLD})
    every = [*keys(range(3)), *keys(range(2), suite="libero_goal")]
    more = run(tmp_path / "more", every, protocol={"libero_object": WORLD, "libero_goal": WORLD})
    assert refusal(one, more) == (
        "one has suites libero_object, and more has libero_object, libero_goal; give --partial to compare "
        "them on libero_object"
    )
    compared = compare(more, one, partial=True)
    assert (compared.overall.graded, [*compared.per_suite], compared.partial) == (2, ["libero_object"], True)


def test_runs_under_two_protocols_by_name_are_refused_with_both_and_all_differences_also_partially(tmp_path):
    runs = []
    for name in ("openpi", "groot"):
        config = RunConfig(suites=("libero_object",), protocol=name, policy="noop", task_ids=(0,))
        world = describe_suite(make_plan(config).suites["libero_object"])
        recorded = config.model_dump(mode="json", include={"protocol"})
        protocol = {"libero_object": {**world, "assets": ASSETS}}
        runs.append(run(tmp_path / name, keys(range(2)), protocol=protocol, config=recorded))
    for partial in (False, True):
        said = refusal(*runs, partial=partial)
        assert "openpi and groot ran under different protocols, openpi and groot (" in said
        for difference in (
            "max_steps 280 and 720",
            "settle_steps 10 and 0",
            "initial_states stored and placement",
            "replan_steps 5 and 8",
        ):
            assert difference in said


def test_other_suites_are_named_before_their_assets(tmp_path):
    a = run(tmp_path / "a", keys(range(2)), protocol={"libero_object": WORLD})
    none = {"name": "none", "digest": "none"}
    protocol = {"reach": {**WORLD, "assets": none}}
    b = run(tmp_path / "b", keys(range(2), suite="reach"), protocol=protocol, assets=none)
    assert "(suites libero_object and reach)" in refusal(a, b)
