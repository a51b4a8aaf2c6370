"""The live report in a real Chromium: it follows the run by itself."""

import pytest

from tests.eval.factory import RunBuilder, episode, key, query
from tests.eval.test_watch import HOSTILE, picture, watching

expect = pytest.importorskip("playwright.sync_api").expect
pytestmark = pytest.mark.slow


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
        expect(images).to_have_count(2)
        expect(images.first).to_have_js_property("naturalWidth", 16)
        expect(status).to_have_text("Running: 2 of 4 episodes recorded.")
        errors = page.locator("section", has=page.get_by_role("heading", name="Errors"))
        errors.locator("summary").click()
        expect(errors.locator("pre")).to_have_text(f"Traceback: {HOSTILE}".replace("\x1b", "␛"))
        page.locator("a[href^='#episode=']").first.click()
        page.wait_for_selector("#viewer .timeline")
        run.folder.picture_path(key(2)).unlink()
        run.add(episode(key(2), "timeout"))
        expect(images).to_have_count(1)
        expect(page.locator("#note")).to_contain_text("There is more")  # an open episode stays
        page.get_by_role("button", name="Close").click()
        expect(status).to_contain_text("Running: 3 of 4 episodes recorded")
        expect(page.locator("main table").first).to_contain_text("1 of 2 (50.0 %)")
        expect(errors.locator("details[open]")).to_have_count(1)  # what is open stays open
        assert page.evaluate("document.documentElement.scrollWidth") <= 1280


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_is_wider_than_the_window_and_axe_finds_nothing_serious(run, open_page, width):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    with watching(run.path) as (_, url):
        page = open_page(url, width=width)
        page.wait_for_selector("#playing img")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        found = axe.run(page).response["violations"]
        assert [each["id"] for each in found if each["impact"] in ("serious", "critical")] == []
