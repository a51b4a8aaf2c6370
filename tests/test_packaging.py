"""The wheel is light and called from any folder; policies need jax alone; only LIBERO's modules name it."""

import ast
import functools
import json
import os
import pkgutil
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import oxygen
from configs import __version__
from eval.setup import PINNED
from sim_envs.fake import FakeSuite
from sim_envs.libero.assets import PINNED_VERSIONS
from tests.commands import ROOT, execute, import_without, printed
from tests.eval.rollout.scaled import suite_file

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
UV = shutil.which("uv", path=os.environ["PATH"] + f":{Path.home()}/.local/bin")
CALL = "import sys; sys.path.append(sys.argv.pop(1)); from eval.__main__ import main; main()"
"""What the console script does, with the checkout's packages last on the path."""


POLICY = """
import numpy as np

from sim_envs.fake import FakeSuite

class MyPolicy:
    interface = FakeSuite().interface

    def reset(self):
        pass

    def infer(self, observation):
        return {"actions": np.zeros((10, 7))}
"""


def call(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    # As in the script's process, the current folder is not on the path (-P).
    return execute(sys.executable, "-P", "-c", CALL, ROOT, *arguments, cwd=cwd)


def test_the_wheel_requires_no_training_stack_and_setup_installs_the_libero_of_a_checkout():
    required = " ".join(PROJECT["project"]["dependencies"])
    for heavy in ("torch", "libero", "robosuite", "bddl", "pyarrow", "transformers", "wandb", "ray"):
        assert heavy not in required
    originals = (ROOT / "sim_envs/libero/originals/requirements.txt").read_text()
    assert originals in (ROOT / "requirements.lock").read_text(), "the same versions and hashes"
    distributions = re.findall(r"^\S+==\S+", originals, re.MULTILINE)
    assert sorted([*PINNED, *distributions]) == sorted(PROJECT["dependency-groups"]["libero"])
    assert {f"{name}=={PINNED_VERSIONS[name]}" for name in ("hf-libero", "robosuite")} < {*PINNED}


def test_the_script_does_not_import_folders_of_the_current_directory(tmp_path):
    for name in ("eval", "configs"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('the wrong package')")
    done = call("--version", cwd=tmp_path)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, __version__, "")
    assert "--port" in call("serve", "--help", cwd=tmp_path).stdout
    unknown = call("liber", cwd=tmp_path)
    assert (unknown.returncode, unknown.stderr.count("\n")) == (2, 1)
    assert "libero" in unknown.stderr


def test_the_script_finds_modules_in_the_current_folder_and_in_that_of_a_suite(tmp_path):
    """Also in the processes of worlds."""
    suites = tmp_path / "suites"
    suites.mkdir()
    (suites / "my_worlds.py").write_text("from sim_envs.fake import FakeSuite as MySuite\n")
    suite_file(suites, "fake", FakeSuite, world="my_worlds:MySuite")
    (tmp_path / "my_policies.py").write_text(POLICY)
    named = "--suite suites/fake.yaml --policy my_policies:MyPolicy --init-ids 0-1 --num-envs 2"
    done = call("run", *named.split(), "--max-steps", "5", "--video", "none", "--no-report", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    (manifest,) = tmp_path.glob("runs/*/manifest.json")
    assert json.loads(manifest.read_text())["n_planned"] == 2


def test_help_imports_no_command():
    program = "import sys; from eval.__main__ import app; app('--help', result_action='return_value'); "
    program += "print(*sys.modules)"
    imported = printed(sys.executable, "-c", program).split()
    assert "cyclopts" in imported
    assert not {"jax", "numpy", "mujoco", "eval.run"} & {*imported}


@pytest.mark.slow
@pytest.mark.skipif(UV is None, reason="uv is not installed, which makes the environment")
def test_the_wheel_runs_from_another_folder(tmp_path):
    environment, dist = tmp_path / "environment", tmp_path / "dist"
    python = environment / "bin" / "python"

    run = functools.partial(printed, cwd=tmp_path)
    run(UV, "build", "--wheel", "--out-dir", dist, ROOT)
    (wheel,) = dist.glob("*.whl")
    run(UV, "venv", "--python", sys.executable, environment)
    run(UV, "pip", "install", "--python", python, wheel)
    assert "torch" not in run(UV, "pip", "list", "--python", python)
    script = environment / "bin" / "oxygen-eval"
    episode = "--policy noop --mode actions --task-ids 0 --init-ids 0 --max-steps 5"
    for suite in ("droid_tabletop", "gym_reacher"):
        out = tmp_path / suite
        run(script, "run", "--suite", suite, *episode.split(), "--output-dir", out)
        (manifest,) = out.glob("*/manifest.json")
        assert json.loads(manifest.read_text())["status"] == "complete"
        (line,) = manifest.with_name("episodes.jsonl").read_text().splitlines()
        assert json.loads(line)["outcome"] == "timeout"
    assert "--port" in run(python, "-m", "oxygen.server", "--help")


_ABSENT = (
    "mujoco robosuite libero gymnasium bddl imageio pydantic scipy "
    "sentencepiece PIL pyarrow jaxtyping beartype hypothesis "
    "fsspec aiohttp zstandard google_crc32c safetensors"
)
_NEEDS_PYDANTIC = (
    *("oxygen.presets", "oxygen.server.__main__", "oxygen.server.launch", "oxygen.tools.convert"),
    "oxygen.training",
)
"""What finds policies by name, and training, whose options are a pydantic model."""


def test_every_module_imports_with_jax_flax_and_numpy_alone():
    modules = [module.name for module in pkgutil.walk_packages(oxygen.__path__, "oxygen.")]
    modules = [name for name in modules if not name.startswith(_NEEDS_PYDANTIC)]
    assert "oxygen.policy.vector_policy" in modules
    import_without(_ABSENT, modules)


def test_clients_of_a_policy_server_and_the_scheduler_need_no_jax():
    clients = "robots.conventions robots.images server.msgpack_numpy"
    scheduling = "serving.scheduler serving.language serving.requests"
    import_without("jax flax", [f"oxygen.{name}" for name in f"{clients} {scheduling}".split()])


def test_contracts_need_numpy_alone():
    files = [path.stem for path in (ROOT / "contracts").glob("[!_]*.py")]
    absent = "configs eval oxygen sim_envs videos cyclopts flax jax jaxtyping pydantic rich scipy yaml"
    import_without(absent, [f"contracts.{name}" for name in files])


ITS_OWN = ("sim_envs/libero/", "eval/libero.py")
EXCEPTIONS = {
    "eval/__main__.py",  # the command
    "eval/policies/lerobot.py",  # its states, with the bits of LeRobot's own environment
    "eval/records/provenance.py",  # the version of its package
    "eval/rollout/readiness.py",  # whether it is installed
    "eval/setup.py",  # installs it
    "eval/train/__main__.py",  # the default robot
    "eval/train/training.py",
}
"""Other files whose code may name it."""


def names_libero(text: str) -> bool:
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(body := getattr(node, "body", None), list):
            said = [each for each in body if isinstance(getattr(each, "value", None), ast.Constant)]
            node.body = [each for each in body if not (isinstance(each, ast.Expr) and each in said)]
    words = (value for node in ast.walk(tree) for _, value in ast.iter_fields(node))
    return any("libero" in word.lower() for word in words if isinstance(word, str))


def test_only_its_own_modules_name_libero():
    """An exception that is no longer needed is an error, too."""
    packages = ("configs", "contracts", "eval", "sim_envs", "videos")
    files = [path for name in packages for path in (ROOT / name).rglob("*.py")]
    texts = {path.relative_to(ROOT).as_posix(): path.read_text() for path in files}
    named = {name for name, text in texts.items() if "libero" in text.lower() and names_libero(text)}
    assert {name for name in named if not name.startswith(ITS_OWN)} == EXCEPTIONS
