"""Text of policies, tasks and records is shown as text by every renderer, and paths stay in their folder."""

import csv
import io
import json
import types

import numpy as np
import pytest
from PIL import ImageDraw
from rich.table import Table

from configs.console import TextConsole
from configs.schema import RunConfig
from contracts.errors import UsageError
from eval.monitors.loggers import LoggingMonitor
from eval.records.reader import read_episodes
from eval.records.run_folders import Run, new_run
from eval.report.comparison_verdict import judge_all, show
from eval.report.export import FORMATS
from eval.report.last_screen import show_last_screen
from eval.report.leaderboard import read_leaderboard, write_leaderboard
from eval.report.pages.site import escape_control
from eval.report.table import in_csv, in_markdown, in_markdown_code
from tests.eval.factory import RunBuilder, compare, episode, key, run_rows, write_report
from videos.panel import Caption, CaptionText, compose

HOSTILE = (
    "\x1b[31mred\x1b]0;title\x07",
    "\x9b31m\x9d0;title\x9c",
    "\u202egnp.exe",
    "<script>alert(1)</script><img src=x onerror=alert(1)>",
    "[click](javascript:alert(1)) **bold** `code` | cell",
    "[bold red]markup[/] [/nothing]",
)
CONTROL = "\x1b\x07\x9b\x9c\x9d\u202e"


def controls_in(text: str) -> set[str]:
    return set(text) & set(CONTROL)


def test_a_console_markdown_and_csv_show_text():
    """No emoji either: `fixed:100:` is a clock and a colon."""
    console = TextConsole(file=io.StringIO(), width=200, force_terminal=True, color_system=None)
    for text in (*HOSTILE, "Clock fixed:100:"):
        table = Table("a", title=text)
        table.add_row(text)
        for shown in (text, table):
            console.print(shown)
            console.print(shown, markup=False)
        assert not controls_in(in_markdown(text) + in_markdown_code(text) + escape_control(text))
        assert "`" not in in_markdown_code(text)
    assert not controls_in(console.file.getvalue())
    assert console.file.getvalue().count("Clock fixed:100:") == 6
    for number in (-0.5, "-0.5", "+1.25", "-3 %", "-1e-05"):
        assert in_csv(number) == number


@pytest.mark.parametrize("text", HOSTILE)
def test_tables_pages_and_comparisons_show_text(tmp_path, text):
    runs = [RunBuilder.at(tmp_path / "runs" / name, policy=text).add_all("st").folder for name in ("a", "b")]
    board = write_leaderboard(read_leaderboard([tmp_path / "runs"]), tmp_path / "pages" / "board")
    report = write_report([runs[0].path], tmp_path / "pages" / "report")
    console = TextConsole(file=io.StringIO(), width=200, force_terminal=True, color_system=None)
    comparison = compare(*runs)
    show(comparison, judge_all(comparison), console)
    failed = RunBuilder.at(tmp_path / "failed", policy=text).add(
        episode(key(), "error", error=f"{text}\nagain")
    )
    run = Run(config=RunConfig(policy="tiny"), folder=failed.folder)
    show_last_screen(console, [run], [run_rows(failed.folder)], report=False)
    assert not controls_in(console.file.getvalue())
    for kind in ("html", "md", "csv", "tex"):
        written = "".join(file.read_text() for file in (tmp_path / "pages").rglob(f"*.{kind}"))
        assert written
        assert not controls_in(written)
    for page in (board, report):
        assert "<script>alert" not in page.read_text()
        assert "<img src=x" not in page.read_text()
    assert "<script>" not in (board.parent / "leaderboard.md").read_text().replace("\\<script>", "")


ELSEWHERE = {"suite": "../../../escaped", "task_id": 0, "init_id": 0, "seed": 7}
OUTSIDE = ("../../x.mp4", "/etc/passwd", "videos/../../x", "..", ".", "", "a\0b")


@pytest.mark.parametrize(
    ("forged", "said"),
    [
        *(({"video": path}, r"video is .*, should be a path inside the run's folder") for path in OUTSIDE),
        ({"key": ELSEWHERE}, "key: suite is"),
    ],
)
def test_an_episode_whose_files_would_be_outside_the_runs_folder_is_refused(tmp_path, forged, said):
    folder = RunBuilder.at(tmp_path / "run").add_all("s").folder
    record = json.loads(folder.episodes_path.read_text())
    folder.episodes_path.write_text(json.dumps({**record, **forged}) + "\n")
    with pytest.raises(UsageError, match=said):
        read_episodes(folder)


@pytest.mark.parametrize("text", HOSTILE)
def test_a_video_shows_text(monkeypatch, text):
    drawn = []
    draw = ImageDraw.ImageDraw.text

    def noting(picture, at, shown, *style, **options):
        drawn.append(shown)
        return draw(picture, at, shown, *style, **options)

    monkeypatch.setattr(ImageDraw.ImageDraw, "text", noting)
    said = CaptionText(text=text, seen_s=1.0, parts=((text, None),))
    words = {"task": text, "episode": text, "clock": text, "narration": said, "memory": said}
    caption = Caption(**words, mode="unified", time_s=2.0)
    compose({text: np.zeros((8, 8, 3), np.uint8)}, caption, outcome="success")
    assert len([shown for shown in drawn if shown]) > 5
    assert not controls_in("".join(drawn))


FORMULAS = ("=1+1", "+1+cmd|' /C calc'!A0", "-1+1", "@SUM(A1)", "\t=1+1", "\n=1+1")


@pytest.mark.parametrize("text", [*HOSTILE, *FORMULAS, "\ud800"])
def test_an_export_shows_text(tmp_path, text):
    name = text.replace("\ud800", "name")
    built = RunBuilder.at(tmp_path / "run", policy=name, assets={"name": name, "digest": "d1ge57000000"})
    built.add(episode(key(), language=text, instruction=text))
    built.add(episode(key(1), "invalid_action", error=text, traceback=text))
    written = {name: write(built.folder) for name, write in FORMATS.items()}
    assert not controls_in("".join(written.values()).encode().decode())
    cells = [cell for row in csv.reader(io.StringIO(written["csv"])) for cell in row]
    assert not [cell for cell in cells if cell.strip()[:1] in tuple("=+-@")]
    assert written["latex"].splitlines()[5] == r"\begin{tabular}{rlrrr}"
    write_report([built.path], tmp_path / "report")


@pytest.mark.parametrize("text", HOSTILE)
def test_a_log_shows_text(tmp_path, capsys, text):
    class Log:
        where = text

        def __init__(self, *_):
            pass

        def close(self):
            raise ConnectionError(text)

    run = Run(config=RunConfig(policy="noop"), folder=RunBuilder.at(tmp_path / "run").add_all("s").folder)
    with LoggingMonitor([run], types.SimpleNamespace(suites=()), name="memory", open_logger=Log):
        pass
    printed = capsys.readouterr()
    assert printed.out.startswith("Log: ")
    assert "ConnectionError" in printed.err
    assert not controls_in(printed.out + printed.err)


def test_a_runs_folder_has_a_plain_name(tmp_path):
    policy = tmp_path / "red\x1b[31m\u202e [x](y) policy"
    (name,) = {new_run(tmp_path / "runs", RunConfig(policy=str(policy), mode="actions")).folder.run_id}
    assert name.endswith("-red-31m-x-y-policy-actions")
