"""What frontier and compare share: where they print, what they draw, and how a failed run ends them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from flexfl.cli import FAILED, studies
from flexfl.errors import InputError


def test_formats_are_listed_once_and_known() -> None:
    assert studies.kinds_of("png, svg,png") == ["png", "svg"]
    with pytest.raises(InputError, match=r"format must list some of png, svg, pdf, got 'gif'"):
        studies.kinds_of("png,gif")


def test_beside_json_a_study_tells_of_itself_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    for as_json in (False, True):
        studies.show_page(studies.console_of(as_json=as_json, quiet=False), Path("folder/page.html"))
        printed = capsys.readouterr()
        told, silent = (printed.err, printed.out) if as_json else (printed.out, printed.err)
        assert told.split() == ["files", "folder", "open", "folder/page.html"]
        assert not silent
    studies.show_page(studies.console_of(as_json=False, quiet=True), Path("page.html"))
    assert not capsys.readouterr().out


@pytest.mark.parametrize(("code", "raised"), [(None, False), (FAILED, False), (130, True)])
def test_a_failed_run_is_told_at_the_end_and_a_stop_at_once(
    code: int | None, raised: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_many(*_: Any, **__: Any) -> None:
        if code is not None:
            raise typer.Exit(code)

    monkeypatch.setattr("flexfl.cli.run_many.run_many", run_many)
    monkeypatch.setattr(sys, "argv", ["flexfl", "frontier"])
    console = studies.console_of(as_json=False, quiet=True)
    if raised:
        with pytest.raises(typer.Exit):
            studies.run_all(console, [], jobs=1, on="here")
        return
    found = studies.run_all(console, [], jobs=1, on="here")
    assert (None if found is None else found.exit_code) == code
