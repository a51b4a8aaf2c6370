"""A record says what really ran: the command, and a commit only where the code is that repository's."""

import subprocess
import sys

import pytest

from eval.records import provenance


def git(folder, *arguments):
    identity = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True)


@pytest.mark.parametrize("inside", ["", "venv/lib/site-packages"])
def test_the_commit_is_recorded_of_the_projects_own_repository_alone(tmp_path, monkeypatch, inside):
    git(tmp_path, "init")
    git(tmp_path, "commit", "--allow-empty", "-m", "somebody's")
    (tmp_path / inside).mkdir(parents=True, exist_ok=True)
    (tmp_path / "changed").touch()
    monkeypatch.setattr(provenance, "_ROOT", tmp_path / inside)
    state = provenance.git_state.__wrapped__()
    if inside:
        assert state == {"commit": None, "dirty": None}
    else:
        assert (len(state["commit"]), state["dirty"]) == (40, True)


def test_the_command_line_is_recorded():
    code = "from eval.records import provenance; print(provenance.command())"
    done = subprocess.run(
        [sys.executable, "-c", code, "--seed", "a b"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"python -c '{code}' --seed 'a b'\n"
