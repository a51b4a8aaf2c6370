"""A comparison pairs the same episodes, refuses what cannot be paired, and judges by the paired interval."""

import io
import json
import re

import numpy as np
import pytest

from configs.console import TextConsole
from contracts.errors import UsageError
from contracts.truth import Phase
from eval.compare import app
from eval.metrics.noninferiority import Verdict
from eval.records.reader import read_identity
from eval.records.schema import RunFolder
from eval.report.comparison import Outcomes, PairTable, outcomes_apart
from eval.report.comparison_verdict import judge, judge_all, show
from tests.eval.factory import (
    RIGHT,
    WRONG,
    RunBuilder,
    apart,
    asked,
    compare,
    episode,
    key,
    narrated,
    query,
    said,
    truth,
)


def played(path, outcomes, **manifest):
    return RunBuilder.at(path, **manifest).add_all(outcomes)


def answered(path, *episodes):
    """A run of solved episodes, each given by the chunks of its queries."""
    run = RunBuilder.at(path)
    for init_id, chunks in enumerate(episodes):
        run.add(episode(key(init_id)), *(query(at, chunk) for at, chunk in enumerate(chunks)))
    return run


@pytest.fixture
def told(command):
    """Calls the command, which has to succeed; returns what it prints, as one line."""

    def told(*arguments):
        code, out, err = command(app, *arguments)
        assert (code, err) == (0, "")
        return " ".join(out.split())

    return told


def refusal(a, b):
    with pytest.raises(UsageError) as error:
        compare(RunFolder(a.path), RunFolder(b.path))
    assert "\n" not in str(error.value)
    return str(error.value)


def test_pairs_are_counted_by_who_solved_them_and_p_values_of_suites_are_corrected(tmp_path):
    a = played(tmp_path / "a", "sssssttt")
    b = played(tmp_path / "b", "ssttttts")
    pairs = compare(a.folder, b.folder).overall
    assert (pairs.both, pairs.only_a, pairs.only_b, pairs.neither) == (2, 3, 1, 2)
    assert (pairs.a.percent, pairs.b.percent) == (62.5, 37.5)
    assert pairs.p_value == pytest.approx(0.625)
    errors = compare(played(tmp_path / "c", "sset").folder, played(tmp_path / "d", "sest").folder)
    assert (errors.overall.graded, errors.overall.a.n_errors, errors.overall.b.n_errors) == (2, 1, 1)
    assert errors.actions.n_queries == 2, "pairs with an error are left out"
    whole, none = (
        RunBuilder.at(tmp_path / x).add_all(8 * x, suite="libero_goal").add_all(6 * x).folder for x in "st"
    )
    comparison = compare(whole, none)
    goal = 2 * comparison.per_suite["libero_goal"].p_value
    assert comparison.suite_p_values == pytest.approx({"libero_goal": goal, "libero_object": 0.03125})


@pytest.mark.parametrize(
    ("a", "b", "largest", "equal"),
    [
        (0.1 + 0.2, 0.1 + 0.2, 0.0, True),
        (0.5, float(np.nextafter(0.5, 1)), 2**-53, False),
        (0.0, -0.0, 0.0, False),
        (float("nan"), float("nan"), 0.0, True),
        (None, 0.5, float("inf"), False),
    ],
)
def test_actions_are_equal_if_every_bit_is(tmp_path, a, b, largest, equal):
    runs = [answered(tmp_path / name, *[[x] * 3] * 2).folder for name, x in (("a", a), ("b", b))]
    actions = compare(*runs).actions
    assert (actions.largest, actions.bitwise_equal, actions.n_queries) == (largest, equal, 6)
    assert (actions.key is None) == (largest == 0)


def test_the_largest_difference_is_named_and_so_are_different_numbers_of_queries(tmp_path, told):
    same = [0.5] * 3
    a, c = answered(tmp_path / "a", same, same, same), answered(tmp_path / "c", same, same[:2], same)
    b = answered(tmp_path / "b", [0.5, 0.5, 0.5 + 2**-20], [0.5, 0.75, 0.5], same)
    actions = compare(a.folder, b.folder).actions
    assert (actions.largest, actions.key, actions.query) == (0.25, key(1), 1)
    assert not actions.bitwise_equal
    actions = compare(a.folder, c.folder).actions
    assert (actions.largest, actions.bitwise_equal, actions.n_queries) == (0.0, False, 8)
    assert actions.n_uneven == 1
    assert "0 over 8 queries; numbers of queries differ in 1 episode." in told(a.path, c.path)


def test_runs_without_query_files_compare_by_outcome_and_latency_is_b_over_a(tmp_path):
    folders = [RunBuilder.at(tmp_path / name).add(episode(key(0))).folder for name in ("a", "b")]
    comparison = compare(*folders)
    assert (comparison.overall.both, comparison.actions.largest, comparison.latency) == (1, None, {})
    assert not comparison.actions.bitwise_equal
    timed = [RunBuilder.at(tmp_path / f"{ms}").add_all("ss", latency=ms).folder for ms in (80.0, 20.0)]
    assert compare(*timed).latency["action"].ratio("p95") == 0.25


@pytest.mark.parametrize(
    ("outcomes", "changes", "said"),
    [
        ("s", {"assets": {"name": "real", "digest": "0ther000"}}, "0ther000"),
        ("s", {"protocol_hash": "ffff0000"}, "different protocols (aaaa1111 and ffff0000)"),
        (
            "s",
            {"status": "running", "n_planned": 500},
            "has 500 planned episodes and is running; ",
        ),
        ("e", {}, "no graded episode: of 1 that both have, each is an error in one"),
        ("", {}, "no graded episode: none is recorded"),
    ],
)
def test_runs_that_cannot_be_compared_are_refused_with_the_reason(tmp_path, outcomes, changes, said):
    """test_pairing has those of other episodes and protocols."""
    a, b = played(tmp_path / "a", outcomes.replace("e", "s")), played(tmp_path / "b", outcomes, **changes)
    assert said in refusal(a, b)


def test_runs_that_differ_in_the_texts_of_their_prompts_are_compared_and_named_by_them(tmp_path):
    assets = {"name": "real", "digest": "d1ge57000000"}
    world = {"assets": assets, "suite": {"max_steps": 200, "control_hz": 20}}
    a, b = (
        played(tmp_path / fed, "st", protocol={"libero_object": {**world, "feedback": fed}})
        for fed in ("none", "truth")
    )
    assert compare(a.folder, b.folder).names == ("none", "truth")
    assert read_identity(a.folder).protocol_hash != read_identity(b.folder).protocol_hash


def test_differences_of_inputs_weights_and_dtypes_are_said(tmp_path, told):
    inputs = {"prompt": "{language}", "cameras": ["image", "wrist"]}
    int8 = {"dtype": None, "decode_weights": "int8"}
    a = played(tmp_path / "a", "s", policy_inputs=inputs, weights_sha256="0123456789abcdef", config=int8)
    sees = {"nothing": True, "server_metadata": {}}
    noop = {"policy": "noop", "policy_inputs": sees, "config": {"dtype": "bfloat16"}}
    b = played(tmp_path / "b", "t", **noop, assets={"name": "a-copy", "digest": "d1ge57000000"})
    out = told(a.path, b.path)
    for words in (
        "tiny, weights 01234567, texts in int8, its own dtype, mode unified",
        "bfloat16, mode unified",
        "sees prompt {language}; cameras image, wrist",
        "sees nothing",
    ):
        assert words in out
    assert "sees nothing;" not in out
    alone = told(a.path, a.path)
    assert "sees" not in alone
    assert "dtype" not in alone


def test_what_unfinished_runs_both_have_is_compared_and_called_partial(tmp_path, told):
    a = played(tmp_path / "a", "sst", status="interrupted", n_planned=500)
    b = played(tmp_path / "b", "ss", status="interrupted", n_planned=500)
    out = told(a.path, b.path, "--partial", "--json", tmp_path / "ab.json")
    partial = "Only the 2 episodes that both have: A has 500 planned episodes and is interrupted"
    assert partial in " ".join(out.split())
    written = json.loads((tmp_path / "ab.json").read_text())
    assert (written["partial"], written["overall"]["n_pairs"]) == (True, 2)
    whole = [played(tmp_path / name, "st").folder for name in ("c", "d")]
    assert not compare(*whole, partial=True).partial


def test_the_command_prints_what_it_found_and_writes_it_as_json(tmp_path, told):
    a = played(tmp_path / "a", "sst", mode="isolated", git={"commit": "c0ffee", "dirty": False})
    b = played(tmp_path / "b", "sst", mode="unified")
    out = told(a.path, b.path, "--json", tmp_path / "new" / "ab.json")
    assert out.startswith("unified and isolated acted alike, bit for bit: both solved 2 of 3 episodes. A")
    for words in ("isolated", "unified", "bitwise equal", "66.7 %", "McNemar", "solved by isolated alone"):
        assert words in out
    written = json.loads((tmp_path / "new" / "ab.json").read_text())
    overall = {"n_pairs": 3, "mcnemar_p": 1, "difference": 0}
    assert overall.items() <= written["overall"].items()
    assert written["overall"]["difference_ci95"] == pytest.approx([-56.15, 56.15], abs=0.01)
    assert (written["verdict"]["verdict"], written["a"]["clock"]) == ("inconclusive", "paused")
    assert (written["actions"]["bitwise_equal"], written["in_turns"]) == (True, False)
    assert written["provenance"]["a"]["git"] == {"commit": "c0ffee", "dirty": False}
    assert written["provenance"]["b"]["started"] == "2026-01-01T00:00:00+00:00"
    nan = RunBuilder.at(tmp_path / "c").add_all("sst", chunks=[None])
    assert "NaN on one side" in told(nan.path, b.path, "--json", tmp_path / "nan.json")
    written = json.loads((tmp_path / "nan.json").read_text(), parse_constant=pytest.fail)
    assert written["actions"]["largest"] == "infinite", "valid JSON"


def test_the_margin_is_the_readers_and_bad_input_is_one_line(tmp_path, told, refused):
    a, b = played(tmp_path / "a", "s" * 30), played(tmp_path / "b", "s" * 30)
    assert "b is non-inferior to a (margin 20 points)" in told(a.path, b.path, "--margin", 20)
    (tmp_path / "empty").mkdir()
    for second, options, words in (
        (b.path, ["--margin", 0], "a margin of 0 points"),
        (tmp_path / "nowhere", [], "nowhere"),
        (tmp_path / "empty", [], "empty"),
        (b.path, ["--plot", tmp_path / "curves.pdf"], "ends in .png"),
        (b.path, ["--plot", tmp_path / "curves.png"], "did not record simulated seconds"),
    ):
        assert words in refused(app, a.path, second, *options)


BABBLE = "so und so"


def run(path, *episodes, suites=("libero_object",), **manifest) -> RunFolder:
    """Each episode is a list of what was said to every query, at once: a text, or None if it was cut off."""
    builder = RunBuilder.at(path, **manifest)
    for suite in suites:
        for init_id, texts in enumerate(episodes):
            lines = [narrated(at, text, action=1234.5, frame=12345.6) for at, text in enumerate(texts)]
            builder.add(episode(key(init_id, suite=suite)), *lines)
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
    assert (texts.pairs, texts.only_a, texts.only_b) == (4, 3, 0)
    assert [*texts.differences] == ["at_request", "on_delivery"]
    at_request = texts.differences["at_request"]
    assert (at_request.a, at_request.b, at_request.difference) == (100, 100, 0)


def test_on_a_clock_all_texts_of_each_run_are_compared_since_queries_are_of_other_moments(tmp_path):
    clock = {"config": {"clock": "fixed:100,300"}}
    a = run(tmp_path / "a", [RIGHT, WRONG, BABBLE], [RIGHT], **clock)
    b = run(tmp_path / "b", [RIGHT, RIGHT, RIGHT, None], [RIGHT, WRONG], **clock)
    texts = narrations(a, b)
    assert (texts.pairs, texts.only_a, texts.only_b) == (0, 3, 5)
    requested, delivered = texts.differences.values()
    assert (requested.a, requested.b) == (pytest.approx(200 / 3), 80)
    assert delivered.difference == pytest.approx(80 - 200 / 3)


def test_texts_without_a_counterpart_are_counted(tmp_path):
    """In B they are not readable, cut off, dropped, and never requested."""
    a = run(tmp_path / "a", [RIGHT, RIGHT, RIGHT, RIGHT, RIGHT])
    b = RunBuilder.at(tmp_path / "b")
    lines = [
        *(narrated(at, text) for at, text in enumerate((RIGHT, BABBLE, None))),
        query(3, texts={"requested": [asked(3)], "finished": [], "dropped": [asked(3)], "truth": truth()}),
    ]
    lines[0]["finished"][0]["reason"] = "oracle"
    b.add(episode(key(0)), *lines)
    texts = narrations(a, b.folder)
    assert (texts.oracle_a, texts.oracle_b) == (False, True)
    assert (texts.pairs, texts.only_a, texts.only_b) == (1, 4, 0)
    mirrored = narrations(b.folder, a)
    assert (mirrored.only_a, mirrored.only_b) == (texts.only_b, texts.only_a)
    silent = run(tmp_path / "silent", [BABBLE])
    assert compare(silent, silent).texts == []
    # The request of a text is not in a damaged log.
    unasked = query(0, texts={"finished": [said(7, RIGHT)], "truth": truth()})
    torn = RunBuilder.at(tmp_path / "torn").add(episode(key(0)), unasked).folder
    assert compare(torn, torn).texts == []


def test_a_text_is_compared_with_the_query_that_requested_it_and_the_one_that_received_it(tmp_path):
    def late(path):
        lines = [
            query(0, texts={"requested": [asked(0)], "finished": [], "truth": truth(Phase.APPROACH)}),
            query(1, texts={"requested": [], "finished": [said(0, RIGHT)], "truth": truth(Phase.GRASP)}),
        ]
        return RunBuilder.at(path).add(episode(key(0)), *lines).folder

    at_request, on_delivery = narrations(
        run(tmp_path / "a", [RIGHT]), late(tmp_path / "b")
    ).differences.values()
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
    assert (texts.pairs, texts.only_b) == (1, 1)
    at_request = texts.differences["at_request"]
    assert (at_request.a, at_request.b) == (100, 0)


def timed(path, mode, *, seconds, right=12, failures=0, n=12, actions=0.5, **manifest):
    """Episodes that take so long; the first fail. One text each, of which the first are right."""
    builder = RunBuilder.at(path, mode=mode, **manifest)
    for i in range(n):
        outcome = "timeout" if i < failures else "success"
        made = episode(key(i), outcome, simulated_s=seconds * (1 + i / 100))
        builder.add(made, narrated(0, RIGHT if i < right else WRONG, actions))
    return builder.folder


def test_the_verdicts_are_on_success_time_and_restricted_mean(tmp_path):
    clock = {
        "config": {
            "clock": "profile:jetson-thor-oxygen-2603",
            "while_waiting": "continue",
            "overlap": "rtc",
        }
    }
    a = timed(tmp_path / "a", "isolated", seconds=8.0, n=150, right=150, failures=70, **clock)
    b = timed(tmp_path / "b", "unified", seconds=4.0, n=150, right=100, actions=0.25, **clock)
    success, time, restricted = judge_all(compare(a, b)).sentences
    assert re.match(r"unified is superior to isolated \(margin 5 points\): \+46\.7 points, 95 % \+", success)
    assert "in time to success (margin 10 %): 0.50 times as long, 95 % " in time
    assert re.search(
        r"superior .* in restricted mean time \(margin 10 %\): −\S+ s, 95 % .* 0\.5\d times", restricted
    )


def test_the_margin_of_time_decides_and_must_be_one(tmp_path):
    a = timed(tmp_path / "a", "isolated", seconds=8.0)
    slower = compare(a, timed(tmp_path / "c", "unified", seconds=9.6, actions=0.25))
    assert judge_all(slower, 30.0, 10.0).time.verdict == "inferior"
    assert judge_all(slower, 30.0, 25.0).time.verdict == "non-inferior"
    with pytest.raises(UsageError, match="a time margin of 0 %"):
        judge_all(slower, 30.0, 0.0)


def test_the_command_writes_times_and_draws_the_curves(tmp_path, told):
    a, b = timed(tmp_path / "a", "isolated", seconds=8.0), timed(tmp_path / "b", "unified", seconds=4.0)
    picture, record = tmp_path / "new" / "curves.png", tmp_path / "ab.json"
    out = told(a.path, b.path, "--plot", picture, "--time-margin", 20, "--json", record)
    assert "unified is superior to isolated in time to success (margin 20 %): 0.50 times" in out
    assert picture.read_bytes().startswith(b"\x89PNG")
    written = json.loads(record.read_text())
    assert written["time_to_success"]["b_over_a"] == pytest.approx(0.5)
    assert written["time_to_success"]["verdict"]["verdict"] == "superior"
    assert written["success_over_time"]["b"][-1]["pc_success"] == 100
    assert written["per_suite"]["libero_object"]["verdict"] == written["verdict"]["verdict"]


def test_errors_are_counted_of_the_run_that_has_them_where_episodes_are_not_paired():
    few, many = (apart([episode(key(), "error")] * n + [episode(key())] * (200 - n)) for n in (3, 5))
    others = apart([episode(key())] * 100)
    assert not outcomes_apart(few, others).has_too_many_errors
    for pairs in (outcomes_apart(many, others), outcomes_apart(others, many)):
        assert judge(pairs).sentence == "No verdict: 5 of 200 episodes ended in an error, more than 2 %."


def table(both, only_a=0, only_b=0, neither=0, errors=0) -> PairTable:
    counts = {(True, True): both, (True, False): only_a, (False, True): only_b, (False, False): neither}
    a, b = zip(*(pair for pair, count in counts.items() for _ in range(count)), strict=True)
    known = {"states": range(len(a)), "seeds": [7] * len(a), "n_episodes": len(a) + errors}
    sides = Outcomes(solved=a, n_errors=0, **known), Outcomes(solved=b, n_errors=errors, **known)
    return PairTable(n_episodes=len(a) + errors, a=sides[0], b=sides[1])


@pytest.mark.parametrize(
    ("pairs", "sentence"),
    [
        (table(185, neither=15), "non-inferior to isolated (margin 5 points): +0.0 points, 95 % −1.9 to +1"),
        (table(970, only_a=20, neither=10), ", though worse: −2.0 points, 95 % −3.1 to −1.3"),
        (table(100, only_b=40, neither=60), "is superior to isolated (margin 5 points): +20.0 points, 95 %"),
        (table(100, only_a=40, neither=60), "unified is inferior to isolated (margin 5"),
        (table(10), "if that difference is right, about 330 episodes would show that unified is as good."),
        (table(180, only_a=14, only_b=2, neither=4), "; by how much remains open: −6.0 points"),
        (table(80, only_a=14, only_b=6), "about 1800 episodes would show that unified is worse by more than"),
        (table(93, only_a=6, only_b=1), "; no number of episodes would settle it."),
        (table(990, errors=21), "21 of 1011 episodes ended in an error"),
    ],
)
def test_the_verdict_is_what_the_interval_says_beside_the_margin(pairs, sentence):
    found = judge(pairs, a="isolated", b="unified")
    assert sentence in found.sentence
    words = {Verdict.TOO_MANY_ERRORS: "No verdict", Verdict.INCONCLUSIVE: "open"}
    assert words.get(found.verdict, found.verdict) in found.sentence
    assert judge(table(10), 30).verdict is Verdict.NON_INFERIOR


def test_errors_within_the_budget_do_not_stop_a_verdict_and_an_invalid_margin_does(tmp_path):
    assert judge(table(98, errors=2)).verdict is Verdict.NON_INFERIOR
    for margin in (0, -5, 100, float("nan")):
        with pytest.raises(UsageError, match=f"a margin of {margin:g} points"):
            judge(table(10), margin)
    a, b = (RunBuilder.at(tmp_path / name).add_all(name).folder for name in ("se", "ss"))
    (only,) = judge_all(compare(a, b)).sentences
    assert only.startswith("No verdict: 1 of 2 episodes ended in an error"), "on time neither"


def shown(a: RunFolder, b: RunFolder) -> str:
    """What is printed about a comparison, as a pipe gets it."""
    file, comparison = io.StringIO(), compare(a, b)
    show(comparison, judge_all(comparison), TextConsole(file=file, width=80))
    return file.getvalue()


def test_every_row_is_one_line_of_a_terminal(tmp_path):
    long = "20261121-113512-the_policy_of_a_long_name_and_its_step_0003300"
    suites = ("libero_object", "libero_spatial")
    a = run(tmp_path / f"{long}-a", *[[RIGHT, WRONG, WRONG]] * 4, suites=suites, mode="isolated")
    b = run(tmp_path / f"{long}-b", *[[RIGHT, RIGHT, WRONG]] * 4, suites=suites, mode="unified")
    printed = shown(a, b).splitlines()
    assert max(map(len, printed)) <= 80
    lines = [" ".join(line.split()) for line in printed]
    for row in (
        "libero_spatial 100.0 % 100.0 % +0.0 -49.0 to +49.0 1",
        "all 8 8 0 0 0 inconclusive",
        "frame, p95 12345.6 12345.6 1.00",
        "narration: 24 texts graded in both.",
    ):
        assert row in lines
    assert any(line.startswith("narrations wholly right, on delivery 33.3 66.7 +33.3") for line in lines)
    assert "the 2 suites' p and verdicts are corrected together (Holm)." in " ".join(lines)
    assert [line[:4] for line in printed if line.endswith(("_0003300-a", "_0003300-b"))] == ["A  2", "B  2"]


def test_where_one_run_was_silent_there_is_no_table_of_language(tmp_path):
    printed = shown(run(tmp_path / "a", [RIGHT]), RunBuilder.at(tmp_path / "b").add_all("s").folder)
    assert "language (%)" not in printed
    assert "0 texts graded in both; 1 in A alone" in printed


@pytest.mark.parametrize("actions", [0.5, 0.25])
def test_under_a_clock_actions_are_compared_only_if_they_are_the_same(tmp_path, actions):
    """On clock `paused` always: then equal actions mean that modes act alike."""
    for clock in ("paused", "fixed:100"):
        clocked = {"config": {"clock": clock, "while_waiting": "hold", "overlap": "skip"}}
        a, b = (
            RunBuilder.at(tmp_path / clock / mode, mode=mode, **clocked)
            .add(episode(key()), query(0, chunk))
            .folder
            for mode, chunk in (("shared", 0.5), ("unified", actions))
        )
        printed = " ".join(shown(a, b).split())
        assert ("Largest action difference: " in printed) == (clock == "paused" or actions == 0.5)
        assert ("act alike by construction" in printed) == (clock == "paused" and actions == 0.5)
        named = "Clock fixed:100: actions come 100 ms after the observation" in printed
        assert named == (clock != "paused")
