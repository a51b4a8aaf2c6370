"""An episode of two runs side by side: which one, on one clock; what cannot be shown is one line."""

import dataclasses
import itertools
import shutil

import numpy as np
import pytest

from contracts.episode import Outcome, RequestCounts
from eval.media import app, find_pair
from eval.records.reader import RunRecords
from eval.records.schema import RunFolder
from tests.commands import call
from tests.eval.conftest import VARIANTS, Stage, begin, evaluate
from tests.eval.factory import RunBuilder, episode, key
from videos import theme
from videos.mp4 import iterate_pictures

SHOWN = VARIANTS.model_copy(update={"video": "all", "num_trials_per_task": 1})


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A run in mode isolated and one in mode unified: two tasks, one episode of seven control steps each."""
    folder = tmp_path_factory.mktemp("recorded")
    with pytest.MonkeyPatch.context() as monkeypatch:
        Stage(monkeypatch)
        variants = begin(folder / "runs", SHOWN)
        evaluate(*variants)
    return folder / "runs", [variant.folder.run_id for variant in variants]


@pytest.fixture
def runs(recorded, tmp_path):
    """Their folders, to be changed."""
    folder, names = recorded
    shutil.copytree(folder, tmp_path / "runs")
    return [RunFolder(tmp_path / "runs" / name) for name in names]


def change(run, task_id, **changes):
    """Record another end of an episode."""
    at = next(each for each in run.episodes() if each.task_id == task_id)
    run.append(dataclasses.replace(run.episodes()[at], **changes))


def test_an_episode_that_only_one_solved_comes_first_then_the_one_whose_lengths_differ_most(runs):
    change(runs[1], 1, steps=5)
    assert find_pair(*map(RunRecords, runs)).sides[0].result.key.task_id == 1
    change(runs[1], 0, outcome=Outcome.TIMEOUT)
    pair = find_pair(*map(RunRecords, runs))
    assert pair.sides[0].result.key.task_id == 0
    ends = "isolated success at 0.35 s, unified timeout at 0.35 s."
    assert pair.why == f"libero_object task 0, init 0, seed 7: {ends}"
    assert find_pair(*map(RunRecords, runs), task_ids=(1,), init_ids=(0,)).sides[0].result.key.task_id == 1
    change(runs[0], 0, video=None)
    assert find_pair(*map(RunRecords, runs)).sides[0].result.key.task_id == 1


def test_both_are_shown_at_the_same_time_and_the_one_that_ends_first_holds_its_last_frame(runs):
    change(runs[1], 0, steps=4)
    frames = np.stack(list(find_pair(*map(RunRecords, runs), task_ids=(0,)).pictures()))
    assert len(frames) == 8
    middle = frames.shape[2] // 2
    left, right = frames[:, 88:, :middle], frames[:, 88:, middle:]
    moves = [
        [bool((one != other).any()) for one, other in itertools.pairwise(side)] for side in (left, right)
    ]
    assert moves == [[True] * 7, [True] * 4 + [False] * 3]
    shown = [
        (side[:, :40] == theme.OUTCOMES["success"][1]).all(axis=3).any(axis=(1, 2)) for side in (left, right)
    ]
    assert [list(each) for each in shown] == [[False] * 7 + [True], [False] * 4 + [True] * 4]
    clock = frames[:, 30:88, -200:]
    assert all((one != other).any() for one, other in itertools.pairwise(clock))


def test_runs_without_texts_are_two_cameras_and_time(runs):
    def height():
        return next(find_pair(*map(RunRecords, runs)).pictures()).shape[0]

    for run in runs:
        for result in run.episodes().values():
            run.append(dataclasses.replace(result, requests=RequestCounts(requested=1)))
    told = height()
    for run in runs:
        for result in run.episodes().values():
            run.append(dataclasses.replace(result, requests=RequestCounts()))
    assert told - height() > 200


def test_the_command_writes_the_video(runs, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    asked = [*(run.path for run in runs), "--init-ids", "0-1"]
    assert call(app, *asked) == 0
    frames = sum(1 for _ in iterate_pictures(tmp_path / "side_by_side.mp4"))
    assert frames == 7 + 30
    assert not list(tmp_path.glob(".*.mp4"))
    monkeypatch.setattr(theme, "HEIGHTS", (theme.HEIGHT + 2,))  # of another version
    assert call(app, *asked, "-o", "new/folder/pair.mp4") == 2
    assert "pixels high" in capsys.readouterr().err
    assert list((tmp_path / "new/folder").iterdir()) == []


def test_what_cannot_be_shown_is_one_line_and_writes_nothing(runs, tmp_path, monkeypatch, capsys, refused):
    monkeypatch.chdir(tmp_path)
    for name, init_id, protocol_hash in (("a", 0, "1"), ("b", 0, "1"), ("c", 1, "1"), ("d", 0, "2")):
        RunBuilder.at(tmp_path / name, protocol_hash=protocol_hash).add(episode(key(init_id)))
    before = sorted(tmp_path.rglob("*"))
    capsys.readouterr()
    both = [run.path for run in runs]
    for arguments, said in (
        (
            [*both, "--suite", "libero_goal"],
            "no such episode in common; they have tasks 0-1 of libero_object",
        ),
        ([*both, "--init-ids", "x"], "'x' is neither a number"),
        ([*both, "--output", "."], "--output '.' is a folder"),
        ([*both, "-o", "new/a.gif"], "'new/a.gif'; --output takes a file whose name ends in .mp4"),
        (["a", "b"], "have 1 episode in common, and none with a video in both; run them with --video all"),
        (["a", "c"], "a and c hold different episodes: initial states 0 in a, 1 in c"),
        (["a", "d"], "different protocols (1 and 2)"),
    ):
        assert said in refused(app, *arguments)
    assert sorted(tmp_path.rglob("*")) == before
