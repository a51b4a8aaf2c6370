"""Code in the documentation runs."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_BLOCK = re.compile(r"^```(?:python|yaml)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# (\S+\.(?:py|yaml))\n")


def files_and_program(page: str, folder: Path) -> list[str]:
    """Blocks that begin with a file's name become that file; the others are the program's."""
    program = []
    for block in _BLOCK.findall((ROOT / page).read_text()):
        named = _FILE.match(block)
        if named:
            (folder / named[1]).write_text(block)
        else:
            program.append(block)
    return program


def python(folder: Path, program: str) -> str:
    """What a program prints that neither fails nor warns."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_a_world_of_the_documentation_plays(tmp_path):
    program = files_and_program("docs/worlds.md", tmp_path)
    assert len(program) == 3
    assert python(tmp_path, "\n".join(program)) == "False reach the red ball with the fingertip\n"


def test_classes_of_the_documentation_are_policies(tmp_path):
    preset, program = files_and_program("docs/policies.md", tmp_path)
    assert "kind: oxygen" in preset
    python(tmp_path, program)


def test_a_policy_of_the_documentation_counts_by_its_memory(tmp_path):
    assert files_and_program("docs/memory.md", tmp_path) == []
    play = """
import numpy as np
from eval.policies.python import open_python
from eval.rollout.feedback import EpisodeFeedback
from eval.rollout.rollout import rollout
from sim_envs.fake import FakeSuite, FakeWorld
from sim_envs.world import EpisodeKey

policy = open_python("three_times.py:ThreeTimes", {})
key = EpisodeKey(suite="fake", task_id=0, init_id=0, seed=7)
suite = FakeSuite(FakeSuite.published.model_copy(update={"max_steps": 60}))
for source in ("own", "none"):
    feedback = EpisodeFeedback(policy.feedback, source, control_hz=20)
    queries = list(rollout(FakeWorld(), policy.in_world(suite, None), key, suite, feedback=feedback))
    heights = np.concatenate([np.array(query.end_effector)[1:, 2] for query in queries])
    print(queries[-1].delivered[-1].text[:17], bool(np.ptp(heights[-10:]) > 0))
"""
    assert python(tmp_path, play) == "raised it 3 times False\nraised it 0 times True\n"


def test_a_droid_task_of_the_documentation_opens(tmp_path):
    assert files_and_program("docs/droid.md", tmp_path) == []
    open_and_reset = """
from sim_envs.suite import open_suite
suite = open_suite("my_suite.yaml")
assert suite.expert_tasks() == suite.tasks()
world = suite.open(suite.tasks()[0])
world.reset(init_id=0, seed=7, settle_steps=1)
print(world.observe().language)
"""
    assert python(tmp_path, open_and_reset) == "put the cube on the plate\n"
