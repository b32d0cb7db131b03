"""The server's part of a run, from the first greeting to the last evaluation, over any `Link`.

Asks everyone, closes the iteration when all who are expected have answered or the deadline is over, and
goes on. Who has let a deadline pass is still asked but not waited for, until the next answer: one dead
client costs one deadline, not one in every iteration.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from flexfl.data.datasets import load_pairs
from flexfl.data.federated import Federated
from flexfl.deploy.link import Link
from flexfl.deploy.plan import STATE_FILE, Plan, live_file
from flexfl.deploy.protocol import Downlink, Hello, ProtocolError, Ready, Server, SqliteStore, Stranger
from flexfl.deploy.protocol.messages import kind_of
from flexfl.deploy.record import Record, over_all
from flexfl.deploy.site import values_of
from flexfl.errors import FlexFLError, RunDirectoryError
from flexfl.evaluate import Evaluator, default_loss
from flexfl.models.build import build_model
from flexfl.models.flat import FlatModel
from flexfl.results.directory import RunDirectory
from flexfl.results.progress import Live
from flexfl.spec.build import build_costs, build_policy
from flexfl.spec.load import to_toml
from flexfl.spec.schema import Spec
from flexfl.streams import Streams
from flexfl.wire import WireError

log = logging.getLogger("flexfl.deploy")

_GREET_SECONDS = 0.5
"""Between two greetings of a client that has not replied."""
_AGAIN_SECONDS = 2.0
"""Between two questions to a client that has not answered: messages get lost."""
_FLUSH_SECONDS = 1.0


def conduct(settings: Mapping[str, Any], link: Link, folder: Path) -> None:
    """Run `settings` (a `Plan`) over `link`; all that lasts is in `folder`/NAME."""
    plan = Plan.of(settings)
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(plan.threads or torch.get_num_threads())
    try:
        with ExitStack() as stack:
            _train(_open(plan, link, folder, stack))
    except FlexFLError as error:
        total = plan.spec.train.iterations
        Live(total, 0, {}, {}, {}, None, {"state": "failed", "error": str(error)}).write(
            live_file(folder, plan.name)
        )
        raise


def _train(conductor: _Conductor) -> None:
    conductor.gather()
    while not conductor.link.stopped and conductor.server.iteration < conductor.plan.spec.train.iterations:
        conductor.iteration()
    conductor.end()


def _open(plan: Plan, link: Link, folder: Path, stack: ExitStack) -> _Conductor:
    """Everything that a run needs, new or as it was left."""
    path, spec, streams = folder / plan.name, plan.spec, Streams(plan.spec.train.seed)
    module = build_model(spec.model, streams)
    model = FlatModel(module, getattr(torch, spec.engine.dtype))
    exists = (path / STATE_FILE).exists()
    if plan.resume and not exists:
        raise RunDirectoryError(f"there is no run {plan.name} to resume; submit it without --resume")
    identity = {"roster": ", ".join(plan.roster), "model": model.fingerprint()}
    directory = stack.enter_context(RunDirectory(path, to_toml(spec), identity, resume=plan.resume))
    store = stack.enter_context(closing(SqliteStore(path / STATE_FILE)))
    run = directory.store.meta("run")
    if run is None:
        run = f"{plan.name}-{secrets.token_hex(4)}"
        directory.store.set_meta("run", run)
    costs = build_costs(spec)
    downlink = Downlink(build_policy(spec, costs).downlink, costs["downlink"], streams, values_of(spec))
    start = model.params.numpy().copy()
    server = Server(run, plan.roster, store, start, downlink, latest=spec.deploy.latest)
    record = Record(spec, directory, server, live_file(folder, plan.name))
    return _Conductor(plan, link, server, record, model)


@dataclass
class _Conductor:
    plan: Plan
    link: Link
    server: Server
    record: Record
    model: FlatModel
    ready: set[str] = field(default_factory=set)
    absent: set[str] = field(default_factory=set)
    """Ready once, and then not in time: asked, but not waited for."""
    refused: dict[str, str] = field(default_factory=dict)
    """Why clients may not take part, or why their last message was not taken."""
    hopeless: set[str] = field(default_factory=set)
    """Who said that it cannot take part, whatever may come."""
    bytes_up: int = 0
    bytes_down: int = 0
    _flushed: float = 0.0
    _asked: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._test = _test_set(self.plan.spec, self.model)

    # Greeting ----------------------------------------------------------------------------------

    def gather(self) -> None:
        """Wait until everyone is ready, or as long as the spec says."""
        began, wait = time.monotonic(), self.plan.spec.deploy.wait
        while (missing := self._missing()) and not self.link.stopped:
            if time.monotonic() - began > wait or self.hopeless.issuperset(missing):
                break
            self._greet(missing)
            self._listen(_GREET_SECONDS)
            self._tell(state="waiting for clients")
        if not self.ready and not self.link.stopped:
            told = "\n".join(dict.fromkeys(self.refused.values())) or "nobody has answered"
            raise FlexFLError(f"no client is ready after {time.monotonic() - began:.0f} s:\n{told}")

    def _missing(self) -> list[str]:
        """Of those whom the start waits for."""
        return [name for name in self.plan.present or self.plan.roster if name not in self.ready]

    def _greet(self, names: list[str]) -> None:
        if not names:
            return
        places = {name: place for place, name in enumerate(self.plan.roster)}
        spec = to_toml(self.plan.spec)
        self._send({name: Hello(self.server.run, spec, places[name], len(places)).encode() for name in names})

    # One iteration ------------------------------------------------------------------------------

    def iteration(self) -> None:
        """Ask, listen, close; a run that is stopped leaves the iteration open."""
        spec, server = self.plan.spec, self.server
        evaluate = server.iteration % spec.train.evaluate_every == 0
        self._exchange(evaluate=evaluate)
        if self.link.stopped:
            return
        record = server.close({"evaluation": self._evaluation()} if evaluate else {})
        for event in record["events"]:
            log.info("%(client)s %(what)s in iteration %(iteration)d", event)
        self.record.add(record)
        self._tell(state="training")

    def end(self) -> None:
        """Everyone gets the trained model and tells how good it is; unless the run was stopped."""
        self._exchange(evaluate=True, last=True)
        if self.link.stopped:
            self.record.flush(**self.told(), state="stopped")
            return
        self.record.evaluated(self.server.iteration, self._evaluation())
        summary = self.record.finish(**self.told())
        self.record.flush(**self.told(), state="finished")
        log.info("finished: %s", summary)

    def _exchange(self, *, evaluate: bool, last: bool = False) -> None:
        """Questions out, answers in, until all who are expected have answered or the time is over."""
        end = time.monotonic() + self.plan.spec.deploy.deadline
        due, left = self.ready - self.absent, 1.0
        while not self.link.stopped:
            due |= self._overdue()
            self._greet(sorted(due - self.ready))
            asks = self.server.asks(evaluate=evaluate, last=last) if due & self.ready else {}
            self._send({name: asks[name] for name in due & asks.keys() & self.ready})
            self._asked |= dict.fromkeys(due, time.monotonic())
            expected = (self.ready - self.absent) & set(self.server.waiting)
            # Without anyone to expect, wait for anyone: an iteration without answers helps nobody.
            alone = not self.server.answered and not self.ready - self.absent
            if left <= 0 or not (expected or alone):
                break
            left = end - time.monotonic()
            due = self._listen(min(max(0.0, left), _AGAIN_SECONDS))
        else:
            return
        self.absent |= expected
        if expected:
            log.info("no answer from %s in iteration %d", ", ".join(sorted(expected)), self.server.iteration)

    def _overdue(self) -> set[str]:
        """Who has not answered, and was asked (or greeted) last a while ago: messages get lost."""
        now = time.monotonic()
        return {name for name in self.server.waiting if now - self._asked.get(name, 0.0) > _AGAIN_SECONDS}

    # Messages -----------------------------------------------------------------------------------

    def _send(self, messages: dict[str, bytes]) -> None:
        if messages:
            self.bytes_down += sum(map(len, messages.values()))
            self.link.send(messages)

    def _listen(self, seconds: float) -> set[str]:
        """Take in what has come; returns who is to be asked anew at once."""
        again: set[str] = set()
        for sender, data in self.link.receive(seconds):
            self.bytes_up += len(data)
            try:
                if self._take(sender, data):
                    again.add(sender)
                self.refused.pop(sender, None)
            except (ProtocolError, WireError) as error:
                reason = str(error) if sender in str(error) else f"{sender}: {error}"
                if self.refused.get(sender) != reason:
                    log.warning("refused: %s", reason)
                self.refused[sender] = reason
                if sender in self.ready:
                    self.absent.add(sender)
        return again

    def _take(self, sender: str, data: bytes) -> bool:
        """Whether the sender needs another question."""
        if sender not in self.plan.roster:
            raise ProtocolError(f"{sender} is not on the roster of {self.server.run}")
        match kind_of(data):
            case "ready":
                return self._admit(sender, Ready.decode(data))
            case "stranger":
                if Stranger.decode(data).run == self.server.run:
                    self.ready.discard(sender)
                return True
            case _:
                self.server.hear(sender, data)
                self.absent.discard(sender)
                return sender in self.server.waiting

    def _admit(self, sender: str, reply: Ready) -> bool:
        if reply.client != sender or reply.run != self.server.run:
            raise ProtocolError(f"{sender} speaks of {reply.client} and {reply.run}")
        if reply.fault:
            if not reply.again:
                self.hopeless.add(sender)
            raise ProtocolError(f"{sender} cannot take part: {reply.fault}")
        if (reply.dim, reply.model) != (self.model.dim, self.model.fingerprint()):
            told = f"{reply.dim} parameters, fingerprint {reply.model[:8]}"
            raise ProtocolError(f"{sender} has another model ({told}); is its version of the code the same?")
        self.ready.add(sender)
        self.absent.discard(sender)
        return True

    # Telling -----------------------------------------------------------------------------------

    def _evaluation(self) -> dict[str, float | None]:
        evaluation = over_all(self.server.answered)
        if self._test is not None:
            self.model.params.copy_(torch.from_numpy(self.server.params))
            found = self._test()
            # A server that has test samples only holds them where training samples would be.
            evaluation |= {"test_loss": found["train_loss"], "test_accuracy": found["train_accuracy"]}
        return evaluation | {"seconds": self.record.progress.seconds}

    def told(self) -> dict[str, Any]:
        """What the summary of a deployment has besides."""
        wire = self.link.traffic()
        return {
            "payload_bytes": {"up": self.bytes_up, "down": self.bytes_down},
            "wire_bytes": None if wire is None else {"up": wire[0], "down": wire[1]},
        }

    def _tell(self, state: str) -> None:
        now = time.monotonic()
        if now - self._flushed > _FLUSH_SECONDS:
            self._flushed = now
            present = sorted(self.ready - self.absent)
            self.record.flush(**self.told(), state=state, present=present, refused=self.refused)


def _test_set(spec: Spec, model: FlatModel) -> Evaluator | None:
    """The test samples of the spec's dataset, if the server has them."""
    with suppress(FlexFLError):
        x, y = load_pairs(spec.data)[1]
        data = Federated(x, y, None, None, (np.arange(len(x)),))
        return Evaluator(model, default_loss(data), data)
    log.info("the server has no test samples of %s: no test accuracy", spec.data.name)
    return None
