"""Nothing that a run leaves behind or prints holds its secrets, and they are needed again to resume it."""

import sys

import pytest
import yaml

from configs.exits import INPUT_ERROR
from configs.schema import SweepConfig
from contracts import redaction
from contracts.errors import UsageError
from eval import export, leaderboard, run
from eval.records.run_folders import find_unfinished, find_unfinished_sweep, new_sweep
from eval.records.schema import RunFolder
from eval.report.export import FORMATS
from sim_envs.fake import FakeSuite
from tests.commands import call, execute
from tests.eval.policies.servers import ACTIONS, OpenpiServer
from tests.eval.rollout.scaled import suite_file

SECRETS = ("S3CRETPW", "S3CRETTOKEN", "czNjcmV0")


def leaked(folder, *printed):
    """Files and outputs that hold a secret."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    texts = {str(path.relative_to(folder)): path.read_bytes() for path in files}
    texts |= {name: name.encode() for name in list(texts)} | {text: text.encode() for text in printed}
    return [name for name, text in texts.items() if any(secret.encode() in text for secret in SECRETS)]


@pytest.fixture
def suite(tmp_path, monkeypatch):
    monkeypatch.setattr(redaction, "_known", set())  # not those of other tests
    own = {"environment": {"success_at": 7, "init_ids": 3}, "camera_size": 256}
    return suite_file(tmp_path, "fake", FakeSuite, **own)


def test_a_servers_address_leaves_no_secret(tmp_path, suite, capsys):
    """The server fails once, and repeats the request in its traceback."""
    failures = iter([True, False])

    def answer(query):
        if next(failures, False):
            raise ArithmeticError("GET /v1?token=S3CRETTOKEN by me:S3CRETPW")
        return {"actions": ACTIONS / 100}

    runs = tmp_path / "runs"
    with OpenpiServer(answer) as server:
        url = f"ws://me:S3CRETPW@127.0.0.1:{server.port}/v1?token=S3CRETTOKEN"
        options = ["--suite", suite, f"--policy={url}", "--policy-kwargs", "embodiment=libero"]
        options += ["--num-trials-per-task", 2, "--output-dir", runs, "--log", "tensorboard"]
        done = execute(sys.executable, "-m", "eval.run", *options)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("api_key_env=NAME") == 1
        with pytest.raises(
            UsageError, match=r"a secret in its policy \(ws://\*\*\*@127.0.0.1:\d+/v1\?\*\*\*\)"
        ):
            find_unfinished(runs, {})
        assert call(run.app, *options, "--resume") == 0
    (manifest,) = runs.glob("*/manifest.json")
    folder = RunFolder(manifest.parent)
    assert folder.run_id.endswith(f"-127.0.0.1-{server.port}-v1")
    assert [each.outcome for each in folder.episodes().values()] == ["success"] * 2
    assert (
        f"--policy=ws://***@127.0.0.1:{server.port}/v1?***"
        in folder.read_manifest()["attempts"][0]["command"]
    )
    assert "Traceback" in folder.episodes_path.read_text(), "the server's own, of the first attempt"
    assert call(leaderboard.app, runs, "--output-dir", tmp_path / "board") == 0
    for form in FORMATS:
        assert call(export.app, folder.path, "--format", form, "--output", tmp_path / "exports" / form) == 0
    assert leaked(tmp_path, done.stdout, done.stderr, *capsys.readouterr()) == []


FAILS = """
class Mine:
    embodiment = "libero"
    def __init__(self, hf_token, headers):
        self.token, self.headers = hf_token, headers
    def infer(self, obs):
        raise ValueError(f"no {self.token} at https://me:S3CRETPW@host/?sig={self.headers['Authorization']}")
    def reset(self):
        pass
"""


def test_a_classes_arguments_leave_no_secret(tmp_path, suite, capsys):
    (tmp_path / "policies").mkdir()
    file = tmp_path / "policies" / "mine.py"
    file.write_text(FAILS)
    preset = tmp_path / "policies" / "mine.yaml"
    kwargs = {"headers": {"Authorization": "Bearer czNjcmV0"}, "hf_token": "S3CRETTOKEN"}
    content = {"name": "mine", "kind": "python", "target": f"{file}:Mine", "kwargs": kwargs}
    preset.write_text(yaml.safe_dump(content))
    options = ["--suite", suite, "--policy", preset, "--num-trials-per-task", 2, "--max-errors", 2]
    assert call(run.app, *options, "--output-dir", tmp_path / "runs") == INPUT_ERROR
    printed = capsys.readouterr()
    assert "no *** at https://***@host/?***" in printed.err
    assert leaked(tmp_path / "runs", *printed) == []


def test_a_sweeps_record_has_no_secret_and_its_cells_have_it(tmp_path):
    grids = [{"clock": ("fixed:50,90", "paused")}]
    given = {"policy": "ws://me:S3CRETPW@host", "policy_kwargs": {"api_key_env": "KEY"}, "grids": grids}
    sweep = new_sweep(tmp_path, SweepConfig.model_validate(given))
    assert leaked(tmp_path) == []
    again = find_unfinished_sweep(tmp_path, {"policy": given["policy"]})
    assert again == sweep
    assert again.config().policy == sweep.config().policy == given["policy"]
    with pytest.raises(UsageError, match="give the option again"):
        find_unfinished_sweep(tmp_path, {})
