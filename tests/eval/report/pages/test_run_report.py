"""A report shows what the records hold, says in place what is missing, and shows texts as text."""

import json
import re

import pytest

from contracts.errors import UsageError
from eval.records.schema import RunFolder
from eval.report.__main__ import app
from eval.report.comparison_verdict import judge_all
from eval.report.conclusion import conclude
from tests.commands import call
from tests.eval.factory import RunBuilder, asked, compare, episode, key, query, said, write_report

HOSTILE = "<img src=x onerror=alert(1)> **bold** \x1b[31mred\x1b[0m </script>\u2028"


def truth(phase="grasp"):
    nouns = {"movable": ["cup"], "parts": [], "places": {"basket": "in"}}
    narration = {"phase": phase, "object": "cup", "target": None}
    return {"narration": narration, "done": [], "facts": [], "nouns": nouns}


def side(page, at, number=0):
    """One variant of an episode, as the viewer reads it."""
    script = (page.parent / "episodes" / f"{at}.js").read_text()
    assert not set("\x1b\u2028") & set(script)
    return json.loads(re.fullmatch(r"showEpisode\((.*)\);\n", script)[1])["sides"][number]


def two_runs(path, a="sst", b="sts", **manifest):
    modes = {"isolated": a, "unified": b}
    return [RunBuilder.at(path / m, mode=m, **manifest).add_all(each).path for m, each in modes.items()]


def test_the_verdict_is_that_of_the_comparison(tmp_path):
    runs = two_runs(tmp_path, "sssst", "ssstt")
    other = RunBuilder.at(tmp_path / "other", mode="shared", protocol_hash="other").add_all("sssss")
    page = write_report([*runs, other.path], tmp_path / "out").read_text()
    assert judge_all(compare(*map(RunFolder, runs))).success.sentence in page
    assert "shared is not compared with isolated: " in page
    assert "ran under different protocols" in page
    page = write_report(runs, tmp_path / "out").read_text()
    assert re.findall(r"<td>(differ|agree)</td>", page) == ["differ", *["agree"] * 4]
    assert page.index(f"#episode={key(3)}") < page.index(f"#episode={key(0)}"), "discordant ones come first"


def test_signs_that_actions_are_not_those_of_the_robot_are_told(tmp_path):
    run = RunBuilder.at(tmp_path / "run").add_all("tt", steps=50, clipped_steps=49)
    page = write_report([run.path], tmp_path / "out").read_text()
    assert "in 98 % of its control steps, actions were clipped to the limits. Check what its" in page


def test_episodes_with_errors_are_not_said_to_agree(tmp_path):
    for number, (other, sentence) in enumerate(
        {
            "sste": "The runs differ in 1 of 3 episodes (of 4) that are graded in several runs: ",
            "ssse": "The runs agree in all 3 episodes (of 4) that are graded in several runs.",
            "eeee": "No episode is graded in several runs.",
        }.items()
    ):
        runs = two_runs(tmp_path / str(number), "ssss", other)
        assert sentence in write_report(runs, tmp_path / "out").read_text()


def test_a_perturbed_run_is_badged_with_its_perturbation_and_what_else_differs_from_the_protocol(tmp_path):
    run = RunBuilder.at(tmp_path / "run", config={"perturb": "camera:3", "max_steps": 60}).add_all("s")
    page = write_report([run.path], tmp_path / "out").read_text()
    assert "<li>perturbed: camera:3, max steps 60</li>" in page


def test_the_first_card_has_the_conclusion_the_conditions_and_the_best_and_the_worst_video(tmp_path):
    about = {"assets": {"name": "standins", "digest": "d1ge57000000"}, "config": {"clock": "fixed:100"}}
    runs = two_runs(tmp_path, "sss", "stt", **about)
    (runs[1] / "videos").mkdir()
    for number, (outcome, steps) in enumerate((("success", 90), ("success", 30), ("timeout", 60))):
        (runs[1] / "videos" / f"{number}.mp4").write_bytes(b"film")
        at, video = key(7 + number), f"videos/{number}.mp4"
        for run, changes in zip(runs, ({}, {"video": video}), strict=True):
            RunBuilder(RunFolder(run)).add(episode(at, outcome, steps=steps, **changes))
    card, _, rest = write_report(runs, tmp_path / "out").read_text().partition("</section>")
    comparison = compare(*map(RunFolder, runs))
    assert conclude("isolated", {"unified": (comparison, judge_all(comparison))}) in card
    assert "83.3 %" in card
    assert re.findall("<li>([^<]*)</li>", card) == ["stand-in assets", "clock fixed:100"]
    assert re.findall(r'<video src="videos/\d/(\d)', card) == ["1", "2"]
    sections = re.findall(r"<h2[^>]*>([^<]*)<", rest)
    assert sections[:2] == ["What differs, episode by episode", "Success per task"]
    folded = re.findall(r"<details>\n<summary><h2[^>]*>([^<]*)<", rest)
    assert {"Statistics in full", "What was run"} <= set(folded)
    anchors = re.findall(r'<a href="#([\w-]+-heading)"', card)
    assert anchors
    assert all(f'id="{anchor}"' in rest for anchor in anchors)


@pytest.mark.parametrize(("outcomes", "named"), [("ss", "Success"), ("tt", "Failure"), ("ts", "Best Worst")])
def test_one_video_is_shown_of_episodes_that_ended_alike(outcomes, named, tmp_path):
    run = RunBuilder.at(tmp_path / "run").add_all(outcomes, video="film.mp4")
    (run.path / "film.mp4").write_bytes(b"film")
    page = write_report([run.path], tmp_path / "out").read_text()
    assert re.findall("<figcaption><strong>([^<]*)<", page) == named.split()


def test_a_rate_of_zero_is_drawn_where_it_is_beside_its_interval(tmp_path):
    run = RunBuilder.at(tmp_path / "run").add_all("tt")
    page = write_report([run.path], tmp_path / "out").read_text()
    (bar,) = re.findall('<span class="track".*</span>', page)
    (point,) = re.findall(r'<u style="left: ([\d.]+)%', bar)
    assert float(point) == 0


def test_control_steps_are_those_of_the_log(tmp_path):
    timed = {
        "steps": 5,
        "actions_step": 2,
        "free_step": 4,
        "skipped": 1,
        "spans": [[None, 0, 1], [0, 3, 1], [1, 1, 3]],
        "latency": {"actions_ms": 100.0, "busy_ms": 200.0, "texts_ms": []},
    }
    run = RunBuilder.at(tmp_path / "run", deadline_ms=50.0, config={"deadline_ms": 50.0})
    run.add(episode(key(), simulated_s=5.0), query(0, frame=40.0), query(1, frame=60.0) | timed)
    shown = side(write_report([run.path], tmp_path / "out"), key())
    assert shown["hz"] == 20.0
    assert shown["queries"][1] == {"issued": 5, "actions": 2, "free": 4, "skipped": 1, "late": True}
    assert shown["queries"][0]["late"] is False
    assert shown["spans"][1:] == [["idle", 5, 6], ["continued", 6, 7], ["new", 7, 10]]


@pytest.mark.parametrize(
    ("text", "at_request", "on_delivery"),
    [("Grasping the cup.", 100.0, 0.0), ("Carrying the cup.", 0.0, 100.0), (HOSTILE, None, None)],
)
def test_texts_are_marked_against_the_truth_of_both_moments(tmp_path, text, at_request, on_delivery):
    finished = {**said(0, text), "step": 5, "truth": truth("carry")}
    requested = [asked(0), asked(0, request=1), asked(0, request=2)]
    run = RunBuilder.at(tmp_path / "run", policy=text, command=text).add(
        episode(key(), "error", language=text, instruction=text, error=text, traceback=text),
        query(0, texts={"requested": requested, "truth": truth("grasp")}),
        query(1, texts={"finished": [finished], "dropped": [asked(0, request=1)], "truth": truth("carry")}),
    )
    run.add(episode(key(1)), query(0, texts={"requested": [asked(0)], "finished": [said(0, text)]}))
    page = write_report([run.path], tmp_path / "out")
    assert side(page, key(1))["texts"][0]["at_request"] is None, "the log has no truth"
    assert not re.search("<img|\x1b", page.read_text()), "texts of policies, tasks and errors are text"
    assert side(page, key())["error"] == text.replace("\x1b", "␛")
    shown, *others = side(page, key())["texts"]
    assert [(each["state"], each["until"]) for each in others] == [("dropped", 5), ("cancelled", None)]
    assert (shown["requested"], shown["until"], shown["state"]) == (0, 5, "finished")
    assert shown["at_request"] == {"truth": "Grasping the cup.", "score": at_request}
    assert shown["on_delivery"] == {"truth": "Carrying the cup.", "score": on_delivery}


def test_a_video_is_part_of_the_report_and_a_missing_one_is_named(tmp_path):
    run = RunBuilder.at(tmp_path / "run")
    (run.path / "videos").mkdir()
    (run.path / "videos" / "a.mp4").write_bytes(b"film")
    run.add(episode(key(0), video="videos/a.mp4")).add(episode(key(1), video="videos/b.mp4"))
    run.add(episode(key(2)))
    page = write_report([run.path], tmp_path / "out")
    assert (page.parent / side(page, key(0))["video"]).read_bytes() == b"film"
    assert side(page, key(1))["no_video"] == "the video videos/b.mp4 is missing from the run's folder"
    assert side(page, key(2))["no_video"] == "no video was recorded"
    assert len(list(page.parent.rglob("*.mp4"))) == 1


def test_unfinished_and_damaged_runs_are_named_beside_the_others(tmp_path):
    unfinished = two_runs(tmp_path / "stopped", "ssst", "ss", status="running", n_planned=4)
    page = write_report(unfinished, tmp_path / "out")
    assert "running: 2 of 4 planned episodes are recorded" in page.read_text()
    assert "not played" in page.read_text()
    a, b = two_runs(tmp_path)
    (b / "episodes.jsonl").write_text("nonsense\n")
    RunFolder(a).queries_path(key(1)).write_text("nonsense\n")
    page = write_report([a, b], tmp_path / "out")
    assert f"<strong>{b}</strong> is left out: " in page.read_text()
    assert "line 1: not JSON" in side(page, key(1))["problem"]
    assert side(page, key(0))["problem"] is None
    with pytest.raises(UsageError, match="line 1: not JSON"):
        write_report([b], tmp_path / "out")


def test_nothing_is_loaded_from_other_hosts_and_the_first_run_has_the_page(tmp_path, capsys):
    runs = two_runs(tmp_path)
    assert call(app, *runs) == 0
    page = runs[0] / "report" / "index.html"
    assert capsys.readouterr().out == f"{page}\n"
    for path in (page, *page.parent.glob("*.js"), *page.parent.glob("*.css")):
        assert not re.search(r"(?:src|href|url\(|import)[^\n]{0,4}(?:https?:)?//", path.read_text())
    named = re.findall(r'(?:src|href)="([^"#:]+)"', page.read_text())
    assert named
    assert all((page.parent / name).is_file() for name in named)


def test_bad_input_is_one_line(tmp_path, refused):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    run = RunBuilder.at(tmp_path / "run").add_all("s").path
    for given in ([], [tmp_path / "nowhere"], [tmp_path / "empty"], [run, "-o", tmp_path / "file"]):
        refused(app, *given)


def test_a_policy_without_texts_and_clock_has_nothing_of_either(tmp_path):
    run = RunBuilder.at(tmp_path / "run", policy="random", mode="actions", config={"clock": "paused"})
    run.add(episode(key(), simulated_s=4.0), query(texts={"truth": truth()}))
    page = write_report([run.path], tmp_path / "out")
    shown = page.read_text().partition('<script type="application/json"')[0]
    assert "random solved 100 % of 1 episode" in shown
    for word in ("narration", "memory", "staleness", "idle", "Mode", "Texts", "Latency", "clock "):
        assert word not in shown, word
    assert side(page, key())["texts"] == side(page, key())["truths"] == []
