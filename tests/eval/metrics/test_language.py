"""Language scores: an oracle scores 1, a shuffled one does not, what cannot be read is not graded."""

import dataclasses
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.episode import Share, TextScores
from contracts.nouns import Nouns
from contracts.query import QueryRecord
from contracts.text import Text
from contracts.truth import CompletedAction, Fact, Memory, Narration, Phase, Truth, Verb
from eval.metrics.language import (
    HEADLINES,
    EpisodeGrader,
    currency_differences,
    grade_memory,
    grade_narration,
    grade_text,
    percentage,
    share_difference,
    summarize_language,
)
from eval.metrics.results_file import results_of
from sim_envs.truth.textual_memory import write_textual_memory
from sim_envs.truth.wording import WORDINGS, narrate, remember
from tests.eval.doubles import text_finished
from tests.eval.factory import RunBuilder, apart, episode, key, query, run_rows, scores
from tests.sim_envs.vocabulary import memories, narrations

HZ = 20.0
MILK = CompletedAction(verb=Verb.PUT, subject="milk", place="basket")
DRAWER = CompletedAction(verb=Verb.OPENED, subject="top drawer of the cabinet")


def remembered(*done: CompletedAction, **facts: str) -> Memory:
    """A memory of actions and their outcomes, and of facts given as `milk="on the floor"`."""
    now = {action.subject: action.resulting_fact() for action in done}
    now |= {subject: Fact(subject=subject, state=state) for subject, state in facts.items()}
    return Memory(done=done, facts=frozenset(now.values()))


def truth(
    narration: Narration | None = None, memory: Memory | None = None, reached: tuple[Fact, ...] | None = ()
) -> Truth:
    return Truth(
        narration=narration or Narration(phase=Phase.DONE),
        memory=memory or remembered(milk="on the table"),
        textual_memory=reached,
    )


def text(task: str, words: str, requested: int, finished: int | None = None, **changes) -> Text:
    finished_query = requested if finished is None else finished
    return text_finished(requested, task=task, text=words, finished_query=finished_query, **changes)


def query_record(step, truths, delivered):
    """A query that delivers texts, at its own step unless they have one."""
    at = [dataclasses.replace(each, step=step if each.step is None else each.step) for each in delivered]
    return QueryRecord(step=step, truths=truths, delivered=at)


def graded(truths, texts) -> dict[str, TextScores]:
    """The scores of an episode with a query every 5 control steps."""
    grader = EpisodeGrader(control_hz=HZ)
    for number, now in enumerate(truths):
        finished = [each for each in texts if each.finished_query == number]
        grader.add(query_record(5 * number, {5 * number: now}, finished))
    return grader.scores()


def told(truths, wording: int) -> list[Text]:
    """Every truth read aloud in the query it is of."""
    return [
        text(task, words, query)
        for query, now in enumerate(truths)
        for task, words in (
            ("narration", narrate(now.narration, wording)),
            ("memory", remember(now.memory, wording)),
            ("textual_memory", write_textual_memory(now.textual_memory)),
        )
    ]


contents = st.lists(st.tuples(narrations(), memories()), min_size=1, max_size=6)


@settings(max_examples=40)
@given(contents, st.integers(0, WORDINGS - 1))
def test_an_oracle_scores_1_in_everything(content, wording):
    truths = [truth(narration, Memory(**memory)) for narration, memory in content]
    scores = graded(truths, told(truths, wording))
    assert set(scores) == set(HEADLINES)
    for row in scores.values():
        assert (row.texts, row.not_graded) == (len(truths), 0)
        assert row.at_request == row.on_delivery
        assert all(share.hits == share.of for share in row.at_request.values())


def current_s(truths: str, *texts: tuple[int, str], query_steps: int = 5) -> float | None:
    """Seconds that narrations about `m`ilk or `b`utter, delivered at control steps, were true."""
    nouns = {"m": "milk", "b": "butter"}
    what = {letter: Narration(phase=Phase.GRASP, object=noun) for letter, noun in nouns.items()}
    grader = EpisodeGrader(control_hz=10.0)
    for start in range(0, len(truths), query_steps):
        known = [truth(what[letter]) for letter in truths[start : start + query_steps]]
        due = [
            text("narration", words, 0, step=step)
            for step, letter in texts
            for words in [narrate(what[letter]) if letter in what else letter]
            if start < step <= start + query_steps
        ]
        grader.add(query_record(start, dict(enumerate([*known, truth(what["m"])], start=start)), due))
    return grader.scores()["narration"].current_s


@pytest.mark.parametrize(
    ("truths", "texts", "seconds"),
    [
        ("mmmmmmmmmm", [(1, "m")], 0.9),  # nothing is true before the first text
        ("mmmmmbbbbb", [(1, "m")], 0.4),  # the text lives on, the truth does not
        ("mmmmmbbbbb", [(1, "m"), (7, "b")], 0.7),
        ("mmmmmmmmmm", [(2, "m"), (4, "b")], 0.2),  # the last one counts
        ("mmmmmmmmmm", [(4, "b"), (2, "m")], 0.2),  # in order of delivery
        ("bbbbbmmmmm", [(5, "m")], 0.5),  # at the first step of the next query
        ("mmmmmmmmmm", [(1, "m"), (6, "no such words")], 0.5),  # what cannot be read is not true
        ("mmmmmmmmmm", [(10, "m")], 0.0),  # as the episode ends
    ],
)
def test_a_text_is_current_while_it_is_the_last_and_true(truths, texts, seconds):
    assert current_s(truths, *texts) == pytest.approx(seconds)


def test_phase_object_and_target_are_graded_apart_and_memory_by_its_items():
    carried = truth(Narration(phase=Phase.CARRY, object="milk", target="basket"))
    said = Narration(phase=Phase.PLACE, object="milk", target="plate")
    hits = {part: share.hits for part, share in grade_narration(said, carried).items()}
    assert hits == {"phase": 0, "object": 1, "target": 0, "all": 0}
    shares = grade_memory(remembered(MILK, butter="on the table"), truth(memory=remembered(DRAWER, MILK)))
    assert shares["precision"] == Share(hits=2, of=3)
    assert shares["recall"] == Share(hits=2, of=4)
    assert shares["f1"] == Share(hits=4, of=7)


def test_texts_are_parsed_with_the_worlds_nouns():
    pond = Nouns(movable=frozenset(["duck"]), parts=frozenset(), places=frozenset([("pond", "in")]))
    carry = Narration(phase=Phase.CARRY, object="duck", target="pond")
    here = dataclasses.replace(truth(carry), nouns=pond)
    assert grade_text("narration", "Carrying the duck to the pond.", here) == grade_narration(carry, here)
    assert grade_text("memory", "put the duck in the pond", here) is not None
    assert grade_text("narration", "Carrying the duck to the pond.", truth(carry)) is None


def test_a_late_text_is_right_at_request_and_wrong_on_delivery():
    reach = Narration(phase=Phase.APPROACH, object="milk")
    truths = [truth(reach), truth(reach), truth(Narration(phase=Phase.GRASP, object="milk"))]
    scores = graded(truths, [text("narration", narrate(reach), requested=0, finished=2)])["narration"]
    assert scores.at_request["phase"] == Share(hits=1, of=1)
    assert scores.on_delivery["phase"] == Share(hits=0, of=1)
    assert scores.on_delivery["object"] == Share(hits=1, of=1)
    assert scores.staleness_s == 10 / HZ


@pytest.mark.parametrize("words", ["", "xqz ;; the", "Carrying the spaceship.", "put the milk in the bas"])
def test_a_text_outside_the_vocabulary_is_not_graded(words):
    for task in ("narration", "memory"):
        scores = graded([truth()], [text(task, words, requested=0)])[task]
        assert (scores.texts, scores.not_graded) == (1, 1)
        assert scores.at_request == scores.on_delivery == {}


STOVE, POT = Fact(subject="stove", state="on"), Fact(subject="moka pot", state="on the stove")
BOTH = "The stove is on; the moka pot is on the stove."


@pytest.mark.parametrize(
    ("words", "exact", "word_f1", "predicates"),
    [
        (BOTH, 1, 1.0, Share(hits=4, of=4)),
        (f" {BOTH.upper().removesuffix('.')}", 1, 1.0, Share(hits=4, of=4)),
        ("The stove is on.", 0, 2 * 4 / (4 + 11), Share(hits=2, of=3)),
        ("The moka pot is on the stove; the stove is on.", 0, 2 * 9 / 22, Share(hits=4, of=4)),
        ("No relevant task progress is visible yet.", 0, 2 * 1 / 18, Share(hits=0, of=2)),
        ("The stove is on; the moka", 0, 2 * 6 / 17, None),
        ("The moon is on.", 0, 2 * 3 / 15, None),
        ("", 0, 0.0, None),
    ],
)
def test_textual_memories_are_scored_as_oxygen_scores_them_and_by_predicates(
    words, exact, word_f1, predicates
):
    shares = grade_text("textual_memory", words, truth(reached=(STOVE, POT)))
    assert shares["exact"] == Share(hits=exact, of=1)
    assert shares["words"].hits == pytest.approx(word_f1)
    assert shares.get("predicates") == predicates


def test_a_textual_memory_that_cannot_be_parsed_is_counted_and_wrong():
    texts = [text("textual_memory", words, 0) for words in (BOTH, "The stove is on; the mo")]
    scores = graded([truth(reached=(STOVE, POT))], texts)["textual_memory"]
    assert (scores.texts, scores.not_graded) == (2, 1)
    assert scores.at_request["exact"] == Share(hits=1, of=2)
    assert scores.at_request["predicates"] == Share(hits=4, of=4)


def test_a_difference_of_scores_is_paired_by_episode():
    before = [Share(hits=hits, of=10) for hits in (2, 5, 9)]
    after = [Share(hits=hits - 1, of=10) for hits in (2, 5, 9)]
    found = share_difference(before, after, range(3))
    assert (found.difference, found.ci95) == (pytest.approx(-10), None)
    assert share_difference([Share()], [Share()], [0]) is None
    assert share_difference([Share(hits=1, of=1)], [Share()], [0]) is None


def test_an_episode_in_which_one_side_has_nothing_to_grade_counts_on_the_other():
    """As in the rates of the sides, whose difference it is."""
    plain = [Share(hits=9, of=10)] * 6
    before, after = [*plain, Share()], [*plain, Share(of=27)]
    rates = [percentage(shares, range(7)).pc for shares in (before, after)]
    found = share_difference(before, after, range(7))
    assert rates == pytest.approx([90, 100 * 54 / 87]) == [found.a, found.b]
    assert found.difference == pytest.approx(rates[1] - rates[0])
    assert found.ci95.low < found.difference < found.ci95.high


def test_results_hold_language_by_suite_task_and_overall_and_stay_json(tmp_path):
    run = RunBuilder.at(tmp_path / "run")
    for init_id, hits in enumerate((3, 1)):
        at_request, on_delivery = ({"all": Share(hits=right, of=4)} for right in (hits, 1))
        narration = scores(at_request=at_request, on_delivery=on_delivery)
        run.add(episode(key(init_id), texts={"narration": narration}), query(0))
    results = run_rows(run.folder)
    for row in (results.overall, results.suites["libero_object"], results.tasks[0]):
        assert row.texts["narration"].at_request["all"].pc == 50
        assert row.texts["narration"].on_delivery["all"].pc == 25
    written = json.loads(json.dumps(results_of(results), allow_nan=False))
    assert written["per_task"][0]["language"] == "do task 0"
    assert written["overall"]["texts"]["narration"]["on_delivery"]["all"] == {"pc": 25, "ci95": None, "n": 8}


def currency(current_s: float | None, simulated_s: float = 10.0):
    return episode(key(0), simulated_s=simulated_s, texts={"memory": scores(current_s=current_s)})


def test_currency_counts_the_time_of_episodes_without_texts_and_is_compared_where_both_have_some():
    silent = episode(key(1), simulated_s=20.0)
    row = summarize_language(apart([currency(8.0), currency(4.0), silent] * 2))["memory"].current
    assert (row.pc, row.n) == (pytest.approx(30.0), 6)
    assert row.ci95.low < 30 < row.ci95.high
    assert summarize_language([currency(8.0), currency(None)])["memory"].current is None
    pairs = [(currency(8.0), currency(5.0)), (currency(4.0), currency(3.0))]
    found = currency_differences(pairs)["memory"]
    assert (found.a, found.b, found.difference, found.n_pairs) == pytest.approx((60, 40, -20, 2))
    assert currency_differences([(a, episode(key(0), simulated_s=9.0)) for a, _ in pairs]) == {}
