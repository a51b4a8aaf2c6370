"""The page of a sweep has its record's cells, verdicts and lines; that of eval.report is the same."""

import re

import pytest

from eval.report.__main__ import app
from eval.report.pages.run_report import write_report
from eval.report.pages.site import ChartLine, chart_group, line_chart
from eval.report.sweep_plots import write_sweep_page
from tests.eval.conftest import call
from tests.eval.report.test_sweeping import CELLS, finished, whole  # noqa: F401 - fixtures


def test_every_cell_is_a_row_with_its_verdicts(finished):  # noqa: F811
    page = finished.path / "report" / "index.html"
    text, cells = page.read_text(), finished.read()["cells"]
    assert text.count('class="whisker"') == len(cells) == CELLS
    for row in cells:
        assert row["run"] in text
        assert f"{row['n_success']} of {row['n_episodes']}, " in text
    judged = [row["success"] for row in cells if row["success"]]
    verdicts = ["identical" if each["identical"] else each["verdict"] for each in judged]
    assert "identical" in verdicts
    assert sum(text.count(f">{verdict}</td>") for verdict in set(verdicts)) == 3 * len(verdicts)


def test_a_cell_links_to_its_report_if_it_has_one(finished, tmp_path):  # noqa: F811
    run = finished.runs()[0].folder.path
    elsewhere = tmp_path / "elsewhere"
    assert 'href="../' not in write_sweep_page(finished, finished.read(), elsewhere).read_text()
    write_report([run], run / "report")
    page = write_sweep_page(finished, finished.read(), elsewhere)
    (link,) = re.findall(r'href="(\.\./[^"]+)"', page.read_text())
    assert (page.parent / link).resolve() == (run / "report" / "index.html").resolve()


def test_eval_report_makes_it_again(finished, capsys, refused):  # noqa: F811
    page = finished.path / "report" / "index.html"
    before = page.read_text()
    page.unlink()
    assert call(app, finished.path) == 0
    assert capsys.readouterr().out == f"{page}\n"
    assert page.read_text() == before
    finished.write(finished.config(), status="running")
    assert "complete it with --resume" in refused(app, finished.path)


def test_points_at_one_place_are_all_kept():
    points = [(x, y, y - 1, y + 1) for x, y in ((1.0, 5.0), (1.0, 6.0), (2.0, 7.0))]
    chart = line_chart([ChartLine(label="a", colour="#000", points=points)], x="x", y="y")
    (line,) = chart["series"]
    assert line["x"] == pytest.approx([1.0, 1.0, 2.0], abs=1e-4)
    assert len(set(line["x"])) == 3
    assert (line["y"], chart["range"]) == ([5.0, 6.0, 7.0], [0, pytest.approx(8.8)])
    empty = line_chart([ChartLine(label="a", colour="#000", points=[])], x="x", y="y")
    assert empty is None
    assert chart_group("nothing", empty) == []
