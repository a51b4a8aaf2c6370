"""What a run does not use, it does not import: neither here nor in the processes of worlds."""

import contextlib
import sys

import numpy as np
import pytest

from sim_envs.fake import FakeSuite
from tests.commands import ROOT, printed
from tests.eval.policies.servers import OpenpiServer
from tests.eval.rollout.scaled import suite_file

_UNUSED = ("jax", "flax", "scipy.stats", "torch")
_ACTIONS = {"actions": np.zeros((10, 7))}
_WORLDS = """
import pathlib, sys
from sim_envs.fake import FakeSuite

class Suite(FakeSuite):
    def open(self, task):
        pathlib.Path("in_worlds.txt").write_text(" ".join(sys.modules))
        return super().open(task)
"""
_POLICY = """
import numpy

class Policy:
    def infer(self, observation):
        return {"actions": numpy.zeros((10, 7))}

    def reset(self):
        pass
"""
_PLAY = """
import sys
from configs.cli import run_app
from eval.run import app

try:
    run_app(app, sys.argv[1:])
except SystemExit as ended:
    assert not ended.code, ended.code
print(*sys.modules)
"""


_SLOW = [("noop", 1), ("noop", 2), ("mine:Policy", 2), ("server", 1)]


@pytest.mark.parametrize(
    ("policy", "worlds"),
    [("mine:Policy", 1), ("server", 2), *(pytest.param(*each, marks=pytest.mark.slow) for each in _SLOW)],
)
def test_a_policy_without_weights_of_ours_waits_for_no_model(tmp_path, policy, worlds):
    (tmp_path / "worlds.py").write_text(_WORLDS)
    (tmp_path / "mine.py").write_text(_POLICY)
    suite = suite_file(tmp_path, "fake", FakeSuite, world="worlds:Suite", camera_size=256)
    with OpenpiServer(lambda query: _ACTIONS) if policy == "server" else contextlib.nullcontext() as server:
        options = ("--policy", server.url if server else policy, "--suite", suite, "--init-ids", "0-1")
        more = ("--max-steps", 20, "--num-envs", worlds, "--video", "none", "--no-report")
        more += ("--output-dir", tmp_path / "runs")
        imported = printed(sys.executable, "-c", _PLAY, *options, *more, cwd=tmp_path, PYTHONPATH=str(ROOT))
    in_worlds = (tmp_path / "in_worlds.txt").read_text()
    assert "sim_envs.fake" in in_worlds
    assert {*_UNUSED} & {*imported.split(), *in_worlds.split()} == set()


@pytest.mark.parametrize("command", ["run", "libero", "droid"])
def test_help_opens_no_suite_and_no_policy(command):
    program = f"import sys; from eval.{command} import app; app('--help', result_action='return_value'); "
    imported = printed(sys.executable, "-c", program + "print(*sys.modules)").split()
    assert not {*_UNUSED, "sim_envs", "gymnasium"} & {*imported}
