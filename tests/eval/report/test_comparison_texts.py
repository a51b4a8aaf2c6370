"""Texts are compared in pairs: what one run alone has is counted, with its reason, and is in no score."""

import pytest

from eval.records.schema import RunFolder
from eval.report.comparison import Unpaired, compare
from sim_envs.truth.ground_truth import Phase
from tests.eval.factory import RIGHT, WRONG, RunBuilder, asked, episode, key, narrated, query, said, truth

BABBLE = "so und so"


def run(path, *episodes, **manifest) -> RunFolder:
    """Each episode is a list of what was said to every query, at once: a text, or None if it was cut off."""
    builder = RunBuilder.at(path, **manifest)
    for init_id, texts in enumerate(episodes):
        builder.add(episode(key(init_id)), *(narrated(at, text) for at, text in enumerate(texts)))
    return builder.folder


def narrations(a: RunFolder, b: RunFolder):
    (texts,) = compare(a, b).texts
    assert texts.task == "narration"
    return texts


def test_texts_that_one_run_cut_off_are_in_neither_score_and_counted(tmp_path):
    """A run that loses its last texts, which the other got wrong, does not look better for that."""
    a = run(tmp_path / "a", [RIGHT, RIGHT, WRONG, WRONG], [RIGHT, RIGHT, WRONG])
    b = run(tmp_path / "b", [RIGHT, RIGHT, None, None], [RIGHT, RIGHT, None])
    texts = narrations(a, b)
    assert (texts.pairs, texts.only_a, texts.only_b) == (4, {Unpaired.CUT_OFF: 3}, {})
    at_request, on_delivery = texts.differences
    assert (at_request.when, on_delivery.when) == ("at_request", "on_delivery")
    assert (at_request.a, at_request.b, at_request.difference) == (100, 100, 0)


def test_on_a_clock_all_texts_of_each_run_are_compared_since_queries_are_of_other_moments(tmp_path):
    clock, other = {"config": {"clock": "fixed:100,300"}}, Unpaired.OTHER_MOMENT
    a = run(tmp_path / "a", [RIGHT, WRONG, BABBLE], [RIGHT], **clock)
    b = run(tmp_path / "b", [RIGHT, RIGHT, RIGHT, None], [RIGHT, WRONG], **clock)
    texts = narrations(a, b)
    assert (texts.pairs, texts.only_a, texts.only_b) == (0, {other: 3}, {other: 5})
    requested, delivered = texts.differences
    assert (requested.a, requested.b) == (pytest.approx(200 / 3), 80)
    assert delivered.difference == pytest.approx(80 - 200 / 3)


def test_why_a_text_has_no_counterpart_is_told_apart(tmp_path):
    a = run(tmp_path / "a", [RIGHT, RIGHT, RIGHT, RIGHT, RIGHT])
    b = RunBuilder.at(tmp_path / "b")
    lines = [
        *(narrated(at, text) for at, text in enumerate((RIGHT, BABBLE, None))),
        query(3, texts={"requested": [asked(3)], "finished": [], "dropped": [asked(3)], "truth": truth()}),
    ]
    lines[0]["finished"][0]["reason"] = "oracle"
    b.add(episode(key(0)), *lines)
    texts = narrations(a, b.folder)
    reasons = (Unpaired.NOT_GRADED, Unpaired.CUT_OFF, Unpaired.DROPPED, Unpaired.NEVER)
    assert (texts.oracle_a, texts.oracle_b) == (False, True)
    assert (texts.pairs, texts.only_a, texts.only_b) == (1, dict.fromkeys(reasons, 1), {})
    mirrored = narrations(b.folder, a)
    assert (mirrored.only_a, mirrored.only_b) == (texts.only_b, texts.only_a)
    silent = run(tmp_path / "silent", [BABBLE])
    assert compare(silent, silent).texts == []
    # The request of a text is not in a damaged log.
    unasked = query(0, texts={"finished": [said(7, RIGHT)], "truth": truth()})
    torn = RunBuilder.at(tmp_path / "torn").add(episode(key(0)), unasked).folder
    assert compare(torn, torn).texts == []


def test_a_text_is_held_against_the_query_it_was_born_in_and_the_one_it_arrived_in(tmp_path):
    def late(path):
        lines = [
            query(0, texts={"requested": [asked(0)], "finished": [], "truth": truth(Phase.APPROACH)}),
            query(1, texts={"requested": [], "finished": [said(0, RIGHT)], "truth": truth(Phase.GRASP)}),
        ]
        return RunBuilder.at(path).add(episode(key(0)), *lines).folder

    at_request, on_delivery = narrations(run(tmp_path / "a", [RIGHT]), late(tmp_path / "b")).differences
    assert (at_request.a, at_request.b) == (100, 100)
    assert (on_delivery.a, on_delivery.b, on_delivery.difference) == (100, 0, -100)


def test_several_texts_of_one_query_are_paired_in_their_order(tmp_path):
    def burst(path, first, second, ids):
        requests = [asked(0, request=request) for request in ids]
        finished = [said(0, second, request=ids[1]), said(0, first, request=ids[0])]
        line = query(0, texts={"requested": requests, "finished": finished, "truth": truth()})
        return RunBuilder.at(path).add(episode(key(0)), line).folder

    a = burst(tmp_path / "a", RIGHT, BABBLE, (0, 1))
    b = burst(tmp_path / "b", WRONG, RIGHT, (4, 9))
    texts = narrations(a, b)
    assert (texts.pairs, texts.only_b) == (1, {Unpaired.NOT_GRADED: 1})
    assert (texts.differences[0].a, texts.differences[0].b) == (100, 0)
