"""The best video is chosen by a stated rule, and where nothing was solved that is said."""

import dataclasses

import pytest

from eval.records.schema import RequestCounts, Share, TextScores
from eval.report.best_video import find_best_video
from tests.eval.factory import RunBuilder, episode, key, query

HELD = {"phase": "carry", "object": "milk", "target": None}
NEAR = {"phase": "approach", "object": "milk", "target": None}


def spoken(hits: float, of: int) -> dict[str, TextScores]:
    share = {"all": Share(hits=hits, of=of)}
    scores = TextScores(texts=of, not_graded=0, oracle=0, at_request=share, on_delivery={}, staleness_s=0.0)
    return {"narration": scores}


def shown(number: int, outcome: str = "success", **changes):
    return episode(key(number), outcome, video=f"videos/{number}.mp4", **changes)


def texts(finished: int) -> RequestCounts:
    return RequestCounts(finished=finished)


def seen(*narrations: dict, done: int = 0) -> list[dict]:
    """The queries of an episode, by what the robot truly did; `done` deeds at their end."""
    deeds = [{"verb": "put", "subject": "milk", "place": "basket"}] * done
    facts = [{"subject": "milk", "state": "in the basket"}] * done
    told = [{"narration": narration, "done": deeds, "facts": facts} for narration in narrations]
    return [{**query(index), "truth": truth} for index, truth in enumerate(told)]


@pytest.mark.parametrize(
    ("others", "best"),
    [
        ([shown(1, texts=spoken(9, 10)), shown(2, texts=spoken(5, 10))], 1),
        ([shown(1, texts=spoken(9, 10)), shown(2, texts=spoken(18, 20))], 1),
        ([shown(1, requests=texts(3)), shown(2, requests=texts(8))], 2),
        ([shown(1, steps=90), shown(2, steps=80)], 2),
        ([shown(1, "timeout", texts=spoken(10, 10)), shown(2, texts=spoken(1, 10))], 2),
        ([dataclasses.replace(shown(1, texts=spoken(9, 10)), video=None), shown(2)], 2),
    ],
)
def test_of_the_solved_the_truest_then_the_most_talkative_then_the_shortest(tmp_path, others, best):
    run = RunBuilder.at(tmp_path / "run")
    for result in others:
        run.add(result)
    chosen = find_best_video(run.folder)
    assert chosen is not None
    assert chosen.episode.key == key(best)
    assert chosen.path == run.path / f"videos/{best}.mp4"
    assert "solved in mode unified" in chosen.why


@pytest.mark.parametrize("farther", [seen(NEAR, HELD, NEAR), seen(NEAR, done=1)], ids=["stages", "an action"])
def test_where_nothing_was_solved_the_furthest_is_named_and_called_that(tmp_path, farther):
    """A completed action is further than any number of stages."""
    run = RunBuilder.at(tmp_path / "run")
    run.add(shown(0, "timeout", texts=spoken(9.0, 10)), *seen(NEAR, *[HELD] * (len(farther) == 1)))
    run.add(shown(1, "timeout", texts=spoken(9.0, 10)), *farther)
    chosen = find_best_video(run.folder)
    assert chosen is not None
    assert chosen.episode.key == key(1)
    assert "None of 2 was solved" in chosen.why
    assert "narration right 9 of 10 times" in chosen.why


def test_errors_and_episodes_without_a_video_or_an_account(tmp_path):
    run = RunBuilder.at(tmp_path / "run").add(shown(0, "error")).add(episode(key(1)))
    assert find_best_video(run.folder) is None
    chosen = find_best_video(run.add(shown(2, "timeout"), {**query(0), "truth": None}).folder)
    assert chosen is not None
    assert chosen.why.endswith("steps.")
