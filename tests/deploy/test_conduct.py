"""The conductor over a link that misbehaves: it waits no longer than it must, and nothing is lost."""

from __future__ import annotations

import json
import logging
import struct
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deploy.in_memory import Loop, deploy, final_params, small_spec
from deploy.ledger import ledger, stored
from flexfl.cli.deploy.runs import _status_text
from flexfl.compress.message import Message
from flexfl.deploy.conduct import conduct
from flexfl.deploy.plan import Plan
from flexfl.deploy.protocol import Answer
from flexfl.deploy.site import Site
from flexfl.errors import FlexFLError, InputError, RunDirectoryError
from flexfl.results import Run
from flexfl.results.observer import Live
from flexfl.wire import encode
from flexfl.wire.envelope import seal, unseal

NAMES = ["site-1", "site-2", "site-3", "site-4"]


def quick(**sections: Any) -> Any:
    return small_spec(train={"iterations": 20, "evaluate_every": 5} | sections.pop("train", {}), **sections)


class Meddler:
    """Makes something else of the answers of one site, from its n-th on."""

    def __init__(self, victim: str, change: Any, *, after: int = 5) -> None:
        self._victim, self._change, self._left = victim, change, after

    def __call__(self, name: str, data: bytes, answer: bytes | None) -> bytes | None:
        if name != self._victim or answer is None or unseal(data).kind != "question":
            return answer
        self._left -= 1
        return answer if self._left >= 0 else self._change(answer)


def whole_message(vector: np.ndarray) -> bytes:
    return encode(Message(len(vector), np.arange(len(vector)), vector, vector.dtype.name))


def not_a_number(answer: bytes) -> bytes:
    told = Answer.decode(answer)
    update = whole_message(np.ones(39760, dtype=np.float32)) if not told.update else told.update
    damaged = bytearray(update)
    damaged[-4:] = np.float32(np.nan).tobytes()
    return _with_update(told, _sealed_again(bytes(damaged)))


def _sealed_again(update: bytes) -> bytes:
    crc = zlib.crc32(update[20:], zlib.crc32(update[:16]))
    return update[:16] + struct.pack("<I", crc) + update[20:]


def _with_update(told: Answer, update: bytes) -> bytes:
    return replace(told, update=update, number=max(1, told.number), made_in=told.iteration).encode()


GARBAGE = {
    "noise": (lambda answer: b"\x00\xffnonsense" * 9, "unknown header"),
    "cut short": (lambda answer: answer[: len(answer) // 2], "checksum"),
    "of another kind": (lambda answer: seal("wish", {}), "must be of kind answer, got wish"),
    "of another dimension": (
        lambda answer: _with_update(Answer.decode(answer), whole_message(np.ones(7, dtype=np.float32))),
        "must be for 39760 parameters",
    ),
    "not a number": (not_a_number, "NaN or infinity"),
    "in another's name": (
        lambda answer: seal(
            "answer",
            {
                **{name: getattr(Answer.decode(answer), name) for name in _FIELDS},
                "client": "site-1",
            },
            [b""],
        ),
        "speaks in the name of site-1",
    ),
}
_FIELDS = (
    "last",
    "run",
    "life",
    "replaces",
    "iteration",
    "version",
    "number",
    "made_in",
    "behind",
    "metrics",
)


@pytest.mark.parametrize("case", GARBAGE.values(), ids=GARBAGE)
def test_a_site_that_sends_garbage_is_refused_by_name_and_the_others_go_on(
    case: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    change, reason = case
    with caplog.at_level(logging.WARNING, "flexfl.deploy"):
        run = Run(deploy(tmp_path, quick(), Loop(tmp_path, NAMES, Meddler("site-2", change))))
    assert len(run.iterations["iteration"]) == 20
    told = [record.getMessage() for record in caplog.records]
    assert any("site-2" in line and reason in line for line in told), told
    computing = run.clients["compute_prob"] > 0  # who answered
    assert computing[:5].all()
    assert computing[:, [0, 2, 3]].all()
    live = Live.read(tmp_path / "server" / "run.live.json")
    assert live is not None
    assert live.more["state"] == "finished"


TALL_TALES: dict[str, dict[str, float]] = {
    "no number": {"compute_spent": float("nan")},
    "endless": {"train_loss": float("inf")},
    "beyond all floats": {"total.compute": 10**400},
    "a loss without samples": {"train_loss": 1.0},
    "no samples": {"train_loss": 1.0, "train_accuracy": 0.5, "samples": 0.0},
    "a huge total, and back": {"total.compute": -1e99, "total.uplink": 1e99},
    "what is not its own": {"iteration": 7.0, "downlink_cost": -3.0, "events": 1.0},
    "nothing": {},
}


@pytest.mark.parametrize("tale", TALL_TALES.values(), ids=TALL_TALES)
def test_whatever_a_site_tells_the_run_goes_on(tale: dict[str, float], tmp_path: Path) -> None:
    def change(answer: bytes) -> bytes:
        fields = {name: getattr(Answer.decode(answer), name) for name in (*_FIELDS, "client")}
        header = {"kind": "answer", "fields": fields | {"metrics": tale}, "sizes": [0]}
        text = json.dumps(header).encode()
        body = struct.pack("<4sB3xI", b"FXEN", 1, len(text)) + text
        return body + struct.pack("<I", zlib.crc32(body))

    run = Run(deploy(tmp_path, quick(), Loop(tmp_path, NAMES, Meddler("site-2", change))))
    assert len(run.iterations["iteration"]) == 20
    assert (run.clients["compute_prob"][:, [0, 2, 3]] > 0).all()


@pytest.mark.parametrize("value", [1e39, 3e38, 1e200])
def test_an_update_that_no_sum_can_hold_is_refused(value: float, tmp_path: Path) -> None:
    def change(answer: bytes) -> bytes:
        return _with_update(Answer.decode(answer), whole_message(np.full(39760, value)))

    run = deploy(tmp_path, quick(), Loop(tmp_path, NAMES, Meddler("site-2", change)))
    assert np.isfinite(final_params(run)).all()
    assert len(Run(run).iterations["iteration"]) == 20


def test_a_site_that_keeps_saying_it_is_behind_costs_a_few_questions(tmp_path: Path) -> None:
    def behind(answer: bytes) -> bytes:
        return replace(Answer.decode(answer), behind=True, update=b"", number=0).encode()

    link = Loop(tmp_path, NAMES, Meddler("site-2", behind))
    deploy(tmp_path, quick(deploy={"deadline": 0.05}), link)
    assert link.messages < 20 * 4 * 3


def test_who_was_not_there_at_the_start_is_not_waited_for(tmp_path: Path) -> None:
    """Of four on the roster three run; the mean stays over four."""
    spec = quick()
    link = Loop(tmp_path, NAMES[:3])
    plan = Plan("run", spec, dict.fromkeys(NAMES, 0.25), present=NAMES[:3], threads=1)
    conduct(plan.settings(), link, tmp_path / "server")
    link.close()
    run = Run(tmp_path / "server" / "run")
    assert np.isnan(run.clients["compute_prob"][:, 3]).all()
    assert (run.clients["compute_prob"][:, :3] > 0).all()


def test_a_start_that_was_cut_short_can_be_made_again(tmp_path: Path) -> None:
    deploy(tmp_path, quick(), Loop(tmp_path, NAMES, stop_after=1))
    for path in (tmp_path / "server" / "run").glob("server.sqlite*"):
        path.unlink()
    assert Run(deploy(tmp_path, quick())).summary


def test_a_run_cannot_become_shorter(tmp_path: Path) -> None:
    deploy(tmp_path, quick(), Loop(tmp_path, NAMES, stop_after=60))
    with pytest.raises(
        RunDirectoryError, match=r"train.iterations must be at least the 1\d that run has done"
    ):
        deploy(tmp_path, quick(train={"iterations": 5}), resume=True)


def test_a_finished_run_stays_finished_if_nobody_comes_to_resume_it(tmp_path: Path) -> None:
    run = deploy(tmp_path, quick())
    before = Run(run).summary
    with pytest.raises(FlexFLError, match="nobody has answered"):
        deploy(
            tmp_path,
            quick(train={"iterations": 25}, deploy={"wait": 0.1}),
            Loop(tmp_path, NAMES, lambda *_: None),
            resume=True,
        )
    assert Run(run).summary == before


def test_a_model_that_the_servers_test_set_does_not_fit_has_no_test_accuracy(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name in NAMES:
        (tmp_path / name).mkdir(parents=True)
        np.savez(tmp_path / f"{name}.npz", train_x=rng.random((40, 5)), train_y=np.arange(40) % 2)
        settings = f'data = "{tmp_path / name}.npz"\nmodules = ["deploy"]'
        (tmp_path / name / "site.toml").write_text(settings)
    spec = quick(model={"name": "deploy.networks:narrow"}, data={"clients": 4, "name": "file"})
    run = Run(deploy(tmp_path, spec))
    assert np.isnan(run.evaluations["test_accuracy"]).all()
    assert np.isfinite(run.evaluations["train_accuracy"]).all()
    other = quick(model={"name": "deploy.networks:narrow"})  # fashion-mini, which a server always has
    assert np.isnan(Run(deploy(tmp_path / "..", other, Loop(tmp_path, NAMES))).evaluations["test_loss"]).all()


@pytest.mark.parametrize("name", ["my run", "../x", "/tmp/x", "", "ü"])
def test_a_run_is_called_like_a_file(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--name must be letters"):
        Plan.of(Plan(name, quick(), dict.fromkeys(NAMES, 0.25)).settings())


class Greeted(Loop):
    """Replies to greetings come once more, and again, when questions are asked already."""

    def __init__(self, folder: Path, names: list[str]) -> None:
        super().__init__(folder, names, self._note)
        self.models: list[str] = []
        self._late: list[tuple[str, bytes]] = []

    def _note(self, name: str, data: bytes, answer: bytes | None) -> bytes | None:
        message = unseal(data)
        if message.kind == "hello" and answer is not None:
            self._late += 3 * [(name, answer)]
        elif message.kind == "question" and message.blobs[0]:
            self.models.append(name)
        return answer

    def receive(self, seconds: float) -> list[tuple[str, bytes]]:
        if self.models and self._late:  # and answers come after them
            return [self._late.pop()]
        return super().receive(seconds)


def test_a_site_that_replies_to_every_greeting_gets_the_model_once(tmp_path: Path) -> None:
    """Greetings are repeated while a site starts; its replies may come all at once."""
    link = Greeted(tmp_path, NAMES)
    deploy(tmp_path, quick(), link)
    assert sorted(link.models) == NAMES


def test_a_site_that_says_it_is_there_is_greeted_at_once(tmp_path: Path) -> None:
    """Its process was killed and is back: it does not have to wait until it is asked again."""
    link = Loop(tmp_path, NAMES)
    dead: list[int] = []

    def die(name: str, data: bytes, answer: bytes | None) -> bytes | None:
        if name != "site-2" or link.messages < 40:
            return answer
        dead.append(1)
        if len(dead) > 1:
            return answer
        link.sites[name].close()
        link.sites[name] = Site(name, tmp_path / name)
        return link.sites[name].here()

    link._meddle = die
    run = Run(deploy(tmp_path, quick(deploy={"deadline": 30.0}), link))
    assert (run.clients["compute_prob"] > 0).all()  # not even one iteration without it


def test_one_deadline_for_a_site_that_dies_and_it_is_back_when_it_answers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flexfl.deploy.conductor._RETRY_SECONDS", 0.05)
    heard = []

    def silence(answer: bytes) -> bytes | None:
        heard.append(1)
        return answer if len(heard) > 3 else None

    link = Loop(tmp_path, NAMES, Meddler("site-3", silence))
    spec = quick(deploy={"deadline": 0.1}, train={"iterations": 500, "evaluate_every": 500})
    with caplog.at_level(logging.INFO, "flexfl.deploy"):
        run = Run(deploy(tmp_path, spec, link))
    there = run.clients["compute_prob"][:, 2] > 0
    assert there[:5].all()
    assert not there[5:].all()
    assert there[-1]
    waited = [record for record in caplog.records if "no answer" in record.getMessage()]
    assert len(waited) == 1
    assert (run.clients["compute_prob"][:, [0, 1, 3]] > 0).all()


class OneByOne(Loop):
    """Messages arrive one after the other; one may be delivered twice."""

    twice = False

    def send(self, messages: Any) -> None:
        super().send(messages)
        if self.twice and self.messages == 14:
            self._came.append(self._came[0])

    def receive(self, seconds: float) -> list[tuple[str, bytes]]:
        came, self._came = self._came[:1], self._came[1:]
        return came


def test_an_answer_that_comes_twice_is_not_asked_for_ever_after(tmp_path: Path) -> None:
    spec = quick(deploy={"deadline": 30.0}, data={"clients": 2, "partition": "iid"})
    counts = []
    for twice in (False, True):
        link = OneByOne(tmp_path / str(twice), NAMES[:2])
        link.twice = twice
        deploy(tmp_path / str(twice), spec, link)
        counts.append(link.messages)
    assert counts[0] == counts[1]


def test_what_a_lost_answer_had_cost_is_recorded_when_the_next_one_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Two seconds until the next question would be longer than the whole run on a fast machine.
    monkeypatch.setattr("flexfl.deploy.conductor._RETRY_SECONDS", 0.02)
    lost = iter([True])
    link = Loop(tmp_path, NAMES, Meddler("site-3", lambda answer: None if next(lost, False) else answer))
    spec = quick(deploy={"deadline": 0.05}, train={"iterations": 200, "evaluate_every": 100})
    run = Run(deploy(tmp_path, spec, link))
    store = stored(next((tmp_path / "site-3").glob("run-*.sqlite")))
    spent = json.loads(store["state"])["spent"]
    assert run.clients["compute_spent"][:, 2].sum() == pytest.approx(spent["compute_spent"])
    assert run.clients["uplink_cost"][:, 2].sum() == pytest.approx(spent["uplink_cost"])


def test_a_run_that_is_stopped_goes_on_as_if_nothing_had_been(tmp_path: Path) -> None:
    spec = quick()
    whole = deploy(tmp_path / "whole", spec)
    parts = tmp_path / "parts"
    for stop in (10, 30, 20, None):
        link = Loop(parts, NAMES, stop_after=stop)
        run = deploy(parts, spec, link, resume=stop != 10)
        if stop:
            live = Live.read(parts / "server" / "run.live.json")
            assert live is not None
            assert live.more["state"] == "stopped"
            assert Run(run).summary is None
    np.testing.assert_array_equal(final_params(whole), final_params(run))
    for name, column in Run(whole).iterations.items():
        if name != "clock":  # on the wall
            np.testing.assert_array_equal(column, Run(run).iterations[name], err_msg=name)
    np.testing.assert_array_equal(Run(whole).evaluations["iteration"], Run(run).evaluations["iteration"])
    for name, total in Run(whole).totals.items():
        np.testing.assert_array_equal(Run(run).totals[name], total, err_msg=name)


def test_summary_and_status_name_the_worst_site(tmp_path: Path) -> None:
    spec = quick(budget={"compute": [0.5, 0.5, 0.5, 0.05], "uplink": 0.1}, record={"clients": False})
    run = Run(deploy(tmp_path, spec))
    assert run.summary is not None
    assert run.names == tuple(NAMES)
    assert not len(run.clients["iteration"])
    worst = run.summary["average_cost"]["compute"]["worst"]["charged"]
    assert worst["who"] == "site-4"
    assert worst["charged"] == pytest.approx(run.totals["compute_cost"][3] / 20)
    live = Live.read(tmp_path / "server" / "run.live.json")
    assert live is not None
    assert live.more["worst"]["compute"]["charged"] == worst
    assert set(live.more["worst"]) == {"compute", "uplink"}
    lines = _status_text("run", live).splitlines()
    assert lines[0].startswith("run: finished, iteration 20 of 20")
    assert lines[1].startswith("  worst client, of its budget: compute site-")
    assert ", uplink site-" in lines[1]


def test_a_site_that_lost_its_state_joins_with_an_empty_residual_and_the_ledger_says_so(
    tmp_path: Path,
) -> None:
    spec = quick()
    deploy(tmp_path, spec, Loop(tmp_path, NAMES, stop_after=60))
    for path in (tmp_path / "site-4").glob("run-*.sqlite*"):
        path.unlink()
    deploy(tmp_path, spec, resume=True)
    kept = stored(tmp_path / "server" / "run" / "server.sqlite")
    events = [json.loads(value) for name, value in kept.items() if name.startswith("event/")]
    assert [event["event"] for event in events].count("joined") == 4
    assert [(event["client"], event["event"]) for event in events][-1] == ("site-4", "lost its state")


def test_updates_that_come_late_are_in_the_ledger_all_the_same(tmp_path: Path) -> None:
    """Every third answer of a site is lost: what it carried arrives with a later one."""
    turn = iter(range(10**6))
    link = Loop(tmp_path, NAMES, Meddler("site-2", lambda a: None if next(turn) % 3 == 0 else a))
    spec = quick(
        engine={"dtype": "float64", "threads": 1},
        deploy={"deadline": 0.02, "ledger": True},
        train={"iterations": 60},
    )
    balance, moved = ledger(deploy(tmp_path, spec, link), {name: tmp_path / name for name in NAMES})
    assert moved > 0.1
    assert balance < 1e-12


def test_nobody_there_is_told_with_the_reasons(tmp_path: Path) -> None:
    link = Loop(tmp_path, NAMES, lambda name, data, answer: None)
    with pytest.raises(FlexFLError, match=r"no client is ready after .* s:\nnobody has answered"):
        deploy(tmp_path, quick(deploy={"wait": 0.2}), link)
    live = Live.read(tmp_path / "server" / "run.live.json")
    assert live is not None
    assert live.more["state"] == "failed"
    with pytest.raises(FlexFLError, match="must be at least the number of classes"):
        deploy(tmp_path / "other", quick(data={"clients": 4, "partition": "one-class"}))


def test_a_run_is_not_begun_twice_and_nothing_is_resumed_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match="there is no run run to resume"):
        deploy(tmp_path, quick(), resume=True)
    deploy(tmp_path, quick())
    with pytest.raises(RunDirectoryError, match="already holds a run"):
        deploy(tmp_path, quick())
    with pytest.raises(RunDirectoryError, match="belongs to another run"):
        deploy(tmp_path, quick(train={"learning_rate": 0.2}), resume=True)


def test_a_finished_run_can_be_made_longer(tmp_path: Path) -> None:
    deploy(tmp_path, quick())
    longer = deploy(tmp_path, quick(train={"iterations": 30}), resume=True)
    whole = deploy(tmp_path / "whole", quick(train={"iterations": 30}))
    np.testing.assert_array_equal(final_params(longer), final_params(whole))


def test_budgets_in_seconds_and_bytes_hold(tmp_path: Path) -> None:
    spec = small_spec(
        train={"iterations": 300, "evaluate_every": 100},
        budget={"uplink": 2000.0, "downlink": 4000.0, "compute": None},
        costs={"uplink": {"kind": "measured"}, "downlink": {"kind": "measured"}},
        control={"tradeoff": {"uplink": 1e3, "downlink": 1e3}, "initial_queue": 1000.0},
    )
    run = Run(deploy(tmp_path, spec))
    assert run.summary is not None
    cost = run.summary["average_cost"]
    assert 1000 < cost["uplink"]["spent"] < 2200
    assert 1000 < cost["downlink"]["spent"] < 4400
    # What is charged is what the codec wrote.
    np.testing.assert_array_equal(run.clients["uplink_cost"], run.clients["uplink_bytes"])
    np.testing.assert_array_equal(run.iterations["downlink_cost"], run.iterations["downlink_bytes"])


def test_a_deployment_has_notes_like_a_simulation(tmp_path: Path) -> None:
    spec = quick(control={"policy": "full"})
    summary = Run(deploy(tmp_path, spec)).summary
    assert summary is not None
    assert summary["notes"] == spec.notes()
    assert summary["notes"] == ["full does not use the budgets: reports show them beside what is spent"]
