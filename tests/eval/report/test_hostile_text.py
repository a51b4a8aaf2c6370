"""Text of policies, tasks and records is shown as text by every renderer, and paths stay in their folder."""

import io
import json

import pytest
from rich.table import Table

from configs.console import TextConsole
from configs.errors import UsageError
from eval.records.reader import read_episodes
from eval.records.schema import RunFolder
from eval.report.comparison import compare
from eval.report.comparison_tables import show
from eval.report.leaderboard_formats import write_leaderboard
from eval.report.leaderboard_tables import read_leaderboard
from eval.report.pages.run_report import write_report
from eval.report.plain_text import in_markdown, in_markdown_code, visible
from tests.eval.factory import RunBuilder

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


@pytest.mark.parametrize("text", HOSTILE)
def test_a_console_shows_text(text):
    console = TextConsole(file=io.StringIO(), width=200, force_terminal=True, color_system=None)
    table = Table("a", title=text)
    table.add_row(text)
    for shown in (text, table):
        console.print(shown)
        console.print(shown, markup=False)
    assert not controls_in(console.file.getvalue())


@pytest.mark.parametrize("text", HOSTILE)
def test_tables_pages_and_comparisons_show_text(tmp_path, text):
    for name in ("a", "b"):
        RunBuilder.at(tmp_path / "runs" / name, policy=text).add_all("st")
    board = write_leaderboard(read_leaderboard([tmp_path / "runs"]), tmp_path / "board")
    report = write_report([tmp_path / "runs" / "a"], tmp_path / "report")
    console = TextConsole(file=io.StringIO(), width=200, force_terminal=True, color_system=None)
    a, b = (RunFolder(tmp_path / "runs" / name) for name in ("a", "b"))
    show(compare(a, b), console, margin=5.0, time_margin=10.0)
    assert not controls_in(console.file.getvalue())
    for page in (board, report):
        written = [each for each in page.parent.rglob("*") if each.suffix in (".html", ".md", ".csv", ".tex")]
        assert written
        for file in written:
            assert not controls_in(file.read_text()), file.name
    for page in (board, report):
        assert "<script>alert" not in page.read_text()
        assert "<img src=x" not in page.read_text()
    assert "<script>" not in (board.parent / "leaderboard.md").read_text().replace("\\<script>", "")


@pytest.mark.parametrize("text", HOSTILE)
def test_markdown_shows_text(text):
    assert not controls_in(in_markdown(text) + in_markdown_code(text) + visible(text))
    assert "`" not in in_markdown_code(text)


@pytest.mark.parametrize("video", ["../../x.mp4", "/etc/passwd", "videos/../../x", "..", ".", "", "a\0b"])
def test_a_video_outside_the_runs_folder_is_refused(tmp_path, video):
    run = RunBuilder.at(tmp_path / "run")
    run.add_all("s")
    folder = RunFolder(tmp_path / "run")
    record = json.loads(folder.episodes_path.read_text())
    folder.episodes_path.write_text(json.dumps({**record, "video": video}) + "\n")
    with pytest.raises(UsageError, match=r"video is .*, should be a path inside the run's folder"):
        read_episodes(folder)
