"""A video that fails costs no episode its grade, and is told once, with the remedy."""

from pathlib import Path

import imageio_ffmpeg
import pytest

from contracts.errors import UsageError
from eval import preflight
from eval.collect.collection import collect_demonstrations
from tests.commands import call
from tests.eval.collect.collecting import config
from tests.eval.conftest import CONFIG, play, policy
from videos import mp4, recorder

__all__ = ["policy"]

REAL = imageio_ffmpeg.get_ffmpeg_exe()


@pytest.fixture(autouse=True)
def fresh_check():
    mp4.encoder_problem.cache_clear()
    yield
    mp4.encoder_problem.cache_clear()


@pytest.fixture
def encoder(tmp_path, monkeypatch):
    """Puts a shell script in place of ffmpeg; without one, the file is missing."""

    def replaced(script: str | None) -> Path:
        file = tmp_path / "ffmpeg"
        if script is not None:
            file.write_text(f"#!/bin/sh\n{script}\n")
            file.chmod(0o755)
        monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", str(file))
        return file

    return replaced


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo Unknown encoder >&2; exit 1", "stopped with status 1: Unknown encoder"),
        (None, "No such file or directory"),
        ("kill -9 $$", "killed by signal 9"),
    ],
)
def test_an_encoder_that_does_not_work_is_found_at_the_start(tmp_path, policy, encoder, capsys, script, said):
    encoder(script)
    run = play(tmp_path / "runs", video="all")
    episodes = run.episodes().values()
    assert {each.outcome for each in episodes} == {"success"}
    assert all(each.video is None and said in each.video_error for each in episodes)
    printed = capsys.readouterr().out
    assert printed.count("warning: ") == printed.count(said) == 1
    assert "IMAGEIO_FFMPEG_EXE" in printed
    assert "--video none" in printed


BUT_THE_CHECK = f'case "$*" in *null*) exec {REAL} "$@";; esac; '


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("exit 1", "stopped with status 1: no message"),
        ("cat >/dev/null; echo No space left on device >&2; exit 1", "No space left on device"),
        ("head -c 500000 >/dev/null; kill -9 $$", "killed by signal 9"),
        ("sleep 60", "has not taken a frame for 0.2 s"),
        (f'{REAL} "$@"; exec rm -rf $(dirname "${{@: -1}}" | sed s/^file://)', "No such file"),
    ],
    ids=["at-once", "disk-full", "killed", "hangs", "file-removed"],
)
def test_a_video_that_fails_later_is_recorded_with_its_episode(
    tmp_path, policy, encoder, capsys, monkeypatch, script, said
):
    monkeypatch.setattr(recorder, "_PATIENCE_S", 0.2 if "sleep" in script else 60)
    encoder(BUT_THE_CHECK + script).write_text(f"#!/bin/bash\n{BUT_THE_CHECK}{script}\n")
    run = play(tmp_path / "runs", CONFIG, video="all", task_ids=(0,), suites=("libero_object",))
    episodes = run.episodes().values()
    assert [each.outcome for each in episodes] == ["success"] * 2
    assert all(each.video is None and said in each.video_error for each in episodes)
    assert not [each for each in run.path.glob("videos/*/.*") if "file" not in said]
    printed = capsys.readouterr().out
    assert printed.count("warning: no video of ") == 1
    assert "graded all the same" in printed


def test_preflight_warns(tmp_path, encoder, capsys):
    encoder("exit 1")
    assert call(preflight.app, "--suite", "gym_reacher", "--output-dir", tmp_path) == 0
    assert "warn  videos: none can be recorded (ffmpeg stopped with status 1" in capsys.readouterr().out


def test_a_collection_that_needs_it_is_refused_before_anything_is_played(tmp_path, encoder):
    encoder("exit 1")
    with pytest.raises(UsageError, match=r"--images video cannot be written .*--images png"):
        collect_demonstrations(config(images="video"), tmp_path / "data", workers=1)
    assert not (tmp_path / "data").exists()
