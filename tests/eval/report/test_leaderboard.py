"""A leaderboard ranks comparable runs, equally in every format, and says why others are left out."""

import csv
import json
import os
import re

import pytest

from configs.errors import check
from configs.paths import LOCK
from configs.published import PublishedConfig, PublishedScore
from contracts.episode import Share
from contracts.errors import UsageError
from eval.compare import app as compare_app
from eval.leaderboard import app
from eval.metrics.results_file import results_of
from eval.records.json_files import write_json
from eval.report.export import FORMATS
from eval.report.leaderboard import (
    leaderboard_latex,
    leaderboard_markdown,
    read_leaderboard,
    write_leaderboard,
)
from tests.eval.factory import RunBuilder, episode, key, run_rows, scores, write_report


def leaderboard(paths, **options):
    """The runs in some folders as Markdown."""
    return leaderboard_markdown(read_leaderboard(paths, **options))


def tables(paths, **options):
    """Suite to its tables, each a list of rows, each a mapping from heading to cell."""
    suites = read_leaderboard(paths, **options).suites
    return {suite: [each.table.records() for each in ranked] for suite, ranked in suites.items()}


def not_ranked(paths, **options):
    """Run to the reason it was left out."""
    return {each["run_id"]: each["reason"] for each in read_leaderboard(paths, **options).unranked}


def test_a_rank_counts_the_runs_that_are_significantly_better(tmp_path):
    """Three that cannot be told apart share the first; the fourth has three that are better."""
    solved = {"poor": "s" * 10 + "t" * 30, "good": "s" * 38 + "tt", "also": "tt" + "s" * 38, "best": "s" * 40}
    for name, outcomes in solved.items():
        RunBuilder.at(tmp_path / name, policy=name).add_all(outcomes)
    (rows,) = tables([tmp_path])["libero_object"]
    ranks = [("1", "best"), ("1", "also"), ("1", "good"), ("4", "poor")]
    assert [(row["rank"], row["policy"]) for row in rows] == ranks
    assert [row["possible ranks"] for row in rows] == ["1–3", "1–3", "1–3", "4"]
    # Of 100 episodes 80 and 72: the intervals overlap, but the first solves all that the second does.
    RunBuilder.at(tmp_path / "pairs" / "first").add_all("s" * 80 + "t" * 20)
    RunBuilder.at(tmp_path / "pairs" / "second").add_all("s" * 72 + "t" * 28)
    (rows,) = tables([tmp_path / "pairs"])["libero_object"]
    assert [row["95 % interval"] for row in rows] == ["71.1–86.7", "62.5–79.9"]
    assert [row["rank"] for row in rows] == ["1", "2"]


def test_other_episodes_are_another_experiment(tmp_path):
    """One solved episode does not stand above 45 of 50. `results.json` is not read."""
    RunBuilder.at(tmp_path / "lucky").add_all("s")
    run = RunBuilder.at(tmp_path / "thorough").add_all("t" * 50)
    write_json(run.folder.results_path, results_of(run_rows(run.folder)))
    run.add_all("s" * 45 + "t" * 5)
    RunBuilder.at(tmp_path / "seeded").add(episode(key(0, seed=8)))
    found = tables([tmp_path])["libero_object"]
    rates = {"lucky": "100.0 %", "seeded": "100.0 %", "thorough": "90.0 %"}
    assert {row["run"]: row["success"] for (row,) in found} == rates
    assert "episodes: 50, tasks: 1, initial states: 50 (0–49), seed 7" in leaderboard([tmp_path])


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"suite_hashes": {"libero_object": "0ther000"}}, "0ther000"),
        ({"suite_hashes": {}, "protocol_hash": "whole000"}, "whole000"),
        ({"assets": {"name": "real", "digest": "fedcba987654"}}, "real (fedcba98)"),
    ],
)
def test_other_protocols_or_assets_have_tables_of_their_own(tmp_path, changed, named):
    RunBuilder.at(tmp_path / "a").add_all("tt")
    RunBuilder.at(tmp_path / "b", assets={"name": "copy", "digest": "d1ge57000000"}).add_all("tt")
    RunBuilder.at(tmp_path / "c", protocol_hash="of other suites").add_all("tt", suite="libero_goal")
    RunBuilder.at(tmp_path / "other", **changed).add_all("ss")
    found = tables([tmp_path])["libero_object"]
    assert [[row["run"] for row in rows] for rows in found] == [["a", "b"], ["other"]]
    assert named in leaderboard([tmp_path])


@pytest.mark.parametrize(
    ("config", "feedback", "named"),
    [
        ({"motion": "drift:3"}, "own", "`, feedback own, motion drift:3, assets"),
        ({"motion": "none", "init_ids": [0, 1]}, "none", "`, feedback none, assets"),
        ({"max_steps": 60, "wordings": "held_out"}, None, "`, wordings held_out, max steps 60, assets"),
        ({"wordings": "benchmark", "replan_steps": 5}, None, "`, assets"),
    ],
)
def test_a_title_names_what_makes_the_world_another_one(tmp_path, config, feedback, named):
    """Not what another run of the same protocol does without, such as the suite's own rate of queries."""
    world = {"assets": {"digest": "d1ge57000000"}, **({"feedback": feedback} if feedback else {})}
    plain = {name: value for name, value in config.items() if name != "replan_steps"}
    for name, options in (("a", config), ("b", plain)):
        run = RunBuilder.at(tmp_path / name, protocol={"libero_object": world}, config=options)
        run.add_all("st")
    ((table,),) = read_leaderboard([tmp_path]).suites.values()
    assert named in table.title


def test_a_star_of_a_protocol_is_shown_on_the_page_as_it_is(tmp_path):
    run = RunBuilder.at(tmp_path / "a", config={"protocol": "openpi", "max_steps": 60})
    run.add_all("st")
    page = write_leaderboard(read_leaderboard([tmp_path]), tmp_path / "board").read_text()
    assert "Protocol openpi* " in page
    assert "\\*" not in page


def test_a_policy_on_four_suites_has_their_average_as_papers_print_it(tmp_path):
    """One run or several make up a row; the rank is by all episodes, and one with three suites has no row."""
    solved = {"libero_spatial": "sstt", "libero_object": "ssss", "libero_goal": "stti", "libero_10": "tttt"}
    whole = RunBuilder.at(tmp_path / "whole")
    for suite, outcomes in solved.items():
        whole.add_all(outcomes, suite=suite)
        RunBuilder.at(tmp_path / f"expert_{suite}", policy="expert").add_all("ssss", suite=suite)
        if suite != "libero_10":
            RunBuilder.at(tmp_path / f"noop_{suite}", policy="noop").add_all("tttt", suite=suite)
    found = tables([tmp_path])
    assert next(iter(found)) == "LIBERO, four suites"
    (rows,) = found["LIBERO, four suites"]
    shown = [[row[name] for name in ("rank", "policy", "spatial", "long", "average", "n")] for row in rows]
    assert shown == [
        ["1", "expert", "100.0 % (51.0–100.0)", "100.0 % (51.0–100.0)", "100.0 %", "16"],
        ["2", "tiny", "50.0 % (15.0–85.0)", "0.0 % (0.0–49.0)", "43.8 %", "16"],
    ]
    assert "tasks: 4, initial states: 4 (0–3)" in leaderboard([tmp_path])
    write_leaderboard(read_leaderboard([tmp_path]), tmp_path / "board")
    suites = json.loads((tmp_path / "board/leaderboard.json").read_text())["suites"]
    first = suites["LIBERO, four suites"][0]["rows"][0]
    assert first["pc_success_of_suites"] == dict.fromkeys(solved, 100.0)
    results = suites["LIBERO, four suites"][0]["rows"][1]["results"]
    totals = [results[name] for name in ("n_success", "n_invalid_actions", "tokens", "policy_s")]
    assert totals == [7, 1, 480, 32]


def test_an_average_is_of_suites_on_one_clock(tmp_path):
    for clock in ("paused", "measured"):
        run = RunBuilder.at(tmp_path / clock, config={"clock": clock})
        run.add_all("s", suite="libero_goal").add_all("t", suite="libero_object")
    (rows,) = tables([tmp_path])["libero_goal, libero_object"]
    assert sorted(row["clock"] for row in rows) == ["measured", "paused"]


def test_an_average_is_of_suites_under_one_protocol_whatever_the_margins(tmp_path):
    """A newer run that overrides the protocol does not replace one under the published protocol.

    A run may have been joined from shares of the initial states.
    """
    for place, suite in enumerate(("libero_spatial", "libero_object", "libero_goal", "libero_10")):
        config = {"seed": 7, "margin": 5.0 + place, "init_ids": [0] if place else []}
        RunBuilder.at(tmp_path / f"a_{suite}", config=config).add_all("s", suite=suite)
    for place, override in enumerate(({"max_steps": 20}, {"wordings": "held_out"}, {"replan_steps": 1})):
        changed = {"config": {**config, **override}, "suite_hashes": {"libero_spatial": f"0ther00{place}"}}
        RunBuilder.at(tmp_path / f"b_{place}", **changed).add_all("t", suite="libero_spatial")
    (rows,) = tables([tmp_path])["LIBERO, four suites"]
    assert [(row["spatial"], row["average"]) for row in rows] == [("100.0 % (20.7–100.0)", "100.0 %")]


def test_published_figures_stand_apart_and_are_not_ranked(tmp_path):
    RunBuilder.at(tmp_path / "a").add_all("s")
    assert "π0.5 (pi05_libero)" not in leaderboard([tmp_path])
    heading = "## LIBERO, four suites, published by others"
    ranked, published = leaderboard([tmp_path], published=True).split(heading)
    assert "π0.5" not in ranked
    assert "98.8 % | 98.2 % | 98.0 % | 92.4 % | 96.85 % | openpi | 500 a suite" in published
    assert "| older than fixes of its initial states |" in published, "doubts stand beside the score"
    write_leaderboard(read_leaderboard([tmp_path], published=True), tmp_path / "board")
    assert "X-VLA" in (tmp_path / "board/index.html").read_text(encoding="utf-8")
    assert "X-VLA" not in (tmp_path / "board/leaderboard.csv").read_text()


def test_published_scores_are_shown_beside_runs_of_their_suites_alone(tmp_path):
    RunBuilder.at(tmp_path / "a").add_all("s", suite="droid_tabletop")
    assert read_leaderboard([tmp_path], published=True).published == {}


def test_a_published_mean_replaces_that_of_the_rates_and_a_missing_rate_leaves_none():
    score = {"policy": "p", "runner": "openpi", "source": "s"}
    averages = [
        PublishedScore(**score, rates=rates, mean=mean).average
        for rates, mean in (((1, 2), None), ((1, 2), 3), ((1, None), None), ((1, None), 3))
    ]
    assert averages == [1.5, 3, None, 3]
    table = {"title": "t", "suites": {"a": "A", "b": "B"}, "scores": [{**score, "rates": (1,)}]}
    with pytest.raises(UsageError, match=r"p has 1 `rates`, and there are 2 columns: A, B"):
        check(PublishedConfig, table, source="t.yaml")


def test_a_run_with_more_errors_than_the_budget_is_not_ranked(tmp_path):
    RunBuilder.at(tmp_path / "broken").add_all("s" + "e" * 9).add_all("s", suite="libero_goal")
    RunBuilder.at(tmp_path / "sound").add_all("s" * 49 + "e")
    found = tables([tmp_path])
    assert [row["run"] for (row,) in found["libero_object"]] == ["sound"]
    assert list(found) == ["libero_goal", "libero_object"], "its other suite is ranked"
    reason = "9 of 10 episodes on libero_object ended in an error, more than 2 %; run it again"
    assert not_ranked([tmp_path]) == {"broken": reason}


def test_a_run_that_cannot_be_ranked_is_listed_with_its_reason(tmp_path, capsys):
    RunBuilder.at(tmp_path / "fine").add_all("s")
    RunBuilder.at(tmp_path / "stopped", status="interrupted", n_planned=40).add_all("stt")
    killed = RunBuilder.at(tmp_path / "killed", status="running", n_planned=40).add_all("s")
    (killed.path / LOCK).touch()
    cut = RunBuilder.at(tmp_path / "cut", n_planned=3).add_all("stt").folder.episodes_path
    cut.write_bytes(cut.read_bytes()[:-9])  # as by a copy that ended early
    RunBuilder.at(tmp_path / "empty-but-complete")
    RunBuilder.at(tmp_path / "torn").folder.manifest_path.write_text('{"run_id": ')
    RunBuilder.at(tmp_path / "nonsense").folder.episodes_path.write_bytes(b"\xff\xfe\n")
    RunBuilder.at(tmp_path / "nested").folder.episodes_path.write_bytes(b"[" * 100_000 + b"\n")
    os.mkfifo(RunBuilder.at(tmp_path / "pipe").folder.episodes_path)
    RunBuilder.at(tmp_path / "queries").add_all("s").folder.queries_path(key()).write_text("3\n")
    ((only,),) = tables([tmp_path])["libero_object"]
    assert only["run"] == "fine"
    skipped = [line.split(":")[0] for line in capsys.readouterr().err.splitlines()]
    assert skipped == [
        f"skipped {tmp_path / name}" for name in ("nested", "nonsense", "pipe", "queries", "torn")
    ]
    expected = {
        "stopped": "3 of 40",
        "killed": "stopped with 1 of 40",
        "cut": "stopped with 2 of 3",
        "empty-but-complete": "no episode",
        "queries": "queries",
    }
    expected |= {"torn": "manifest.json"} | dict.fromkeys(("nested", "nonsense", "pipe"), "episodes.jsonl")
    reasons = not_ranked([tmp_path])
    assert reasons.keys() == expected.keys()
    assert all(words in reasons[name] for name, words in expected.items())


def test_runs_are_found_anywhere_beneath_and_other_folders_are_passed_over(tmp_path, refused):
    """Trainings and benchmarks lie beside runs by default; a training's rollouts are runs by themselves."""
    for name in ("run", "here/run", "here/and/there", "here/.draft"):
        RunBuilder.at(tmp_path / name).add_all("s")
    (tmp_path / "here" / "back").symlink_to(tmp_path)
    training = tmp_path / "train" / "tiny"
    (training / "checkpoints").mkdir(parents=True)
    (training / "run.json").write_text("{}")
    RunBuilder.at(training / "rollouts" / "run").add_all("s")
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "small.jsonl").write_text("{}\n")
    (rows,) = tables([tmp_path, tmp_path / "here"])["libero_object"]
    assert [row["run"] for row in rows] == ["there", "run", "run"]
    assert not_ranked([tmp_path]) == {}
    assert list(tables([training])) == ["libero_object"]
    for path in ("bench", "nowhere"):
        assert path in refused(app, tmp_path / path)


def test_what_policies_are_shown_stands_below_a_table_where_it_differs(tmp_path):
    RunBuilder.at(tmp_path / "a").add_all("s")
    assert "What they are shown" not in leaderboard([tmp_path])
    RunBuilder.at(tmp_path / "b", policy="mine", policy_inputs={"prompt": "{language}"}).add_all("s")
    RunBuilder.at(tmp_path / "c", policy="noop", policy_inputs={"nothing": True}).add_all("s")
    board = leaderboard([tmp_path])
    assert "- mine: `prompt {language}`" in board
    assert "nothing" not in board


def timed(path, **manifest):
    """A run of two solved episodes and an unsolved one, each with two texts in 6 simulated seconds."""
    shares = {"all": Share(hits=1, of=2)}
    texts = {"narration": scores(texts=2, at_request=shares, on_delivery=shares, staleness_s=1.5)}
    run = RunBuilder.at(path, **manifest)
    return run.add_all("sst", latency=61.25, simulated_s=6.0, queries=30, texts=texts)


@pytest.mark.parametrize("clock", ["paused", "measured", "fixed:100,500"])
def test_columns_are_those_that_the_clock_has_values_for(tmp_path, clock):
    timed(tmp_path / "run", config={"clock": clock, "while_waiting": "hold"})
    ((row,),) = tables([tmp_path])["libero_object"]
    expected = {"time to success (s)": "6.0", "queries (Hz)": "5.00", "staleness (ms)": "750"}
    expected |= {"narration (%), graded": "50.0 → 50.0, 6/6", "n": "3", "errors": "0"}
    if clock != "fixed:100,500":
        expected |= {"action (ms)": "61.2 / 61.2", "query (ms)": "61.2 / 61.2"}
    assert expected.items() <= row.items()
    assert ("action (ms)" in row) == (clock != "fixed:100,500")
    assert (f"clock `{clock}` (" in leaderboard([tmp_path])) == (clock != "paused")
    if clock == "measured":  # a recording and its replay share a table
        timed(tmp_path / "replayed", config={"clock": "replay:runs/a", "while_waiting": "hold"})
        (rows,) = tables([tmp_path])["libero_object"]
        assert {row["policy"] for row in rows} == {
            "tiny · measured, hold",
            "tiny · replay:runs/a, hold",
        }


def test_all_formats_hold_the_same_rows(tmp_path, command):
    for name, outcomes in {"a": "s" * 40, "b": "s" * 39 + "t", "c": "s" * 10 + "t" * 30}.items():
        RunBuilder.at(tmp_path / "runs" / name).add_all(outcomes)
    RunBuilder.at(tmp_path / "runs" / "goal").add_all("st", suite="libero_goal")
    RunBuilder.at(tmp_path / "runs" / "broken").add_all("ee")
    code, printed, _ = command(app, tmp_path / "runs")
    board = tmp_path / "board"
    assert (code, command(app, tmp_path / "runs", "-o", board)[1]) == (0, f"{board / 'index.html'}\n")
    with (board / "leaderboard.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [(line["suite"], line["run"], line["success"], line["worst rank"]) for line in lines] == [
        ("libero_goal", "goal", "50.0 %", "1"),
        ("libero_object", "a", "100.0 %", "2"),
        ("libero_object", "b", "97.5 %", "2"),
        ("libero_object", "c", "25.0 %", "3"),
    ]
    suites = json.loads((board / "leaderboard.json").read_text())["suites"]
    ranks = {row["run"]["run_id"]: row["possible_ranks"] for row in suites["libero_object"][0]["rows"]}
    assert ranks == {"a": [1, 2], "b": [1, 2], "c": [3, 3]}
    latex, page = (board / "leaderboard.tex").read_text(), (board / "index.html").read_text()
    assert latex.count(r"\begin{tabular}") == latex.count(r"\end{tabular}") == 2
    assert latex.count(r" \\") == 2 + len(lines)
    assert all(f">{line['run']}</td>" in page for line in lines)
    assert "2 of 2 episodes" in page
    assert (board / "leaderboard.md").read_text() == printed


def test_modes_are_named_where_they_tell_runs_apart_and_csv_has_them_beside_texts(tmp_path, command):
    for name, mode in (("mine", "actions"), ("noop", "actions"), ("tiny", "unified"), ("tiny", "shared")):
        RunBuilder.at(tmp_path / f"{name}-{mode}", policy=name, mode=mode).add_all("ss", tokens=0)
    paths = {each.name: each for each in tmp_path.iterdir()}

    def written(*names):
        command(app, *(paths[name] for name in names), "-o", tmp_path / "board")
        return [(tmp_path / "board" / f"leaderboard.{form}").read_text() for form in ("md", "csv")]

    assert not any(
        word in text for text in written("mine-actions", "noop-actions") for word in ("mode", "tok")
    )
    markdown, rows = written("mine-actions", "tiny-unified")
    assert ("unified" in markdown, ",mode," in rows) == (False, True)
    markdown, rows = written("tiny-shared", "tiny-unified")
    assert ("| 1 | tiny · unified |" in markdown, ",mode," in rows) == (True, True)


def test_columns_beyond_a_papers_are_shown_where_they_are_asked_for(tmp_path, command, refused):
    for name in ("a", "b"):
        RunBuilder.at(tmp_path / "runs" / name, policy=name).add_all("st", simulated_s=3.0)

    def heads(*options):
        _, printed, _ = command(app, tmp_path / "runs", *options)
        return next(line for line in printed.splitlines() if line.startswith("| ") and "policy" in line)

    assert heads() == "| rank | policy | success | 95 % interval | n |"
    chosen = "policy, success, time to success,run"
    assert heads("--columns", chosen) == "| policy | success | time to success (s) | run |"
    command(app, tmp_path / "runs", "--columns", chosen, "-o", tmp_path / "board")
    assert "interval &" not in (tmp_path / "board/leaderboard.tex").read_text()
    assert "95 % interval" in (tmp_path / "board/leaderboard.csv").read_text(), "CSV has all columns"
    said = refused(app, tmp_path / "runs", "--columns", "policy,sucess")
    assert "unknown column 'sucess'; did you mean 'success'" in said


def test_latex_has_the_best_in_bold_and_stars_what_is_significantly_worse(tmp_path):
    for name, outcomes in {"a": "s" * 40, "b": "s" * 39 + "t", "c": "s" * 10 + "t" * 30}.items():
        RunBuilder.at(tmp_path / name, policy=name).add_all(outcomes)
    lines = leaderboard_latex(read_leaderboard([tmp_path])).splitlines()
    assert [line for line in lines if line.endswith(r"\\")] == [
        r"rank & policy & success & 95 \% interval & n \\",
        r"1 & a & \textbf{100.0 \%} & 91.2--100.0 & 40 \\",
        r"1 & b & \textbf{97.5 \%} & 87.1--99.6 & 40 \\",
        r"3 & c & 25.0 \%$^*$ & 14.2--40.2 & 40 \\",
    ]


def test_a_run_of_several_suites_is_one_row_of_all_of_them(tmp_path):
    """Where no paper averages over these suites; each of them is folded, since the row has it."""
    for policy, outcomes in (("mine", "ss"), ("noop", "tt")):
        run = RunBuilder.at(tmp_path / policy, policy=policy)
        run.add_all(outcomes, suite="libero_goal").add_all(outcomes)
    board = read_leaderboard([tmp_path])
    assert list(board.suites) == ["libero_goal, libero_object", "libero_goal", "libero_object"]
    assert board.summarized == {"libero_goal", "libero_object"}
    assert leaderboard_latex(board).count(r"\begin{tabular}") == 1
    page = write_leaderboard(board, tmp_path / "board").read_text()
    assert re.findall(r"<summary><h2[^>]*>([^<]*)<", page) == ["libero_goal", "libero_object"]


def test_a_simulator_that_brings_its_own_assets_has_none_to_name(tmp_path, command):
    none = {"assets": {"name": "none", "digest": ""}}
    runs = [RunBuilder.at(tmp_path / name, policy=name, **none).add_all("st") for name in ("a", "b")]
    board = leaderboard([tmp_path])
    page = write_report([run.path for run in runs], tmp_path / "page").read_text()
    _, compared, _ = command(compare_app, *(run.path for run in runs))
    for shown in (board, page, compared, FORMATS["latex"](runs[0].folder)):
        assert "()" not in shown.partition("<script")[0]
        assert "assets none" not in shown
    assert "| assets |" not in board


PLUS = [f"libero_plus_{name}" for name in ("spatial", "object", "goal", "10")]


def test_categories_are_columns_and_the_total_is_pooled_beside_what_others_published(tmp_path):
    """Of categories of unequal size, a mean of categories or suites would be another number."""
    run = RunBuilder.at(tmp_path / "a", suite_hashes=dict.fromkeys(PLUS, "bbbb2222"))
    for number, suite in enumerate(PLUS):
        for task_id in range(number + 1):
            kind = (
                {"category": "Sensor Noise", "difficulty": 1}
                if task_id
                else {"category": "Camera Viewpoints"}
            )
            run.add(episode(key(task_id=task_id, suite=suite), "timeout" if task_id else "success", **kind))
    board = read_leaderboard([tmp_path], published=True)
    (row,) = tables([tmp_path])["LIBERO-plus, four suites"][0]
    assert (row["Camera Viewpoints"], row["Sensor Noise"]) == ("100.0 % (51.0–100.0)", "0.0 % (0.0–39.0)")
    assert row["total"] == "40.0 %"
    assert row["spatial"] == "100.0 % (20.7–100.0)"
    (published,) = board.published.values()
    pi0 = next(row for row in published.records() if row["policy"] == "π0")
    assert (pi0["Sensor Noise"], pi0["total"]) == ("79.0 %", "53.60 %")
    assert "noise was not reproduced" in pi0["doubts"]


def test_errors_and_seeds_are_averaged_over_suites_or_pooled_as_the_rate_is(tmp_path):
    run = RunBuilder.at(tmp_path / "papers/a")
    for suite in ("libero_spatial", "libero_goal", "libero_10"):
        run.add_all("tttttttt", suite=suite)
    run.add_all("s" * 98 + "ee")
    (row,) = tables([tmp_path / "papers"])["LIBERO, four suites"][0]
    assert (row["average"], row["errors as failures"]) == ("25.0 %", "24.5 %")
    run = RunBuilder.at(tmp_path / "plus/a", suite_hashes=dict.fromkeys(PLUS, "bbbb2222"))
    for number, suite in enumerate(PLUS):
        for task_id in range(number + 1):
            for seed in (7, 8):
                outcome = "timeout" if task_id or seed == 8 else "success"
                run.add(episode(key(task_id=task_id, suite=suite, seed=seed), outcome))
    (row,) = tables([tmp_path / "plus"])["LIBERO-plus, four suites"][0]
    assert (row["average"], row["over seeds (%)"]) == ("20.0 %", "20.0 ± 28.3")


def test_published_scores_of_libero_pro_say_that_the_instruction_did_not_arrive(tmp_path):
    RunBuilder.at(tmp_path / "a").add_all("s", suite="libero_pro_spatial_task", category="Task")
    (published,) = read_leaderboard([tmp_path], published=True).published.values()
    assert all("instruction did not reach the policy" in row["doubts"] for row in published.records())
