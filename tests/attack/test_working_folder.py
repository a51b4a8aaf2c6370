"""Whatever a folder is called, and wherever a user's code goes, records are where the command began."""

import json
import sys
from pathlib import Path

from tests.commands import execute

SUITE = """
name: still
world: sim_envs.gym_world:GymSuite
max_steps: 10
settle_steps: 0
trials_per_task: 2
control_hz: 10
camera_size: 64
replan_steps: 5
environment:
  module: still
  tasks: [{name: still, id: Still-v0, instruction: do nothing}]
  init_ids: 2
  cameras: [{name: image, key: render}]
  state: [{name: x, size: 2, unit: m}]
  action: [{name: dx, size: 2, unit: m, motion: relative, hold: zero}]
  limits: [-1, 1]
  success: {info: is_success}
"""
WANDERING = """
import os, shutil, tempfile
import numpy as np

def leave():
    os.chdir(tempfile.mkdtemp())

def fall():
    leave()
    shutil.rmtree(os.getcwd())
"""
ENVIRONMENT = """
import gymnasium, numpy as np
from wandering import leave

class Still(gymnasium.Env):
    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float64)
    action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    def __init__(self, render_mode): self.render_mode = render_mode
    def reset(self, *, seed=None, options=None):
        leave()
        return np.zeros(2), {}
    def step(self, action):
        return np.zeros(2), 0.0, False, False, {"is_success": False}
    def render(self): return np.full((64, 64, 3), 90, np.uint8)

gymnasium.register("Still-v0", Still)
leave()
"""
POLICY = """
import numpy as np
from sim_envs.gym_world import GymSuite
from sim_envs.suite import open_suite
from wandering import fall

class Falling:
    horizon = 5
    def __init__(self):
        self.interface = open_suite("still.yaml").interface
        fall()
    def infer(self, observation):
        fall()
        return {"actions": np.zeros((5, 2))}
    def reset(self): fall()
"""


def test_code_that_changes_and_removes_its_folder_loses_no_record(tmp_path):
    folder = tmp_path / "pi05:ft #1 50% [x]"
    folder.mkdir()
    (folder / "still.yaml").write_text(SUITE)
    for name, code in {"still": ENVIRONMENT, "wandering": WANDERING, "falling": POLICY}.items():
        (folder / f"{name}.py").write_text(code)
    command = (Path(sys.executable).with_name("oxygen-eval"), "run", "--suite", "still.yaml")
    done = execute(*command, "--policy", "falling.py:Falling", "--num-envs", 2, cwd=folder)
    assert done.returncode == 0, done.stderr
    (run,) = (folder / "runs").iterdir()
    assert f"records  runs/{run.name}" in done.stdout
    assert json.loads((run / "results.json").read_text())["overall"]["n_episodes"] == 2
    assert len(list(run.glob("videos/still/*_timeout.mp4"))) == 2
    assert (run / "report" / "index.html").is_file()


def test_a_current_folder_that_was_removed_is_one_line(tmp_path):
    begin = f"cd {tmp_path}/gone && rmdir ../gone && {sys.executable} -m eval.compare a b"
    (tmp_path / "gone").mkdir()
    done = execute("sh", "-c", begin)
    assert (done.returncode, done.stderr) == (
        2,
        "error: the current folder does not exist any more; change to another (cd)\n",
    )
