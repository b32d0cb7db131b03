"""Files out of folders and archives, whole ones, broken ones and hostile ones."""

from __future__ import annotations

import gzip
import io
import tarfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexfl.data import archives
from flexfl.data.archives import read_members
from flexfl.errors import FlexFLError
from tiny_data import ar, deb, tar

FILES = {"one": b"first" * 100, "two": bytes(range(256))}
WHOLE = {
    "tar": tar(FILES, packing=""),
    "tar.gz": tar(FILES, "some/folder/"),
    "tar.xz": tar(FILES, packing="xz"),
    "tar.bz2": tar(FILES, packing="bz2"),
    "deb": deb(FILES),
    "deb, gz": deb(FILES, packing="gz"),
    "deb, plain": deb(FILES, packing=""),
}


def read(tmp_path: Path, content: bytes) -> dict[str, bytes]:
    path = tmp_path / "archive"
    path.write_bytes(content)
    found = read_members(path, FILES)
    assert [file.name for file in tmp_path.iterdir()] == ["archive"]  # nothing was unpacked
    return found


def refused(tmp_path: Path, content: bytes) -> str:
    with pytest.raises(FlexFLError, match="cannot be read as a folder or an archive") as caught:
        read(tmp_path, content)
    return str(caught.value)


@pytest.mark.parametrize("kind", WHOLE)
def test_archives(tmp_path: Path, kind: str) -> None:
    assert read(tmp_path, WHOLE[kind]) == FILES


def test_a_folder_and_only_what_is_wanted(tmp_path: Path) -> None:
    for name, content in {**FILES, "three": b"3"}.items():
        (tmp_path / name).write_bytes(content)
    assert read_members(tmp_path, FILES) == FILES
    assert read_members(tmp_path, ["two", "four"]) == {"two": FILES["two"]}


def test_an_archive_with_other_files(tmp_path: Path) -> None:
    assert read(tmp_path, tar({"three": b"3", "one": b"1"})) == {"one": b"1"}


def test_a_path_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FlexFLError, match=r"nowhere cannot be read .*\(No such file or directory\)"):
        read_members(tmp_path / "nowhere", FILES)


# Hostile members -------------------------------------------------------------------------------


def special(name: str, kind: bytes, link: str = "", size: int = 0) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname, member.size = kind, link, size
    return member


def tar_of(*members: tarfile.TarInfo | tuple[tarfile.TarInfo, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for member in members:
            if isinstance(member, tuple):
                archive.addfile(member[0], io.BytesIO(member[1]))
            else:
                archive.addfile(member)
    return stream.getvalue()


@pytest.mark.parametrize("folder", ["../", "../../../../", "/", "/etc/", "a/../../", "./"])
def test_a_name_leads_nowhere(tmp_path: Path, folder: str) -> None:
    """The last part of a name tells which file it is; the rest of it is not used for anything."""
    inside = tmp_path / "inside"
    inside.mkdir()
    assert read(inside, tar(FILES, folder)) == FILES
    assert list(tmp_path.iterdir()) == [inside]


@pytest.mark.parametrize(
    ("kind", "link"),
    [
        (tarfile.SYMTYPE, "/etc/passwd"),
        (tarfile.SYMTYPE, "two"),
        (tarfile.LNKTYPE, "/etc/passwd"),
        (tarfile.LNKTYPE, "two"),
        (tarfile.CHRTYPE, ""),
        (tarfile.BLKTYPE, ""),
        (tarfile.FIFOTYPE, ""),
        (tarfile.DIRTYPE, ""),
    ],
)
def test_links_and_devices_are_not_files(tmp_path: Path, kind: bytes, link: str) -> None:
    two = special("two", tarfile.REGTYPE, size=3)
    assert read(tmp_path, tar_of((two, b"abc"), special("one", kind, link))) == {"two": b"abc"}


def test_two_files_of_one_name(tmp_path: Path) -> None:
    one = special("one", tarfile.REGTYPE, size=1)
    other = special("folder/one", tarfile.REGTYPE, size=1)
    assert "holds one more than once" in refused(tmp_path, tar_of((one, b"a"), (other, b"b")))


def header(name: str, kind: bytes, size: int) -> bytes:
    return special(name, kind, size=size).tobuf(tarfile.GNU_FORMAT)


def pax(records: bytes) -> bytes:
    padded = records + bytes(-len(records) % 512)
    return header("pax", tarfile.XHDTYPE, len(records)) + padded


HUGE = {
    "a file": header("one", tarfile.REGTYPE, 3 * 2**30),
    "another file": header("three", tarfile.REGTYPE, 2**62),
    "a file of some other kind": header("three", b"Z", 2**62),
    "a long name": header("long", tarfile.GNUTYPE_LONGNAME, 2**62),
    "a long link": header("long", tarfile.GNUTYPE_LONGLINK, 3 * 2**30),
    "an extended header": header("pax", tarfile.XHDTYPE, 2**62),
    "a global header": header("pax", tarfile.XGLTYPE, 2**40),
    "by an extended header": pax(b"22 size=9999999999999\n") + header("one", b"0", 1),
    "less than nothing": header("one", tarfile.REGTYPE, -512),
    "less than nothing, elsewhere": header("three", tarfile.REGTYPE, -(2**40)),
    "a long name of less than nothing": header("long", tarfile.GNUTYPE_LONGNAME, -1024),
    "an extended header of less than nothing": header("pax", tarfile.XHDTYPE, -1024),
    "less than nothing by an extended header": pax(b"13 size=-512\n") + header("one", b"0", 512),
}


@pytest.mark.parametrize("kind", HUGE)
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_sizes_that_cannot_be(tmp_path: Path, kind: str, pack: type[bytes]) -> None:
    """Refused by the header alone: no memory is asked for, and tarfile is not led in circles."""
    message = refused(tmp_path, pack(tar(FILES, packing="")[:2048] + HUGE[kind] + bytes(2048)))
    assert "more than 2 GiB" in message


def test_a_sparse_file_is_not_a_file(tmp_path: Path) -> None:
    """It could swell to gigabytes of zeros from nothing."""
    block = bytearray(header("one", tarfile.GNUTYPE_SPARSE, 0))
    block[483:495] = b"%011o\0" % 2**30  # its size when unpacked
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    assert read(tmp_path, bytes(block) + bytes(1024)) == {}


def test_a_bomb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "_MOST_BYTES", 100_000)
    assert read(tmp_path, tar(FILES)) == FILES
    swollen = {"three": bytes(1_000_000), **FILES}
    for packing in ("gz", "xz", "bz2"):
        refused(tmp_path, tar(swollen, packing=packing))
    refused(tmp_path, deb(swollen))
    name = header("long", tarfile.GNUTYPE_LONGNAME, 1_000_000) + bytes(1_000_000)
    refused(tmp_path, gzip.compress(name + tar(FILES, packing="")))


def test_more_files_than_any_dataset_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "_MOST_MEMBERS", 20)
    assert read(tmp_path, tar({str(n): b"" for n in range(18)} | FILES)) == FILES
    assert "more than 20 files" in refused(tmp_path, tar({str(n): b"" for n in range(21)}))


# Broken archives -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["tar.gz", "tar.xz", "tar.bz2", "deb", "deb, gz"])
def test_a_cut_archive(tmp_path: Path, kind: str) -> None:
    whole = WHOLE[kind]
    for end in range(1, len(whole) * 2 // 3, 23):
        refused(tmp_path, whole[:end])


@pytest.mark.parametrize(
    "content",
    [b"", b"x", b"<html>not found</html>" * 100, b"\x1f\x8b", b"\xfd7zXZ\0", b"BZh9", b"PK\x03\x04" * 300],
)
def test_something_else(tmp_path: Path, content: bytes) -> None:
    refused(tmp_path, content)


@pytest.mark.parametrize("size", [b"9999999999", b"-1", b"", b"12x", b"\xb2", b"2147483647", b"1e3", b"+5"])
def test_a_package_with_nonsense_for_a_size(tmp_path: Path, size: bytes) -> None:
    content = bytearray(deb(FILES))
    content[8 + 48 : 8 + 58] = size.ljust(10)
    assert "no data in the package" in refused(tmp_path, bytes(content))


def test_packages_without_data(tmp_path: Path) -> None:
    for files in ({}, {"debian-binary": b"2.0\n"}, {"data": b"x"}):
        assert "no data in the package" in refused(tmp_path, ar(files))
    assert "zstd" in refused(tmp_path, ar({"debian-binary": b"2.0\n", "data.tar.zst": b"\x28\xb5\x2f\xfd"}))


@given(kind=st.sampled_from(sorted(WHOLE)), data=st.data())
def test_no_change_brings_out_anything_but_our_error(
    tmp_path_factory: pytest.TempPathFactory, kind: str, data: st.DataObject
) -> None:
    content = bytearray(WHOLE[kind])
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place : place + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=12))
    path = tmp_path_factory.getbasetemp() / "mutated-archive"
    path.write_bytes(content)
    try:
        found = read_members(path, FILES)
    except FlexFLError:
        return
    assert set(found) <= set(FILES)


@given(kind=st.sampled_from([b"x", b"g", b"L", b"K", b"S", b"0"]), content=st.binary(max_size=700))
def test_no_header_brings_out_anything_but_our_error(
    tmp_path_factory: pytest.TempPathFactory, kind: bytes, content: bytes
) -> None:
    """Headers with a right checksum, so that tarfile goes on to read what they hold."""
    path = tmp_path_factory.getbasetemp() / "strange-archive"
    records = content + bytes(-len(content) % 512)
    path.write_bytes(header("one", kind, len(content)) + records + tar(FILES, packing=""))
    with suppress(FlexFLError):
        read_members(path, FILES)


KEYS = ["size", "path", "mtime", "hdrcharset"] + [
    f"GNU.sparse.{key}" for key in ("major", "minor", "size", "map", "realsize", "numblocks", "offset")
]
VALUES = ["1", "0", "-1", "0.1", "x", "1,2,3", "99999999999999999999", "BINARY", ""]


@given(st.lists(st.tuples(st.sampled_from(KEYS), st.sampled_from(VALUES)), max_size=5))
def test_no_record_brings_out_anything_but_our_error(
    tmp_path_factory: pytest.TempPathFactory, records: list[tuple[str, str]]
) -> None:
    path = tmp_path_factory.getbasetemp() / "strange-records"
    lines = [f"{key}={value}\n" for key, value in records]
    header = "".join(f"{len(line) + 3} {line}" for line in lines).encode()
    path.write_bytes(pax(header) + tar(FILES, packing=""))
    with suppress(FlexFLError):
        read_members(path, FILES)
