"""A record says what really ran: the command, and a commit only where the code is that repository's."""

import subprocess
import sys

import pytest

from eval.records import provenance


def git(folder, *arguments):
    identity = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path):
    git(tmp_path, "init")
    git(tmp_path, "commit", "--allow-empty", "-m", "somebody's")
    provenance.git_state.cache_clear()
    yield tmp_path
    provenance.git_state.cache_clear()


def project(root, name):
    root.mkdir(parents=True, exist_ok=True)
    (root / "pyproject.toml").write_text(f'[project]\nname = "{name}"\n')
    return root


def test_the_commit_is_of_the_projects_own_repository(repository, monkeypatch):
    monkeypatch.setattr(provenance, "_ROOT", project(repository, "oxygen-eval"))
    state = provenance.git_state()
    assert len(state["commit"]) == 40
    assert state["dirty"] is True


@pytest.mark.parametrize(
    ("inside", "name"),
    [("venv/lib/site-packages", "oxygen-eval"), ("", "somebodys-project"), ("vendored", "oxygen-eval")],
)
def test_the_commit_of_another_repository_is_not_recorded(repository, monkeypatch, inside, name):
    monkeypatch.setattr(provenance, "_ROOT", project(repository / inside, name))
    assert provenance.git_state() == {"commit": None, "dirty": None}


def test_the_command_line_is_recorded():
    code = "from eval.records import provenance; print(provenance.command())"
    done = subprocess.run(
        [sys.executable, "-c", code, "--seed", "a b"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"python -c '{code}' --seed 'a b'\n"
