"""`eval.run`, `eval.libero`, `eval.droid`, `eval.sweep`: options become runs; bad input is one line."""

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import pytest
import yaml

from configs.load import load
from configs.schema import GridConfig, RunConfig, SuiteConfig, SweepConfig, VariantsConfig
from contracts.clock import MEASURED, Profile
from contracts.errors import UsageError
from eval import droid, leaderboard, libero, run, sweep
from eval.policies.resolved import read_policy
from eval.policies.unused_options import refuse_unused_options, unused_in
from eval.records.schema import RunFolder
from sim_envs.fake import FakeSuite, FakeWorld
from sim_envs.libero.assets import package_root
from sim_envs.libero.suite import LiberoSuite
from sim_envs.suite import open_suite
from tests.commands import ROOT, call, execute, printed
from tests.eval.doubles import FakePolicy, without_physics


def papers(**changes: Any) -> RunConfig:
    """A run of the suites that papers report."""
    return RunConfig(suites=libero.SUITES, **changes)


def test_without_options_the_demo_runs(started):
    assert call(libero.app, "--mode", "unified") == 0
    assert [variant.mode for variant in started] == ["isolated", "unified"]
    assert started[1] == RunConfig(
        suites=("libero_object",),
        init_ids=(40,),
        env_seed="fixed",
        assets="standins",
        clock="profile:jetson-thor-roofline",
        video="all",
        video_every=1,
    )
    assert call(libero.app) == call(libero.app, "--config", "demo") == 0
    assert started[2:4] == started[4:]
    started.clear()
    assert call(droid.app, "--mode", "unified") == call(droid.app, "--init-ids", "7") == 0
    isolated, unified, own = started
    assert [isolated.mode, unified.mode] == ["isolated", "unified"]
    assert [str(unified.clock), str(own.clock)] == ["profile:jetson-thor-roofline", "paused"]
    assert unified.policy == own.policy == "tiny_droid"
    assert unified.suites == own.suites == ("droid_tabletop",)
    assert len(unified.task_ids) * len(unified.init_ids) == 9


@pytest.mark.parametrize(
    ("line", "changes"),
    [
        ("--mode shared --against actions", {}),
        ("--language-tasks narration --tokens-per-frame 2", {"tokens_per_frame": 2}),
        ("--clock measured --deadline-ms 90 --output-dir elsewhere", {"clock": MEASURED}),
        ("--video none", {"video": "none"}),
    ],
)
def test_options_of_serving_and_output_change_the_demo(started, line, changes, capsys):
    assert call(libero.app, *line.split()) == 0
    assert [len(started), started[0].suites, started[0].init_ids] == [2, ("libero_object",), (40,)]
    assert {name: getattr(started[1], name) for name in changes} == changes
    a, b = (variant.mode for variant in started)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    said = " ".join(lines)
    assert said.startswith("The demo: 20 episodes, about 2 minutes on two cores")
    assert f"plays ten tasks of libero_object, modes {a} and {b}." in said


def in_modes(*modes: str) -> list[RunConfig]:
    return [papers(policy="expert", mode=mode) for mode in modes]


@pytest.mark.parametrize(
    ("line", "runs"),
    [
        ("--assets /some/where", [papers(assets="/some/where")]),
        ("--num-trials-per-task 50", [papers(num_trials_per_task=50)]),
        ("--task-ids 3 --init-ids 5 --seed 3", [papers(task_ids=(3,), init_ids=(5,), seeds=(3,))]),
        ("--max-steps 9 --num-steps-wait 1", [papers(max_steps=9, num_steps_wait=1)]),
        ("--random-weights --dtype bfloat16", [papers(random_weights=True, dtype="bfloat16")]),
        ("--policy tiny --language-tasks none", [papers(language_tasks=())]),
        ("--wordings held_out --motion drift:3", [papers(wordings="held_out", motion="drift:3")]),
        # Every mode is a variant, and the reference comes first.
        ("--policy expert --mode unified,isolated,shared", in_modes("unified", "isolated", "shared")),
        ("--policy expert --mode isolated unified --against unified", in_modes("unified", "isolated")),
        ("--policy expert --mode unified --against unified", in_modes("unified")),
        ("--policy expert --against isolated", in_modes("isolated", "unified")),
        # A deadline applies to mode unified.
        (
            "--policy tiny --mode isolated unified --deadline-ms 90",
            [papers(mode="isolated"), papers(deadline_ms=90)],
        ),
    ],
)
def test_options_that_select_episodes_run_the_published_protocol(started, line, runs, capsys):
    assert call(libero.app, *line.split()) == 0
    assert started == runs
    assert capsys.readouterr().out == ""


def test_flags_override_presets_and_files(started, tmp_path):
    assert call(libero.app, "--smoke", "--task-ids", "3", "--policy", "noop") == 0
    assert (started[0].task_ids, started[0].max_steps) == ((3,), 40)
    file = tmp_path / "mine.yaml"
    file.write_text("suites: [libero_goal]\nmode: shared\ndtype: bfloat16\nlanguage_tasks: [memory]\n")
    assert call(libero.app, "--config", file, "--policy", "noop", "--mode", "actions") == 0
    assert (started[1].suites, started[1].mode, started[1].dtype) == (("libero_goal",), "actions", "bfloat16")
    for content in ("init_ids: [7]", "num_trials_per_task: 1"):  # these replace each other
        file.write_text(f"suites: [libero_goal]\n{content}\n")
        assert call(libero.app, "--config", file, "--init-ids", "3", "5") == 0
        assert (started[-1].num_trials_per_task, started[-1].init_ids) == (None, (3, 5))
        assert call(libero.app, "--config", file, "--num-trials-per-task", "2") == 0
        assert (started[-1].num_trials_per_task, started[-1].init_ids) == (2, ())


def test_options_with_several_values_are_a_grid_and_replace_those_of_a_preset(monkeypatch, tmp_path):
    asked: list[SweepConfig] = []
    monkeypatch.setattr("eval.rollout.sweep.run_sweep", lambda folder, **how: asked.append(folder.config()))
    line = "--suite libero_object --init-ids 0-1 --num-envs 4 --clock fixed:0,0 fixed:50,90"
    line += " --mode actions unified --text-every 1,4 --replan-steps 5 1"
    assert call(sweep.app, *line.split(), "--output-dir", tmp_path) == 0
    grid = GridConfig(
        clock=("fixed:0,0", "fixed:50,90"),
        mode=("actions", "unified"),
        text_every=(1, 4),
        replan_steps=(5, 1),
    )
    shared = {"suites": ("libero_object",), "init_ids": (0, 1), "video": "none", "batch_size": 2}
    assert asked == [SweepConfig(**shared, grids=(grid,))]
    line = "--config modes --clock profile:h200 --init-ids 3"
    assert call(sweep.app, *line.split(), "--output-dir", tmp_path) == 0
    assert asked[1].init_ids == (3,)
    assert {grid.clock for grid in asked[1].grids} == {(Profile("h200"),)}
    assert asked[1].grids[-1].tokens_per_frame == (1, 5)


NOOP = "--suite libero_object --init-ids 0-1 --policy noop"


@pytest.mark.parametrize(
    ("app", "line", "parts"),
    [
        (libero, "--policy exprt", ["'exprt'", "did you mean 'expert'"]),
        (libero, "--task-ids 12 --suite libero_goal", ["libero_goal", "12", "0 to 9"]),
        (libero, "--num-trials-per-task 50 --init-ids 5,6", ["is 50 and", "(5, 6)", "--init-ids"]),
        (libero, "--policy noop --max-steps 0", ["max_steps", "0"]),
        (libero, "--policy noop --variation 0.5", ["libero_spatial does not vary", "leave out --variation"]),
        (libero, "--language-tasks narate --policy tiny", ["'narate'", "did you mean 'narration'"]),
        (libero, "--policy tiny --mode shared --deadline-ms 90", ["deadline_ms", "90", "mode unified"]),
        (
            libero,
            "--policy expert --clock profile:rtx4090-oxygen-2603",
            ["profile:rtx4090-oxygen-2603", "'expert'", "fixed:100,300"],
        ),
        (
            libero,
            "--policy tiny --mode parallel --clock profile:rtx4090-oxygen-2603",
            ["'rtx4090-oxygen-2603'", "parallel"],
        ),
        (libero, "--policy expert --overlap rtc --clock fixed:100", ["'expert'", "choose blend or skip"]),
        (libero, "--policy tiny --overlap rtc --clock profile:two-core", ["'two-core'", "guided_denoise"]),
        (libero, "--policy tiny --replan-steps asap", ["asap", "whole number"]),
        (libero, "--resume", ["nothing to resume"]),
        (libero, "--policy noop --query-timeout 5", ["--query-timeout 5 is for a Python class, not noop"]),
        (libero, "--policy noop --query-timeout 0", ["query_timeout is '0'"]),
        (libero, "--policy noop --query-timeout nan", ["query_timeout is 'nan'"]),
        (libero, "--mode shared --tokens-per-frame 2", ["--tokens-per-frame 2", "isolated shared unified"]),
        (run, "", ["no suite is named", "--suite"]),
        (run, "--suite libero_goal --policy tiny --policy-kwargs a=1", ["--policy-kwargs a=1", "is of kind"]),
        (run, "--suite libero_goal --policy noop --policy-kwargs a", ["'a'", "key=value"]),
        (run, "--suite libero_goal --policy noop --log tensorbord", ["'tensorbord'", "mean 'tensorboard'"]),
        (run, "--suite libero_goal --policy pi05_droid --random-weights", ["'LIBERO'", "Choose a policy"]),
        (
            run,
            "--suite libero_goal --policy noop --clock rtx4090-oxygen-2603",
            ["mean 'profile:rtx4090-oxygen-2603'"],
        ),
        (run, "--suite libero_goal --policy my_policy.py", ["name a class", "my_policy.py:MyPolicy"]),
        (droid, "--policy small_droid --suite droid_tabletop_jointpos", ["joint_position"]),
        (droid, "--policy tiny_droid_jointpos", ["such as pi05_droid, small_droid, tiny_droid"]),
        (droid, "--policy small_droid --replan-steps 16", ["--replan-steps 15 or less"]),
        (droid, "--policy small_droid --assets standins", ["brings its own"]),
        (droid, "--policy random --suite droid_tabletop_jointpos", ["random needs action limits, and DROID"]),
        (droid, "--policy expert --suite gym_reacher", ["suite gym_reacher has no expert"]),
        (sweep, f"{NOOP} --clock fixed:0 fixd:0", ["unknown clock 'fixd:0'", "did you mean 'fixed:A,B'"]),
        (sweep, f"{NOOP} --text-every 1 2 --mode isolated --clock fixed:0", ["noop generates no text"]),
        (sweep, f"{NOOP} --clock measured fixed:0 --num-envs 2", ["measures the latency of one robot's"]),
        (sweep, f"{NOOP} --clock fixed:0 fixed:9 --resume", ["nothing to resume"]),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(app, line, parts, tmp_path, refused, monkeypatch):
    monkeypatch.setenv("OXYGEN_LIBERO_ASSETS", "")
    said = refused(app.app, *line.split(), "--output-dir", tmp_path / "runs")
    assert [part for part in parts if part not in said] == []
    left = [*tmp_path.rglob("*")]
    assert left == [] or (app is sweep and left == [tmp_path / "runs"])


def test_two_suites_of_one_name_are_refused(tmp_path, refused):
    """Their episodes would have the same keys."""
    one, two = tmp_path / "one.yaml", tmp_path / "two.yaml"
    for file in (one, two):
        file.write_text(yaml.safe_dump(FakeSuite.published.model_dump(mode="json")))
    said = refused(run.app, "--suite", one, two, "--policy", "noop", "--output-dir", tmp_path / "runs")
    assert f"--suite {one} {two}: both are named 'fake'" in said


@pytest.mark.parametrize(
    ("loaded", "code"), [("pydantic_core", -signal.SIGINT), ("jax", 130)], ids=["imports", "loading"]
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
    runs = tmp_path / "runs"
    command = [sys.executable, "-m", "eval.libero", "--policy", "noop", "--output-dir", str(runs)]
    done = execute(*command, MUJOCO_GL=backend)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert part in done.stderr
    assert not runs.exists()


def test_help_needs_neither_simulator_nor_jax():
    slow = ("jax", "mujoco", "pyarrow", "robosuite")
    commands = "eval.libero, eval.sweep, eval.collect.__main__, eval.compare"
    code = f"import sys, {commands}; print([module for module in {slow} if module in sys.modules])"
    assert printed(sys.executable, "-c", code) == "[]\n"


JOINTS = "--policy tiny_droid_jointpos --suite droid_tabletop_jointpos"


@pytest.mark.parametrize(
    "line",
    [
        "--smoke",
        pytest.param("--policy small_droid --random-weights", marks=pytest.mark.slow),
        pytest.param(JOINTS, marks=pytest.mark.slow),
        pytest.param(f"{JOINTS} --clock fixed:100,100 --overlap rtc", marks=pytest.mark.slow),
    ],
)
def test_a_policy_plays_an_episode_on_droids_station(line, tmp_path, capsys):
    line += " --mode actions --task-ids 0 --init-ids 0 --max-steps 8"
    how = ("--video", "none", "--output-dir", str(tmp_path), "--no-report")
    assert call(droid.app, *line.split(), *how) == 0
    (file,) = tmp_path.glob("*/results.json")
    overall = json.loads(file.read_text())["overall"]
    assert (overall["n_episodes"], overall["n_success"], overall["n_errors"]) == (1, 0, 0)
    (queries,) = tmp_path.glob("*/queries/*.jsonl*")
    assert queries.stat().st_size > 0
    assert "droid" in capsys.readouterr().out


def test_tasks_that_the_expert_cannot_play_are_named_before_the_first_episode(tmp_path, refused):
    err = refused(droid.app, "--policy", "expert", "--output-dir", tmp_path)
    assert "cannot play push_box_to_mark, open_drawer, stand_bottle_up; give --task-ids" in err
    played = err.split("--task-ids ")[1].split(",")[0].split()
    assert not list(tmp_path.iterdir())
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("eval.rollout.executors.executor.Serial.play", lambda *_: iter(()))
        call(droid.app, "--policy", "expert", "--task-ids", *played, "--output-dir", str(tmp_path))
    assert list(tmp_path.iterdir()), "the ids that it gives are accepted"


_STILL = """
import sys
sys.path.insert(0, {clone!r})
import numpy as np
class Still:
    embodiment, horizon = "libero", 10
    def infer(self, observation):
        return {{"actions": np.tile([0, 0, 0, 0, 0, 0, -1.0], (10, 1))}}
    def reset(self): pass
"""


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """A clone of LIBERO as its users make it importable, in which every episode is solved at once."""
    folder = tmp_path_factory.mktemp("LIBERO")
    shutil.copytree(package_root(), folder / "libero" / "libero", ignore=shutil.ignore_patterns("init_files"))
    (folder / "libero" / "__init__.py").touch()
    (folder / "configs").mkdir()
    (folder / "policy.py").write_text(_STILL.format(clone=str(folder)))
    for file in (folder / "libero" / "libero" / "envs" / "problems").glob("*.py"):
        test = "    def _check_success(self):\n"
        file.write_text(file.read_text().replace(test, f"{test}        return True\n"))
    return folder


def _evaluate(clone: Path, output: Path, *options: str, cwd: Path = ROOT, **environment: str) -> Any:
    line = (
        f"--policy {clone}/policy.py:Still --suite libero_object --task-ids 0 --max-steps 4 --assets standins"
    )
    line = f"-m eval.libero {line} --init-ids 0 1 --video none --no-report --output-dir {output}"
    return execute(sys.executable, *line.split(), *options, cwd=cwd, **environment)


@pytest.mark.parametrize("place", ["on PYTHONPATH", "the current folder"])
def test_a_clone_is_not_evaluated_under_the_name_of_the_installed_package(place, clone, tmp_path):
    path = clone if place == "on PYTHONPATH" else ""
    done = _evaluate(clone, tmp_path, cwd=ROOT if path else clone, PYTHONPATH=str(path))
    (line,) = done.stderr.splitlines()
    assert done.returncode == 2
    other = clone / "libero" / ("libero" if place == "its inner folder" else "")
    assert line.startswith(
        f"error: 'libero' is imported from {other / '__init__.py'}, and hf-libero 0.1.4 is in"
    )
    assert str(package_root().with_name("__init__.py")) in line
    assert line.endswith(f"take {path} out of PYTHONPATH" if path else "which imports from this one last")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_policy_that_changes_the_path_does_not_change_the_worlds(clone, tmp_path):
    """Workers import what the command has imported, also where the policy's folder has a `configs`."""
    (clone / "configs" / "__init__.py").touch()
    done = _evaluate(clone, tmp_path, "--num-envs", "2")
    assert done.returncode == 0, done.stderr
    (folder,) = map(RunFolder, tmp_path.iterdir())
    assert [result.outcome.value for result in folder.episodes().values()] == ["timeout", "timeout"]


@pytest.mark.parametrize("name", ["configs", "numpy"])
def test_a_folder_that_hides_what_a_command_imports_is_named(name, tmp_path):
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").touch()
    done = execute(sys.executable, "-m", "eval.libero", "--help", cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert f"error: '{name}' is imported from {tmp_path}/{name}/__init__.py, " in done.stderr


def test_a_folder_is_not_named_after_a_mode_that_nobody_chose(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    line = "--suite gym_reacher --policy noop --init-ids 0 --max-steps 5 --video none --no-report"
    assert call(run.app, *line.split()) == 0
    (folder,) = map(RunFolder, Path("runs").iterdir())
    assert re.fullmatch(r"\d{8}-\d{6}-noop", folder.run_id)
    folder.write_manifest({**folder.read_manifest(), "status": "interrupted"})
    assert call(run.app, *line.split(), "--resume") == 0
    assert [path.name for path in Path("runs").iterdir()] == [folder.run_id]
    assert "1 of 1 episode is recorded" in capsys.readouterr().out
    assert call(leaderboard.app, "--columns", "policy,run") == 0
    assert f"| noop | {folder.run_id} |" in capsys.readouterr().out


class Elsewhere(LiberoSuite):
    """A suite of another package."""

    published = load(SuiteConfig, "libero_object").model_copy(update={"max_steps": 9})

    def check(self, tasks):
        assert [task.task_id for task in tasks] == [3]

    def open(self, task):
        return FakeWorld(success_at=7, language=task.language)


def test_suites_and_policies_of_another_package_are_found_by_name(tmp_path, monkeypatch):
    named = {"elsewhere": f"{__name__}:Elsewhere", "gone": f"{__name__}:Gone"}
    suites = [EntryPoint(name, value, "oxygen_eval.suites") for name, value in named.items()]
    policy = EntryPoint("elsewhere", "their_package.policies:Policy", "oxygen_eval.policies")
    points = EntryPoints([*suites, policy])
    for module in ("sim_envs.suite", "eval.policies.resolved"):
        monkeypatch.setattr(f"{module}.entry_points", lambda group: points.select(group=group))
    line = "--suite elsewhere --policy noop --mode actions --task-ids 3 --init-ids 5 --assets standins"
    assert call(run.app, *line.split(), "--video", "none", "--output-dir", str(tmp_path)) == 0
    (folder,) = map(RunFolder, tmp_path.iterdir())
    manifest = folder.read_manifest()
    assert manifest["config"]["suites"] == ["elsewhere"]
    assert manifest["protocol"]["libero_object"]["suite"]["max_steps"] == 9
    assert [result.outcome.value for result in folder.episodes().values()] == ["success"]
    found = read_policy("elsewhere", {"device": "cpu"})
    assert (found.name, found.kind, found.target) == ("elsewhere", "python", "their_package.policies:Policy")
    assert found.kwargs == {"device": "cpu"}
    with pytest.raises(UsageError, match=r"suite gone.*'Gone'"):
        open_suite("gone")
    with pytest.raises(UsageError, match="'elswhere'; did you mean 'elsewhere'"):
        read_policy("elswhere")


class Talking(FakePolicy):
    """Its replies have texts."""

    writes_texts = True


@pytest.mark.parametrize(
    ("policy", "given", "mode"),
    [
        ("tests.eval.policies.test_policies:Still", [], "actions"),
        ("tests.eval.policies.test_policies:Still", ["--mode", "unified"], "unified"),
        ("tests.eval.doubles:FakePolicy", [], "actions"),
        (f"{__name__}:Talking", [], "unified"),
    ],
)
def test_a_policy_without_texts_runs_in_mode_actions(policy, given, mode, tmp_path, monkeypatch, capsys):
    without_physics(monkeypatch)
    name = policy.rpartition(":")[2]
    one = ["--policy", policy, "--suite", "libero_object", "--task-ids", "3", "--num-trials-per-task", "4"]
    assert call(run.app, *one, *given, "--output-dir", tmp_path, "--no-report") == 0
    (folder,) = map(RunFolder, tmp_path.iterdir())
    assert folder.run_id.endswith(f"-{name}" if mode == "actions" else f"-{name}-{mode}")
    assert folder.read_manifest()["config"]["mode"] == mode
    said = capsys.readouterr().out
    assert ("every mode does what mode actions does" in said) == (name == "Still" and mode == "unified")
    how = "" if mode == "actions" else f" in mode {mode}"
    assert f"{name}{how}, 4 episodes (1 task of libero_object)" in said


@pytest.mark.parametrize(("policy", "given"), [("FakePolicy", []), ("Talking", ["--mode", "isolated"])])
def test_a_replay_is_in_the_mode_of_the_run_that_it_replays(policy, given, tmp_path, monkeypatch):
    """Whose policy may have no texts, so that its run is in mode actions although nobody chose that."""
    without_physics(monkeypatch)
    module = __name__ if policy == "Talking" else "tests.eval.doubles"
    one = ["--policy", f"{module}:{policy}", "--suite", "libero_object", "--task-ids", 3, "--init-ids", 0]
    modes = []
    for clock, more in ("measured", given), (f"replay:{tmp_path / 'measured'}", []):
        output = tmp_path / f"by-{clock.partition(':')[0]}"
        assert call(run.app, *one, *more, "--clock", clock, "--output-dir", output, "--no-report") == 0
        (folder,) = output.iterdir()
        modes.append(RunFolder(folder).read_manifest()["config"]["mode"])
        if clock == "measured":
            (tmp_path / "measured").symlink_to(folder)
    assert modes == [given[-1] if given else "actions"] * 2


@pytest.mark.parametrize(
    ("asked", "parts"),
    [
        ({"policy": "expert", "random_weights": True}, ["--random-weights is", "expert is scripted", "tiny"]),
        ({"policy": "ws://host:8000", "batch_size": 4}, ["--batch-size 4 is", "ws://host:8000 is a server"]),
        ({"policy": "mine:Mine", "dtype": "bfloat16"}, ["mine:Mine is a Python class"]),
        (
            {"policy": "ws://host:8000", "policy_kwargs": {"charge": "server"}, "clock": "fixed:100,200"},
            ["charge=server is for clock measured, and this is fixed:100,200", "--clock measured"],
        ),
        ({"policy": "noop", "language_tasks": ("memory",)}, ["--language-tasks memory", "generates no text"]),
        ({"mode": "actions", "language_tasks": ("memory",)}, ["memory is for mode isolated", "is actions;"]),
        (
            {"mode": ("shared", "parallel"), "tokens_per_frame": 2},
            ["--tokens-per-frame 2 is for mode interleaved, unified", "--mode shared parallel unified"],
        ),
        ({"tokens_per_frame": 2, "language_tasks": ()}, ["--tokens-per-frame 2 is for texts", "no language"]),
        ({"video": "none", "video_every": 2}, ["--video-every 2 is for videos", "--video failures or all"]),
    ],
)
def test_options_without_effect_are_refused(asked, parts):
    with pytest.raises(UsageError) as refused:
        refuse_unused_options(asked, VariantsConfig(**asked).variants())
    assert [part for part in parts if part not in str(refused.value)] == []


def test_a_text_without_ground_truth_is_refused_for_policies_that_write_the_truth(tmp_path):
    file = tmp_path / "plan.yaml"
    file.write_text("{name: plan, prompt: 'Plan: ', max_tokens: 9}")
    asked = {"policy": "expert", "language_tasks": ("memory", str(file))}
    with pytest.raises(UsageError, match=r"the ground truth, which has no plan; .* narration, memory"):
        refuse_unused_options(asked, VariantsConfig(**asked).variants())


@pytest.mark.parametrize(
    "asked",
    [
        {"video": "failures", "video_every": 2},
        {"mode": ("isolated", "unified"), "tokens_per_frame": 2, "deadline_ms": 90.0},
        {"mode": ("actions", "isolated"), "language_tasks": ("memory",)},
        {"mode": "actions", "language_tasks": ()},
        {"policy": "ws://host:8000", "policy_kwargs": {"charge": "server"}, "clock": "measured"},
        {"policy": "mine:Mine", "policy_kwargs": {"charge": "server"}},
        {"policy": "small", "random_weights": True, "dtype": "bfloat16", "tokens_per_frame": 2},
    ],
)
def test_an_option_needs_an_effect_in_one_variant(asked):
    refuse_unused_options(asked, VariantsConfig(**asked).variants())


def test_presets_may_have_options_without_effect_and_every_mode_but_unified_ignores_some():
    """A preset is written once, for many policies and modes."""
    preset = VariantsConfig(policy="noop", mode="actions", random_weights=True, language_tasks=("memory",))
    refuse_unused_options({}, preset.variants())
    modes = ("unified", "interleaved", "shared", "actions")
    assert [len(unused_in(mode)) for mode in modes] == [0, 1, 2, 7]
