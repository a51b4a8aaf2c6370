"""A comparison pairs the same episodes, refuses what cannot be paired, and says how far actions lie apart."""

import json

import numpy as np
import pytest

from configs.errors import UsageError
from eval.compare import app
from eval.records.reader import read_identity
from eval.records.schema import RunFolder
from eval.report.comparison import Unpaired, compare, run_names
from sim_envs.truth.ground_truth import Phase
from tests.eval.conftest import call
from tests.eval.factory import RIGHT, WRONG, RunBuilder, asked, episode, key, narrated, query, said, truth


def run_with(path, outcomes, *, actions=0.5, queries=1, **manifest):
    """A run whose every episode answers `queries` times with the same actions."""
    run = RunBuilder.at(path, **manifest).add_all(outcomes)
    for at in run.folder.episodes():
        write_queries(run, at, [actions] * queries)
    return run


def write_queries(run, at, chunks):
    lines = [
        json.dumps(query(index, actions=chunk, action=60.0)) + "\n" for index, chunk in enumerate(chunks)
    ]
    run.folder.queries_path(at).write_text("".join(lines))


def command(arguments, capsys):
    """Exit code, stdout and stderr of the command line."""
    code, printed = call(app, *arguments), capsys.readouterr()
    return code, " ".join(printed.out.split()), printed.err


def refusal(a, b):
    with pytest.raises(UsageError) as error:
        compare(RunFolder(a.path), RunFolder(b.path))
    assert "\n" not in str(error.value)
    return str(error.value)


def test_pairs_are_counted_by_who_solved_them_and_p_values_of_suites_are_corrected(tmp_path):
    a = run_with(tmp_path / "a", "sssssttt")
    b = run_with(tmp_path / "b", "ssttttts")
    pairs = compare(a.folder, b.folder).overall
    assert (pairs.both, pairs.only_a, pairs.only_b, pairs.neither) == (2, 3, 1, 2)
    assert (pairs.percent_a, pairs.percent_b) == (62.5, 37.5)
    assert pairs.mcnemar_p == pytest.approx(0.625)
    errors = compare(run_with(tmp_path / "c", "sset").folder, run_with(tmp_path / "d", "sest").folder)
    assert (errors.overall.graded, errors.overall.n_errors_a, errors.overall.n_errors_b) == (2, 1, 1)
    assert errors.actions.n_queries == 2, "pairs with an error are left out"
    runs = []
    for name, outcome in (("e", "s"), ("f", "t")):
        run = RunBuilder.at(tmp_path / name).add_all(8 * outcome, suite="libero_goal").add_all(6 * outcome)
        runs.append(run.folder)
    comparison = compare(*runs)
    goal = 2 * comparison.per_suite["libero_goal"].mcnemar_p
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
    runs = [run_with(tmp_path / name, "st", actions=x, queries=3) for name, x in (("a", a), ("b", b))]
    actions = compare(*(run.folder for run in runs)).actions
    assert (actions.largest, actions.bitwise_equal, actions.n_queries) == (largest, equal, 6)
    assert (actions.key is None) == (largest == 0)


def test_the_largest_difference_is_named_and_so_are_different_numbers_of_queries(tmp_path, capsys):
    a, b, c = (run_with(tmp_path / name, "sss", queries=3) for name in "abc")
    write_queries(b, key(0), [0.5, 0.5, 0.5 + 2**-20])
    write_queries(b, key(1), [0.5, 0.75, 0.5])
    actions = compare(a.folder, b.folder).actions
    assert (actions.largest, actions.key, actions.query) == (0.25, key(1), 1)
    assert not actions.bitwise_equal
    write_queries(c, key(1), [0.5, 0.5])
    actions = compare(a.folder, c.folder).actions
    assert (actions.largest, actions.bitwise_equal, actions.n_queries) == (0.0, False, 8)
    assert (actions.n_uneven, actions.first_uneven, actions.first_uneven_counts) == (1, key(1), (3, 2))
    said = f"0 over 8 queries; numbers of queries differ in 1 episode (first {key(1)}: 3 in A, 2 in B)"
    assert said in command([a.path, c.path], capsys)[1]


def test_runs_without_query_files_compare_by_outcome_and_latency_is_b_over_a(tmp_path):
    folders = [RunBuilder.at(tmp_path / name).add(episode(key(0))).folder for name in ("a", "b")]
    comparison = compare(*folders)
    assert (comparison.overall.both, comparison.actions.largest, comparison.latency) == (1, None, {})
    assert not comparison.actions.bitwise_equal
    timed = [RunBuilder.at(tmp_path / f"{ms}").add_all("ss", latency=ms).folder for ms in (80.0, 20.0)]
    assert compare(*timed).latency["action"].ratio("p95") == 0.25


def test_runs_that_cannot_be_paired_are_refused_with_the_reason(tmp_path):
    a = run_with(tmp_path / "a", "sssss")
    stopped = "of 500 episodes; complete it with --resume, or give --partial"
    for number, (outcomes, changes, parts) in enumerate(
        (
            ("s", {}, ["lacks libero_object.0.1.7, libero_object.0.2.7, libero_object.0.3.7, … (4 in all)"]),
            ("ssssss", {}, ["a lacks libero_object.0.5.7"]),
            ("sssss", {"protocol_hash": "ffff0000"}, ["different protocols", "ffff0000"]),
            ("sssss", {"assets": {"name": "real", "digest": "0ther000"}}, ["0ther000"]),
            ("sssss", {"status": "interrupted", "n_planned": 500}, [f"is interrupted, {stopped}"]),
            ("sssss", {"status": "running", "n_planned": 500}, [f"is running, {stopped}"]),
            ("eeeee", {}, ["no graded episode: of 5 that both have, each is an error in one"]),
        )
    ):
        other = run_with(tmp_path / f"other_{number}", outcomes, **changes)
        assert [part for part in parts if part not in refusal(a, other)] == []
    empty = RunBuilder.at(tmp_path / "c"), RunBuilder.at(tmp_path / "d")
    assert "no graded episode: none is recorded" in refusal(*empty)


def test_runs_that_differ_in_the_texts_of_their_prompts_are_compared_and_named_by_them(tmp_path):
    world = {
        "assets": {"name": "real", "digest": "d1ge57000000"},
        "suite": {"max_steps": 200, "control_hz": 20},
    }
    a, b, other = (
        run_with(tmp_path / name, outcomes, protocol={"libero_object": {**world, **described}})
        for name, outcomes, described in (
            ("a", "tt", {"feedback": "none"}),
            ("b", "ss", {"feedback": "truth"}),
            ("other", "ss", {"feedback": "truth", "wordings": "heldout"}),
        )
    )
    compared = compare(a.folder, b.folder)
    assert run_names(compared.a, compared.b) == ("none", "truth")
    assert compared.overall.difference_ci95 is not None
    assert read_identity(a.folder).protocol_hash != read_identity(b.folder).protocol_hash
    assert "different protocols" in refusal(a, other)


def test_differences_of_inputs_weights_and_dtypes_are_said(tmp_path, capsys):
    inputs = {"prompt": "{language}", "cameras": ["image", "wrist"]}
    int8 = {"dtype": None, "decode_weights": "int8"}
    a = run_with(tmp_path / "a", "s", policy_inputs=inputs, weights_sha256="0123456789abcdef", config=int8)
    b = run_with(
        tmp_path / "b",
        "t",
        policy="noop",
        policy_inputs={"privileged_state": True},
        config={"dtype": "bfloat16"},
        assets={"name": "a-copy", "digest": "d1ge57000000"},
    )
    code, out, _ = command([a.path, b.path], capsys)
    assert code == 0
    for words in (
        "tiny, weights 01234567, texts in int8, its own dtype, mode unified",
        "bfloat16, mode unified",
        "sees prompt {language}; cameras image, wrist",
        "sees privileged state",
    ):
        assert words in out
    alone = command([a.path, a.path], capsys)[1]
    assert "sees" not in alone
    assert "dtype" not in alone


def test_what_unfinished_runs_both_have_is_compared_and_called_partial(tmp_path, capsys):
    a = run_with(tmp_path / "a", "sst", status="interrupted", n_planned=500)
    b = run_with(tmp_path / "b", "ss", status="interrupted", n_planned=500)
    code, out, _ = command([a.path, b.path, "--partial", "--json", tmp_path / "ab.json"], capsys)
    assert code == 0
    assert "Partial: only the 2 episodes that both have; A is interrupted, of 500 episodes" in out
    written = json.loads((tmp_path / "ab.json").read_text())
    assert (written["partial"], written["overall"]["n_pairs"]) == (True, 2)
    whole = [run_with(tmp_path / name, "st").folder for name in ("c", "d")]
    assert not compare(*whole, partial=True).partial


def test_the_command_prints_what_it_found_and_writes_it_as_json(tmp_path, capsys):
    a = run_with(tmp_path / "a", "sst", mode="isolated", git={"commit": "c0ffee", "dirty": False})
    b = run_with(tmp_path / "b", "sst", mode="unified")
    code, out, err = command([a.path, b.path, "--json", tmp_path / "new" / "ab.json"], capsys)
    assert (code, err) == (0, "")
    for words in ("isolated", "unified", "bitwise equal", "66.7 %", "McNemar", "solved by isolated alone"):
        assert words in out
    written = json.loads((tmp_path / "new" / "ab.json").read_text())
    overall = {"n_pairs": 3, "mcnemar_p": 1, "difference": 0}
    assert overall.items() <= written["overall"].items()
    assert written["overall"]["difference_ci95"] == pytest.approx([-56.15, 56.15], abs=0.01)
    assert written["verdict"]["verdict"] == "inconclusive"
    assert (written["actions"]["bitwise_equal"], written["in_turns"]) == (True, False)
    assert written["provenance"]["a"]["git"] == {"commit": "c0ffee", "dirty": False}
    assert written["provenance"]["b"]["started"] == "2026-01-01T00:00:00+00:00"
    nan = run_with(tmp_path / "c", "sst", actions=None)
    assert "NaN on one side" in command([nan.path, b.path, "--json", tmp_path / "nan.json"], capsys)[1]
    written = json.loads((tmp_path / "nan.json").read_text(), parse_constant=pytest.fail)
    assert written["actions"]["largest"] == "infinite", "valid JSON"


def test_the_margin_is_the_readers_and_bad_input_is_one_line(tmp_path, capsys, refused):
    a, b = run_with(tmp_path / "a", "s" * 30), run_with(tmp_path / "b", "s" * 30)
    assert "B is non-inferior to A (margin 20 points)" in command([a.path, b.path, "--margin", 20], capsys)[1]
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
