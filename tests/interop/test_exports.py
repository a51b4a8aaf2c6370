"""LeRobot and vla-eval read, train on and aggregate what this project writes.

Tried with lerobot 0.4.4, 0.6.1 and vla-eval 0.8.0. LeRobot needs torch, so both are installed elsewhere:
OXYGEN_LEROBOT_PYTHON and OXYGEN_VLA_EVAL_PYTHON are their Pythons.
"""

import os
from pathlib import Path

import pytest

from eval.report.export import FORMATS
from tests.commands import execute
from tests.eval.collect.collecting import collect
from tests.eval.factory import RunBuilder

HERE = Path(__file__).parent

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


def python_of(variable: str) -> str:
    """Another project's Python; skips where it is not installed."""
    if variable not in os.environ:
        pytest.skip(f"set {variable} to a Python with lerobot or vla-eval 0.8")
    return os.environ[variable]


def run_by(variable: str, *arguments: object) -> str:
    """What another project's Python prints."""
    done = execute(python_of(variable), *arguments, HF_HUB_OFFLINE="1")
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def demos(tmp_path_factory) -> Path:
    """Four episodes of six and nine control steps."""
    python_of("OXYGEN_LEROBOT_PYTHON")
    path = tmp_path_factory.mktemp("demos")
    collect(path, image_size=64, replan_steps=1, suites=("libero_goal",))
    return path


def test_lerobot_s_reader_builds_the_chunks_that_our_training_reads(demos):
    assert "30" in run_by("OXYGEN_LEROBOT_PYTHON", HERE / "lerobot_reads.py", demos).split()


def test_stock_act_trains(demos, tmp_path):
    small = {"chunk_size": 10, "n_action_steps": 10, "dim_model": 64, "n_heads": 2, "dim_feedforward": 128}
    options = [f"--policy.{name}={value}" for name, value in small.items()]
    options += [f"--dataset.root={demos}", f"--output_dir={tmp_path / 'act'}"]
    fixed = (
        "-m lerobot.scripts.lerobot_train --dataset.repo_id=me/demos --policy.type=act --policy.device=cpu "
        "--policy.push_to_hub=false --policy.pretrained_backbone_weights=null --steps=20 --batch_size=2 "
        "--num_workers=0 --log_freq=20 --save_checkpoint=false --wandb.enable=false"
    )
    assert "step:20 " in run_by("OXYGEN_LEROBOT_PYTHON", *fixed.split(), *options)


@pytest.mark.parametrize(
    ("variable", "script", "export", "outcomes"),
    [
        ("OXYGEN_LEROBOT_PYTHON", "lerobot_aggregates.py", "lerobot", "st"),
        ("OXYGEN_VLA_EVAL_PYTHON", "vla_eval_aggregates.py", "vla-eval", "ste"),
    ],
)
def test_their_own_aggregation_agrees_with_the_export(tmp_path, variable, script, export, outcomes):
    run = RunBuilder.at(tmp_path / "run").add_all("ssti").add_all(outcomes, suite="libero_goal")
    file = tmp_path / "exported.json"
    file.write_text(FORMATS[export](run.folder))
    assert "2" in run_by(variable, HERE / script, file).splitlines()
