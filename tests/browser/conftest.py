"""A real Chromium whose pages may load nothing foreign and must not err."""

import os
import shutil

import pytest

TIMEOUT_MS = 180_000
"""Limit on starting the browser and on every action: a loaded machine is slow."""

CHROMIUM = os.environ.get("OXYGEN_CHROMIUM") or shutil.which("chromium")


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api")
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
