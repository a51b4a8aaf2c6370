"""While a run goes on, a terminal shows one bar, and a file gets a line a minute."""

import functools
import itertools
import re
import time
from collections import Counter
from types import SimpleNamespace

import pytest

from contracts.mode import Mode
from eval.monitors import console
from eval.records import query_logs, reader
from eval.rollout.plan import make_plan
from tests.eval.conftest import CONFIG, VARIANTS, begin, evaluate, play
from tests.eval.doubles import without_physics
from tests.eval.factory import RunBuilder, episode, key


@pytest.mark.parametrize(("seconds", "count"), [(0, 1), (20, 2)])
def test_a_redirected_run_says_once_a_minute_how_far_it_is_and_ends_with_its_report(
    seconds, count, tmp_path, stage, capsys, monkeypatch
):
    """So many seconds pass between two looks at the clock."""
    times = itertools.count(step=seconds)
    clock = SimpleNamespace(monotonic=lambda: next(times), perf_counter=time.perf_counter)
    monkeypatch.setattr(console, "time", clock)
    runs = begin(tmp_path)
    evaluate(*runs, monitor=functools.partial(console.EvaluationConsole, report=True))
    lines = capsys.readouterr().out.splitlines()
    (page,) = tmp_path.rglob("index.html")
    assert f"report   {page}" in lines
    assert all(f"#episode={key}" in page.read_text() for key in make_plan(runs[0].config).keys)
    assert "unified minus isolated: " in page.read_text()
    said = [line for line in lines if " of 8 episodes, " in line]
    assert len(said) == count
    assert said[0].startswith("3 of 8 episodes, isolated 100 % (21–100), unified 100 % (34–100), ")
    assert re.search(r", \d+ episodes/h, .* left$", said[0])


def test_query_logs_are_parsed_once_for_results_details_and_page(tmp_path, stage, monkeypatch, capsys):
    parsed = []

    def counted(folder, key):
        parsed.append((folder, key))
        return query_logs.read_queries(folder, key)

    monkeypatch.setattr(reader, "read_queries", counted)
    runs = begin(tmp_path, VARIANTS.model_copy(update={"mode": (Mode.ISOLATED, Mode.SHARED, Mode.UNIFIED)}))
    monitor = functools.partial(console.EvaluationConsole, report=True, verbose=True)
    results = evaluate(*runs, monitor=monitor)
    logs = [(each.records.folder, key) for each in results for key in each.records.episodes]
    assert Counter(parsed) == Counter(logs)
    assert "McNemar" in capsys.readouterr().out


def test_a_terminal_shows_one_bar_with_each_modes_success(tmp_path, stage, capsys, monkeypatch):
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("COLUMNS", "80")
    stage.policy("unified", fails_at=0, fails_with=ValueError("\x1b[31mred [/INST]"))
    evaluate(*begin(tmp_path))
    out = capsys.readouterr().out
    last = [line for line in out.splitlines() if "8/8" in line][-1]
    assert "isolated 100 %, unified –, 4 errors" in last
    assert "\x1b[31mred" not in out
    assert "␛[31mred [/INST]" in " ".join(out.split())


def begun(path):
    """Two modes of `tiny`, of which no episode is recorded."""
    runs = begin(path)
    for run in runs:
        RunBuilder.at(run.folder.path, mode=run.config.mode)
    return runs


def test_why_a_scene_has_no_ground_truth_is_one_line_for_all_its_episodes(tmp_path, capsys):
    runs = begun(tmp_path)
    with console.EvaluationConsole(runs, make_plan(runs[0].config)) as shown:
        for init_id in range(3):
            shown.episode(0, episode(key(init_id), truth_error="SceneError: no noun for [x]"))
    said = "so texts are not graded: SceneError: no noun for [x]"
    assert [line for line in capsys.readouterr().out.splitlines() if said in line] == [
        f"no ground truth in {key(0)}, {said}"
    ]


def test_a_terminal_shows_what_every_world_plays(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("COLUMNS", "80")
    runs = begun(tmp_path)
    plan = make_plan(runs[0].config)
    with console.EvaluationConsole(runs, plan) as shown:
        for world in range(2):
            shown.began(world, world, plan.keys[0])
        capsys.readouterr()
        shown._live.refresh()
        lines = capsys.readouterr().out
    key = plan.keys[0]
    for mode, world in (("isolated", 0), ("unified", 1)):
        assert f"world {world}: {key.suite} task {key.task_id}, init {key.init_id}, {mode}, 0:00:0" in lines


def test_episodes_recorded_earlier_are_counted_and_do_not_shorten_the_time_left(tmp_path, policy, capsys):
    runs = begun(tmp_path)
    plan = make_plan(runs[0].config)
    with console.EvaluationConsole(runs, plan) as shown:
        shown.resumed([[episode(each) for each in plan.keys[:3]], []])
        (bar,) = shown._progress.tasks
        assert (bar.completed, bar.speed) == (3, None)
    assert "3 of 8 episodes are recorded" in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({}, ", protocol openpi* (max steps 20)"),
        ({"max_steps": None}, ", protocol openpi"),
        ({"replan_steps": 4}, ", protocol openpi* (max steps 20, replan steps 4)"),
        ({"max_steps": None, "protocol": "openvla"}, ", protocol openvla"),
        ({"protocol": "groot"}, ", protocol groot* (max steps 20)"),
        (
            {"clock": "fixed:100,250", "while_waiting": "hold", "max_steps": None},
            ", clock fixed:100,250, hold, protocol openpi*",
        ),
        ({"motion": "drift:3", "max_steps": None}, ", motion drift:3, protocol openpi*"),
        (
            {"clock": "fixed:100", "overlap": "blend", "max_steps": None},
            ", clock fixed:100, blend, protocol openpi*",
        ),
    ],
)
def test_the_heading_names_clock_motion_and_the_protocol_with_what_differs_from_it(
    options, named, tmp_path, policy, capsys
):
    folder = play(tmp_path, suites=("libero_goal",), **options)
    lines = capsys.readouterr().out.splitlines()  # the first may say what of the protocol is not followed
    where = lines.index(f"→ {folder.path}")
    assert lines[where - 1].endswith(f"4 episodes (2 tasks of libero_goal), assets none{named}")


def test_a_policy_without_texts_is_told_without_modes_and_texts(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    without_physics(monkeypatch)
    play(tmp_path, CONFIG.model_copy(update={"policy": "random", "mode": Mode.ACTIONS, "video": "all"}))
    out = capsys.readouterr().out
    assert out.startswith("random, 8 episodes (")
    assert "\nrandom solved 100 % of 8 episodes" in out
    for word in ("mode", "text", "tok/s", "narr", "mem."):
        assert word not in out.replace(str(tmp_path), "")
