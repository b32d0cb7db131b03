"""The documentation site in a browser: it asks nothing of other hosts, finds words, shows equations."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from site_build import build

PAGES = ("index", "concepts/decisions", "howto/index", "reference/spec", "reference/extend", "evidence")


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("site")
    ended = build(folder)
    assert ended.returncode == 0, ended.stderr
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def site(browser: Browser, address: str) -> Iterator[Page]:
    """A page on which nothing may go wrong, and no other host be asked."""
    with browser.new_context(viewport={"width": 390, "height": 800}, base_url=address) as context:
        page = context.new_page()
        wrong: list[str] = []
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda line: wrong.append(line.text) if line.type == "error" else None)
        page.on(
            "request",
            lambda asked: (
                None if asked.url.startswith((address, "data:", "blob:")) else wrong.append(asked.url)
            ),
        )
        yield page
        assert not wrong


@pytest.mark.parametrize("name", PAGES)
def test_a_page_asks_no_other_host_and_fits_a_narrow_screen(site: Page, name: str) -> None:
    site.goto(f"/{name}.html", wait_until="networkidle")
    expect(site.locator("h1").first).to_be_visible()
    assert site.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_equations_have_a_size(site: Page) -> None:
    site.goto("/concepts/decisions.html")
    boxes = [found.bounding_box() for found in site.locator(".equation math").all()]
    assert len(boxes) >= 10
    assert all(box is not None and box["width"] > 30 and box["height"] > 10 for box in boxes)


def test_the_search_finds_a_setting(site: Page) -> None:
    site.set_viewport_size({"width": 1200, "height": 800})
    site.goto("/index.html")
    site.locator(".md-search__input").fill("initial_queue")
    found = site.locator(".md-search-result__link").first
    expect(found).to_be_visible()
    found.click()
    expect(site.locator("h1").first).to_be_visible()
    assert "index.html" not in site.url


def test_pages_open_from_a_disk(browser: Browser, tmp_path: Path) -> None:
    folder = tmp_path / "site"
    assert build(folder).returncode == 0
    with browser.new_context() as context:
        page = context.new_page()
        page.goto((folder / "index.html").as_uri())
        page.get_by_role("link", name="Tutorial").first.click()
        expect(page.locator("h1")).to_contain_text("Your own model")
