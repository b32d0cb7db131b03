"""A real browser: Debian's Chromium, headless, which may ask nobody for anything."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = next(filter(None, map(shutil.which, _NAMES)), None)
    assert path, "these tests need Chromium: apt install chromium, or make test-page as root"
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        )
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page on which nothing may go wrong and nothing be asked of the network."""
    with browser.new_context(viewport={"width": 1200, "height": 900}) as context:
        page = context.new_page()
        wrong: list[str] = []
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda line: wrong.append(line.text) if line.type == "error" else None)
        page.on(
            "request", lambda request: wrong.append(request.url) if request.url.startswith("http") else None
        )
        yield page
        assert not wrong
