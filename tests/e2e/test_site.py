"""The documentation site: built without a warning, whole, and without anything from another host."""

from __future__ import annotations

import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest

from site_build import ROOT, build

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    ended = build(folder)
    assert ended.returncode == 0, ended.stderr
    assert "WARNING" not in ended.stdout + ended.stderr
    return folder


class Resources(HTMLParser):
    """Collects what a browser fetches to show a page; not what a link leads to."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.classes: set[str] = set()

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.classes |= set((given.get("class") or "").split())
        if tag == "link":
            if given.get("rel") not in ("canonical", "next", "prev"):
                self.found.append(given["href"])
        elif tag != "a":
            self.found += [given[name] for name in ("src", "data", "poster", "href") if given.get(name)]
            self.found += re.findall(r"\S+(?= |$)", given.get("srcset") or "")


def pages_of(site: Path) -> list[Path]:
    """The pages of the site; the interactive pages of results/ have tests of their own."""
    return [path for path in sorted(site.rglob("*.html")) if "results" not in path.relative_to(site).parts]


def test_a_page_of_every_kind_is_there(site):
    for name in ("index", "tutorial", "evidence", "performance", "security", "404"):
        assert (site / f"{name}.html").is_file()
    sources = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    generated = {Path("reference/spec.html"), Path("reference/cli.html")}
    notebooks = (ROOT / "examples").rglob("*.ipynb")
    generated |= {path.relative_to(ROOT).with_suffix(".html") for path in notebooks}
    assert {path.relative_to(site) for path in pages_of(site)} == sources | generated | {Path("404.html")}


def test_nothing_is_fetched_from_another_host(site):
    for path in pages_of(site):
        page = Resources()
        page.feed(path.read_text(encoding="utf-8"))
        assert page.found
        elsewhere = [url for url in page.found if re.match(r"([a-z]+:)?//", url)]
        assert elsewhere == [], path
        assert "mermaid" not in page.classes  # for which the theme's script asks another host
    for path in site.rglob("*.css"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"@import|url\(\s*['\"]?(https?:)?//", text), path


def test_what_pages_fetch_is_there(site):
    for path in pages_of(site):
        page = Resources()
        page.feed(path.read_text(encoding="utf-8"))
        for url in page.found:
            if url.startswith(("data:", "#", "/")):  # the page of error 404 is served from anywhere
                continue
            assert (path.parent / re.split(r"[?#]", url)[0]).exists(), (path, url)


def test_equations_are_typeset_without_a_script(site):
    text = (site / "concepts/decisions.html").read_text(encoding="utf-8")
    assert text.count('<math xmlns="http://www.w3.org/1998/Math/MathML" display="block"') >= 10
    assert re.findall(r'<span class="number">\((\d+)\)</span>', text) == ["16", "17", "18"]
    for path in pages_of(site):
        assert 'class="arithmatex"' not in path.read_text(encoding="utf-8"), path
        left = re.findall(r"<m[iot][^>]*>\\?\\?[&\\][a-zA-Z{}]*</m", path.read_text(encoding="utf-8"))
        assert left == [], path  # TeX that was not understood


def test_the_reference_of_the_api_shows_what_a_person_imports(site):
    import flexfl

    text = "".join(
        (site / f"reference/{name}.html").read_text(encoding="utf-8") for name in ("run", "extend")
    )
    for name in set(flexfl.__all__) - {"__version__"}:
        home = getattr(flexfl, name).__module__
        assert re.search(rf'id="flexfl\.{name}"|id="{re.escape(home)}\.{name}"', text), name


@pytest.mark.parametrize(
    ("page", "link"),
    [
        ("tutorial.md", "[a page](howto/no-such-page.md)"),
        ("tutorial.md", "[a heading](howto/budgets.md#no-such-heading)"),
        ("evidence.md", "[a file](../results/fashion/no-such-file.csv)"),
        ("evidence.md", "[the source](../src/flexfl/errors.py)"),
    ],
)
def test_a_broken_link_stops_the_build(page, link, tmp_path):
    for name in ("tools", "src", "results", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    with (tmp_path / "docs" / page).open("a", encoding="utf-8") as file:
        file.write(f"\n{link}\n")
    ended = build(tmp_path / "site", tmp_path)
    assert ended.returncode != 0
    assert re.split(r"[/#]", link.rstrip(")"))[-1] in ended.stderr
