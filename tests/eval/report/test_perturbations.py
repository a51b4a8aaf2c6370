"""Perturbed runs are compared with their controls: which these are, rows, sentence, leaderboard."""

import json

import pytest

from configs.assets import STANDINS
from contracts.errors import UsageError
from contracts.perturbation import parse_perturbations
from eval.metrics.noninferiority import Verdict
from eval.metrics.rows import RunRows
from eval.records.reader import RunRecords
from eval.report.conclusion import conclude_runs
from eval.report.labels import labels_of
from eval.report.last_screen import results_table
from eval.report.leaderboard import read_leaderboard, write_leaderboard
from eval.report.perturbations import control_of, perturbed_rows
from tests.eval.factory import RunBuilder, compare, episode, key

ASSETS = {"name": "real", "digest": "d1ge57000000"}

BOTH = "light:2+wording:1"


def run(path, outcomes, perturb="none", **manifest):
    """A run of episodes on libero_object, under perturbations."""
    suite = {"max_steps": 280, "control_hz": 20.0}
    described = {"suite": suite, "assets": ASSETS}
    if perturb != "none":
        described["perturb"] = dict.fromkeys(perturb.split("+"), "as it means")
    whole = {
        "config": {"perturb": perturb, "seeds": [7]},
        "protocol": {"libero_object": described},
        "n_planned": len(outcomes),
        **manifest,
    }
    return RunRecords(RunBuilder.at(path, **whole).add_all(outcomes).folder)


@pytest.fixture
def runs(tmp_path):
    control = run(tmp_path / "control", "s" * 40)
    light = run(tmp_path / "light", "s" * 40, "light:3")
    camera = run(tmp_path / "camera", "s" * 10 + "t" * 30, "camera:3")
    return [control, light, camera]


def test_a_control_is_the_same_run_without_perturbations(tmp_path, runs):
    control, light, _ = (each.identity for each in runs)
    assert control_of(light, [light, control]) == control
    assert control_of(control, [light]) is None
    other_mode = run(tmp_path / "mode", "s", mode="isolated").identity
    other_weights = run(tmp_path / "weights", "s", weights_sha256="0" * 64).identity
    config = {"perturb": "none", "seeds": [7]}
    other_class = run(tmp_path / "class", "s", config={**config, "policy": "other.py:Fake"}).identity
    other_options = run(tmp_path / "kwargs", "s", config={**config, "policy_kwargs": {"k": 1}}).identity
    assert control_of(light, [other_mode, other_weights, other_class, other_options]) is None


def test_a_control_may_have_more_suites_and_episodes(tmp_path):
    suite = {"suite": {"max_steps": 280, "control_hz": 20.0}, "assets": ASSETS}
    both = {"libero_object": suite, "libero_goal": suite}
    built = RunBuilder.at(tmp_path / "control", config={"perturb": "none", "seeds": [7]}, protocol=both)
    control = RunRecords(built.add_all("s" * 50).add_all("t" * 50, suite="libero_goal").folder)
    camera = run(tmp_path / "camera", "s" * 10 + "t" * 30, "camera:3")
    conclusion = conclude_runs(["control", "camera:3"], [control, camera])
    assert conclusion.sentence.startswith("camera:3 costs success: 25 % against 100 % in the control (−75.0")
    (row,) = perturbed_rows(conclusion.judged)
    assert row.pairs.size == "40 episodes"


def test_a_change_at_the_start_and_one_at_a_time_have_a_row_each(tmp_path, runs):
    later = run(tmp_path / "later", "s" * 40, "light:3@1s")
    conclusion = conclude_runs(["control", "later", "light:3"], [runs[0], later, runs[1]])
    assert [str(*row.run.perturb) for row in perturbed_rows(conclusion.judged)] == ["light:3", "light:3@1s"]


def test_control_and_perturbed_are_compared_across_hashes_and_two_perturbed_are_not(runs):
    control, light, camera = (each.folder for each in runs)
    assert compare(control, camera).overall.difference == -75.0
    with pytest.raises(UsageError, match="under different protocols"):
        compare(light, camera)


def test_a_row_per_perturbation_with_a_corrected_verdict(runs):
    conclusion = conclude_runs(["control", "light:3", "camera:3"], runs)
    camera, light = perturbed_rows(conclusion.judged)
    assert (camera.run.perturb, light.run.perturb) == (
        parse_perturbations("camera:3"),
        parse_perturbations("light:3"),
    )
    assert (camera.pairs.a.percent, camera.pairs.b.percent) == (100.0, 25.0)
    assert (camera.verdict, light.verdict) == (Verdict.INFERIOR, Verdict.INCONCLUSIVE)
    assert conclusion.sentence == (
        "camera:3 costs most of 2 perturbations: 25 % against 100 % in the control (−75.0 points, 95 % "
        "−85.8 to −59.7, 40 pairs); one is shown to cost more than the margin."
    )


def test_the_table_of_a_perturbed_run_is_marked_also_beside_a_given_control(tmp_path):
    about = {"policy": "tiny", "assets": {"name": STANDINS, "digest": "d1ge57000000"}}
    pair = [run(tmp_path / "control", "ss", **about), run(tmp_path / "light", "st", "light:3", **about)]
    conclusion = conclude_runs(["control", "light:3"], pair)
    table = results_table([RunRows(pair[1])], ["light:3"], conclusion)
    assert table.title == "tiny on libero_object [stand-ins]"


def test_a_perturbed_run_with_too_many_errors_is_not_in_the_sentence(tmp_path, runs):
    broken = run(tmp_path / "broken", "t" * 20 + "e" * 20, "robot:3")
    labels = ["control", "light:3", "camera:3", "robot:3"]
    sentence = conclude_runs(labels, [*runs, broken]).sentence
    assert sentence.startswith("camera:3 costs most of 2 perturbations: ")
    assert conclude_runs(["a", "b"], [runs[0], broken]).sentence.startswith("No verdict: too many")


def test_two_changes_at_once_have_one_spelling_in_sentence_table_and_label(tmp_path):
    both = [run(tmp_path / which, 40 * outcome, which) for which, outcome in (("none", "s"), (BOTH, "t"))]
    labels = labels_of([each.identity for each in both])
    conclusion = conclude_runs(labels, both)
    assert conclusion.sentence.startswith(f"{BOTH} costs success: ")
    (row,) = results_table([RunRows(both[1])], labels[1:], conclusion).records()
    assert (row["perturbation"], labels) == (BOTH, ["control", BOTH])


def test_perturbed_runs_in_several_modes_are_not_counted_as_perturbations(tmp_path):
    runs = [
        run(tmp_path / f"{mode}-{which}", 40 * outcome, which, mode=mode)
        for mode in ("isolated", "unified")
        for which, outcome in (("none", "s"), ("camera:3", "t"))
    ]
    sentence = conclude_runs(["a", "b", "c", "d"], runs).sentence
    assert sentence.startswith("camera:3 in isolated costs most of 2 perturbed runs: 0 % against 100 %")
    assert sentence.endswith("; 2 are shown to cost more than the margin.")


@pytest.mark.parametrize(
    ("pairs", "said"),
    [(40, "Too few pairs to tell whether success suffers"), (200, "Success suffers by less")],
)
def test_without_a_significant_loss_the_sentence_says_whether_the_pairs_suffice(tmp_path, pairs, said):
    both = [run(tmp_path / f"{which}", "s" * pairs, which) for which in ("none", "light:3")]
    sentence = conclude_runs(["control", "light:3"], both).sentence
    assert sentence.startswith(said)
    assert "under light:3: 100 % against 100 % in the control (+0.0" in sentence


def test_a_leaderboard_has_a_column_per_perturbation_in_the_row_of_the_control(tmp_path, runs):
    (table,) = read_leaderboard([tmp_path]).suites["libero_object"]
    (row,) = table.table.records()
    assert (row["success"], row["camera:3"], row["light:3"]) == ("100.0 %", "25.0 %", "100.0 %")
    (bars,) = table.bars.values()
    assert [(bar["label"], bar["percent"]) for bar in bars] == [
        *(("control", 100.0), ("camera:3", 25.0), ("light:3", 100.0)),
    ]
    assert all(bar["low"] <= bar["percent"] <= bar["high"] for bar in bars)


def test_the_files_of_a_leaderboard_have_what_is_perturbed_also_of_several_suites(tmp_path):
    for which, outcome in (("none", "s"), ("light:3", "t")):
        config = {"perturb": which, "seeds": [7]}
        described = {"suite": {"max_steps": 280, "control_hz": 20.0}, "assets": ASSETS}
        if which != "none":
            described["perturb"] = {which: "as it means"}
        suites = ("libero_object", "libero_goal")
        protocol = dict.fromkeys(suites, described)
        built = RunBuilder.at(tmp_path / "runs" / which, config=config, protocol=protocol, n_planned=6)
        for number, suite in enumerate((*suites, *suites, *suites[:1], *suites[:1])):
            built.add(episode(key(number, suite=suite), "success" if outcome == "s" else "timeout"))
    board = read_leaderboard([tmp_path / "runs"])
    write_leaderboard(board, tmp_path / "board")
    written = json.loads((tmp_path / "board/leaderboard.json").read_text())["suites"]
    assert len(written) == 3
    for tables in written.values():
        ((row,),) = [table["rows"] for table in tables]
        assert row["results"]["pc_success"] == 100.0
        assert row["perturbed"]["light:3"]["results"]["pc_success"] == 0.0
        assert row["perturbed"]["light:3"]["run"] == "light:3"


def test_a_perturbed_run_without_its_control_has_a_table_of_its_own(tmp_path):
    run(tmp_path / "light", "st", "light:3")
    (table,) = read_leaderboard([tmp_path]).suites["libero_object"]
    assert table.table.records()[0]["success"] == "50.0 %"
    assert "`, perturbed by light:3, " in table.title
