"""Addresses of servers in other spellings, and of models elsewhere, are refused with what to give instead."""

import pytest

from configs.schema import RunConfig
from contracts.errors import UsageError
from eval.policies.addresses import refuse_address
from eval.policies.resolved import read_policy


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("localhost:8000", "ws://localhost:8000"),
        ("http://localhost:8000", "ws://localhost:8000"),
        ("HTTPS://host/act", "wss://host/act"),
        ("host:8000/path", "ws://host:8000/path"),
        ("8000", "ws://localhost:8000"),
        ("localhost", "ws://localhost:8000"),
        ("10.0.0.7", "ws://10.0.0.7:8000"),
        ("[::1]:8000", "ws://[::1]:8000"),
        ("ws:/host", "ws://host:8000"),
        ("ws:host:8000", "ws://host:8000"),
        ("//host:8000", "ws://host:8000"),
        ("me:S3CRET@host:8000", "ws://***@host:8000"),
        ("tcp://host:5555", "ws://host:5555"),
    ],
)
def test_the_url_of_a_server_is_suggested(given, meant):
    with pytest.raises(UsageError) as caught:
        read_policy(given)
    assert f"did you mean {meant!r}" in str(caught.value)
    assert "S3CRET" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "remedy"),
    [
        ("lerobot/smolvla_base", "--policy lerobot:lerobot/smolvla_base;"),
        ("hf://lerobot/smolvla_base@main", "--policy lerobot:lerobot/smolvla_base;"),
        ("https://huggingface.co/lerobot/act/tree/main", "--policy lerobot:lerobot/act;"),
        ("s3://bucket/policy", "copy a checkpoint to a folder"),
        ("gs://bucket/policy", "a YAML file whose `weights` are its gs:// or https:// URL"),
        ("unix:///run/policy.sock", "is not the URL of a policy server (ws://host:port)"),
        ("grpc://host:50051", "served by examples/serve_lerobot.py"),
        ("zmq://host:5555", "examples/bridge_gr00t.py"),
    ],
)
def test_what_evaluates_a_model_elsewhere_is_named(given, remedy):
    with pytest.raises(UsageError) as caught:
        read_policy(given)
    assert remedy in str(caught.value)


@pytest.mark.parametrize(
    "given",
    [
        "tiny",
        "mine.py:Policy",
        "sub/mine.py:Policy",
        "package.module:Policy",
        "runs/step_1",
        "8001",
        "a/b.yaml",
    ],
)
def test_other_names_pass(given, tmp_path):
    (tmp_path / "runs").mkdir()
    (tmp_path / "8001").mkdir()
    refuse_address(given)


def test_spaces_around_it_and_upper_case_of_a_scheme_do_not_count():
    assert RunConfig(policy=" WS://Host:8000 ").policy == "ws://Host:8000"
