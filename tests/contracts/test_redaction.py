"""What is written and shown has no secrets: parts of URLs, and arguments named like secrets."""

import pytest

from configs.cli import read_kwargs
from contracts import redaction
from contracts.errors import UsageError
from contracts.redaction import redact, redact_command, redact_text, remember_secrets, strip_url


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch):
    monkeypatch.setattr(redaction, "_known", set())


@pytest.mark.parametrize(
    ("url", "recorded"),
    [
        ("ws://me:S3CRET@host:8000/v1?token=S3CRET", "ws://***@host:8000/v1?***"),
        ("wss://S3CRET@host", "wss://***@host"),
        ("WS://me:S3@CRET@[::1]:8000/", "WS://***@[::1]:8000/"),
        ("ws://me:S3/CRET@host/v1", "ws://***@host/v1"),
        ("ws://me:S3?CRET@host", "ws://***@host"),
        ("ws:/me:S3CRET@host", "ws:/***@host"),
        ("https://bucket/model?X-Amz-Signature=S3CRET 'S3CRET'", "https://bucket/model?***"),
        ("https://host/model#access=S3CRET", "https://host/model#***"),
        ("gs://bucket/model@v1", "gs://bucket/model@v1"),
        ("https://host/owner/model@v1", "https://host/owner/model@v1"),
        ("replay:/home/me@host/run#1", "replay:/home/me@host/run#1"),
        ("put the cup on the plate", "put the cup on the plate"),
    ],
)
def test_a_url_has_no_user_password_query_or_fragment(url, recorded):
    assert redact(url) == redact(recorded) == recorded
    if "'" not in url:
        assert redact_text(f"{url} cannot be reached") == f"{recorded} cannot be reached"
    assert strip_url(url) == recorded.replace("***@", "").replace("?***", "").replace("#***", "")


@pytest.mark.parametrize(
    "name",
    ["key", "apiKey", "hf_token", "TOKEN", "client_secret", "db-password", "passwd", "auth", "credentials"],
)
def test_an_argument_named_like_a_secret_is_one(name):
    assert redact({"policy_kwargs": {name: "S3CRET", "scale": 0.5}}) == {
        "policy_kwargs": {name: "***", "scale": 0.5}
    }
    nested = redact({"kwargs": {"headers": {name: ["S3CRET"]}}, name: "no argument"})
    assert nested == {"kwargs": {"headers": {name: "***"}}, name: "no argument"}


@pytest.mark.parametrize(
    ("name", "value"), [("api_key_env", "NAME"), ("max_tokens", 64), ("tokenizer", "a.model"), ("key", None)]
)
def test_names_of_variables_and_numbers_of_tokens_are_no_secrets(name, value):
    assert redact({"kwargs": {name: value}}) == {"kwargs": {name: value}}


def test_a_command_line_has_none():
    given = (
        "--policy=ws://me:S3CRET@h?S3CRET --policy ws://S3CRET@h --policy-kwargs token=S3CRET=1 scale=2 "
        "--policy-kwargs=api_key=S3CRET --token S3CRET --token=S3CRET --api-key-env NAME --resume "
        "--tokens-per-frame 5"
    )
    shown = (
        "--policy=ws://***@h?*** --policy ws://***@h --policy-kwargs token=*** scale=2 "
        "--policy-kwargs=api_key=*** --token *** --token=*** --api-key-env NAME --resume "
        "--tokens-per-frame 5"
    )
    assert redact_command(given.split()) == shown.split()


def test_secrets_of_a_configuration_are_in_no_later_message():
    """Wherever they stand: those of an address, of arguments, and the key of an environment variable."""
    given = {"policy": "ws://me:S3%40CRET@h/?token=T0KEN", "policy_kwargs": {"auth": {"pin": 4711}}}
    remember_secrets(given)
    remember_secrets("K3Y", secret=True)
    told = "GET /?token=T0KEN of S3@CRET and S3%40CRET with 4711 and 'K3Y' (Basic bWU6UzNAQ1JFVA==)"
    assert redact_text(told) == "GET /?*** of *** and *** with *** and '***' (Basic ***)"
    assert redact_text("K3YS and 47110") == "K3YS and 47110"
    assert str(UsageError("no such pin: 4711; see me:pw@host:8000")) == "no such pin: ***; see ***@host:8000"
    with pytest.raises(UsageError, match=r"'token' is \*\*\*; give a number"):
        read_kwargs(["token=[S3CRET]"])
