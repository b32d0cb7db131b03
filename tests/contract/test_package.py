"""What a stranger meets first: names, versions, install lines, citation, changelog, workflow."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import flexfl
from flexfl import extras

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
TEXTS = {".cfg", ".cff", ".in", ".ipynb", ".js", ".md", ".py", ".sh", ".toml", ".txt", ".yaml", ".yml"}
ROOMS = (".ci", ".github", "docs", "examples", "src", "tests", "tools")
OF_ANOTHER_PROJECT = re.compile(
    r"""\b(?:install|add)\s+                  # pip install, pipx install, uv add
        (?:-{1,2}[\w-]+\s+)*['"`]?            # options, a quote
        flexfl(?![\w/-]|\.\w)                 # not flexfl-control, flexfl_control, flexfl/…, flexfl.testing
      | \bflexfl\\?\[[\w\\,-]+\]              # the name with an extra, anywhere
    """,
    re.VERBOSE,
)


def shipped_texts() -> Iterator[Path]:
    """All texts of the repository, whether or not git knows them yet."""
    yield from (path for path in ROOT.iterdir() if path.suffix in TEXTS or path.name == "Makefile")
    for room in ROOMS:
        for path in (ROOT / room).rglob("*"):
            if path.is_file() and (path.suffix in TEXTS or path.parent.name == ".ci"):
                yield path


@pytest.mark.parametrize(
    ("text", "forbidden"),
    [
        ("pip install " + "flexfl", True),
        ("pip install -U " + "flexfl\n", True),
        ("pip install '" + "flexfl" + "[deploy]'", True),
        ("pip install\n  '" + "flexfl" + "[deploy]'", True),
        ("pipx install " + "flexfl==0.1", True),
        ("uv add " + "flexfl.", True),
        ("needs " + "flexfl" + "\\[ray]", True),
        ("add flexfl.testing to it", False),
        ("pip install 'flexfl-control[deploy]'", False),
        ("pip install flexfl_control-0.1.0-py3-none-any.whl", False),
        ("pip install '.[deploy]'", False),
        ("installing flexfl and torch", False),
    ],
)
def test_what_counts_as_the_other_projects_name(text: str, forbidden: bool) -> None:
    assert bool(OF_ANOTHER_PROJECT.search(text)) == forbidden


def test_no_text_installs_the_project_that_has_our_name_on_the_index() -> None:
    found = {
        str(path.relative_to(ROOT)): hits
        for path in shipped_texts()
        if (hits := [hit[0] for hit in OF_ANOTHER_PROJECT.finditer(path.read_text(encoding="utf-8"))])
    }
    assert found == {}


def test_the_texts_that_are_read_are_those_that_matter() -> None:
    names = {str(path.relative_to(ROOT)) for path in shipped_texts()}
    assert {
        "README.md",
        "Makefile",
        "pyproject.toml",
        "docs/howto/deploy.md",
        "src/flexfl/extras.py",
    } <= names


# Names and versions ----------------------------------------------------------------------------------


def test_the_version_is_in_one_place() -> None:
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert "version" not in PROJECT["project"]
    place = (ROOT / PROJECT["tool"]["hatch"]["version"]["path"]).read_text(encoding="utf-8")
    assert re.findall(r'^__version__ = "(.+)"$', place, re.MULTILINE) == [flexfl.__version__]
    assert f"flexfl_control-{flexfl.__version__}-py3-none-any.whl" == extras.WHEEL


def test_the_distribution_is_ours_and_the_command_stays() -> None:
    project = PROJECT["project"]
    assert project["name"] == extras.DISTRIBUTION == "flexfl-control"
    assert project["scripts"] == {"flexfl": "flexfl.cli.main:main"}
    everything = [line for extra in project["optional-dependencies"].values() for line in extra]
    assert not [line for line in everything if re.match(r"flexfl(?!-control\b)", line)]


def test_messages_name_extras_that_there_are() -> None:
    project = PROJECT["project"]
    known = project["optional-dependencies"]
    came_with = {"PIL": "pillow", "llvmlite": "numba", "pynvml": "nvidia-ml-py"}
    for package, extra in extras.EXTRA_OF.items():
        lines = known[extra] if extra else project["dependencies"]
        assert any(line.startswith(came_with.get(package, package)) for line in lines), package


def test_the_pythons_that_are_declared_are_those_of_the_workflow() -> None:
    declared = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["project"]["classifiers"]))
    assert declared == workflow()["jobs"]["check"]["strategy"]["matrix"]["python"]
    assert PROJECT["project"]["requires-python"] == f">={declared[0]}"


def test_the_citation_is_of_this_version_and_of_the_paper() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= set(citation)
    assert citation["version"] == flexfl.__version__
    assert citation["license"] == PROJECT["project"]["license"]
    paper = citation["preferred-citation"]
    assert (paper["type"], paper["year"]) == ("conference-paper", 2023)
    assert [author["family-names"] for author in paper["authors"]] == ["Wang", "Perazzone", "Ji", "Chan"]


def test_the_changelog_has_this_version_below_what_is_not_released() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## \[(.+?)\](?: - \d{4}-\d\d-\d\d)?$", text, re.MULTILINE)
    assert headings[:2] == ["Unreleased", flexfl.__version__]
    sections = set(re.findall(r"^### (.+)$", text, re.MULTILINE))
    assert sections <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


# Files for those who contribute ----------------------------------------------------------------------


def workflow() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
    return found


def test_the_workflow_runs_what_must_hold() -> None:
    job = workflow()["jobs"]["check"]
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run"]
    assert os.access(ROOT / ".ci/run", os.X_OK)
    assert {"push", "pull_request"} <= set(workflow()[True])  # YAML reads `on` as true


def test_hooks_download_nothing() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    assert [repo["repo"] for repo in config["repos"]] == ["local"]
    commands = [hook["entry"].split()[0] for repo in config["repos"] for hook in repo["hooks"]]
    assert commands == [f".venv/bin/{tool}" for tool in ("ruff", "ruff", "mypy", "lint-imports")]
    assert {hook["language"] for repo in config["repos"] for hook in repo["hooks"]} == {"system"}


@pytest.mark.parametrize("name", ["bug.yml", "idea.yml"])
def test_issue_forms_are_whole(name: str) -> None:
    form = yaml.safe_load((ROOT / ".github/ISSUE_TEMPLATE" / name).read_text(encoding="utf-8"))
    assert {"name", "description", "body"} <= set(form)
    for part in form["body"]:
        assert part["type"] == "textarea"
        assert part["attributes"]["label"]
    assert len({part["id"] for part in form["body"]}) == len(form["body"])


def test_contributing_names_files_and_targets_that_there_are() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for path in re.findall(r"`((?:src|tests|docs|tools)/[\w/.-]+)`", text):
        assert (ROOT / path).exists(), path
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"`make ([\w-]+)", text)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    for table, home in re.findall(r"`([A-Z_]+)` in `([\w/.]+)`", text):
        source = (ROOT / "src/flexfl" / home).read_text(encoding="utf-8")
        assert re.search(rf"^{table}\b", source, re.MULTILINE), table
