"""The server's part of a run, from the first greeting to the last evaluation, over any `Link`.

Asks everyone, closes the iteration when all who are expected have answered or the deadline is over, and
goes on. Who has let a deadline pass is still asked but not waited for, until it answers in time again: a
client that is dead or too slow costs one deadline, not one in every iteration.
"""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
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
from flexfl.deploy.plan import STATE_FILE, Plan, live_file, run_id
from flexfl.deploy.protocol import (
    Answer,
    Downlink,
    Hello,
    ProtocolError,
    Ready,
    Server,
    SqliteStore,
    Stranger,
)
from flexfl.deploy.record import Record, over_all
from flexfl.deploy.site import values_of
from flexfl.errors import FlexFLError, RunDirectoryError, in_words
from flexfl.evaluate import Evaluator, default_loss
from flexfl.models.build import build_model, check_model
from flexfl.models.flat import FlatModel
from flexfl.results.directory import RunDirectory
from flexfl.results.progress import Live
from flexfl.results.run import SPEC_FILE, SUMMARY_FILE
from flexfl.spec.build import build_costs, build_policy
from flexfl.spec.load import to_toml
from flexfl.spec.schema import Spec
from flexfl.streams import Streams
from flexfl.wire import WireError
from flexfl.wire.envelope import unseal

log = logging.getLogger("flexfl.deploy")

_GREET_SECONDS = 0.5
"""Between two greetings of a client that has not replied."""
_AGAIN_SECONDS = 2.0
"""Until a question that was not answered is asked again: messages get lost. Then twice as long, and so on,
up to `_LONGEST_SECONDS`: a client may just be slow."""
_LONGEST_SECONDS = 8.0
_MOST_AGAIN = 3
"""Questions to a client in an iteration that follow at once on what it said: greeted, behind, asked."""
_FLUSH_SECONDS = 1.0
_LONGEST_REASON = 500


def conduct(settings: Mapping[str, Any], link: Link, folder: Path) -> None:
    """Run `settings` (a `Plan`) over `link`; all that lasts is in `folder`/NAME."""
    folder.mkdir(parents=True, exist_ok=True)
    live = live_file(folder, settings["name"])
    try:
        plan = Plan.of(settings)
        torch.set_num_threads(plan.threads or torch.get_num_threads())
        with ExitStack() as stack:
            _train(_open(plan, link, folder, stack))
    except Exception as error:  # whatever it is, those who look on must learn of it
        Live.failed(in_words(error)).write(live)
        raise


def _train(conductor: _Conductor) -> None:
    conductor.gather()
    conductor.record.begin()
    while not conductor.link.stopped and conductor.server.iteration < conductor.plan.spec.train.iterations:
        conductor.iteration()
    conductor.end()


def _open(plan: Plan, link: Link, folder: Path, stack: ExitStack) -> _Conductor:
    """Everything that a run needs, new or as it was left."""
    path, spec, streams = folder / plan.name, plan.spec, Streams(plan.spec.train.seed)
    module = build_model(spec.model, streams)
    model = FlatModel(module, getattr(torch, spec.engine.dtype))
    begun = (path / STATE_FILE).exists()
    if plan.resume and not begun:
        raise RunDirectoryError(f"there is no run {plan.name} to resume; submit it without --resume")
    identity = {"roster": ", ".join(plan.roster), "model": model.fingerprint()}
    # Without the server's state, a directory is of a start that was cut short.
    resume = plan.resume or ((path / SPEC_FILE).exists() and not begun and not (path / SUMMARY_FILE).exists())
    directory = stack.enter_context(RunDirectory(path, to_toml(spec), identity, resume=resume))
    store = stack.enter_context(closing(SqliteStore(path / STATE_FILE)))
    run = directory.store.meta("run")
    if run is None:
        run = run_id(plan.name)
        directory.store.set_meta("run", run)
    costs = build_costs(spec)
    downlink = Downlink(build_policy(spec, costs).downlink, costs["downlink"], streams, values_of(spec))
    start = model.params.numpy().copy()
    server = Server(run, plan.roster, store, start, downlink, latest=spec.deploy.latest)
    if server.iteration > spec.train.iterations:
        rule = f"must be at least the {server.iteration} that {plan.name} has done"
        raise RunDirectoryError(f"train.iterations {rule}, got {spec.train.iterations}; ask for more")
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
    strangers: set[str] = field(default_factory=set)
    """Started again since: to be greeted before they are asked."""
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
    _patience: dict[str, float] = field(default_factory=dict)
    _again: Counter[str] = field(default_factory=Counter)
    _unanswered: dict[str, float] = field(default_factory=dict)
    """When each client was asked what it has not answered yet."""

    def __post_init__(self) -> None:
        self._patience = dict.fromkeys(self.plan.roster, _AGAIN_SECONDS)
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
        due, left, self._again = self.ready - self.absent, 1.0, Counter()
        while not self.link.stopped:
            due |= self._overdue()
            able = self.ready - self.strangers
            self._greet(sorted(due - able))
            self._send(self.server.asks(due & able, evaluate=evaluate, last=last))
            now = time.monotonic()
            self._asked |= dict.fromkeys(due, now)
            self._unanswered = dict.fromkeys(due, now) | self._unanswered
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
        """Who has not answered, and was asked (or greeted) last a while ago."""
        now = time.monotonic()
        due = {
            name for name in self.server.waiting if now - self._asked.get(name, 0.0) > self._patience[name]
        }
        for name in due:
            self._patience[name] = min(_LONGEST_SECONDS, 2 * self._patience[name])
        return due

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
                if self._take(sender, data) and self._again[sender] < _MOST_AGAIN:
                    self._again[sender] += 1
                    again.add(sender)
                self._patience[sender] = _AGAIN_SECONDS
                self.refused.pop(sender, None)
            except (ProtocolError, WireError) as error:
                named = isinstance(error, ProtocolError)
                reason = _readable(str(error) if named else f"{sender}: {error}")
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
        now = time.monotonic()
        taken = now - self._unanswered.pop(sender, now)
        message = unseal(data)
        match message.kind:
            case "ready":
                return self._admit(sender, Ready.of(message))
            case "stranger":
                if Stranger.of(message).run in ("", self.server.run):
                    self.strangers.add(sender)
                return True
            case _:
                self.server.take_in(sender, Answer.of(message))
                if taken < self.plan.spec.deploy.deadline:
                    self.absent.discard(sender)
                return sender in self.server.waiting  # it was late, or is behind

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
        self.strangers.discard(sender)
        return True

    # Telling -----------------------------------------------------------------------------------

    def _evaluation(self) -> dict[str, float | None]:
        evaluation = over_all(self.server.answered)
        if self._test is not None:
            self.model.params.copy_(torch.from_numpy(self.server.params))
            found = self._test()
            # A server that has test samples only holds them where training samples would be.
            evaluation |= {"test_loss": found["train_loss"], "test_accuracy": found["train_accuracy"]}
        finite = {name: value for name, value in evaluation.items() if value is None or math.isfinite(value)}
        return finite | {"seconds": self.record.progress.seconds}

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
        loss, sample = default_loss(data), x[:2].to(model.params.dtype)
        if not check_model(model.module, sample, y[:2], data.classes, loss, plain_loss=True):
            return Evaluator(model, loss, data)
    log.info("the server has no test samples of %s: no test accuracy", spec.data.name)
    return None


def _readable(reason: str) -> str:
    """Words of others, fit for a terminal."""
    kept = "".join(letter if letter.isprintable() or letter == "\n" else "?" for letter in reason)
    return kept if len(kept) <= _LONGEST_REASON else kept[: _LONGEST_REASON - 1] + "…"
