"""One file over the network: checked, and continued where it was cut."""

from __future__ import annotations

import base64
import hashlib
import random
from pathlib import Path

import pytest

from flexfl.data.sources import SourceError
from flexfl.data.sources.web import Remote, download, matches
from loopback import Loopback

CONTENT = random.Random(0).randbytes(600_000)  # more than two pieces
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def quiet(name: str, have: int, total: int | None) -> None:
    pass


def remote(web: Loopback, checksum: str = f"sha256-{SHA256}") -> Remote:
    web.files.setdefault("file.gz", CONTENT)
    return Remote(f"{web.url}/file.gz", checksum)


def names(work: Path) -> list[str]:
    return sorted(path.name for path in work.iterdir())


def test_a_download_and_what_is_told_of_it(web: Loopback, work: Path) -> None:
    steps: list[tuple[str, int, int | None]] = []
    path = download(remote(web), work, lambda *step: steps.append(step))
    assert path == work / "file.gz"
    assert path.read_bytes() == CONTENT
    assert names(work) == ["file.gz"]
    assert [step[1] for step in steps] == sorted({step[1] for step in steps})
    assert {step[0] for step in steps} == {"file.gz"}
    assert {step[2] for step in steps} == {len(CONTENT)}
    assert steps[-1][1] == len(CONTENT)


def test_what_is_there_is_not_asked_for_again(web: Loopback, work: Path) -> None:
    download(remote(web), work, quiet)
    download(remote(web), work, quiet)
    assert len(web.requests) == 1


# Cut downloads ---------------------------------------------------------------------------------


def test_a_cut_download_is_continued(web: Loopback, work: Path) -> None:
    web.cuts = [1000, 299_000]
    steps: list[int] = []
    path = download(remote(web), work, lambda name, have, total: steps.append(have))
    assert path.read_bytes() == CONTENT
    assert [asked for _, asked in web.requests] == [None, "bytes=1000-", "bytes=300000-"]
    assert steps == sorted(steps)
    assert steps[-1] == len(CONTENT)


def test_without_ranges_it_is_repeated(web: Loopback, work: Path) -> None:
    """Even if it is cut at the same place, or earlier, more than once."""
    web.ranges = False
    web.cuts = [300_000, 300_000, 1000]
    assert download(remote(web), work, quiet).read_bytes() == CONTENT
    assert len(web.requests) == 4


def test_one_that_stays_cut_goes_on_next_time(web: Loopback, work: Path) -> None:
    web.cuts = [1000, 1000, 1000, 1000]
    with pytest.raises(SourceError, match="the connection ended after 4000 of 600000 bytes"):
        download(remote(web), work, quiet)
    assert names(work) == ["file.gz.partial"]
    assert (work / "file.gz.partial").read_bytes() == CONTENT[:4000]
    assert download(remote(web), work, quiet).read_bytes() == CONTENT
    assert web.requests[-1] == ("file.gz", "bytes=4000-")
    assert names(work) == ["file.gz"]


def test_nothing_at_all_is_not_asked_for_again_and_again(web: Loopback, work: Path) -> None:
    web.cuts = [1000, 0]
    with pytest.raises(SourceError, match="ended after 1000 of 600000 bytes"):
        download(remote(web), work, quiet)
    assert len(web.requests) == 2


def test_one_that_was_killed_after_its_last_byte(web: Loopback, work: Path) -> None:
    """The server tells that nothing is left; nothing comes twice."""
    (work / "file.gz.partial").write_bytes(CONTENT)
    steps: list[int] = []
    assert download(remote(web), work, lambda name, have, total: steps.append(have)).read_bytes() == CONTENT
    assert [asked for _, asked in web.requests] == [f"bytes={len(CONTENT)}-"]
    assert steps == []


def test_a_rest_of_something_longer_is_thrown_away(web: Loopback, work: Path) -> None:
    (work / "file.gz.partial").write_bytes(CONTENT + b"more")
    assert download(remote(web), work, quiet).read_bytes() == CONTENT
    assert [asked for _, asked in web.requests] == [f"bytes={len(CONTENT) + 4}-", None]


def test_a_rest_of_something_else_is_thrown_away(web: Loopback, work: Path) -> None:
    (work / "file.gz.partial").write_bytes(b"something else")
    with pytest.raises(SourceError, match=r"file\.gz has the wrong checksum"):
        download(remote(web), work, quiet)
    assert names(work) == []
    assert download(remote(web), work, quiet).read_bytes() == CONTENT


def test_a_server_that_sends_another_part(web: Loopback, work: Path) -> None:
    web.wrong_range = True
    (work / "file.gz.partial").write_bytes(CONTENT[:1000])
    with pytest.raises(SourceError, match="another range than requested"):
        download(remote(web), work, quiet)
    assert names(work) == []
    assert download(remote(web), work, quiet).read_bytes() == CONTENT


# Checksums -------------------------------------------------------------------------------------


def test_another_checksum(web: Loopback, work: Path) -> None:
    web.files["file.gz"] = CONTENT[:-1] + b"?"
    with pytest.raises(SourceError, match="has the wrong checksum; it was deleted"):
        download(remote(web), work, quiet)
    assert names(work) == []


def test_a_cut_that_the_server_does_not_tell(web: Loopback, work: Path) -> None:
    web.lengths = False
    web.cuts = [1000]
    with pytest.raises(SourceError, match="wrong checksum"):
        download(remote(web), work, quiet)
    assert names(work) == []


@pytest.mark.parametrize("kind", ["sha256", "sha384", "sha512"])
def test_kinds_of_checksums(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(CONTENT)
    digest = hashlib.new(kind, CONTENT).digest()
    for spelt in (digest.hex(), base64.b64encode(digest).decode()):
        assert matches(path, f"{kind}-{spelt}")
        assert not matches(path, f"{kind}-{spelt[:-1]}")
    assert not matches(path, f"{kind}-")


@pytest.mark.parametrize("checksum", ["md5-abc", "sha1-abc", "shake_128-abc", "nonsense", "sha256", SHA256])
def test_a_checksum_that_proves_nothing(web: Loopback, work: Path, checksum: str) -> None:
    with pytest.raises(SourceError, match="unknown kind"):
        download(remote(web, checksum), work, quiet)
    assert web.requests == []


# Other faults ----------------------------------------------------------------------------------


def test_a_file_that_the_server_does_not_have(web: Loopback, work: Path) -> None:
    with pytest.raises(SourceError, match="the server answers 404 Not Found"):
        download(Remote(f"{web.url}/absent"), work, quiet)
    assert names(work) == []


def test_no_server(work: Path) -> None:
    with Loopback() as gone:
        url = gone.url
    with pytest.raises(SourceError, match="Connection refused"):
        download(Remote(f"{url}/file"), work, quiet)


@pytest.mark.parametrize(
    "url", ["no address", "unknown://127.0.0.1/file", "http://127.0.0.1:99999/file", "http:///x"]
)
def test_addresses_that_are_none(work: Path, url: str) -> None:
    with pytest.raises(SourceError):
        download(Remote(url), work, quiet)
    assert names(work) == []


@pytest.mark.parametrize("lengths", [True, False])
def test_one_that_does_not_end(
    web: Loopback, work: Path, monkeypatch: pytest.MonkeyPatch, lengths: bool
) -> None:
    monkeypatch.setattr("flexfl.data.sources.web._MOST_BYTES", 100_000)
    web.lengths = lengths
    with pytest.raises(SourceError, match="more than 100000 bytes"):
        download(remote(web), work, quiet)
    assert names(work) == []
    assert len(web.requests) == 1


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("http://host/a/file.tar.gz", "file.tar.gz"),
        ("http://host/a/file.tgz?token=/x", "file.tgz"),
        ("http://host/a/name_1.0%7e2_all.deb", "name_1.0%7e2_all.deb"),
        ("http://host/..", "file"),
        ("http://host/", "file"),
        ("http://host/.hidden", "hidden"),
        ("http://host/a\\..\\b", "a_.._b"),
        ("http://host/a\0b", "a_b"),
        ("http://host/" + "long" * 1000, "long" * 30),
        ("http://host/ü\ud800", "__"),
    ],
)
def test_names_are_plain(url: str, name: str) -> None:
    assert Remote(url).name == name
