"""Each source on its own, with files made for the test."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flexfl.data.catalogue import ARRAYS, CATALOGUE, Dataset
from flexfl.data.fetch import fetch
from flexfl.data.sources import Source, SourceError
from flexfl.data.sources.packages import DebianPackage, NpmPackage
from flexfl.data.sources.system import SystemPackage
from flexfl.data.sources.web import OfficialArchive, Remote
from loopback import Loopback
from tiny_data import CIFAR, FASHION, batches, cifar10, deb, fashion, idx_files, pictures, tar

Tool = Callable[..., Path]


def quiet(name: str, have: int, total: int | None) -> None:
    pass


def read(source: Source, tmp_path: Path, wanted: Any = ("one", "two")) -> dict[str, bytes]:
    work = tmp_path / "work"
    work.mkdir(exist_ok=True)
    return source.read(wanted, work, quiet)


def assert_brings(entry: Dataset, arrays: dict[str, Any], folder: Path) -> None:
    """The source alone is enough, what it gave is right, and nothing else stays."""
    stored = fetch(entry)
    assert stored.source == entry.sources[0].title
    assert sorted(path.name for path in folder.iterdir()) == [f".{entry.name}.lock", entry.name]
    found = stored.arrays()
    for name in ARRAYS:
        expected = entry.scaling(arrays[name]) if name.endswith("x") else arrays[name].astype("int64")
        assert found[name].dtype == expected.dtype
        assert found[name].tobytes() == expected.tobytes()


def test_every_source_keeps_to_the_protocol() -> None:
    kinds = set()
    for entry in CATALOGUE.values():
        assert set(entry.shapes) == set(entry.digests) == set(ARRAYS)
        for source in entry.sources:
            assert isinstance(source, Source)
            kinds.add(type(source))
    assert kinds == {SystemPackage, OfficialArchive, DebianPackage, NpmPackage}


def test_the_order_of_the_sources() -> None:
    """What is here already, the authors' own archive, then packages."""
    assert [type(source) for source in CATALOGUE["fashion-mnist"].sources] == [
        SystemPackage,
        OfficialArchive,
        DebianPackage,
    ]
    assert [type(source) for source in CATALOGUE["cifar10"].sources] == [OfficialArchive, NpmPackage]
    assert [source.local for source in CATALOGUE["fashion-mnist"].sources] == [True, False, False]


# An installed package --------------------------------------------------------------------------


@pytest.mark.parametrize("packed", [True, False])
def test_an_installed_package(tmp_path: Path, folder: Path, packed: bool) -> None:
    installed = tmp_path / "installed"
    installed.mkdir()
    for name, content in idx_files(packed=packed).items():
        (installed / name).write_bytes(content)
    assert_brings(fashion(SystemPackage("dataset", installed)), FASHION, folder)


def test_a_package_that_is_not_installed(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="nowhere does not exist"):
        read(SystemPackage("dataset", tmp_path / "nowhere"), tmp_path)


# The official archive --------------------------------------------------------------------------


def sha256(content: bytes) -> str:
    return f"sha256-{hashlib.sha256(content).hexdigest()}"


@pytest.mark.parametrize("ranges", [True, False])
def test_an_official_archive(web: Loopback, folder: Path, ranges: bool) -> None:
    archive = tar(batches(), "cifar-10-batches-py/")
    web.files["cifar.tar.gz"], web.ranges, web.cuts = archive, ranges, [len(archive) // 3]
    source = OfficialArchive([Remote(f"{web.url}/cifar.tar.gz", sha256(archive))])
    assert source.title == "official archive (cifar.tar.gz)"
    assert_brings(cifar10(source), CIFAR, folder)
    assert web.requests == [("cifar.tar.gz", None), ("cifar.tar.gz", f"bytes={len(archive) // 3}-")]


@pytest.mark.parametrize("ranges", [True, False])
def test_official_files(web: Loopback, folder: Path, ranges: bool) -> None:
    web.files, web.ranges, web.cuts = idx_files(), ranges, [None, 10]
    source = OfficialArchive([Remote(f"{web.url}/{name}") for name in web.files])
    assert_brings(fashion(source), FASHION, folder)
    images, labels, *rest = web.files
    asked = [(images, None), (labels, None), (labels, "bytes=10-"), *((name, None) for name in rest)]
    assert web.requests == asked


# Debian ----------------------------------------------------------------------------------------


def uri(web: Loopback, name: str, content: bytes, kind: str = "SHA256") -> bytes:
    digest = hashlib.new(kind.lower(), content).hexdigest()
    return f"'{web.url}/{name}' {name} {len(content)} {kind}:{digest}\n".encode()


@pytest.mark.parametrize("kind", ["SHA256", "SHA512"])
@pytest.mark.parametrize("packing", ["xz", "gz"])
def test_a_debian_package(web: Loopback, folder: Path, tool: Tool, kind: str, packing: str) -> None:
    package = deb(idx_files(), packing)
    web.files["dataset_1.0_all.deb"] = package
    calls = tool("apt-get", uri(web, "dataset_1.0_all.deb", package, kind))
    assert_brings(fashion(DebianPackage("dataset")), FASHION, folder)
    assert calls.read_text().split() == ["download", "--print-uris", "dataset"]


def test_no_apt_get(tmp_path: Path, tool: Tool) -> None:
    with pytest.raises(SourceError, match="apt-get is not installed"):
        read(DebianPackage("dataset"), tmp_path)


def test_apt_get_does_not_know_the_package(tmp_path: Path, tool: Tool) -> None:
    tool("apt-get", errors=b"W: old lists\nE: Unable to locate package dataset\n", code=100)
    with pytest.raises(SourceError) as caught:
        read(DebianPackage("dataset"), tmp_path)
    expected = "apt-get download failed (E: Unable to locate package dataset); apt-get update may help"
    assert str(caught.value) == expected


@pytest.mark.parametrize(
    "output", [b"", b"\xff\xfe", b"'http://x/y' y 3\n", b"'http://x/y' y 3 MD5Sum:00\n", b"nonsense\n" * 1000]
)
def test_apt_get_does_not_tell(tmp_path: Path, tool: Tool, output: bytes) -> None:
    tool("apt-get", output)
    with pytest.raises(SourceError, match="apt-get gives no address of dataset"):
        read(DebianPackage("dataset"), tmp_path)


def test_a_package_that_is_another_than_apt_get_tells(web: Loopback, tmp_path: Path, tool: Tool) -> None:
    web.files["dataset.deb"] = deb({"one": b"1"})
    tool("apt-get", uri(web, "dataset.deb", deb({"one": b"2"})))
    with pytest.raises(SourceError, match="wrong checksum"):
        read(DebianPackage("dataset"), tmp_path)


# npm -------------------------------------------------------------------------------------------


def dist(web: Loopback, name: str, content: bytes) -> dict[str, Any]:
    integrity = base64.b64encode(hashlib.sha512(content).digest()).decode()
    return {"tarball": f"{web.url}/{name}", "integrity": f"sha512-{integrity}", "shasum": "0"}


def test_an_npm_package(web: Loopback, folder: Path, tool: Tool) -> None:
    package = tar(pictures(), "package/data/")
    web.files["pictures-1.0.tgz"] = package
    calls = tool("npm", json.dumps(dist(web, "pictures-1.0.tgz", package), indent=2).encode())
    assert_brings(cifar10(NpmPackage("pictures", "1.0")), CIFAR, folder)
    assert calls.read_text().split() == ["view", "pictures@1.0", "dist", "--json"]


def test_no_npm(tmp_path: Path, tool: Tool) -> None:
    with pytest.raises(SourceError, match="npm is not installed"):
        read(NpmPackage("pictures", "1.0"), tmp_path)


def test_npm_cannot_reach_its_registry(tmp_path: Path, tool: Tool) -> None:
    """Its first lines tell why; the last one where a log lies."""
    errors = (
        b"npm warn config old\nnpm error code E404\nnpm error 404 Not Found - GET pictures\n"
        b"npm error 404 Note that you can\nnpm error A complete log of this run can be found in: x\n"
    )
    tool("npm", b'{"error": {}}', errors, code=1)
    with pytest.raises(SourceError) as caught:
        read(NpmPackage("pictures", "1.0"), tmp_path)
    reason = "npm error code E404; npm error 404 Not Found - GET pictures"
    assert str(caught.value) == f"npm view failed ({reason}); is its registry reachable?"


@pytest.mark.parametrize(
    "output",
    [
        b"",
        b"not JSON",
        b"[]",
        b"3",
        b"null",
        b"\xff",
        b"[" * 100_000,
        b'{"tarball": "http://x/y"}',
        b'{"tarball": "http://x/y", "integrity": ""}',
        b'{"tarball": "http://x/y", "integrity": 5}',
        b'{"integrity": "sha512-x"}',
    ],
)
def test_npm_does_not_tell(tmp_path: Path, tool: Tool, output: bytes) -> None:
    tool("npm", output)
    with pytest.raises(SourceError, match=r"npm gives no address of pictures@1\.0"):
        read(NpmPackage("pictures", "1.0"), tmp_path)


@pytest.mark.parametrize(
    "output", [{"tarball": 5, "integrity": "sha512-x"}, {"tarball": "http://x/y", "integrity": "md5-x"}]
)
def test_npm_tells_nonsense(tmp_path: Path, tool: Tool, output: dict[str, Any]) -> None:
    tool("npm", json.dumps(output).encode())
    with pytest.raises(SourceError):
        read(NpmPackage("pictures", "1.0"), tmp_path)


@pytest.mark.parametrize(("name", "source"), [("apt-get", DebianPackage("x")), ("npm", NpmPackage("x", "1"))])
def test_a_tool_that_does_not_answer(
    tmp_path: Path, tool: Tool, monkeypatch: pytest.MonkeyPatch, name: str, source: Source
) -> None:
    tool(name)
    (tmp_path / "bin" / name).write_text("#!/bin/sh\nexec /bin/sleep 60\n", encoding="utf-8")
    monkeypatch.setattr("flexfl.data.sources.packages._TIMEOUT", 0.1)
    with pytest.raises(SourceError, match=f"{name} does not answer .*timed out"):
        read(source, tmp_path)
