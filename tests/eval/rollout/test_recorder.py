"""Captions show a text from its delivery on, with its grade; a smoother video changes nothing else."""

import dataclasses
import itertools

import numpy as np
import pytest

from configs.latency import Latency
from configs.schema import RunConfig
from eval.records.query_logs import QueryRecord
from eval.records.reader import read_identity
from eval.report.comparison import compare
from eval.rollout import recorder
from eval.rollout.executors.executor import SERIAL
from eval.rollout.recorder import EpisodeCaptions
from sim_envs.fake import FakeWorld
from tests.eval.doubles import text_finished
from tests.eval.factory import key
from tests.eval.rollout.scaled import played, timeless
from tests.eval.rollout.test_executors import POLICY
from videos.recorder import EpisodeVideo


def captions(task, text, *, step=6):
    """An episode of two queries at steps 0 and 4; the text is of the first, and delivered at a step."""
    made = EpisodeCaptions(
        key(), task="x", mode="unified", clock="fixed:50,200", limit_s=9.0, control_hz=20.0
    )
    said = text_finished(0, task=task, text=text, step=step)
    truths = {step: FakeWorld(steps=step).truth()}
    for start, delivered in ((0, []), (4, [said])):
        latency = Latency(actions_ms=50.0, busy_ms=200.0)
        query = QueryRecord(step=start, steps=4, actions_step=start + 1, free_step=start + 4, truths=truths)
        made.add(dataclasses.replace(query, latency=latency, delivered=delivered))
        if start == 0:
            assert made.at(3).narration is made.at(3).memory is None
    return made


@pytest.mark.parametrize(
    ("text", "mark"),
    [
        ("Carrying the black bowl to the plate.", "right"),
        ("Carrying the black bowl.", "wrong"),
        ("Hm.", "unreadable"),
    ],
)
def test_a_narration_is_marked_when_it_is_delivered(text, mark):
    made = captions("narration", text)
    assert made.at(5).narration is None
    shown = made.at(6)
    assert shown.narration is not None
    assert (shown.narration.text, shown.narration.mark, shown.narration.seen_s) == (text, mark, 0.0)
    assert shown.time_s == 0.3
    assert [latency.busy_ms for latency in shown.latencies] == [200.0, 200.0]


@pytest.mark.parametrize(
    ("text", "mark", "parts"),
    [
        ("nothing done yet; the black bowl is in the gripper", "right", ["right", "right"]),
        ("nothing done yet; the black bowl is on the table", "wrong", ["right", "wrong"]),
        ("nothing done yet; hm", "unreadable", ["right", "unreadable"]),
    ],
)
def test_a_memory_is_marked_as_a_whole_and_part_by_part(text, mark, parts):
    shown = captions("memory", text).at(7).memory
    assert shown is not None
    assert shown.mark == mark
    assert [each for _, each in shown.parts] == parts


def play(folder, config, **changes):
    (run,) = played(folder, config.model_copy(update=changes), executor=SERIAL)
    (record,) = timeless(run).values()
    (episode,) = run.folder.episodes().values()
    return run.folder, dataclasses.replace(episode, video=None), record


@pytest.fixture
def shown(monkeypatch):
    """The images that videos show, and for how many control steps."""
    images = []

    class Noting(EpisodeVideo):
        def add(self, images_, steps, *, caption):
            images.append((next(iter(images_.values())).copy(), steps))
            super().add(images_, steps, caption=caption)

    monkeypatch.setattr(recorder, "EpisodeVideo", Noting)
    return images


@pytest.mark.parametrize("suite", [pytest.param("libero_object", marks=pytest.mark.slow), "gym_reacher"])
def test_a_smooth_video_changes_neither_records_nor_protocol(tmp_path, suite, shown):
    (tmp_path / "looking.py").write_text(POLICY)
    looking = {"policy": f"{tmp_path}/looking.py:Mine", "assets": "standins", "num_steps_wait": 2}
    config = RunConfig(
        suites=(suite,),
        task_ids=(0,),
        init_ids=(3,),
        max_steps=12,
        clock="fixed:100,400",
        mode="actions",
        video="none",
        **(looking if suite == "libero_object" else {"policy": "random"}),
    )
    without, _, expected = play(tmp_path / "without", config)
    rare, _, _ = play(tmp_path / "rare", config, video="all", video_every=6)
    few = len(shown)
    smooth, _, record = play(tmp_path / "smooth", config, video="all", video_every=1)
    assert record[1] == expected[1]
    assert {**record[0], "video": None} == {**expected[0], "video": None}
    images, steps = zip(*shown[few:], strict=True)
    assert steps == (1,) * 12
    assert not any(np.array_equal(one, other) for one, other in itertools.pairwise(images))
    queries = {query["step"] for query in record[1]}
    assert few == len(queries | {step + 6 for step in queries if step + 6 < 12})
    assert smooth.read_manifest()["config"]["video_every"] == 1
    assert read_identity(smooth).protocol_hash == read_identity(without).protocol_hash
    assert compare(smooth, rare).actions.bitwise_equal
