"""The policy in the box under a device's profile: every run of it is the same, resumed or not."""

import pytest
import yaml

from configs.paths import read_json_object
from configs.schema import RunConfig
from eval.records.run_folders import find_unfinished, new_run
from eval.rollout import episode
from eval.rollout.executors.executor import SERIAL, Processes
from sim_envs.fake import FakeSuite
from tests.eval.conftest import evaluate
from tests.eval.rollout.scaled import records, suite_file


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    """A suite without physics that the policy in the box fits, as a file."""
    changes = {"environment": {"success_at": 37}, "max_steps": 40, "settle_steps": 0, "camera_size": 256}
    return suite_file(tmp_path_factory.mktemp("suites"), "fake", FakeSuite, **changes)


@pytest.fixture(scope="module")
def play(suite, tmp_path_factory):
    """Plays the suite in some modes, in a folder of its own unless it is given one; returns the runs'."""

    def play(*modes, folder=None, executor=SERIAL, **changes):
        folder = folder or tmp_path_factory.mktemp("runs")
        same = {"suites": (suite,), "clock": "profile:jetson-thor", "video": "none", **changes}
        runs = [new_run(folder, RunConfig(mode=mode, **same)) for mode in modes]
        evaluate(*runs, executor=executor)
        return [run.folder for run in runs]

    return play


@pytest.fixture(scope="module")
def whole(play):
    return play("isolated", "unified")


@pytest.mark.slow
def test_a_resumed_run_under_a_profile_equals_an_uninterrupted_one(play, whole, monkeypatch, tmp_path):
    uninterrupted, ended = episode.rollout, iter([False, False, True])

    def rollout(*arguments, **named):
        if next(ended, False):
            raise KeyboardInterrupt
        return uninterrupted(*arguments, **named)

    monkeypatch.setattr(episode, "rollout", rollout)
    with pytest.raises(KeyboardInterrupt):
        play("isolated", "unified", folder=tmp_path)
    again = find_unfinished(tmp_path, {})
    evaluate(*again)
    assert [records(run.folder) for run in again] == [records(folder) for folder in whole]


@pytest.mark.slow
def test_guided_chunks_are_equal_bit_for_bit_in_any_batch(play):
    """In one batch with worlds that have nothing under way, and with those that have."""
    how = {"overlap": "rtc", "batch_size": 2}
    (alone,) = play("unified", **how)
    (together,) = play("unified", executor=Processes(num_envs=2), **how)
    assert sorted(records(together), key=str) == sorted(records(alone), key=str)
    guided = [record for record in records(alone) if "action_prefix" in record]
    assert len(guided) > 5


@pytest.mark.parametrize("where", ["fake", pytest.param("libero_object", marks=pytest.mark.slow)])
def test_schedules_with_equal_a_and_b_give_equal_episodes_bit_for_bit(where, play, suite, tmp_path):
    """In any mode, on any clock, whether b is the price of a query or the steps between two."""
    device = tmp_path / "device.yaml"
    stage = {"kind": "computed", "source": "made up"}
    prices = {"host": 0, "prefill": 30, "denoise": 30, "fork": 0}
    profile = {stage_name: {"ms": ms, **stage} for stage_name, ms in prices.items()}
    words = {"name": "device", "device": "a device", "dtype": "float32", "model": "tiny", "source": "made up"}
    device.write_text(yaml.safe_dump({**words, **profile, "decode": {1: {"ms": 0.1, **stage}}}))
    texts = {"clock": f"profile:{device}", "text_every": 1}
    schedules = [
        ("actions", {"clock": "fixed:100,150", "replan_steps": "asap"}),
        ("actions", {"clock": "fixed:52,137", "replan_steps": 2}),
        ("actions", {"clock": "fixed:100", "replan_steps": 3}),
        ("isolated", {**texts, "replan_steps": "asap"}),  # 60 ms and two prefills more, and decoding
        ("unified", {**texts, "replan_steps": 3}),
    ]
    world = {} if where == "fake" else {"suites": (where,), "assets": "standins", "task_ids": (0,)}
    short = {} if where == "fake" else {"init_ids": (40,), "max_steps": 30}
    runs = [play(mode, **{**how, **world, **short})[0] for mode, how in schedules]
    results = [read_json_object(run.results_path)["overall"] for run in runs]
    steps = {name: dict.fromkeys(("median", "least", "most"), count) for name, count in (("a", 2), ("b", 3))}
    assert [result["control_steps"] for result in results] == [steps] * len(runs)
    assert [courses(run) for run in runs[1:]] == [courses(runs[0])] * (len(runs) - 1)
    assert [bool(result["tokens"]) for result in results] == [False, False, False, True, True]


def courses(folder):
    """What happened in each episode, and every action to the last bit."""
    names = ("key", "outcome", "steps", "queries", "held_steps", "continued_steps", "skipped_actions")
    names += ("step", "actions_step", "spans", "skipped", "actions")
    return [{name: record[name] for name in names if name in record} for record in records(folder)]
