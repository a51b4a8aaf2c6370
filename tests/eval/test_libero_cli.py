"""`python -m eval.libero`: presets, flags and defaults become runs; bad input is one line."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from configs.schema import RunConfig
from eval import libero
from tests.eval.conftest import call


def papers(**changes: Any) -> RunConfig:
    """A run of the suites that papers report."""
    return RunConfig(suites=libero.SUITES, **changes)


def test_without_options_the_demo_runs(started):
    assert call(libero.app, "--mode", "unified") == 0
    assert [variant.mode for variant in started] == ["isolated", "unified"]
    assert started[1] == RunConfig(
        suites=("libero_object",),
        init_ids=(40,),
        assets="standins",
        clock="profile:jetson-thor-roofline",
        video="all",
        video_every=1,
    )
    assert call(libero.app) == call(libero.app, "--config", "demo") == 0
    assert started[2:4] == started[4:]


@pytest.mark.parametrize(
    ("line", "changes"),
    [
        ("--mode shared --against actions", {}),
        ("--language-tasks narration --tokens-per-frame 2", {"tokens_per_frame": 2}),
        ("--clock measured --deadline-ms 90 --output-dir elsewhere", {"clock": "measured"}),
        ("--video none", {"video": "none"}),
    ],
)
def test_options_of_serving_and_output_change_the_demo(started, line, changes, capsys):
    assert call(libero.app, *line.split()) == 0
    assert [len(started), started[0].suites, started[0].init_ids] == [2, ("libero_object",), (40,)]
    assert {name: getattr(started[1], name) for name in changes} == changes
    assert capsys.readouterr().out.startswith("The demo: preset `demo`")


@pytest.mark.parametrize(
    ("line", "changes"),
    [
        ("--assets /some/where", {"assets": "/some/where"}),
        ("--num-trials-per-task 50", {"num_trials_per_task": 50}),
        ("--task-ids 3 --init-ids 5 --seed 3", {"task_ids": (3,), "init_ids": (5,), "seed": 3}),
        ("--max-steps 9 --num-steps-wait 1", {"max_steps": 9, "num_steps_wait": 1}),
        ("--random-weights --dtype bfloat16", {"random_weights": True, "dtype": "bfloat16"}),
        ("--policy expert", {"policy": "expert"}),
        ("--policy tiny --language-tasks none", {"language_tasks": ()}),
        ("--wordings held_out --motion drift:3", {"wordings": "held_out", "motion": "drift:3"}),
    ],
)
def test_options_that_select_episodes_run_the_published_protocol(started, line, changes, capsys):
    assert call(libero.app, "--mode", "unified", *line.split()) == 0
    assert started == [papers(**changes)]
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("line", "modes"),
    [
        ("--mode unified,isolated,shared", ["unified", "isolated", "shared"]),
        ("--mode isolated unified --against unified", ["unified", "isolated"]),
        ("--mode unified --against unified", ["unified"]),
        ("--against isolated", ["isolated", "unified"]),
    ],
)
def test_every_mode_is_a_variant_and_the_reference_comes_first(started, line, modes):
    assert call(libero.app, "--policy", "expert", *line.split()) == 0
    assert started == [papers(policy="expert", mode=mode) for mode in modes]


def test_a_deadline_applies_to_mode_unified(started):
    line = "--policy tiny --mode isolated unified --deadline-ms 90"
    assert call(libero.app, *line.split()) == 0
    assert [variant.deadline_ms for variant in started] == [None, 90]


def test_flags_override_presets_and_files(started, tmp_path):
    assert call(libero.app, "--smoke", "--task-ids", "3", "--policy", "noop") == 0
    assert (started[0].task_ids, started[0].max_steps) == ((3,), 40)
    file = tmp_path / "mine.yaml"
    file.write_text("suites: [libero_goal]\nmode: shared\ndtype: bfloat16\nlanguage_tasks: [memory]\n")
    assert call(libero.app, "--config", file, "--policy", "noop", "--mode", "actions") == 0
    assert (started[1].suites, started[1].mode, started[1].dtype) == (("libero_goal",), "actions", "bfloat16")


@pytest.mark.parametrize(
    ("flag", "left"),
    [("--init-ids 3 5", (None, (3, 5))), ("--num-trials-per-task 2", (2, ()))],
)
def test_trials_and_initial_states_replace_each_other(started, tmp_path, flag, left):
    for content in ("init_ids: [7]", "num_trials_per_task: 1"):
        file = tmp_path / "mine.yaml"
        file.write_text(f"suites: [libero_goal]\n{content}\n")
        assert call(libero.app, "--config", file, *flag.split()) == 0
        assert (started[-1].num_trials_per_task, started[-1].init_ids) == left


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("--mode isolated unifed", ["'unifed'", "did you mean 'unified'"]),
        ("--polcy tiny", ["'--polcy'", "did you mean '--policy'"]),
        ("--policy exprt", ["'exprt'", "did you mean 'expert'"]),
        ("--task-ids 12 --suite libero_goal", ["libero_goal", "12", "0 to 9"]),
        ("--num-trials-per-task 50 --init-ids 5,6", ["is 50 and", "(5, 6)", "--init-ids"]),
        ("--policy noop --max-steps 0", ["max_steps", "0"]),
        ("--policy noop --variation 0.5", ["libero_spatial does not vary", "leave out --variation"]),
        ("--language-tasks narate --policy tiny", ["'narate'", "did you mean 'narration'"]),
        ("--policy tiny --mode shared --deadline-ms 90", ["deadline_ms", "90", "shared", "mode unified"]),
        ("--policy expert --clock profile:rtx4090", ["profile:rtx4090", "'expert'", "fixed:100,300"]),
        ("--policy tiny --mode parallel --clock profile:rtx4090", ["'rtx4090'", "parallel", "unified"]),
        ("--policy expert --overlap rtc --clock fixed:100", ["'expert'", "choose blend or skip"]),
        ("--policy tiny --overlap rtc --clock profile:two-core", ["'two-core'", "rtc", "guided_denoise"]),
        ("--policy tiny --replan-steps asap", ["asap", "clock"]),
        ("--resume", ["nothing to resume"]),
        ("--mode shared --tokens-per-frame 2", ["--tokens-per-frame 2", "isolated shared unified"]),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(line, parts, tmp_path, refused, monkeypatch):
    monkeypatch.setenv("OXYGEN_LIBERO_ASSETS", "")
    said = refused(libero.app, *line.split(), "--output-dir", tmp_path / "runs")
    assert [part for part in parts if part not in said] == []
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("loaded", "code"),
    [("pydantic_core", -signal.SIGINT), ("jax", 130)],
    ids=["while it is imported", "while the policy is loaded"],
)
def test_ctrl_c_before_the_first_episode_ends_the_program_at_once(tmp_path, loaded, code):
    """Until then there is nothing to be kept whole. Shells show 130 either way."""
    command = [sys.executable, "-m", "eval.libero", "--smoke", "--output-dir", str(tmp_path / "runs")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while loaded not in (Path("/proc") / str(process.pid) / "maps").read_text():
        time.sleep(0.02)
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (code, "", "")
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "part"), [("foo", "did you mean"), ("disable", "no OpenGL")])
def test_a_machine_that_cannot_render_is_refused_before_anything_runs(backend, part, tmp_path):
    command = ["-m", "eval.libero", "--policy", "noop", "--output-dir", str(tmp_path / "runs")]
    environment = {**os.environ, "MUJOCO_GL": backend}
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, check=False, env=environment
    )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert part in done.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("command", ["eval.libero", "eval.sweep", "eval.collect.__main__", "eval.compare"])
def test_help_needs_neither_simulator_nor_jax(command):
    slow = ("jax", "mujoco", "pyarrow", "robosuite")
    code = f"import sys, {command}; print([module for module in {slow} if module in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
