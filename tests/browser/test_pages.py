"""Pages in a real Chromium: nothing foreign is loaded, nothing errs, links restore the state."""

import os
import shutil

import numpy as np
import pytest

from configs.errors import check
from eval.metrics.sweep_rows import SweepRecord
from eval.records.run_folders import SweepFolder
from eval.report.leaderboard import read_leaderboard, write_leaderboard
from eval.report.sweep_plots import write_sweep_page
from tests.eval.factory import RunBuilder, asked, episode, key, query, said, write_report
from tests.eval.report.test_sweep_record import record  # noqa: F401 - a fixture
from tests.eval.test_watch import HOSTILE, picture, watching
from videos.mp4 import Mp4Writer

playwright = pytest.importorskip("playwright.sync_api")
pytestmark = pytest.mark.slow
HZ = 20.0
TIMEOUT_MS = 180_000
"""Limit on starting the browser and on every action: a loaded machine is slow."""

CHROMIUM = os.environ.get("OXYGEN_CHROMIUM") or shutil.which("chromium")


@pytest.fixture(scope="module")
def browser():
    playwright.expect.set_options(timeout=TIMEOUT_MS)
    if CHROMIUM is None:
        pytest.skip("needs Chromium on the path, or OXYGEN_CHROMIUM")
    with playwright.sync_playwright() as started:
        chromium = started.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"], timeout=TIMEOUT_MS
        )
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser):
    """Opens a file, or an address; fails if the page errs or asks for anything from elsewhere."""
    problems, pages = [], []

    def show(page_or_address, state="", **view):
        is_address = isinstance(page_or_address, str)
        address = page_or_address if is_address else page_or_address.as_uri()
        own = (address if is_address else "file:", "data:", "blob:")
        page = browser.new_page(viewport={"width": view.pop("width", 1280), "height": 900}, **view)
        page.set_default_timeout(TIMEOUT_MS)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda said: problems.append(said.text) if said.type == "error" else None)
        page.on("request", lambda asked: None if asked.url.startswith(own) else problems.append(asked.url))
        pages.append(page)
        page.goto(address + state)
        return page

    yield show
    for page in pages:
        page.close()
    assert problems == []


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Two runs of 60 episodes that differ in the last one, which has videos and texts."""
    folder = tmp_path_factory.mktemp("runs")
    runs = []
    for mode, last in (("isolated", "success"), ("unified", "timeout")):
        run = RunBuilder.at(folder / mode, mode=mode, n_planned=60)
        for init_id in range(59):
            run.add(episode(key(init_id), simulated_s=5.0, language=f"task of state {init_id}"))
        (run.path / "videos").mkdir()
        writer = Mp4Writer(run.path / "videos" / "last.mp4", width=64, height=64, fps=HZ)
        writer.write(np.zeros((64, 64, 3), np.uint8), times=60)
        writer.close()
        text = {**said(0, HOSTILE), "step": 5}
        run.add(
            episode(key(59), last, simulated_s=3.0, steps=60, language=HOSTILE, video="videos/last.mp4"),
            query(0, texts={"requested": [asked(0)]}, action=10.0) | {"steps": 5},
            query(1, texts={"finished": [text]}, action=20.0) | {"steps": 55},
        )
        runs.append(run.path)
    return write_report(runs, folder / "report")


def rows(page, table="episodes"):
    return page.locator(f"table[data-table={table}] tbody tr")


def test_rows_are_paged_sorted_and_filtered_and_a_link_restores_them(report, open_page):
    page = open_page(report)
    assert rows(page).count() == 50
    page.get_by_label("Filter episodes").fill("state 1")
    assert rows(page).count() == 15  # those with a 1: every word must occur in the row
    init = page.locator("table[data-table=episodes] th", has_text="init")
    init.get_by_role("button").click()
    init.get_by_role("button").click()
    assert init.get_attribute("aria-sort") == "descending"
    assert "state 51" in rows(page).first.inner_text()
    again = open_page(report, page.evaluate("location.hash"))
    assert rows(again).all_inner_texts() == rows(page).all_inner_texts()


def test_two_variants_play_in_step_and_the_timeline_follows(report, open_page):
    page = open_page(report)
    rows(page).first.locator("a").click()  # the discordant one
    page.wait_for_function(
        "[...document.querySelectorAll('#viewer video')].filter(v => v.readyState > 1).length === 2"
    )
    page.get_by_role("button", name="+1 step").click()
    slider = page.get_by_role("slider", name="Control step")
    assert slider.get_attribute("aria-valuetext") == "0.05 s, control step 1"
    slider.press("ArrowRight")
    assert slider.get_attribute("aria-valuetext") == "0.10 s, control step 2"
    line = page.locator(".timeline line").first
    before = float(line.get_attribute("x1"))
    page.get_by_role("button", name="Play", exact=True).click()
    page.wait_for_function("document.querySelector('.scrubber').valueAsNumber >= 20")
    page.get_by_role("button", name="Pause").click()
    times = page.evaluate("[...document.querySelectorAll('#viewer video')].map((video) => video.currentTime)")
    assert abs(times[0] - times[1]) < 0.25
    assert float(line.get_attribute("x1")) > before
    again = open_page(report, page.evaluate("location.hash"))
    again.wait_for_selector(".timeline line", state="attached")
    assert again.get_by_role("slider").input_value() == slider.input_value()


@pytest.mark.parametrize("width", [1280, 390])
def test_text_of_a_policy_is_shown_as_text_and_nothing_is_wider_than_the_window(report, open_page, width):
    page = open_page(report, f"#episode={key(59)}&t=1", width=width)
    page.wait_for_selector(".texts li")
    assert page.locator("main img").count() == 0
    assert HOSTILE.replace("\x1b", "␛") in page.locator(".texts li").first.inner_text()
    page.wait_for_selector("#viewer .timeline")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_leaderboard_groups_its_rows(tmp_path, open_page):
    for name, mode in (("a", "isolated"), ("b", "unified"), ("c", "isolated")):
        RunBuilder.at(tmp_path / "runs" / name, mode=mode).add_all("sst")
    page = open_page(write_leaderboard(read_leaderboard([tmp_path / "runs"]), tmp_path / "board"))
    assert page.locator(".whisker").count() == 3  # an interval for every run
    page.get_by_label("Group by").select_option("mode")
    assert page.locator("tr.group").all_inner_texts() == ["isolated", "unified"]
    mode = page.locator("th", has_text="mode").first
    playwright.expect(mode).to_be_hidden()
    page.get_by_role("button", name="All columns").click()
    playwright.expect(mode).to_be_visible()
    assert serious(page, options={"preload": False}) == []


def painted(page):
    """The number of pixels of the first chart that are not transparent."""
    pixels = "c.getContext('2d').getImageData(0, 0, c.width, c.height).data"
    script = f"(c) => {pixels}.filter((value, place) => place % 4 === 3 && value).length"
    return page.locator(".plot:not([hidden]) canvas").first.evaluate(script)


@pytest.fixture
def charted(record, tmp_path):  # noqa: F811 - a fixture
    """The page of a sweep."""
    return write_sweep_page(SweepFolder(tmp_path / "sweep"), check(SweepRecord, record, source="the test"))


@pytest.mark.parametrize("width", [1280, 390])
def test_a_page_of_cells_sorts_filters_and_draws(charted, open_page, width):
    page = open_page(charted, width=width)
    whole = rows(page, "cells").count()
    page.get_by_label("Filter cells").fill("unified")
    assert 0 < rows(page, "cells").count() < whole
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert painted(page) > 1000
    select = page.locator("#charts")
    last = select.locator("option").all_inner_texts()[-1]
    select.select_option(last)
    again = open_page(charted, page.evaluate("location.hash"), width=width)
    assert again.locator("#charts").input_value() == last
    assert rows(again, "cells").all_inner_texts() == rows(page, "cells").all_inner_texts()
    assert painted(again) > 1000


def serious(page, **options):
    """What axe finds."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    found = axe.run(page, **options).response["violations"]
    return [each["id"] for each in found if each["impact"] in ("serious", "critical")]


def test_axe_finds_nothing_serious(charted, report, open_page):
    """Without axe's `preload`, which reads style sheets in a way that browsers forbid on pages from disk."""
    viewer = open_page(report, f"#episode={key(59)}")
    viewer.wait_for_selector("#viewer .timeline")
    for page in (open_page(charted), viewer):
        assert serious(page, options={"preload": False}) == []


@pytest.fixture
def run(tmp_path):
    """Two of four episodes are recorded, one is an error; the other two are played."""
    made = RunBuilder.at(tmp_path / "run", status="running", n_planned=4)
    made.add(episode(key(0), language=HOSTILE, simulated_s=5.0), query())
    made.add(episode(key(1), "error", error=HOSTILE, traceback=f"Traceback: {HOSTILE}"))
    for init_id in (2, 3):
        picture(made, init_id)
    return made


def test_the_page_follows_the_run_and_shows_text_as_text(run, open_page):
    with watching(run.path) as (_, url):
        page = open_page(url)
        status, images = page.locator("#status"), page.locator("#playing img")
        playwright.expect(images).to_have_count(2)
        playwright.expect(images.first).to_have_js_property("naturalWidth", 16)
        playwright.expect(status).to_have_text("Running: 2 of 4 episodes recorded.")
        errors = page.locator("section", has=page.get_by_role("heading", name="Errors"))
        errors.locator("summary").click()
        playwright.expect(errors.locator("pre")).to_have_text(f"Traceback: {HOSTILE}".replace("\x1b", "␛"))
        page.locator("a[href^='#episode=']").first.click()
        page.wait_for_selector("#viewer .timeline")
        run.folder.picture_path(key(2)).unlink()
        run.add(episode(key(2), "timeout"))
        playwright.expect(images).to_have_count(1)
        playwright.expect(page.locator("#note")).to_contain_text("There is more")  # an open episode stays
        page.get_by_role("button", name="Close").click()
        playwright.expect(status).to_contain_text("Running: 3 of 4 episodes recorded")
        playwright.expect(page.locator(".bars").first).to_contain_text("1 of 2")
        playwright.expect(errors.locator("details[open]")).to_have_count(1)  # what is open stays open
        assert page.evaluate("document.documentElement.scrollWidth") <= 1280
        page.close()  # before the server ends, which it asks again and again


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_is_wider_than_the_window_and_axe_finds_nothing_serious(run, open_page, width):
    with watching(run.path) as (_, url):
        page = open_page(url, width=width)
        page.wait_for_selector("#playing img")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert serious(page) == []
        page.close()
