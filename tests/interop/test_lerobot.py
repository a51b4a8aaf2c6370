"""LeRobot on its own ground: it trains on our demonstrations, is served to us, and plays our environments.

Tried with lerobot 0.6.1. OXYGEN_LEROBOT_PYTHON is a Python with its extras dataset and training, websockets
and msgpack; for its own evaluation, with this project and `examples/lerobot_env_oxygen_eval` as well.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from eval.records.schema import RunFolder
from tests.commands import ROOT, execute, printed

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
    done = execute(lerobot, *train.split(), *folders, HF_HUB_OFFLINE="1", OMP_NUM_THREADS="2")
    assert done.returncode == 0, done.stderr[-2000:]
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
