"""LeRobot: it trains on our demonstrations, is served to us or runs in process, and plays our environments.

Tried with lerobot 0.6.1. OXYGEN_LEROBOT_PYTHON is a Python with its extras dataset and training, websockets
and msgpack; in process and for its own evaluation, with what this project needs; for the latter with this
project and `examples/lerobot_env_oxygen_eval` as well; for Diffusion with diffusers, for SmolVLA with its
extra.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from eval.records.query_logs import read_queries
from eval.records.schema import RunFolder
from sim_envs.fake import FakeSuite
from tests.commands import ROOT, execute, printed
from tests.eval.rollout.scaled import suite_file

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

ACT = (
    "--policy.type=act --policy.device=cpu --policy.push_to_hub=false --policy.chunk_size=10 "
    "--policy.pretrained_backbone_weights=null --policy.n_action_steps=10 --policy.dim_model=64 "
    "--policy.n_heads=2 --policy.dim_feedforward=128"
)
"""A small ACT."""


@pytest.fixture(scope="module")
def lerobot() -> str:
    if "OXYGEN_LEROBOT_PYTHON" not in os.environ:
        pytest.skip("set OXYGEN_LEROBOT_PYTHON to a Python with lerobot 0.6.1")
    return os.environ["OXYGEN_LEROBOT_PYTHON"]


def require(lerobot: str, modules: str) -> None:
    if execute(lerobot, "-c", f"import cyclopts, {modules}", **IN_PROCESS).returncode:
        pytest.skip(f"install what this project needs beside lerobot, with {modules}")


def trained(lerobot: str, folder: Path, suite: str, *options: object) -> Path:
    """A policy of lerobot-train, after two steps on a demonstration of the suite's first task."""
    demonstrations = folder / "demonstrations"
    collect = ["--suite", suite, "--task-ids", 0, "--num-trials-per-task", 1, "--output", demonstrations]
    printed(sys.executable, "-m", "eval.collect", *collect, *options)
    train = (
        f"-m lerobot.scripts.lerobot_train --dataset.repo_id=me/demos {ACT} --steps=2 --save_freq=2 "
        "--batch_size=2 --num_workers=0 --wandb.enable=false"
    )
    folders = [f"--dataset.root={demonstrations}", f"--output_dir={folder / 'act'}"]
    printed(lerobot, *train.split(), *folders, HF_HUB_OFFLINE="1", OMP_NUM_THREADS="2")
    return folder / "act/checkpoints/last/pretrained_model"


def test_a_policy_trained_on_our_demonstrations_is_served_and_evaluated(lerobot, tmp_path):
    """Its cameras, their size, state and actions come from its own features."""
    small = ["--assets", "standins", "--replan-steps", 5, "--image-size", 96]
    checkpoint = trained(lerobot, tmp_path, "libero_object", *small)
    serve = [lerobot, ROOT / "examples/serve_lerobot.py", "--checkpoint", checkpoint, "--port", "0"]
    with subprocess.Popen(list(map(str, serve)), stdout=subprocess.PIPE, text=True) as server:
        try:
            url = next(line.split()[-1] for line in server.stdout if line.startswith("serving at"))
            played = ["--suite", "libero_object", "--task-ids", 0, "--init-ids", 0, "--max-steps", 20]
            where = ["--policy", url, "--assets", "standins", "--output-dir", tmp_path / "runs"]
            printed(sys.executable, "-m", "eval.libero", *played, *where)
        finally:
            server.terminate()
    (manifest,) = (tmp_path / "runs").glob("*/manifest.json")
    run = RunFolder(manifest.parent)
    assert run.read_manifest()["policy_inputs"]["image_size"] == {"image": [96, 96], "wrist_image": [96, 96]}
    (episode,) = run.episodes().values()
    assert (episode.outcome, episode.queries) == ("timeout", 4)


def test_lerobots_evaluation_plays_our_environments(lerobot, tmp_path):
    """With the plugin in `examples`; its success is that of our worlds."""
    if execute(lerobot, "-c", "import lerobot_env_oxygen_eval, mujoco").returncode:
        pytest.skip("install this project and examples/lerobot_env_oxygen_eval beside lerobot")
    checkpoint = trained(lerobot, tmp_path, "droid_tabletop", "--replan-steps", 5)
    options = (
        f"-m lerobot.scripts.lerobot_eval --policy.path={checkpoint} --policy.device=cpu --env.max_steps=20 "
        "--env.type=oxygen_eval --env.task=droid_tabletop --env.task_ids=[0,1] --eval.n_episodes=1 "
        "--eval.batch_size=1"
    )
    output = f"--output_dir={tmp_path / 'eval'}"
    done = execute(lerobot, *options.split(), output, HF_HUB_OFFLINE="1", OMP_NUM_THREADS="2")
    assert done.returncode == 0, done.stderr[-2000:]
    info = json.loads((tmp_path / "eval/eval_info.json").read_text())
    assert [(task["task_group"], task["task_id"]) for task in info["per_task"]] == [
        ("droid_tabletop", 0),
        ("droid_tabletop", 1),
    ]
    assert info["overall"]["n_episodes"] == 2
    assert "ignored reset options: lerobot_new_rollout" in done.stderr


IN_PROCESS = {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}


def checkpoint(lerobot: str, folder: Path, kind: str) -> Path:
    """A small policy of random weights, for DROID."""
    printed(lerobot, ROOT / "tests/interop/lerobot_checkpoint.py", kind, folder / kind, **IN_PROCESS)
    return folder / kind


@pytest.mark.parametrize(
    ("kind", "actions", "needs"),
    [("act", 10, "torch"), ("diffusion", 8, "diffusers"), ("smolvla", 10, "num2words")],
)
def test_a_checkpoint_plays_in_process_in_batches(lerobot, tmp_path, kind, actions, needs):
    """Cameras, sizes and chunks are its own; its noise depends on the episode alone, not on the batch."""
    require(lerobot, f"mujoco, {needs}")
    policy = f"lerobot:{checkpoint(lerobot, tmp_path, kind)}"
    what = f"--suite droid_tabletop --policy {policy} --task-ids 0 --init-ids 0-1 --max-steps 10 --video none"
    chunks = []
    for worlds in (1, 2):
        how = f"--num-envs {worlds} --batch-size {worlds} --replan-steps 5 --output-dir"
        line = [*what.split(), *how.split(), tmp_path / str(worlds)]
        printed(lerobot, "-m", "eval.run", *line, **IN_PROCESS)
        (manifest,) = (tmp_path / str(worlds)).glob("*/manifest.json")
        run = RunFolder(manifest.parent)
        described = run.read_manifest()
        assert described["hardware"]["policy"].items() >= {"device": "cpu", "dtype": "float32"}.items()
        played = described["policy_inputs"]
        assert (played["lerobot"]["type"], played["lerobot"]["n_action_steps"]) == (kind, actions)
        assert {*map(tuple, played["image_size"].values())} == {(96, 96)}
        assert played.get("history", 0) == (kind == "diffusion")
        assert {each.outcome for each in run.episodes().values()} == {"timeout"}
        firsts = [next(iter(read_queries(run, key))).actions for key in sorted(run.episodes(), key=str)]
        chunks.append(np.stack(firsts))
    assert chunks[0].shape == (2, actions, 8)
    assert np.abs(chunks[0] - chunks[1]).max() < 1e-4
    assert (kind == "act") or np.abs(chunks[0][0] - chunks[0][1]).max() > 1e-3


def test_smolvla_acts_on_the_instruction(lerobot, tmp_path):
    """Images and noise are the control's; only the words differ."""
    require(lerobot, "mujoco, num2words")
    policy = f"lerobot:{checkpoint(lerobot, tmp_path, 'smolvla')}"
    what = f"--suite droid_tabletop --policy {policy} --task-ids 0 --init-ids 0 --max-steps 1 --video none"
    line = [*what.split(), "--perturb", "wording:1", "--output-dir", tmp_path / "runs"]
    printed(lerobot, "-m", "eval.run", *line, **IN_PROCESS)
    runs = [RunFolder(manifest.parent) for manifest in sorted((tmp_path / "runs").glob("*/manifest.json"))]
    control, reworded = (next(iter(read_queries(run, next(iter(run.episodes()))))).actions for run in runs)
    assert np.abs(control - reworded).max() > 1e-4


def test_a_policy_of_several_control_steps_answers_as_in_lerobots_loop(lerobot, tmp_path):
    require(lerobot, "mujoco, diffusers")
    folder = checkpoint(lerobot, tmp_path, "diffusion")
    said = printed(lerobot, ROOT / "tests/interop/lerobot_history.py", folder, **IN_PROCESS)
    history, farthest = said.split()
    assert history == "1"
    assert float(farthest) < 1e-5


def test_a_training_in_pytorch_goes_on_as_if_there_had_been_no_evaluations(lerobot, tmp_path):
    require(lerobot, "mujoco, gymnasium")
    suite = suite_file(tmp_path, "fake", FakeSuite, camera_size=256, environment={"success_at": 7})
    program = (lerobot, ROOT / "tests/interop/torch_training.py", suite)
    assert printed(*program, cwd=tmp_path, **IN_PROCESS) == "[True, True, True]\n"


def test_real_time_chunking_begins_with_the_actions_that_are_executed_meanwhile(lerobot, tmp_path):
    require(lerobot, "mujoco, gymnasium")
    policy = checkpoint(lerobot, tmp_path, "act")
    said = printed(lerobot, ROOT / "tests/interop/lerobot_guided.py", policy, **IN_PROCESS)
    alone, guided, refused = said.splitlines()
    assert json.loads(alone) == [0] * 10
    assert json.loads(guided) == pytest.approx([0.05] * 3 + [0] * 7, abs=0.01)
    assert "one delay per batch, and batch_size is 2; give --batch-size 1" in refused


def test_a_rotation_is_what_lerobots_environment_computes_from_its_quaternion(lerobot):
    require(lerobot, "scipy")
    assert printed(lerobot, ROOT / "tests/interop/lerobot_rotations.py", **IN_PROCESS) == "equal\n"


def test_both_harnesses_play_the_same_episodes(lerobot, tmp_path):
    require(lerobot, "libero")
    script = ROOT / "examples/two_harnesses.py"
    said = printed(lerobot, script, "--quick", "--output", tmp_path, **IN_PROCESS)
    assert said.splitlines()[-2:] == [
        "| lerobot-eval | 0 of 2 | 80 | 2 of 2 |",
        "| oxygen-eval | 0 of 2 | 80 | 2 of 2 |",
    ]


def test_a_checkpoint_that_cannot_be_played_is_one_line(lerobot, tmp_path):
    require(lerobot, "mujoco, gymnasium")
    good = checkpoint(lerobot, tmp_path, "act")
    said = printed(lerobot, ROOT / "tests/interop/lerobot_refusals.py", good, **IN_PROCESS)
    expected = (
        "unknown camera of policy lerobot:.*'exterior_image_1_left'; did you mean 'image'",
        r"has observation.state of shape \[8\], and gym_reacher of \[6\]",
        "unknown camera .*'front'.*cameras=exterior_image_1_left=NAME",
        "cameras=front: write cameras=OWN=SUITES",
        "device=cuda:9: this machine has no such device",
        "cannot be loaded: FileNotFoundError: .*model.safetensors",
        "cannot be loaded: FileNotFoundError: .*policy_preprocessor.json",
        "set temporal_ensemble_coeff to null",
        "unknown type of policy .*'acd'; did you mean 'act'",
        "needs observation.environment_state, which suites do not have",
        "cannot be loaded: AssertionError: embed_dim must be divisible by num_heads",
    )
    lines = said.splitlines()
    assert [line for line, why in zip(lines, expected, strict=True) if not re.search(why, line)] == []
