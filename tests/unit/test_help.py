"""The help of every command shows its texts completely."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from flexfl.cli.main import app


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    for name, child in getattr(command, "commands", {}).items():
        yield from commands(child, (*path, name))


COMMANDS = dict(commands(typer.main.get_command(app)))


def help_of(path: tuple[str, ...]) -> str:
    """The help as plain text in one line; wide enough that no text is wrapped."""
    wide = {"COLUMNS": "400", "TERMINAL_WIDTH": "400", "NO_COLOR": "1", "TERM": "dumb"}
    result = CliRunner().invoke(app, [*path, "--help"], env=wide)
    assert result.exit_code == 0, result.output
    return " ".join(re.sub(r"\x1b\[[0-9;]*m|[│╭╮╰╯─]", " ", result.output).split())


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_no_part_of_a_help_text_is_taken_for_markup(path: tuple[str, ...]) -> None:
    command, shown = COMMANDS[path], help_of(path)
    texts = [command.help, *(getattr(option, "help", None) for option in command.params)]
    for text in texts:
        for paragraph in (text or "").split("\n\n"):
            assert " ".join(paragraph.replace("\\[", "[").split()) in shown


def test_sweep_names_the_extra_that_ray_needs() -> None:
    assert "or a Ray cluster (the extra ray)" in help_of(("sweep",))
