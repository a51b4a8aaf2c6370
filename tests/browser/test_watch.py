"""The page of a run that is going on, in a real Chromium: it follows the run by itself."""

import numpy as np
import pytest

from eval.report.watch_server import HOST
from eval.rollout.live_picture import LivePicture
from tests.eval.factory import RunBuilder, episode, key, query
from tests.eval.report.watched import Watching

expect = pytest.importorskip("playwright.sync_api").expect
pytestmark = pytest.mark.slow
HOSTILE = "<img src=x onerror=alert(1)> \x1b[31m </script>"


def play(run, init_id, shade):
    """Show an episode as its world does."""
    path = run.folder.picture_path(key(init_id))
    path.parent.mkdir(exist_ok=True)
    run.folder.queries_path(key(init_id)).write_text("")
    LivePicture(path).show({"image": np.full((64, 64, 3), shade, np.uint8)})


@pytest.fixture
def run(tmp_path):
    """Two of four episodes are recorded, one is an error; the other two are played."""
    attempts = [{"started": "2026-01-01T00:00:00Z", "finished": None}]
    made = RunBuilder.at(tmp_path / "run", status="running", n_planned=4, attempts=attempts)
    timed = {"latency_ms": {stage: {"p50": 50.0, "p95": 70.0} for stage in ("action", "frame")}}
    made.add(episode(key(0), language=HOSTILE, simulated_s=5.0, **timed), query())
    made.add(episode(key(1), "error", error=HOSTILE, traceback=f"Traceback: {HOSTILE}"))
    for init_id in (2, 3):
        play(made, init_id, shade=40 * init_id)
    return made


def test_the_page_follows_the_run_and_shows_text_as_text(run, open_page):
    with Watching(run.path) as watching:
        page = open_page(f"http://{HOST}:{watching.port}/")
        status, images = page.locator("#status"), page.locator("main img")
        expect(images).to_have_count(2)
        expect(images.first).to_have_js_property("naturalWidth", 64)
        expect(status).to_contain_text("Running: 2 of 4 episodes recorded, 1 error")
        page.locator("#errors summary").click()
        expect(page.locator("#errors pre")).to_have_text(f"Traceback: {HOSTILE}".replace("\x1b", "␛"))
        expect(page.locator(".uplot")).to_have_count(2)
        run.folder.picture_path(key(2)).unlink()
        run.add(episode(key(2), "timeout"))
        expect(images).to_have_count(1)
        assert page.locator("#errors details[open]").count() == 1, "what is open stays open"
        run.folder.picture_path(key(3)).unlink()
        run.add(episode(key(3)))
        run.folder.write_manifest({**run.folder.read_manifest(), "status": "complete"})
        expect(status).to_have_text("Complete: 4 of 4 episodes recorded, 1 error.")
        expect(page.locator("#runs td").nth(1)).to_have_text("2 of 3 (66.7 %)")
        expect(images).to_have_count(0)


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_is_wider_than_the_window_and_axe_finds_nothing_serious(run, open_page, width):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    with Watching(run.path) as watching:
        page = open_page(f"http://{HOST}:{watching.port}/", width=width)
        page.wait_for_selector(".uplot")
        page.locator("#errors summary").click()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        found = axe.run(page).response["violations"]
        assert [each["id"] for each in found if each["impact"] in ("serious", "critical")] == []
