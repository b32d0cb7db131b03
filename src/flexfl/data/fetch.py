"""Bring a dataset to this machine, from the first source that has it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from flexfl.data import store
from flexfl.data.archives import Members, read_members
from flexfl.data.catalogue import CATALOGUE, Dataset
from flexfl.data.sources import OnBytes, SourceError
from flexfl.data.store import Stored
from flexfl.errors import Fault, FlexFLError, InputError
from flexfl.spec.names import nearest

OnSource = Callable[[str], None]
"""Told which source is tried now."""


def dataset(name: str) -> Dataset:
    if name not in CATALOGUE:
        rule = f"must be one of {', '.join(CATALOGUE)}"
        raise InputError([Fault("NAME", rule, name, nearest(name, CATALOGUE))], "the command")
    return CATALOGUE[name]


def fetch(
    entry: Dataset,
    *,
    given: Path | None = None,
    again: bool = False,
    local_only: bool = False,
    on_source: OnSource = lambda title: None,
    on_bytes: OnBytes = lambda name, have, total: None,
) -> Stored:
    """The dataset in the store; brought there if it is not yet, or `again`.

    given       a folder or an archive that a person has brought
    local_only  ask no network
    """
    with store.locked(entry):
        if not again and given is None and (found := store.find(entry)) is not None:
            return found
        if given is not None:
            try:
                return store.place(entry, published(entry, given), f"{given.name}, by hand")
            except FlexFLError as error:
                remedy = f"bring {entry.by_hand}"
                raise InputError(
                    [Fault("--from", f"cannot be used ({error})", str(given), remedy)]
                ) from error
        work = store.data_folder() / f".{entry.name}-download"
        work.mkdir(exist_ok=True)
        reasons = []
        for source in entry.sources:
            if local_only and not source.local:
                continue
            on_source(source.title)
            try:
                members = source.read(_wanted(entry), work, on_bytes)
                stored = store.place(entry, _read(entry, members), source.title)
            except SourceError as error:
                reasons.append(f"  {source.title}: {error}")
            except FlexFLError as error:  # it came, but is not what it should be
                shutil.rmtree(work)
                work.mkdir()
                reasons.append(f"  {source.title}: {error}")
            else:
                shutil.rmtree(work)
                return stored
    raise FlexFLError("\n".join([f"no source of {entry.name} could be used:", *reasons, _by_hand(entry)]))


def published(entry: Dataset, path: Path) -> dict[str, NDArray[Any]]:
    """The arrays in a folder or an archive of published files."""
    return _read(entry, read_members(path, _wanted(entry)))


def _wanted(entry: Dataset) -> set[str]:
    return {name for form in entry.formats for name in form.files}


def _read(entry: Dataset, members: Members) -> dict[str, NDArray[Any]]:
    for form in entry.formats:
        if set(form.files) <= members.keys():
            return form.read(members)
    fewest = min((sorted(set(form.files) - members.keys()) for form in entry.formats), key=len)
    raise FlexFLError(f"{', '.join(fewest)} missing")


def _by_hand(entry: Dataset) -> str:
    return (
        f"to place it by hand, bring {entry.by_hand} to this machine, then\n"
        f"  flexfl data fetch {entry.name} --from PATH"
    )
