"""Pictures for a video between queries: as many as asked for, and no state, action or text differs."""

import dataclasses
import itertools

import numpy as np
import pytest

from configs.schema import RunConfig
from eval.records.reader import read_identity
from eval.report.comparison import compare
from eval.rollout import recorder
from eval.rollout.executors.executor import SERIAL
from tests.eval.rollout.scaled import played, timeless
from tests.eval.rollout.test_executors import POLICY
from videos.recorder import EpisodeVideo


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
