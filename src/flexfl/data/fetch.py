"""Fetching a dataset from the first source that works."""

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
"""Called with the title of the source that is tried next."""


class NoSourceError(FlexFLError):
    """No source works; the message gives the reason for each, and how to add the data manually."""


def dataset(name: str) -> Dataset:
    """Return the dataset of that name.

    Raises:
        InputError: There is no such dataset.
    """
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
    """Return a dataset from the store, and fetch it first if it is not stored.

    Args:
        entry: The dataset.
        given: A folder or an archive of the user to take it from.
        again: Fetch it even if it is stored already.
        local_only: Do not use the network.
        on_source: Called with the title of each source that is tried.
        on_bytes: Called with the progress of a download.

    Raises:
        NoSourceError: No source works.
        InputError: `given` cannot be used.
    """
    use_stored = not again and given is None
    if use_stored and (found := store.find(entry)) is not None:
        return found  # even if the folder is read-only
    with store.locked(entry):
        if use_stored and (found := store.find(entry)) is not None:
            return found  # another process has fetched it meanwhile
        if given is not None:
            stored = _from_given(entry, given)
        else:
            sources = [source for source in entry.sources if source.local or not local_only]
            stored = _from_sources(entry, sources, on_source, on_bytes)
        shutil.rmtree(store.downloads(entry), ignore_errors=True)
        return stored


def _from_given(entry: Dataset, given: Path) -> Stored:
    try:
        return store.save(entry, read_published(entry, given), f"{given.resolve().name}, added manually")
    except FlexFLError as error:
        fault = Fault("--from", f"cannot be used ({error})", str(given), f"provide {entry.manual_files}")
        raise InputError([fault], "the command") from error


def _from_sources(
    entry: Dataset, sources: Sequence[Source], on_source: OnSource, on_bytes: OnBytes
) -> Stored:
    reasons = []
    for source in sources:
        on_source(source.title)
        # A folder for each source, since files of two sources may have the same name.
        work = store.downloads(entry) / str(entry.sources.index(source))
        if not source.local:
            work.mkdir(parents=True, exist_ok=True)
        try:
            members = source.read(_wanted(entry), work, on_bytes)
            return store.save(entry, _read(entry, members), source.title)
        except SourceError as error:
            reasons.append(f"  {source.title}: {error}")
        except FlexFLError as error:  # downloaded, but with the wrong content
            shutil.rmtree(work, ignore_errors=True)
            reasons.append(f"  {source.title}: {error}")
    title = f"no source of {entry.name} could be used:"
    raise NoSourceError("\n".join([title, *reasons, _manual_instructions(entry)]))


def read_published(entry: Dataset, path: Path) -> dict[str, NDArray[Any]]:
    """Read the arrays of a dataset from a folder or an archive of its published files.

    Raises:
        FlexFLError: The path cannot be read, or files are missing.
    """
    return _read(entry, read_members(path, _wanted(entry)))


def _wanted(entry: Dataset) -> set[str]:
    return {name for form in entry.formats for name in form.files}


def _read(entry: Dataset, members: Members) -> dict[str, NDArray[Any]]:
    for form in entry.formats:
        if set(form.files) <= members.keys():
            return form.read(members)
    fewest = min((sorted(set(form.files) - members.keys()) for form in entry.formats), key=len)
    raise FlexFLError(f"{', '.join(fewest)} missing")


def _manual_instructions(entry: Dataset) -> str:
    return (
        f"to add it manually, copy {entry.manual_files} to this machine, then\n"
        f"  flexfl data fetch {entry.name} --from PATH"
    )
