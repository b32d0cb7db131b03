"""The page on the command line, made from the commands themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer
from typer.core import TyperArgument

from flexfl.cli.main import app

_INTRODUCTION = """# Command line

Made from the commands when the site is built; `flexfl COMMAND --help` says the same.
"""
_NUMBER = re.compile("<(int|float)( range)?>")


def commands(command: Any, path: tuple[str, ...] = ("flexfl",)) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield every command that can be run, with its words."""
    children = getattr(command, "commands", {})
    if not children:
        yield path, command
    for name, child in children.items():
        yield from commands(child, (*path, name))


def cli_reference() -> str:
    """Return the page as Markdown."""
    whole = typer.main.get_command(app)
    return "\n".join([_INTRODUCTION, *(_command(path, found) for path, found in commands(whole))])


def _command(path: tuple[str, ...], command: Any) -> str:
    context = command.make_context(path[-1], [], resilient_parsing=True)
    arguments = [entry for entry in command.params if isinstance(entry, TyperArgument)]
    options = [entry for entry in command.params if not isinstance(entry, TyperArgument)]
    names = [_argument(entry) for entry in arguments]
    usage = " ".join([*path, *(["[OPTIONS]"] if options else []), *names])
    lines = [f"## {' '.join(path)}", "", _text(command.help), "", f"```text\n{usage}\n```", ""]
    rows = [(_code(name), _text(entry.help), "") for name, entry in zip(names, arguments, strict=True)]
    rows += [
        (_code(_NUMBER.sub("N", entry.get_help_record(context)[0])), _text(entry.help), _default(entry))
        for entry in options
    ]
    if rows:
        lines += ["| | | default |", "|---|---|---|"]
        lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([*lines, ""])


def _argument(entry: Any) -> str:
    name = entry.metavar or entry.name.upper()
    return name if entry.required else f"[{name}]"


def _default(entry: Any) -> str:
    """Return the default that the help shows."""
    if isinstance(entry.show_default, str):
        return _text(entry.show_default)
    if entry.default in (None, "", False, ()) or callable(entry.default):
        return ""
    return _code(str(getattr(entry.default, "value", entry.default)))


def _code(text: str) -> str:
    return f"`{text}`"


def _text(text: str | None) -> str:
    return re.sub(r"\s+", " ", (text or "").replace("\\[", "[")).strip().replace("|", "\\|")
