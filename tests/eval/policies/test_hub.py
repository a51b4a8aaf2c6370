"""A checkpoint is a folder or a model of the Hub; one that is not found is one line with the remedy."""

import sys

import huggingface_hub
import pytest
from huggingface_hub.errors import GatedRepoError, LocalEntryNotFoundError, RepositoryNotFoundError

from configs.exits import INPUT_ERROR
from contracts.errors import UsageError
from eval import run
from eval.policies.hub import checkpoint_folder
from tests.commands import call


def test_a_folder_is_taken_before_the_hub_is_asked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "me/act").mkdir(parents=True)
    with pytest.raises(UsageError, match=r"the folder has no config\.json"):
        checkpoint_folder("me/act", "lerobot:me/act")
    (tmp_path / "me/act/config.json").write_text("{}")
    assert checkpoint_folder("me/act", "lerobot:me/act") == tmp_path / "me/act"


def test_a_model_is_downloaded_at_its_revision(tmp_path, monkeypatch):
    asked = []

    def download(model, revision, **_):
        asked.append((model, revision))
        return tmp_path

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    for given in ("me/act", "me/act@v2"):
        assert checkpoint_folder(given, given) == tmp_path
    assert asked == [("me/act", None), ("me/act", "v2")]


def failure(kind, cause=None):
    error = kind.__new__(kind, "An error happened while trying to locate the files on the Hub")
    error.__cause__ = cause  # without the answer of the Hub, which the constructor wants
    return error


NO_NETWORK = ConnectionError("Name or service not known")


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (failure(RepositoryNotFoundError), "no such model; check its spelling; for a private one, set HF_TO"),
        (failure(GatedRepoError), "accept the model's terms on the Hub, and set HF_TOKEN"),
        (
            failure(LocalEntryNotFoundError, NO_NETWORK),
            r"downloaded \(Name or service not known\); check its",
        ),
    ],
)
def test_a_model_that_cannot_be_had_is_one_line(monkeypatch, error, why):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with pytest.raises(UsageError, match=why) as caught:
        checkpoint_folder("me/atc", "lerobot:me/atc")
    assert str(caught.value).startswith("policy lerobot:me/atc")


def test_a_path_that_does_not_exist_is_one_line():
    with pytest.raises(UsageError, match="there is no such folder, and no such model; check its spelling"):
        checkpoint_folder("/no/such/folder", "lerobot:/no/such/folder")


def test_without_lerobot_a_line_says_how_to_install_it(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "lerobot", None)
    line = f"--suite droid_tabletop --policy lerobot:me/act --output-dir {tmp_path}"
    assert call(run.app, *line.split()) == INPUT_ERROR
    *_, last = capsys.readouterr().err.splitlines()
    assert "needs LeRobot" in last
    assert "uv pip install 'oxygen-eval[lerobot]'" in last
    assert not list(tmp_path.iterdir())
