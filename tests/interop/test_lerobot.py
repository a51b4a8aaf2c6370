"""LeRobot reads, trains on and aggregates what this project writes.

Tried with lerobot 0.4.4. It needs torch, so it is installed elsewhere: OXYGEN_LEROBOT_PYTHON is its Python.
"""

import os
import subprocess
from pathlib import Path

import pytest

from eval.report.export import FORMATS
from tests.eval.collect.collecting import FakeDemonstrationSource, collect
from tests.eval.factory import RunBuilder

PYTHON = os.environ.get("OXYGEN_LEROBOT_PYTHON")
HERE = Path(__file__).parent

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(PYTHON is None, reason="set OXYGEN_LEROBOT_PYTHON to a Python with lerobot 0.4.4"),
]


def lerobot(*arguments: object) -> str:
    done = subprocess.run(
        [str(PYTHON), *map(str, arguments)],
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def demos(tmp_path_factory) -> Path:
    """Four episodes of six and nine control steps."""
    path = tmp_path_factory.mktemp("demos")
    source = FakeDemonstrationSource(image_size=64)
    collect(path, source=source, image_size=64, replan_steps=1, suites=("libero_goal",))
    return path


def test_its_reader_builds_the_chunks_that_our_training_reads(demos):
    assert lerobot(HERE / "lerobot_reads.py", demos).split()[-1] == "30"


def test_stock_act_trains(demos, tmp_path):
    small = {"chunk_size": 10, "n_action_steps": 10, "dim_model": 64, "n_heads": 2, "dim_feedforward": 128}
    output = lerobot(
        "-m",
        "lerobot.scripts.lerobot_train",
        "--dataset.repo_id=me/demos",
        f"--dataset.root={demos}",
        "--policy.type=act",
        "--policy.device=cpu",
        "--policy.push_to_hub=false",
        "--policy.pretrained_backbone_weights=null",
        *(f"--policy.{name}={value}" for name, value in small.items()),
        "--steps=20",
        "--batch_size=2",
        "--num_workers=0",
        "--log_freq=20",
        "--save_checkpoint=false",
        "--wandb.enable=false",
        f"--output_dir={tmp_path / 'act'}",
    )
    assert "step:20 " in output


def test_its_own_aggregation_agrees_with_the_export(tmp_path):
    run = RunBuilder.at(tmp_path / "run").add_all("ssti").add_all("st", suite="libero_goal")
    file = tmp_path / "eval_info.json"
    file.write_text(FORMATS["lerobot"](run.folder))
    assert lerobot(HERE / "lerobot_aggregates.py", file).split()[-1] == "2"
