"""`python -m eval.media`: from a finished run to the README's picture, clip and table, again and again."""

import dataclasses
import shutil

import pytest
from PIL import Image

from configs.cli import run_app
from eval.media import DEMO, app
from eval.records.reader import find_runs
from eval.records.schema import Share, TextScores
from tests.eval.conftest import evaluate
from tests.eval.factory import RunBuilder, episode, key
from tests.eval.rollout.test_variants import ASKED, begin, set_stage
from videos import theme

BEGIN, END = DEMO.begin, DEMO.end
PAGE = f"# Title\n\n{BEGIN}\nstale\n{END}\n\nThe rest.\n"


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """Two finished runs with videos, one per mode."""
    folder = tmp_path_factory.mktemp("played")
    with pytest.MonkeyPatch.context() as patch:
        set_stage(patch)
        evaluate(*begin(folder, ASKED.model_copy(update={"video": "all"})))
    return folder


@pytest.fixture
def runs(played, tmp_path):
    """Copies of them, `isolated` first."""
    shutil.copytree(played, tmp_path / "runs")
    return sorted(find_runs([tmp_path / "runs"]), key=lambda run: run.read_manifest()["config"]["mode"])


@pytest.fixture
def readme(tmp_path):
    path = tmp_path / "README.md"
    path.write_text(PAGE)
    return path


def command(*arguments) -> int:
    with pytest.raises(SystemExit) as stopped:
        run_app(app, [str(argument) for argument in arguments])
    return stopped.value.code


def call(run, readme) -> int:
    return command(run, "--readme", readme)


def took(runs, times) -> None:
    """Let the runs have started together, and ended one after the other."""
    started, *finished = times
    for run, ended in zip(runs, finished, strict=True):
        manifest = run.read_manifest()
        attempts = [{**manifest["attempts"][0], "started": started, "finished": ended}]
        run.write_manifest({**manifest, "attempts": attempts})


def test_how_long_the_run_took_is_told_in_short(readme, runs):
    for ended, told in {"10:00:41": "41 s", "10:59:59": "59 min 59 s", "12:03:59": "2 h 3 min"}.items():
        finished = f"2026-01-01T{ended}+00:00"
        took(runs, ("2026-01-01T10:00:00+00:00", finished, finished))
        assert call(runs[0].path, readme) == 0
        assert f"; {told} from start to finish." in readme.read_text()


def test_a_finished_run_becomes_picture_clip_and_table(tmp_path, readme, runs):
    took(runs, ("2026-01-01T10:00:00+00:00", "2026-01-01T10:02:40+00:00", "2026-01-01T11:02:41+01:00"))
    assert call(runs[0].path, readme) == 0
    page = readme.read_text()
    assert page.startswith(f"# Title\n\n{BEGIN}")
    assert page.endswith(f"{END}\n\nThe rest.\n")
    for part in (
        "(docs/rollout.webp)](docs/rollout.jpg)",
        "| `isolated` | 4 of 4 | 51 – 100 % | 2.0 ms | 5.0 ms | – | – |",
        "| `unified` | 4 of 4 |",
        "`tiny` in mode unified, assets none",
        "actions equal bit for bit over all 8 queries, outcomes that differ in 0 of 4",
        "); 2 min 41 s from start to finish.",
    ):
        assert part in page
    assert "stale" not in page
    with Image.open(tmp_path / "docs" / "rollout.jpg") as still:
        assert still.size == theme.picture_size(2)
    with Image.open(tmp_path / "docs" / "rollout.webp") as clip:
        assert clip.n_frames == 4  # of seven at 20 Hz: 1, 3, 5 and the last
    assert call(runs[1].path, readme) == 0
    assert readme.read_text() == page


def let_time_pass(run, *, seconds):
    """Turn a recorded run into one under a clock, in which every episode took so long."""
    manifest = run.read_manifest()
    charged = {"kind": "profile", "profile": {"device": "Jetson AGX Thor"}, "while_waiting": "continue"}
    protocol = {suite: {**world, "clock": charged} for suite, world in manifest["protocol"].items()}
    config = {**manifest["config"], "clock": "profile:jetson-thor", "while_waiting": "continue"}
    run.write_manifest({**manifest, "protocol": protocol, "config": config})
    shares = {"at_request": {"all": Share(hits=3, of=4)}, "on_delivery": {"all": Share(hits=1, of=4)}}
    late = TextScores(texts=4, not_graded=0, oracle=0, staleness_s=3.0, **shares)
    for result in run.episodes().values():
        timed = {"simulated_s": seconds, "queries": 12, "texts": {"narration": late}}
        run.append(dataclasses.replace(result, **timed))


def test_a_run_under_a_clock_shows_what_was_charged_and_says_by_which_device(runs, capsys):
    for run, seconds in zip(runs, (8.0, 4.0), strict=True):
        let_time_pass(run, seconds=seconds)
    capsys.readouterr()
    assert command(runs[0].path) == 0
    printed = capsys.readouterr().out
    for part in (
        "| time to success | query rate | narration right | memory F1 | texts delivered after |",
        "| `isolated` | 4 of 4 | 51 – 100 % | 8.0 s | 1.50 Hz | 75.0 → 25.0 % | – | 750 ms |",
        "| `unified` | 4 of 4 | 51 – 100 % | 4.0 s | 3.00 Hz | 75.0 → 25.0 % | – | 750 ms |",
        "each played in both before the next; outcomes that differ in 0 of 4.",
        "while the policy computes: each query takes as long as profile jetson-thor says",
        "says (Jetson AGX Thor); until new actions arrive, the robot continues with the previous chunk.",
        "Played on ",
    ):
        assert part in printed
    assert "bit for bit" not in printed


@pytest.mark.parametrize(
    "page",
    ["# No markers\n", f"{END}\n{BEGIN}\n", f"{BEGIN}\n{BEGIN}\n{END}\n", PAGE * 2],
)
def test_a_page_without_its_two_markers_is_left_as_it_is(tmp_path, readme, runs, capsys, page):
    readme.write_text(page)
    assert call(runs[0].path, readme) == 2
    assert "demo: begin" in capsys.readouterr().err
    assert readme.read_text() == page
    assert not (tmp_path / "docs").exists()


def test_without_a_readme_the_command_says_what_it_would_write_and_writes_nothing(
    tmp_path, readme, runs, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)  # where a README.md lies
    capsys.readouterr()
    assert command(runs[0].path) == 0
    printed = capsys.readouterr().out
    assert "| `unified` | 4 of 4 |" in printed
    assert "Nothing is written. --readme FILE puts" in printed
    assert readme.read_text() == PAGE
    assert not (tmp_path / "docs").exists()
    assert command(runs[0].path, "--docs", "docs") == 2


@pytest.mark.parametrize(
    ("manifest", "complaint"),
    [({"status": "interrupted"}, "is interrupted; complete it with --resume"), ({}, "--video all")],
)
def test_a_run_that_cannot_be_shown_is_refused_in_one_line(tmp_path, readme, capsys, manifest, complaint):
    run = RunBuilder.at(tmp_path / "run", **manifest).add(episode(key(0)))
    assert call(run.path, readme) == 2
    error = capsys.readouterr().err
    assert complaint in error
    assert error.count("\n") == 1
    assert readme.read_text() == PAGE
