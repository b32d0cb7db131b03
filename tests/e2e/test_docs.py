"""The documentation is true: its code runs, its settings are valid, its commands and links exist."""

from __future__ import annotations

import re
import shlex
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from flexfl.cli.main import app
from flexfl.deploy.project import read_project
from flexfl.deploy.settings import SITE_FILE, SiteSettings
from flexfl.experiments.compare import load_plan
from flexfl.experiments.frontier import load_grid
from flexfl.experiments.sweep import load_sweep
from flexfl.spec.load import load_spec
from flexfl.spec.schema import Spec, parse

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# An indented fence (in a list, a note) counts, too; what is hidden in a comment prepares the next block.
FENCE = re.compile(
    r"^(?P<indent> *)```(?P<kind>\w*)[^\n]*\n(?P<text>.*?)^ *```|^<!-- setup\n(?P<setup>.*?)-->",
    re.DOTALL | re.MULTILINE,
)
SHIPPED = {path.stem for path in (ROOT / "src/flexfl/spec/shipped").glob("*.toml")}


class Block(NamedTuple):
    page: str
    line: int
    kind: str
    text: str


def blocks_of(path: Path) -> list[Block]:
    text, found = path.read_text(encoding="utf-8"), []
    for match in FENCE.finditer(text):
        line = text[: match.start()].count("\n") + 1
        kind, content = ("setup", match["setup"]) if match["setup"] else (match["kind"], match["text"])
        content = re.sub(rf"^{match['indent'] or ''}", "", content, flags=re.MULTILINE)
        found.append(Block(path.relative_to(ROOT).as_posix(), line, kind, content))
    return found


BLOCKS = [block for path in PAGES for block in blocks_of(path)]


def of_kind(kind: str) -> list[Any]:
    return [pytest.param(b, id=f"{b.page}:{b.line}") for b in BLOCKS if b.kind == kind]


def test_every_block_is_of_a_kind_that_is_checked():
    assert {block.kind for block in BLOCKS} == {"python", "toml", "bash", "text", "setup"}
    assert len(BLOCKS) > 60


# Python ----------------------------------------------------------------------------------------


def with_python() -> list[Any]:
    pages = {block.page: [] for block in BLOCKS if block.kind == "python"}
    for block in BLOCKS:
        if block.page in pages and block.kind in ("python", "setup"):
            pages[block.page].append(block)
    return [pytest.param(blocks, id=page) for page, blocks in pages.items()]


@pytest.mark.parametrize("blocks", with_python())
def test_python_runs_page_by_page(blocks, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # an empty folder: pages may write to runs/
    page = ModuleType("a_page_of_the_documentation")
    monkeypatch.setitem(sys.modules, page.__name__, page)  # dataclasses look their module up
    names = vars(page)
    for block in blocks:
        code = "\n" * block.line + block.text  # so that a traceback names the line of the page
        exec(compile(code, block.page, "exec"), names)
    if blocks[0].page == "docs/tutorial.md":
        _run_the_tutorials_commands(names)


def _run_the_tutorials_commands(names: dict[str, Any]) -> None:
    """Follow the end of the tutorial: a spec, a module and an archive as files, and three commands."""
    blocks = [block for block in BLOCKS if block.page == "docs/tutorial.md"]
    (toml,) = [block.text for block in blocks if block.kind == "toml"]
    (bash,) = [block.text for block in blocks if block.kind == "bash"]
    Path("workshops.toml").write_text(toml, encoding="utf-8")
    Path("workshop.py").write_text(
        "from torch import nn\n\ndef network():\n    return nn.Linear(12, 4)\n", encoding="utf-8"
    )
    arrays = ("train_x", "train_y", "test_x", "test_y")
    np.savez("workshops.npz", **{name: np.asarray(getattr(names["data"], name)) for name in arrays})
    for words in map(shlex.split, bash.strip().splitlines()):
        ended = CliRunner().invoke(app, words[1:])
        assert ended.exit_code == 0, ended.output
    assert Path("runs/from-file/report/report.html").is_file()
    assert Path("runs/from-file/evaluations.csv").is_file()


def test_provisioning_makes_the_kits_that_the_page_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = [block for block in BLOCKS if block.page == "docs/howto/deploy.md"]
    (project,) = [block.text for block in blocks if block.kind == "toml" and "server =" in block.text]
    Path("clinics.toml").write_text(project, encoding="utf-8")
    (words,) = [
        words for block in blocks if block.kind == "bash" for words in commands_of(block) if "kits" in words
    ]
    assert words[:3] == ["flexfl", "deploy", "provision"]
    ended = CliRunner().invoke(app, words[1:])
    assert ended.exit_code == 0, ended.output
    made = sorted(path.name for path in Path("kits").iterdir())
    assert made == ["admin", "authority", "north", "server", "south"]


# TOML ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", of_kind("toml"))
def test_toml_is_what_some_command_takes(block, tmp_path):
    table, file = tomllib.loads(block.text), tmp_path / "file.toml"
    file.write_text(block.text, encoding="utf-8")
    if "tune" in table:
        assert load_plan([str(file)], tmp_path).tuning
    elif "base" in table:
        assert load_sweep(file).cells(tmp_path)
    elif "server" in table:
        assert read_project(file).clients
    elif set(table) <= set(SiteSettings.model_fields) and not isinstance(table.get("data"), dict):
        file.rename(tmp_path / SITE_FILE)
        SiteSettings.read(tmp_path)
    else:
        spec = parse(table)
        assert spec != Spec() or not any(table.values())


# Commands --------------------------------------------------------------------------------------


def commands_of(block: Block) -> list[list[str]]:
    """Return the words of each command; a backslash continues a line, # begins a remark."""
    lines = block.text.replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def parsed(words: list[str]) -> tuple[str, dict[str, Any]]:
    """Return the command and its parameters as the command line parses them; it is not run."""
    command: Any = typer.main.get_command(app)
    path = []
    while hasattr(command, "commands"):
        assert set(words[:1]) & set(command.commands), f"no command {' '.join([*path, *words])}"
        command, path, words = command.commands[words[0]], [*path, words[0]], words[1:]
    context = command.make_context(path[-1], list(words))
    return " ".join(path), context.params


def check_flexfl(words: list[str]) -> None:
    command, given = parsed(words)
    named = given.get("spec") or []
    for name in [named] if isinstance(named, str) else named:
        if command == "plan" and name.startswith("runs/"):  # a run of the reader's
            continue
        assert name in SHIPPED or name.endswith(".toml"), name
        # Settings of a file that only the reader has are checked against a spec that ships.
        load_spec(name if name in SHIPPED else "quickstart", list(given.get("set_") or []))
    if command == "sweep" and (ROOT / given["file"]).exists():
        assert load_sweep(ROOT / given["file"]).cells(Path("runs"))
    if command == "frontier":
        targets = given["target"] or ()
        assert load_grid(named, given["vary"], Path("runs"), seeds=given["seeds"], targets=targets).cells
    if command == "compare":
        options = {name: given[name] for name in ("base", "seeds", "tune_seeds")}
        more = {"overrides": given["set_"] or (), "tune": given["tune"] or ()}
        assert load_plan(given["methods"], Path("runs"), **options, **more).entries
    if command == "paper":
        assert given["figure"] in ("fig1", "fig2", "fig3", "all")


def check_make(words: list[str]) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in words:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def check_pip(words: list[str]) -> None:
    """The name flexfl is somebody else's on PyPI: a clone, a wheel or the distribution's name will do."""
    assert words[0] in ("install", "wheel")
    for word in words[1:]:
        assert not re.match(r"flexfl($|[\[=<>~! ])", word), f"{word} is a stranger's package"


def check_python(words: list[str]) -> None:
    assert (ROOT / words[0]).is_file() or words[0] == "-m", words


CHECKS = {"flexfl": check_flexfl, "make": check_make, "pip": check_pip, "python": check_python}


@pytest.mark.parametrize("block", of_kind("bash"))
def test_commands_exist_with_these_options_and_settings(block):
    for program, *words in commands_of(block):
        assert program in CHECKS, f"nothing checks {program}: {words}"
        CHECKS[program](words)


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("run quickstart --sett budget.uplink=1", "No such option"),
        ("run quickstart --set budget.uplnk=1", "uplnk"),
        ("run quickstrt", "quickstrt"),
        ("deploy sumbit admin demo", "no command"),
        ("frontier quickstart --vary budget.uplnk=1", "uplnk"),
        ("compare fedavgg", "fedavgg"),
    ],
)
def test_a_wrong_command_is_noticed(line, error):
    with pytest.raises(Exception, match=error):
        check_flexfl(line.split())


def test_inline_commands_of_flexfl_exist():
    """`flexfl …` in running text and in tables; what stands for something else is written in capitals."""
    seen = 0
    for path in PAGES:
        text = FENCE.sub("", path.read_text(encoding="utf-8"))
        for words in map(shlex.split, re.findall(r"`flexfl ([^`]+)`", text.replace("…", ""))):
            command: Any = typer.main.get_command(app)
            while words and hasattr(command, "commands") and not words[0].isupper():
                assert words[0] in command.commands, (path.name, words)
                command, words = command.commands[words[0]], words[1:]
            options = {name for entry in command.params for name in [*entry.opts, *entry.secondary_opts]}
            used = {word for word in words if word.startswith("--")} - {"--help"}
            assert used <= options, (path.name, used - options)
            seen += 1
    assert seen > 20


def test_no_text_installs_a_strangers_package():
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"pip install ['\"]?flexfl(?!-)", text), path


# Links and files -------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_to_files_hold_in_the_repository(path):
    """Also those of the README, which mkdocs does not see; generated pages have no file."""
    text = FENCE.sub("", path.read_text(encoding="utf-8"))
    generated = {ROOT / "docs/reference/spec.md", ROOT / "docs/reference/cli.md"}
    for target in re.findall(r"\]\(([^)\s#]+)", text):
        if re.match(r"[a-z]+:", target):
            continue
        found = (path.parent / target).resolve()
        assert found.exists() or found in generated, target


def test_files_of_the_package_that_pages_name_exist():
    rooms = "|".join(entry.name for entry in (ROOT / "src/flexfl").iterdir() if entry.is_dir())
    named = set()
    for path in PAGES:
        named |= set(re.findall(rf"`((?:{rooms})/[\w/]+(?:\.py|/))", path.read_text(encoding="utf-8")))
    assert len(named) > 15
    assert [name for name in sorted(named) if not (ROOT / "src/flexfl" / name).exists()] == []


def test_examples_are_short():
    for family in ("cost", "policy", "compressor", "local", "observer"):
        path = ROOT / "examples" / f"own_{family}.py"
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 60, path.name
