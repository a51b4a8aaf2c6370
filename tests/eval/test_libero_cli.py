"""`python -m eval.libero`: bad input is one line and exit code 2, and nothing is left behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from configs.cli import run_app
from configs.schema import RunConfig
from eval import libero


@pytest.fixture
def started(monkeypatch) -> list[RunConfig]:
    """The configurations that the command line would have run."""
    runs: list[RunConfig] = []
    monkeypatch.setattr(
        "eval.rollout.evaluation.run_evaluation",
        lambda *variants, **how: runs.extend(variant.config for variant in variants) or [],
    )
    return runs


def papers(**changes: Any) -> RunConfig:
    """A run of the suites that papers report."""
    return RunConfig(suites=libero.SUITES, **changes)


def call(*arguments: str) -> int:
    with pytest.raises(SystemExit) as stopped:
        run_app(libero.app, arguments)
    return stopped.value.code


def test_with_nothing_chosen_the_demo_runs(started):
    assert call("--mode", "unified") == 0
    assert [variant.mode for variant in started] == ["isolated", "unified"]
    demo = RunConfig(
        suites=("libero_object",),
        init_ids=(40,),
        assets="standins",
        clock="profile:jetson-thor-roofline",
        video="all",
        video_every=1,
    )
    assert started[1] == demo


@pytest.mark.parametrize(
    ("line", "changes"),
    [
        ("", {}),
        ("--mode shared --against actions", {}),
        ("--language-tasks narration --tokens-per-frame 2", {"tokens_per_frame": 2}),
        ("--clock measured --deadline-ms 90 --output-dir elsewhere", {"clock": "measured"}),
        ("--video none", {"video": "none"}),
    ],
)
def test_the_demo_may_be_served_and_kept_in_other_ways_and_says_that_it_is_the_demo(
    started, line, changes, capsys
):
    assert call(*line.split()) == 0
    assert [len(started), started[0].suites, started[0].init_ids] == [2, ("libero_object",), (40,)]
    assert {name: getattr(started[1], name) for name in changes} == changes
    printed = capsys.readouterr().out
    assert printed.startswith("The demo: preset `demo`")
    assert "--policy, --suite or --assets" in printed


@pytest.mark.parametrize(
    ("line", "changes"),
    [
        ("--assets /some/where", {"assets": "/some/where"}),
        ("--num-trials-per-task 50", {"num_trials_per_task": 50}),
        ("--task-ids 3", {"task_ids": (3,)}),
        ("--init-ids 5", {"init_ids": (5,)}),
        ("--seed 3", {"seed": 3}),
        ("--max-steps 9 --num-steps-wait 1", {"max_steps": 9, "num_steps_wait": 1}),
        ("--replan-steps 2 --wordings held_out", {"replan_steps": 2, "wordings": "held_out"}),
        ("--random-weights --dtype bfloat16", {"random_weights": True, "dtype": "bfloat16"}),
    ],
)
def test_what_says_which_episodes_are_played_leaves_the_demo_for_the_defaults_of_the_help(
    started, line, changes, capsys
):
    assert call("--mode", "unified", *line.split()) == 0
    assert started == [papers(**changes)]
    assert capsys.readouterr().out == ""


def test_the_demo_itself_may_be_changed(started):
    line = "--config demo --mode shared --num-trials-per-task 2 --assets auto --seed 3"
    assert call(*line.split()) == 0
    assert [variant.mode for variant in started] == ["isolated", "shared"]
    changed = {
        (variant.num_trials_per_task, variant.init_ids, variant.assets, variant.seed) for variant in started
    }
    assert changed == {(2, (), "auto", 3)}


def test_the_demo_is_its_preset(started):
    assert call() == call("--config", "demo") == 0
    assert started[:2] == started[2:]


@pytest.mark.parametrize(
    ("line", "modes"),
    [
        ("--mode isolated unified", ["isolated", "unified"]),
        ("--mode unified,isolated,shared", ["unified", "isolated", "shared"]),
        ("--mode unified --against actions", ["actions", "unified"]),
        ("--mode isolated unified --against unified", ["unified", "isolated"]),
        ("--mode unified --against unified", ["unified"]),
        ("--against isolated", ["isolated", "unified"]),
    ],
)
def test_every_mode_named_is_a_variant_and_the_one_to_compare_with_comes_first(started, line, modes):
    assert call("--policy", "expert", *line.split()) == 0
    assert started == [papers(policy="expert", mode=mode) for mode in modes]


def test_a_deadline_is_for_the_variant_that_can_keep_it(started):
    assert call("--policy", "tiny", "--mode", "isolated", "unified", "--deadline-ms", "90") == 0
    assert [variant.deadline_ms for variant in started] == [None, 90]


def test_with_something_chosen_the_published_protocol_runs(started):
    assert call("--policy", "expert") == 0
    assert started[0] == papers(policy="expert")
    assert started[0].suites == ("libero_spatial", "libero_object", "libero_goal", "libero_10")


def test_every_option_arrives(started):
    line = (
        "--mode unified --suite libero_goal libero_10 --task-ids 0-2,5 --init-ids 4 6 "
        "--policy tiny --assets /some/where --language-tasks memory --random-weights --dtype bfloat16 "
        "--text-every 4 --tokens-per-frame 2 --replan-steps 8 "
        "--num-steps-wait 12 --max-steps 99 --variation 0.5 --motion drift:3 --wordings held_out --seed 11 "
        "--video none"
    )
    assert call(*line.split()) == 0
    assert started[0] == RunConfig(
        mode="unified",
        suites=("libero_goal", "libero_10"),
        task_ids=(0, 1, 2, 5),
        init_ids=(4, 6),
        policy="tiny",
        assets="/some/where",
        language_tasks=("memory",),
        random_weights=True,
        dtype="bfloat16",
        text_every=4,
        tokens_per_frame=2,
        replan_steps=8,
        num_steps_wait=12,
        max_steps=99,
        variation=0.5,
        motion="drift:3",
        wordings="held_out",
        seed=11,
        video="none",
    )


def test_a_deadline_and_the_parallel_mode_arrive(started):
    assert call("--policy", "tiny", "--deadline-ms", "87.5") == 0
    assert call("--policy", "tiny", "--mode", "parallel") == 0
    assert started[0] == papers(deadline_ms=87.5)
    assert started[1].mode == "parallel"


def test_a_preset_may_say_what_the_variants_do_not_heed(started, tmp_path):
    """It is written once, for many policies and modes."""
    path = tmp_path / "mine.yaml"
    path.write_text("random_weights: true\ndtype: bfloat16\ntokens_per_frame: 2\nlanguage_tasks: [memory]\n")
    assert call("--config", str(path), "--policy", "noop", "--mode", "actions") == 0
    assert started[0].tokens_per_frame == 2


def test_flags_override_presets(started):
    assert call("--smoke", "--task-ids", "3", "--policy", "noop") == 0
    assert started[0].task_ids == (3,)
    assert started[0].max_steps == 40


@pytest.mark.parametrize(
    ("flag", "left"),
    [("--init-ids 3 5", (None, (3, 5))), ("--num-trials-per-task 2", (2, ()))],
)
def test_trials_and_initial_states_take_each_other_s_place_in_a_preset(started, tmp_path, flag, left):
    for content in ("init_ids: [7]", "num_trials_per_task: 1"):
        path = tmp_path / "mine.yaml"
        path.write_text(f"suites: [libero_goal]\n{content}\n")
        assert call("--config", str(path), *flag.split()) == 0
        assert (started[-1].num_trials_per_task, started[-1].init_ids) == left


def test_a_file_with_trials_and_initial_states_is_refused(tmp_path, capsys):
    path = tmp_path / "mine.yaml"
    path.write_text("init_ids: [7]\nnum_trials_per_task: 1\n")
    assert call("--config", str(path)) == 2
    assert "`num_trials_per_task` is 1 and `init_ids` is [7]" in capsys.readouterr().err


def test_no_language_at_all(started):
    assert call("--policy", "tiny", "--language-tasks", "none") == 0
    assert started[0].language_tasks == ()


def test_a_file_of_ones_own(started, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("suites: [libero_goal]\nmode: shared\n")
    assert call("--config", str(path), "--mode", "actions") == 0
    assert started[0] == RunConfig(suites=("libero_goal",), mode="actions")


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("--mode unifed", ["'unifed'", "did you mean 'unified'"]),
        ("--mode isolated unifed", ["'unifed'", "did you mean 'unified'"]),
        ("--against isolatd", ["'isolatd'", "did you mean 'isolated'"]),
        ("--polcy tiny", ["'--polcy'", "did you mean '--policy'"]),
        ("--policy exprt", ["'exprt'", "did you mean 'expert'"]),
        ("--policy runs/none/step_1", ["no checkpoint at runs/none/step_1"]),
        ("--video some", ["'some'", "none, failures, all"]),
        ("--suite libero_objct", ["'libero_objct'", "did you mean 'libero_object'"]),
        ("--task-ids 12 --suite libero_goal", ["libero_goal", "12", "0 to 9"]),
        ("--suite libero_goal --init-ids 50", ["init id 50", "0 to 49"]),
        ("--suite libero_goal --init-ids -1", ["init_ids", "'-1'"]),
        ("--policy noop --num-trials-per-task 51", ["51", "50"]),
        ("--num-trials-per-task 50 --init-ids 5,6", ["is 50 and", "(5, 6)", "--init-ids"]),
        ("--policy noop --max-steps 0", ["max_steps", "0"]),
        ("--policy noop --variation 0.5", ["libero_spatial does not vary", "leave out --variation"]),
        ("--policy noop --motion drft:3", ["'drft:3'", "did you mean 'drift:SPEED'", "cm/s"]),
        ("--policy noop --wordings held-out", ["'held-out'", "did you mean 'held_out'"]),
        ("--seed x", ["--seed", "x"]),
        ("--policy noop --max-steps 10.7", ["--max-steps '10.7'", "whole number"]),
        ("--policy noop --task-ids 0-99999999999", ["100000000000 numbers", "at most 100000"]),
        ("--config=", ["--config '': give a value, or leave the option out"]),
        ("--smoke --config demo", ["--smoke", "--config"]),
        ("--language-tasks narate --policy tiny", ["'narate'", "did you mean 'narration'"]),
        ("--config absent.yaml", ["absent.yaml"]),
        ("--policy tiny --dtype float16", ["'float16'", "did you mean 'bfloat16'"]),
        ("--policy tiny --deadline-ms 0", ["deadline_ms", "0"]),
        ("--policy tiny --deadline-ms inf", ["deadline_ms", "inf"]),
        ("--policy tiny --mode shared --deadline-ms 90", ["deadline_ms", "90", "shared", "mode unified"]),
        ("--policy tiny --clock profile:h200 --deadline-ms 90", ["deadline_ms", "90", "clock measured"]),
        ("--policy tiny --clock profile:thor", ["profile", "'thor'", "jetson-thor"]),
        ("--policy tiny --clock fixed:a", ["'fixed:a'", "fixed:100,300"]),
        ("--policy tiny --clock fixed:9,3", ["fixed:3,9"]),
        ("--policy tiny --clock replay:nowhere", ["nowhere is not a run"]),
        ("--policy expert --clock profile:rtx4090", ["profile:rtx4090", "'expert'", "fixed:100,300"]),
        ("--policy tiny --mode parallel --clock profile:rtx4090", ["'rtx4090'", "parallel", "unified"]),
        ("--policy tiny --while-waiting hold", ["hold", "clock"]),
        ("--policy tiny --while-waiting continue", ["--while-waiting continue", "--clock"]),
        ("--policy tiny --while-waiting sit --clock measured", ["sit", "hold"]),
        ("--policy tiny --overlap skip", ["--overlap skip", "--clock"]),
        ("--policy tiny --overlap mix --clock fixed:1", ["mix", "blend"]),
        ("--policy expert --overlap rtc --clock fixed:100", ["'expert'", "choose blend or skip"]),
        ("--policy tiny --overlap rtc --clock profile:two-core", ["'two-core'", "rtc", "guided_denoise"]),
        ("--policy tiny --replan-steps asap", ["asap", "clock"]),
        ("--policy tiny --replan-steps soon", ["'soon': give a whole number from 1 to 1000000, or asap"]),
        (
            "--policy tiny --replan-steps 0",
            ["`replan_steps` is '0': give a whole number from 1 to 1000000, or asap"],
        ),
        ("--policy tiny --replan-steps 2.5", ["'2.5'", "asap"]),
        ("--policy tiny --margin 0", ["margin", "0"]),
        ("--resume", ["nothing to resume"]),
        ("--policy expert --random-weights", ["--random-weights", "expert is scripted", "--policy tiny"]),
        ("--mode shared --tokens-per-frame 2", ["--tokens-per-frame 2", "isolated shared unified"]),
    ],
)
def test_bad_input_is_one_line_on_stderr(line, parts, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("OXYGEN_LIBERO_ASSETS", "")
    assert call(*line.split(), "--output-dir", str(tmp_path / "runs")) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    for part in parts:
        assert part in captured.err
    assert not (tmp_path / "runs").exists()


def test_a_link_to_nothing_is_no_output_folder(tmp_path, capsys):
    (tmp_path / "runs").symlink_to(tmp_path / "nowhere")
    assert call("--policy", "noop", "--output-dir", str(tmp_path / "runs")) == 2
    assert "runs is a broken link" in capsys.readouterr().err


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
@pytest.mark.parametrize(("wish", "part"), [("foo", "did you mean"), ("disable", "no OpenGL")])
def test_a_machine_that_cannot_render_is_told_before_anything_is_run(wish, part, tmp_path):
    command = [
        sys.executable,
        "-m",
        "eval.libero",
        "--policy",
        "noop",
        "--output-dir",
        str(tmp_path / "runs"),
    ]
    environment = {**os.environ, "MUJOCO_GL": wish}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert part in done.stderr
    assert not (tmp_path / "runs").exists()


def test_help_needs_neither_simulator_nor_jax():
    code = "import sys, eval.libero; print([m for m in ('jax', 'mujoco', 'robosuite') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
