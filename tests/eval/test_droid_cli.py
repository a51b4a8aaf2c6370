"""`python -m eval.droid`: policies with DROID's conventions play on its station, others are refused."""

import json

import pytest

from eval import droid
from tests.eval.conftest import call


@pytest.mark.slow
@pytest.mark.parametrize(
    "what",
    [
        "--policy small_droid --random-weights",
        "--policy tiny_droid_jointpos --suite droid_tabletop_jointpos",
        "--policy tiny_droid_jointpos --suite droid_tabletop_jointpos --clock fixed:100,100 --overlap rtc",
    ],
)
def test_a_policy_plays_an_episode(what, tmp_path, capsys):
    what += " --mode actions --task-ids 0 --init-ids 0"
    assert (
        call(droid.app, *what.split(), "--max-steps", "8", "--video", "none", "--output-dir", str(tmp_path))
        == 0
    )
    (file,) = tmp_path.glob("*/results.json")
    overall = json.loads(file.read_text())["overall"]
    assert (overall["n_episodes"], overall["n_success"], overall["n_errors"]) == (1, 0, 0)
    (queries,) = tmp_path.glob("*/queries/*.jsonl*")
    assert queries.stat().st_size > 0
    assert "put the cube in the bowl" in capsys.readouterr().out


def test_without_options_the_demo_runs(started):
    assert call(droid.app, "--mode", "unified") == call(droid.app, "--init-ids", "7") == 0
    isolated, unified, own = started
    assert [isolated.mode, unified.mode] == ["isolated", "unified"]
    assert [unified.clock, own.clock] == ["profile:jetson-thor-roofline", "paused"]
    assert (unified.policy, unified.suites) == ("tiny_droid_jointpos", ("droid_tabletop_jointpos",))
    assert (own.policy, own.suites) == ("tiny_droid", ("droid_tabletop",))
    assert len(unified.task_ids) * len(unified.init_ids) == 9


def test_the_smoke_run_plays_one_short_episode(tmp_path):
    assert call(droid.app, "--smoke", "--output-dir", str(tmp_path), "--no-report") == 0
    (file,) = tmp_path.glob("*/results.json")
    overall = json.loads(file.read_text())["overall"]
    assert (overall["n_episodes"], overall["n_errors"]) == (1, 0)


def test_tasks_that_the_expert_cannot_play_are_named_before_the_first_episode(tmp_path, refused):
    err = refused(droid.app, "--policy", "expert", "--output-dir", tmp_path)
    assert "cannot play push_box_to_mark, open_drawer, stand_bottle_up; give --task-ids" in err
    played = err.split("--task-ids ")[1].split(",")[0].split()
    assert not list(tmp_path.iterdir())
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("eval.rollout.executors.executor.Serial.play", lambda *_: iter(()))
        call(droid.app, "--policy", "expert", "--task-ids", *played, "--output-dir", str(tmp_path))
    assert list(tmp_path.iterdir()), "the ids that it gives are accepted"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--policy small_droid --suite droid_tabletop_jointpos", "joint_position"),
        ("--policy tiny_droid_jointpos", "such as pi05_droid, small_droid, tiny_droid"),
        ("--policy small_droid --replan-steps 16", "--replan-steps 15 or less"),
        ("--policy small_droid --assets standins", "brings its own"),
        ("--policy random --suite droid_tabletop_jointpos", "random needs action limits, and DROID"),
        ("--policy expert --suite gym_reacher", "suite gym_reacher has no expert"),
    ],
)
def test_options_that_do_not_fit_are_refused_before_anything_runs(line, said, tmp_path, refused):
    assert said in refused(droid.app, *line.split(), "--output-dir", tmp_path)
    assert not list(tmp_path.iterdir())
