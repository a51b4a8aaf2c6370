"""What a file system lacks is a warning or one line, and loses nothing."""

import errno
import getpass
import os
import tempfile
from pathlib import Path

import pytest

from configs import home, paths
from configs.exits import INPUT_ERROR, exit_code_of
from contracts.errors import UsageError
from eval.policies.interprocess import served
from eval.records.json_files import append_json_line, read_json_lines, write_json
from tests.eval.conftest import play, policy
from tests.eval.doubles import libero_object

__all__ = ["policy"]


def lacking(number: int = errno.ENOSYS):
    def call(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    return call


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_without_locks_a_run_is_complete_and_a_warning_is_given_once(
    tmp_path, policy, monkeypatch, capsys, number
):
    monkeypatch.setattr("fcntl.flock", lacking(number))
    paths._warn_of_no_locks.cache_clear()
    assert len(play(tmp_path).episodes()) == 8
    said = capsys.readouterr().err
    assert said.count("has no locks: run one command at a time") == 1
    assert paths.temporary_folder("oxygen-eval-test-").is_dir()


def test_a_lock_of_another_process_is_still_respected(tmp_path):
    with paths.locked(tmp_path), pytest.raises(UsageError, match="another process is using"):
        paths.locked(tmp_path).__enter__()


def test_without_fsync_records_are_written(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lacking(errno.EINVAL))
    append_json_line(tmp_path / "lines", {"a": 1})
    write_json(tmp_path / "whole.json", {"a": 1})
    assert list(read_json_lines(tmp_path / "lines")) == [{"a": 1}]
    monkeypatch.setattr(os, "fsync", lacking(errno.EIO))
    with pytest.raises(OSError, match="Input/output"):
        append_json_line(tmp_path / "lines", {"a": 1})


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.ENOENT])
def test_without_shared_memory_images_travel_in_messages(monkeypatch, capsys, number):
    monkeypatch.setattr(os, "posix_fallocate", lacking(number))
    with served([], [libero_object().interface], worlds=2) as (_, blocks):
        assert blocks == []
    assert capsys.readouterr().err.count("travel in messages") == 1


def test_without_a_temporary_folder_a_command_is_one_line(monkeypatch, capsys):
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: ["/nonexistent"])
    assert exit_code_of(lambda: tempfile.mkdtemp() and None) == INPUT_ERROR
    assert capsys.readouterr().err == (
        "error: no folder for temporary files can be written: set TMPDIR to one that can\n"
    )


@pytest.fixture
def environment(tmp_path, monkeypatch):
    """The variables of a process whose temporary files are in `tmp_path`; changes are undone."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    variables = dict(os.environ)
    for name in ("HOME", "XDG_CACHE_HOME", "LOGNAME", "USER", "LNAME", "USERNAME", *home.VARIABLES):
        variables.pop(name, None)
    monkeypatch.setattr(os, "environ", variables)
    return variables


def test_without_a_home_and_an_entry_caches_are_in_a_folder_that_is_found_again(
    tmp_path, environment, monkeypatch, capsys
):
    monkeypatch.setattr("pwd.getpwuid", lambda number: {}[number])
    for _ in range(2):
        environment.pop("HOME", None)
        environment.pop("XDG_CACHE_HOME", None)
        home.provide_home()
        folder = tmp_path / f"oxygen-eval-{os.getuid()}"
        assert environment["HOME"] == str(folder)
        assert environment["XDG_CACHE_HOME"] == str(folder / ".cache")
        assert getpass.getuser() == f"user{os.getuid()}"
        assert capsys.readouterr().err.count("set HOME or XDG_CACHE_HOME") == 1
    home.provide_home()
    assert capsys.readouterr().err == ""


def test_a_home_that_cannot_be_written_stays_and_what_is_cached_there_is_read(
    tmp_path, environment, monkeypatch
):
    cached = tmp_path / "home/.cache/oxygen-eval"
    cached.mkdir(parents=True)
    environment["HOME"] = str(tmp_path / "home")
    monkeypatch.setattr(os, "access", lambda *_: False)
    home.provide_home()
    assert environment["HOME"] == str(tmp_path / "home")
    assert "XDG_CACHE_HOME" not in environment
    assert paths.cache_folder("OXYGEN_CACHE", "checkpoints") == cached / "checkpoints"
    assert environment.keys() >= set(home.VARIABLES)


def test_a_folder_of_somebody_else_is_not_used(tmp_path, environment, monkeypatch):
    taken = tmp_path / f"oxygen-eval-{os.getuid()}"
    taken.mkdir()
    taken.chmod(0o777)
    monkeypatch.setattr(os, "access", lambda *_: False)
    environment["HOME"] = "/"
    home.provide_home()
    assert environment["HOME"] != str(taken)
    assert Path(environment["HOME"]).parent == tmp_path
