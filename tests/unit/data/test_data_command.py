"""flexfl data: list, fetch, verify, as a person meets them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from flexfl.cli.data import MINI_SAMPLES
from flexfl.cli.main import main
from flexfl.data import store
from flexfl.data.catalogue import CATALOGUE
from loopback import Loopback
from tiny_data import (
    DONE,
    batches,
    cifar10,
    deb,
    fashion,
    good,
    idx_files,
    names,
    pictures,
    random_arrays,
    tar,
)

Flexfl = Callable[..., tuple[int, str, str]]
FILES = ("train_x.npy", "train_y.npy", "test_x.npy", "test_y.npy")


@pytest.fixture
def flexfl(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Flexfl:
    """The command, with the small datasets: exit code, output, errors."""
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["flexfl", "data", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        output = capsys.readouterr()
        return int(ended.value.code or 0), output.out, output.err

    return run


@pytest.fixture(autouse=True)
def small(web: Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CATALOGUE, "fashion-mnist", fashion(good(web)))
    monkeypatch.setitem(CATALOGUE, "cifar10", cifar10())


def test_fetch_and_once_more(flexfl: Flexfl, web: Loopback, folder: Path) -> None:
    code, out, errors = flexfl("fetch", "fashion-mnist")
    assert (code, errors) == (0, "")
    brought = f"fashion-mnist: 20 + 10 samples in {folder}/fashion-mnist, from official archive (good.tar.gz)"
    assert "fashion-mnist: trying official archive (good.tar.gz)" in out
    assert brought in out.splitlines()
    assert flexfl("fetch", "fashion-mnist") == (0, f"{brought} already\n", "")
    assert len(web.requests) == 1


def test_a_bar_shows_how_far_it_is(flexfl: Flexfl, web: Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    out = flexfl("fetch", "fashion-mnist")[1]
    size = f"{len(web.files['good.tar.gz']) / 1000:.1f}"
    assert "good.tar.gz" in out
    assert "━" in out
    assert f"{size}/{size} kB" in out


def test_no_source(flexfl: Flexfl, web: Loopback) -> None:
    web.files.clear()
    code, _, errors = flexfl("fetch", "fashion-mnist")
    assert code == 2
    assert errors.startswith("flexfl: no source of fashion-mnist could be used:\n")
    assert "  official archive (good.tar.gz): the server answers 404 Not Found\n" in errors
    assert errors.endswith("  flexfl data fetch fashion-mnist --from PATH\n")


def test_an_unknown_name(flexfl: Flexfl) -> None:
    for command in ("fetch", "verify"):
        code, out, errors = flexfl(command, "fashion-mnits")
        assert (code, out) == (2, "")
        assert "NAME must be one of fashion-mnist, cifar10, got 'fashion-mnits'" in errors
        assert "did you mean fashion-mnist?" in errors


# By hand ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "file", "content"),
    [
        ("fashion-mnist", "mine.tar.gz", tar(idx_files(packed=False), "folder/")),
        ("fashion-mnist", "mine.deb", deb(idx_files())),
        ("cifar10", "cifar-10-python.tar.gz", tar(batches(), "cifar-10-batches-py/")),
        ("cifar10", "a [red] one :cat:.tgz", tar(pictures(), "package/")),
    ],
)
def test_an_archive_by_hand(
    flexfl: Flexfl, web: Loopback, tmp_path: Path, name: str, file: str, content: bytes
) -> None:
    (tmp_path / file).write_bytes(content)
    code, out, errors = flexfl("fetch", name, "--from", str(tmp_path / file))
    assert (code, errors) == (0, "")
    assert out.endswith(f", from {file}, added manually\n")
    assert flexfl("verify", name) == (0, f"{name}: intact\n", "")
    assert web.requests == []


def test_by_hand_after_a_cut_download(flexfl: Flexfl, web: Loopback, tmp_path: Path, folder: Path) -> None:
    """Nothing of the download stays when it is needed no more."""
    web.cuts = [100, 0]
    assert "ended after 100 of" in flexfl("fetch", "fashion-mnist")[2]
    assert [path.name for path in folder.rglob("*.partial")] == ["good.tar.gz.partial"]
    (tmp_path / "mine.deb").write_bytes(deb(idx_files()))
    assert flexfl("fetch", "fashion-mnist", "--from", str(tmp_path / "mine.deb"))[0] == 0
    assert names(folder) == DONE


def test_a_folder_by_hand(flexfl: Flexfl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = tmp_path / "here"
    here.mkdir()
    for name, content in idx_files().items():
        (here / name).write_bytes(content)
    monkeypatch.chdir(here)
    code, out, _ = flexfl("fetch", "fashion-mnist", "--from", ".")
    assert code == 0
    assert out.endswith(", from here, added manually\n")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "No such file or directory"),
        (b"", "empty file"),
        (b"<html>", "truncated header"),
        (tar({"train-images-idx3-ubyte": b""}), "train-labels-idx1-ubyte missing"),
        (tar(idx_files(random_arrays(5, (28, 28), 20, 10))), "train_x must have the SHA-256"),
    ],
)
def test_a_wrong_path_by_hand(flexfl: Flexfl, tmp_path: Path, content: bytes | None, reason: str) -> None:
    """One error that says what is wrong and what to bring; what was there before stays."""
    flexfl("fetch", "fashion-mnist")
    before = store.find(CATALOGUE["fashion-mnist"])
    path = tmp_path / "mine.tar.gz"
    if content is not None:
        path.write_bytes(content)
    code, _, errors = flexfl("fetch", "fashion-mnist", "--from", str(path))
    assert code == 2
    assert errors.startswith("flexfl: 1 fault in the command:\n  --from cannot be used (")
    assert reason in errors
    assert "provide a folder with train-images-idx3-ubyte.gz" in errors
    assert before is not None
    assert store.find(CATALOGUE["fashion-mnist"]) == before
    assert before.faults() == []


# Verify ----------------------------------------------------------------------------------------


def test_verify_what_is_not_here(flexfl: Flexfl) -> None:
    expected = "fashion-mnist: not stored; fetch it with: flexfl data fetch fashion-mnist\n"
    assert flexfl("verify", "fashion-mnist") == (2, expected, "")
    code, out, _ = flexfl("verify")  # nobody asked for it by name
    assert code == 0
    assert out.startswith(expected)


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("place", [60, -1])  # in the header, in the data
def test_verify_notices_a_flipped_byte(flexfl: Flexfl, folder: Path, file: str, place: int) -> None:
    flexfl("fetch", "fashion-mnist")
    path = folder / "fashion-mnist" / file
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    code, out, _ = flexfl("verify", "fashion-mnist")
    assert code == 2
    assert f"fashion-mnist: {path} has changed since it was fetched\n" in out
    assert out.endswith("  repair it with: flexfl data fetch fashion-mnist --again\n")
    assert flexfl("fetch", "fashion-mnist", "--again")[0] == 0
    assert flexfl("verify", "fashion-mnist") == (0, "fashion-mnist: intact\n", "")


@pytest.mark.parametrize("file", FILES)
def test_verify_notices_a_change_of_the_manifest(flexfl: Flexfl, folder: Path, file: str) -> None:
    flexfl("fetch", "fashion-mnist")
    manifest = folder / "fashion-mnist/manifest.json"
    content = json.loads(manifest.read_text())
    digest = content["digests"][file]
    content["digests"][file] = digest[:-1] + ("0" if digest[-1] != "0" else "1")
    manifest.write_text(json.dumps(content))
    code, out, _ = flexfl("verify")
    assert code == 2
    assert f"fashion-mnist: {folder}/fashion-mnist/{file} has changed since it was fetched\n" in out
    assert "flexfl data fetch fashion-mnist --again" in out


@pytest.mark.parametrize("file", [*FILES, "manifest.json"])
def test_verify_notices_that_a_file_is_gone(flexfl: Flexfl, folder: Path, file: str) -> None:
    flexfl("fetch", "fashion-mnist")
    (folder / "fashion-mnist" / file).unlink()
    code, out, _ = flexfl("verify")
    assert code == 2
    assert f"fashion-mnist: {folder}/fashion-mnist/{file} cannot be read" in out
    assert "repair it with: flexfl data fetch fashion-mnist --again" in out
    assert flexfl("fetch", "fashion-mnist")[0] == 0
    assert flexfl("verify", "fashion-mnist")[0] == 0


# List ------------------------------------------------------------------------------------------


def test_list(flexfl: Flexfl, folder: Path) -> None:
    flexfl("fetch", "fashion-mnist")
    code, out, errors = flexfl("list")
    assert (code, errors) == (0, "")
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines() if "│" in line]
    assert rows == [
        ["fashion-mini", "a subset of Fashion-MNIST", "6,000 + 1,000", "MIT", "bundled with flexfl"],
        [
            "fashion-mnist",
            "images of clothes, 28 × 28, 10 classes",
            "20 + 10",
            "MIT",
            "0 MB, from official archive (good.tar.gz)",
        ],
        [
            "cifar10",
            "photographs, 32 × 32 in colour, 10 classes",
            "15 + 4",
            "none stated by its authors",
            "no",
        ],
    ]
    assert out.splitlines()[-1] == f"in {folder}"


def test_the_size_of_the_dataset_that_ships() -> None:
    with resources.as_file(resources.files("flexfl.data") / "fashion_mini/fashion_mini.npz") as path:
        arrays = np.load(path)
        assert (len(arrays["train_y"]), len(arrays["test_y"])) == MINI_SAMPLES
        arrays.close()
