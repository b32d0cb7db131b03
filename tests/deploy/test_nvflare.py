"""The adapter's parts, without a server: whom they hear, and what becomes of a process that dies."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from nvflare.apis.fl_constant import CellMessageAuthHeaderKey, ReturnCode
from nvflare.apis.job_launcher_spec import JobReturnCode
from nvflare.apis.signal import Signal
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
from nvflare.fuel.f3.message import Message
from nvflare.private.defs import AUTH_CLIENT_NAME_FOR_SJ

from deploy.in_memory import small_spec
from flexfl.deploy.nvflare import channel, launcher
from flexfl.deploy.nvflare.controller import CellLink
from flexfl.deploy.nvflare.executor import SiteExecutor
from flexfl.deploy.nvflare.refused import Refused
from flexfl.deploy.protocol import Hello, Ready, Restarted
from flexfl.spec.load import to_toml
from flexfl.wire.envelope import unseal


class Cell:
    """NVFlare's cell, as far as `channel` uses it."""

    def __init__(self) -> None:
        self.core_cell = self
        self.sent: list[tuple[str, str, bytes]] = []
        self.came = threading.Condition()
        self.handlers: dict[str, Callable[[Message], None]] = {}

    def fire_and_forget(self, place: str, topic: str, target: str, message: Message, optional: bool) -> None:
        assert place == channel.CHANNEL
        assert optional
        with self.came:
            self.sent.append((topic, target, message.payload))
            self.came.notify_all()

    def register_request_cb(self, place: str, topic: str, handler: Callable[[Message], None]) -> None:
        self.handlers[topic] = handler

    def arrive(self, topic: str, name: str, origin: str, data: bytes | None) -> None:
        headers = {CellMessageAuthHeaderKey.CLIENT_NAME: name, MessageHeaderKey.ORIGIN: origin}
        self.handlers[topic](Message(headers, data))

    def wait_for(self, count: int) -> list[tuple[str, str, bytes]]:
        with self.came:
            assert self.came.wait_for(lambda: len(self.sent) >= count, timeout=60)
            return list(self.sent)


@pytest.fixture
def cell() -> Cell:
    return Cell()


@pytest.fixture
def link(cell: Cell, tmp_path: Path) -> CellLink:
    traffic: Any = SimpleNamespace(sample=lambda: (3, 4))
    return CellLink(cell, "job", ["north", "south"], Signal(), traffic=traffic, refused=Refused(tmp_path))


def test_questions_go_to_the_process_of_this_job(cell: Cell, link: CellLink) -> None:
    link.send({"north": b"1", "west": b"2"})
    assert cell.sent == [("ask", "north.job", b"1")]
    assert link.traffic() == (3, 4)


@pytest.mark.parametrize(
    ("name", "origin"),
    [
        ("north", "south.job"),
        ("south", "north.job"),
        ("north", "north.other"),
        ("north", "north"),
        ("west", "west.job"),
        ("", ""),
    ],
)
def test_a_site_is_heard_only_from_its_own_process(
    name: str, origin: str, cell: Cell, link: CellLink
) -> None:
    cell.arrive("answer", name, origin, b"x")
    cell.arrive("answer", "north", "north.job", b"y")
    assert link.receive(0.0) == [("north", b"y")]


def test_a_refused_site_is_not_heard_until_it_is_admitted(cell: Cell, link: CellLink, tmp_path: Path) -> None:
    disabled = tmp_path / "disabled_clients.json"
    for names in (["north"], []):
        disabled.unlink(missing_ok=True)
        disabled.write_text(json.dumps({"disabled_clients": names}))
        cell.arrive("answer", "north", "north.job", b"x")
        assert len(link.receive(0.0)) == 1 - len(names)


def test_one_site_cannot_fill_the_memory(cell: Cell, link: CellLink) -> None:
    for _ in range(1000):
        cell.arrive("answer", "north", "north.job", b"x")
    cell.arrive("answer", "south", "south.job", None)
    heard = link.receive(0.0)
    assert [name for name, _ in heard].count("north") == 16
    assert ("south", b"") in heard
    cell.arrive("answer", "north", "north.job", b"again")
    assert link.receive(0.0) == [("north", b"again")]
    assert link.receive(0.0) == []


def test_a_link_is_stopped_with_its_job(cell: Cell, tmp_path: Path) -> None:
    abort = Signal()
    link = CellLink(cell, "job", [], abort, traffic=None, refused=Refused(tmp_path))  # type: ignore[arg-type]
    assert not link.stopped
    abort.trigger(True)
    assert link.stopped


def test_a_site_answers_the_server_of_its_job_and_nobody_else(cell: Cell, tmp_path: Path) -> None:
    executor = SiteExecutor()
    executor._start(cell, "north", "job", tmp_path)
    here = cell.wait_for(1)[0]
    assert here[:2] == ("answer", "server.job")
    assert Restarted.of(unseal(here[2])) == Restarted("", "north")
    hello, strange = (Hello(run, to_toml(small_spec()), 0, 4).encode() for run in ("run-1", "run-2"))
    for name, origin in (("south", "server.job"), (AUTH_CLIENT_NAME_FOR_SJ, "south.job")):
        cell.arrive("ask", name, origin, strange)
    cell.arrive("ask", AUTH_CLIENT_NAME_FOR_SJ, "server.job", b"noise")  # in its log, and no answer
    cell.arrive("ask", AUTH_CLIENT_NAME_FOR_SJ, "server.job", hello)
    cell.wait_for(2)
    executor._asked.put(None)
    assert executor._worker is not None
    executor._worker.join(timeout=10)
    assert not executor._worker.is_alive()
    (told,) = cell.sent[1:]
    ready = Ready.of(unseal(told[2]))
    assert (told[1], ready.run, ready.fault) == ("server.job", "run-1", "")


def test_a_site_has_nothing_to_do_with_tasks() -> None:
    reply = SiteExecutor().execute("train", None, None, None)
    assert reply.get_return_code() == ReturnCode.TASK_UNSUPPORTED


class Job:
    """A job process that lives until it is told how it ends."""

    def __init__(self, code: Any = None) -> None:
        self.code, self._over = code, threading.Event()
        if code is not None:
            self._over.set()

    def wait(self) -> None:
        assert self._over.wait(timeout=60)

    def poll(self) -> Any:
        return JobReturnCode.UNKNOWN if self.code is None else self.code

    def terminate(self) -> None:
        self.code = JobReturnCode.ABORTED
        self._over.set()


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(launcher, "_PAUSE", 0.001)
    path = tmp_path / "mark"
    path.touch()
    return path


def handle_of(jobs: list[Job], mark: Path) -> tuple[launcher.RestartingHandle, list[str]]:
    said: list[str] = []
    return launcher.RestartingHandle(iter(jobs).__next__, [mark, mark.with_name("absent")], said.append), said


DIED = JobReturnCode.EXECUTION_ERROR


def test_a_job_process_that_dies_is_started_again(mark: Path) -> None:
    handle, said = handle_of([Job(DIED), Job(DIED), Job(JobReturnCode.SUCCESS)], mark)
    assert handle.poll() == JobReturnCode.SUCCESS  # never a failure: it would end the job for all
    handle.wait()
    assert said == ["the job process died; starting it again"] * 2
    assert not mark.exists()


def test_one_that_does_not_stay_alive_leaves_the_job(mark: Path) -> None:
    handle, said = handle_of([Job(DIED) for _ in range(5)], mark)
    handle.wait()
    assert said[-1] == "the job process died 5 times in a row: this site leaves the job"
    assert not mark.exists()


def test_deaths_that_lie_far_apart_do_not_count_together(mark: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "_QUICK", 0.0)
    handle, said = handle_of([*(Job(DIED) for _ in range(9)), Job(JobReturnCode.SUCCESS)], mark)
    handle.wait()
    assert said == ["the job process died; starting it again"] * 9


def test_a_job_that_is_ended_is_not_started_again(mark: Path) -> None:
    handle, said = handle_of([Job()], mark)
    assert handle.poll() == JobReturnCode.UNKNOWN
    waiting = threading.Thread(target=handle.wait, daemon=True)
    waiting.start()
    handle.terminate()
    waiting.join(timeout=60)
    assert not waiting.is_alive()
    assert said == []
    assert not mark.exists()
