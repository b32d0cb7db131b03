"""Bring a dataset to this machine, from the first source that has it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from flexfl.data import store
from flexfl.data.archives import Members, read_members
from flexfl.data.catalogue import CATALOGUE, Dataset
from flexfl.data.sources import OnBytes, Source, SourceError
from flexfl.data.store import Stored
from flexfl.errors import Fault, FlexFLError, InputError, nearest

OnSource = Callable[[str], None]
"""Told which source is tried now."""


class NoSourceError(FlexFLError):
    """Names each source that was tried, why it could not be used, and what a person can do."""


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
    may_be_here = not again and given is None
    if may_be_here and (found := store.find(entry)) is not None:
        return found  # even in a folder that cannot be written
    with store.locked(entry):
        if may_be_here and (found := store.find(entry)) is not None:
            return found  # another process brought it meanwhile
        if given is not None:
            stored = _from_hand(entry, given)
        else:
            sources = [source for source in entry.sources if source.local or not local_only]
            stored = _from_sources(entry, sources, on_source, on_bytes)
        shutil.rmtree(store.downloads(entry), ignore_errors=True)
        return stored


def _from_hand(entry: Dataset, given: Path) -> Stored:
    try:
        return store.place(entry, published(entry, given), f"{given.resolve().name}, by hand")
    except FlexFLError as error:
        fault = Fault("--from", f"cannot be used ({error})", str(given), f"bring {entry.by_hand}")
        raise InputError([fault], "the command") from error


def _from_sources(
    entry: Dataset, sources: Sequence[Source], on_source: OnSource, on_bytes: OnBytes
) -> Stored:
    reasons = []
    for source in sources:
        on_source(source.title)
        # Each has a folder of its own, since files of two sources may have one name.
        work = store.downloads(entry) / str(entry.sources.index(source))
        if not source.local:
            work.mkdir(parents=True, exist_ok=True)
        try:
            members = source.read(_wanted(entry), work, on_bytes)
            return store.place(entry, _read(entry, members), source.title)
        except SourceError as error:
            reasons.append(f"  {source.title}: {error}")
        except FlexFLError as error:  # it came, but is not what it should be
            shutil.rmtree(work, ignore_errors=True)
            reasons.append(f"  {source.title}: {error}")
    title = f"no source of {entry.name} could be used:"
    raise NoSourceError("\n".join([title, *reasons, _by_hand(entry)]))


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
