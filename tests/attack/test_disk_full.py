"""A full disk ends a command in one line; with space again, the same command completes the work."""

import errno

import pytest

from configs.exits import INPUT_ERROR, exit_code_of
from eval.collect.store import EpisodeStore
from eval.records.run_folders import find_unfinished, new_run
from eval.rollout.recorder import EpisodeRecorder
from oxygen.training import checkpoint
from oxygen.training.run_folder import read_log
from tests.eval.collect.collecting import collect, contents
from tests.eval.conftest import CONFIG, evaluate, policy
from tests.eval.train.test_train_cli import (
    STEPS,
    always,
    assert_same,
    command,
    in_a_world_without_physics,
    resume,
)

__all__ = ["always", "command", "policy"]


def full(*_, **__) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def refusal(command, capsys) -> str:
    """The line of a command that ends for lack of space; lines before it are of slow stages."""
    assert exit_code_of(command) == INPUT_ERROR
    *stages, line = capsys.readouterr().err.splitlines()
    assert all(" ... " in stage for stage in stages)
    return line


def test_an_evaluation_is_resumed_and_no_episode_is_an_error(tmp_path, policy, monkeypatch, capsys):
    add = EpisodeRecorder.add
    with monkeypatch.context() as patch:
        patch.setattr(EpisodeRecorder, "add", lambda *given: full() if policy.queries > 5 else add(*given))
        said = refusal(lambda: evaluate(new_run(tmp_path, CONFIG)), capsys)
    assert said == "error: writing: No space left on device; free some, and run it again (--resume)"
    (run,) = find_unfinished(tmp_path, {})
    assert all(each.outcome == "success" for each in run.folder.episodes().values())
    evaluate(run)
    assert len(run.folder.episodes()) == 8
    assert not list(run.folder.path.glob("*.partial"))


def test_a_collection_stops_at_once_and_is_completed_by_the_same_command(tmp_path, monkeypatch, capsys):
    add, left = EpisodeStore.add, iter(range(3))
    with monkeypatch.context() as patch:
        patch.setattr(
            EpisodeStore,
            "add",
            lambda *given, **how: full() if next(left, None) is None else add(*given, **how),
        )
        assert "No space left on device" in refusal(lambda: collect(tmp_path / "a"), capsys)
    assert len(list((tmp_path / "a" / ".episodes").glob("*.parquet"))) == 3
    for folder in ("a", "b"):
        assert collect(tmp_path / folder) == 0
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


@pytest.mark.slow
def test_a_training_keeps_its_last_checkpoint_and_is_resumed(tmp_path, command, monkeypatch, capsys):
    write = checkpoint.write_safetensors

    def write_unless_last(file, tensors):
        return full() if f"{STEPS:07d}" in str(file) else write(file, tensors)

    with in_a_world_without_physics():
        assert command(tmp_path / "whole") == 0
        with monkeypatch.context() as patch:
            patch.setattr(checkpoint, "write_safetensors", write_unless_last)
            capsys.readouterr()
            said = refusal(lambda: command(tmp_path / "full"), capsys)
        assert said == "error: writing: No space left on device; free some, and run it again (--resume)"
        assert [each.name for each in (tmp_path / "full" / "checkpoints").iterdir()] == ["step_0000002"]
        assert resume(tmp_path / "full") == 0
    assert_same(tmp_path / "full", tmp_path / "whole", checkpoint.STATE_FILE)
    assert [line["step"] for line in read_log(tmp_path / "full")] == [1, 2, 3, 4]
