"""The clients of other projects, installed from the package index, drive a real server."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from configs.policy_server import ServeConfig
from oxygen.presets.policies import read_model_policy
from oxygen.server.launch import open_served
from tests.commands import printed
from tests.oxygen.server.server_thread import PolicyServerThread

HERE = Path(__file__).parent
QUERIES = 6
INSTALL_S = 60


def environment(folder, package):
    """The Python of a new environment with a package; skips where that takes more than a minute."""
    uv = shutil.which("uv")
    if uv is None:
        pytest.skip("uv is not installed, which makes the client's environment")
    python = folder / "bin" / "python"
    try:
        subprocess.run([uv, "venv", "--quiet", "--python", "3.11", folder], check=True, timeout=INSTALL_S)
        command = [uv, "pip", "install", "--quiet", "--python", python, package, "typing-extensions"]
        subprocess.run(command, check=True, timeout=INSTALL_S, capture_output=True, text=True)
    except subprocess.TimeoutExpired:
        pytest.skip(f"{package} has not been installed within {INSTALL_S} s")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"{package} cannot be installed: {(error.stderr or '').strip()[-200:]}")
    return python


@pytest.fixture(scope="module")
def observations():
    rng = np.random.default_rng(0)
    shape = (QUERIES, 224, 224, 3)
    return {
        "observation/image": rng.integers(0, 256, shape, np.uint8),
        "observation/wrist_image": rng.integers(0, 256, shape, np.uint8),
        "observation/state": rng.normal(size=(QUERIES, 8)),
    }


@pytest.fixture(scope="module")
def served():
    return open_served(read_model_policy("tiny"), ServeConfig(policy="tiny", mode="actions"))


@pytest.fixture(scope="module")
def chunks(served, observations):
    """What the policy does with them in process [query, horizon, action]."""
    policy, _ = served
    policy.reset(0, 0)
    chunks = []
    for query in range(QUERIES):
        images = {name: observations[f"observation/{name}"][query] for name in ("image", "wrist_image")}
        state = observations["observation/state"][query]
        chunks += policy.act(
            {0: {"images": images, "state": state, "prompt": "put the mug on the plate"}}
        ).values()
        policy.complete()
    policy.finish(0)
    return np.stack(chunks)


def played(script, package, path, served, observations, tmp_path):
    python = environment(tmp_path / "environment", package)
    np.savez(tmp_path / "observations.npz", **observations)
    with PolicyServerThread(*served) as server:
        files = tmp_path / "observations.npz", tmp_path / "actions.npy"
        printed(python, HERE / script, f"ws://127.0.0.1:{server.port}{path}", *files, timeout_s=300)
    return np.load(tmp_path / "actions.npy")


def test_openpis_client_gets_the_actions_of_the_policy_in_process(served, observations, chunks, tmp_path):
    actions = played("openpi_episode.py", "openpi-client==0.1.2", "", served, observations, tmp_path)
    assert actions.tobytes() == chunks.tobytes()


def test_vla_evals_client_gets_the_actions_of_each_chunk_in_turn(served, observations, chunks, tmp_path):
    actions = played("vla_eval_steps.py", "vla-eval==0.8.0", "/vla-eval", served, observations, tmp_path)
    assert (actions[:5] == chunks[0][:5]).all()
    assert not (actions[5] == chunks[0][5]).all()
