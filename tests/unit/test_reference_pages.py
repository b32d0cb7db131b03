"""The reference pages of the site are whole: every setting, member, command and option, in words."""

from __future__ import annotations

import re

import pytest
from tools.docs.cli_reference import cli_reference, commands
from tools.docs.spec_reference import FAMILY_PAGES, described_fields, spec_reference

from flexfl.deploy.settings import SiteSettings
from flexfl.registry import Family
from flexfl.spec import sections
from flexfl.spec.schema import Spec


@pytest.fixture(scope="module")
def spec_page():
    return spec_reference()


def part_of(page: str, heading: str) -> str:
    """Return the text below a heading."""
    level = heading.split()[0]
    return page.split(f"\n{heading}", 1)[1].split(f"\n{level} ")[0]


SETTINGS = [
    (name, field)
    for name, section in Spec.model_fields.items()
    for field in section.annotation.model_fields
    if field != "root"
]


@pytest.mark.parametrize(("section", "field"), SETTINGS)
def test_every_setting_is_described(section, field, spec_page):
    rows = part_of(spec_page, f"## `[{section}]`").splitlines()
    (row,) = [row for row in rows if row.startswith(f"| `{field}` |")]
    _, takes, _, words = re.split(r"(?<!\\)\|", row)[1:-1]
    assert takes.strip()
    assert words.strip(), f"say in the docstring of the section what {field} is"


def test_what_a_setting_takes_comes_from_its_rule(spec_page):
    assert "| `clients` | a whole number ≥ 1 | `100` |" in part_of(spec_page, "## `[data]`")
    assert '| `dtype` | `float32`, `float64` | `"float32"` |' in part_of(spec_page, "## `[engine]`")
    assert "`mlp`, `cnn`" in part_of(spec_page, "## `[model]`")
    online = part_of(spec_page, "### `online`")
    assert "| `tradeoff` | a number > 0, by client, by knob | `0.02` |" in online


def test_every_family_of_the_spec_has_a_part():
    families = {id(family) for family, *_ in FAMILY_PAGES.values()}
    named = {id(family) for family, _ in sections.FAMILIES.values()}
    named |= {id(value) for value in vars(sections).values() if isinstance(value, Family)}
    assert named <= families


@pytest.mark.parametrize("title", FAMILY_PAGES)
def test_every_member_and_parameter_is_there(title, spec_page):
    family, place, _ = FAMILY_PAGES[title]
    page = part_of(spec_page, f"## {title}")
    assert f"`{place}`" in page
    for kind in family.members:
        member = part_of(page + "\n### end", f"### `{kind}`")
        assert len(member.split("\n\n")[1]) > 20, "its docstring says what it does"
        for name in family.parameters(kind):
            assert f"| `{name}` |" in member


def test_the_owners_settings_of_a_site_are_there(spec_page):
    for field in SiteSettings.model_fields:
        assert f"| `{field}` |" in part_of(spec_page, "## `site.toml`")


def test_words_come_from_the_docstring():
    text, fields = described_fields(Spec.model_fields["deploy"].annotation)
    assert text == "What only a real network needs; a simulation does without."
    assert fields["wait"].startswith("seconds that the start waits")
    assert fields["latest"].endswith("every update is taken, however late.")


def test_every_command_and_option_is_there():
    import typer

    from flexfl.cli.main import app

    page, seen = cli_reference(), 0
    for path, command in commands(typer.main.get_command(app)):
        part = part_of(page + "\n## end", f"## {' '.join(path)}\n")
        for entry in command.params:
            names = [name for name in entry.opts if name.startswith("-")]
            assert all(re.search(rf"`[^`]*{re.escape(name)}\b[^`]*`", part) for name in names), (path, names)
            seen += bool(names)
    assert seen > 30
    assert "\\[" not in page
