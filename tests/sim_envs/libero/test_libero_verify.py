"""The verifier: agreement is exit 0, a difference exit 1, an unusable file one line and exit 2."""

import json
from pathlib import Path

import numpy as np
import pytest

from configs.cli import run_app
from sim_envs.libero.verify import app

EPISODE = "libero_object.2.1"


@pytest.fixture
def short(golden: Path, tmp_path: Path) -> dict[str, np.ndarray]:
    """The first ten actions of one reference episode, with other settings than the reference file's."""
    with np.load(golden / "libero_reference_rollouts.npz") as recorded:
        arrays = {
            name: recorded[f"{EPISODE}.{name}"] for name in ("actions", "sim_state", "policy_state", "done")
        }
    return {
        "meta": np.array(json.dumps({"record_every": 10, "env_seed": 7, "mujoco": "3.2.3"})),
        f"{EPISODE}.actions": arrays["actions"][:13],
        f"{EPISODE}.sim_state": arrays["sim_state"][1:2],
        f"{EPISODE}.policy_state": arrays["policy_state"][1:2],
        f"{EPISODE}.done": arrays["done"][:13],
    }


def _exit_code(*arguments: str) -> int:
    with pytest.raises(SystemExit) as stopped:
        run_app(app, arguments)
    return stopped.value.code


def _verify(arrays: dict[str, np.ndarray], tmp_path: Path, libero_assets: Path) -> int:
    file = tmp_path / "reference.npz"
    np.savez(file, **arrays)
    return _exit_code(str(file), "--assets", str(libero_assets))


def test_a_reference_agrees(short, tmp_path, libero_assets, capsys) -> None:
    assert _verify(short, tmp_path, libero_assets) == 0
    assert "1 of 1 episodes agree" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("array", "change"),
    [
        ("sim_state", 1e-8),
        pytest.param("policy_state", np.nan, marks=pytest.mark.slow),
        pytest.param("done", True, marks=pytest.mark.slow),
    ],
)
def test_a_difference_is_found(short, tmp_path, libero_assets, capsys, array: str, change: float) -> None:
    changed = short[f"{EPISODE}.{array}"].copy()
    changed.flat[0] += change
    assert _verify(short | {f"{EPISODE}.{array}": changed}, tmp_path, libero_assets) == 1
    assert "DIFFERS" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arrays", "complaint"),
    [
        ({"actions": np.zeros((2, 7))}, "is not named"),
        ({"libero_obect.0.0.actions": np.zeros((5, 7))}, "did you mean 'libero_object'"),
        ({"libero_object.10.0.actions": np.zeros((5, 7))}, "task ids are 0 to 9"),
        ({"libero_object.0.50.actions": np.zeros((5, 7))}, "initial states are 0 to 49"),
        ({"libero_object.0.0.sim_state": np.zeros((1, 7))}, "has no actions"),
        ({"libero_object.0.0.actions": np.full((5, 7), np.nan)}, "is not finite"),
        ({"libero_object.0.0.actions": np.zeros((5, 6))}, "must be numbers [n, 7]"),
        ({"libero_object.0.0.actions": np.zeros((5, 7))}, "nothing to compare"),
        ({"meta": np.array("{")}, "meta: not JSON"),
        ({"meta": np.array('{"record_every": 0}')}, "record_every is 0"),
        ({}, "holds no episode"),
    ],
)
def test_a_file_that_cannot_be_replayed_is_refused_in_one_line(
    arrays: dict[str, np.ndarray], complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bad.npz"
    np.savez(file, **arrays)
    assert _exit_code(str(file)) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert complaint in message


@pytest.mark.parametrize("content", [b"", b"not a zip", b"PK\x03\x04 truncated"])
def test_a_file_that_is_no_npz_is_refused_in_one_line(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bad.npz"
    file.write_bytes(content)
    assert _exit_code(str(file)) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_wrong_arguments_are_refused_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert _exit_code() == 2
    assert capsys.readouterr().err.count("\n") == 1
