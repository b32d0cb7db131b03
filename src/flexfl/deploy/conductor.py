"""The conductor of a run: it greets clients, asks them in every iteration, and closes it in time.

An iteration is closed when all who are expected have answered, or the deadline is over. Who has missed a
deadline is still polled, but no longer waited for until it answers in time again: a client that is dead or
too slow costs one deadline, not one in every iteration.
"""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from flexfl.control.policy import importance
from flexfl.deploy.jobs import ServerJob
from flexfl.deploy.link import Link
from flexfl.deploy.pace import Pace
from flexfl.deploy.protocol import Answer, Hello, ProtocolError, Ready, Restarted, Server
from flexfl.deploy.record import Record, mean_evaluation
from flexfl.errors import FlexFLError
from flexfl.results.columns import EVALUATION_COLUMNS
from flexfl.results.observer import Live
from flexfl.wire import WireError
from flexfl.wire.envelope import unseal

log = logging.getLogger("flexfl.deploy")

_GREET_SECONDS = 0.5
"""Between two greetings of a client that has not replied."""
_RETRY_SECONDS = 2.0
"""Until a question that was not answered is repeated, since messages get lost. Then twice as long, and so
on, up to `_LONGEST_SECONDS`: a client may just be slow."""
_LONGEST_SECONDS = 8.0
_SLOW_LINK = 5000.0
"""Bytes a second: a question with a whole model is given the time that it may take to arrive, at most a
deadline, before it is repeated and takes as much again."""
_MOST_FOLLOW_UPS = 3
"""Questions to a client in an iteration that follow at once on its message: greeted, behind, late."""
_FLUSH_SECONDS = 1.0
_LONGEST_REASON = 500


@dataclass
class Conductor:
    """The server's state machine on a link.

    Attributes:
        job: the run.
        link: reaches the clients.
        server: the protocol.
        record: notifies the observers.
        live: the status file of the run.
        ready: clients that have replied to a greeting.
        restarted: of these, those that were restarted since and must be greeted before they are asked.
        absent: of these, those that have missed a deadline: polled, but not waited for.
        refused: why clients may not take part, or why their last message was refused.
        hopeless: clients that cannot take part, whatever may come.
        pace: when iterations may begin.
    """

    job: ServerJob
    link: Link
    server: Server
    record: Record
    live: Path
    ready: set[str] = field(default_factory=set)
    restarted: set[str] = field(default_factory=set)
    absent: set[str] = field(default_factory=set)
    refused: dict[str, str] = field(default_factory=dict)
    hopeless: set[str] = field(default_factory=set)
    pace: Pace = field(default_factory=Pace)
    bytes_up: int = 0
    bytes_down: int = 0
    _flushed: float = 0.0
    _asked: dict[str, float] = field(default_factory=dict)
    """When each client was asked last."""
    _began: float = 0.0
    """When this iteration began."""
    _patience: dict[str, float] = field(default_factory=dict)
    """Seconds until the question to a client is repeated, after the time it may be under way."""
    _under_way: dict[str, float] = field(default_factory=dict)
    _follow_ups: Counter[str] = field(default_factory=Counter)
    _unanswered: dict[str, float] = field(default_factory=dict)
    """When each client was first asked what it has not answered yet."""

    def __post_init__(self) -> None:
        self._patience = dict.fromkeys(self.job.roster, _RETRY_SECONDS)

    # Greeting -----------------------------------------------------------------------------------

    def gather(self) -> None:
        """Wait until all clients are ready, or as long as the job says.

        Raises:
            FlexFLError: not one is ready.
        """
        start = time.monotonic()
        while (missing := [name for name in self.job.present if name not in self.ready]) and (
            not self.link.stopped
        ):
            if time.monotonic() - start > self.job.wait or self.hopeless.issuperset(missing):
                break
            self._greet(missing)
            self._listen(_GREET_SECONDS)
            self._publish("waiting for clients")
        if not self.ready and not self.link.stopped:
            reasons = "\n".join(dict.fromkeys(self.refused.values())) or "nobody has answered"
            raise FlexFLError(f"no client is ready after {time.monotonic() - start:.0f} s:\n{reasons}")

    def _greet(self, names: list[str]) -> None:
        places = {name: place for place, name in enumerate(self.job.roster)}
        run, spec = self.server.run, self.job.spec_toml
        shares = importance(np.array(list(self.job.roster.values())))
        counts = np.broadcast_to(shares, len(places)).tolist()
        for name in names:
            place = places[name]
            self._send({name: Hello(run, spec, place, len(places), counts[place]).encode()})

    # One iteration ------------------------------------------------------------------------------

    def run_iteration(self) -> None:
        """Ask, listen, close; a run that is stopped leaves the iteration open."""
        server = self.server
        self.pace.wait(lambda: self.link.stopped)
        evaluate = server.iteration % self.job.evaluate_every == 0
        self._exchange(evaluate=evaluate)
        if self.link.stopped:
            return
        record = server.close({"evaluation": self._evaluation()} if evaluate else {})
        for event in record["events"]:
            log.info("%(client)s %(event)s in iteration %(iteration)d", event)
        self.record.add(record)
        self.pace.add(record)
        self._publish("training")

    def finish(self) -> None:
        """Hand out the trained model and have it evaluated; unless the run was stopped."""
        self._exchange(evaluate=True, last=True)
        if self.link.stopped:
            self.record.flush()
            self._write_status("stopped", **self.traffic())
            return
        shared = self.server.shared
        joint = {} if shared is None else shared.joint.averages(self.server.iteration)
        more = {"joint_budgets": joint} if joint else {}
        summary = self.record.finish(self._evaluation(), **self.traffic(), **more)
        self._write_status("finished", **self.traffic())
        log.info("finished: %s", summary)

    def _exchange(self, *, evaluate: bool, last: bool = False) -> None:
        """Send questions and take in answers until all who are expected have answered, or time is over."""
        self._began = time.monotonic()
        end = self._began + self.job.deadline
        due, left, self._follow_ups = self.ready - self.absent, 1.0, Counter()
        while not self.link.stopped:
            due |= self._overdue()
            able = self.ready - self.restarted
            self._greet(sorted(due - able))
            questions = self.server.questions(due & able, evaluate=evaluate, last=last)
            self._send(questions)
            self._under_way |= {
                name: min(len(data) / _SLOW_LINK, self.job.deadline) for name, data in questions.items()
            }
            now = time.monotonic()
            self._asked |= dict.fromkeys(due, now)
            self._unanswered = dict.fromkeys(due, now) | self._unanswered
            expected = (self.ready - self.absent) & set(self.server.waiting)
            # Without anyone to expect, wait for anyone: an iteration without answers helps nobody.
            alone = not self.server.answers and not self.ready - self.absent
            if left <= 0 or not (expected or alone):
                break
            left = end - time.monotonic()
            due = self._listen(min(max(0.0, left), _RETRY_SECONDS))
        else:
            return
        self.absent |= expected
        if expected:
            log.info("no answer from %s in iteration %d", ", ".join(sorted(expected)), self.server.iteration)

    def _overdue(self) -> set[str]:
        """Return who has not answered, and was asked (or greeted) last a while ago."""
        now = time.monotonic()
        due = {
            name
            for name in self.server.waiting
            if now - self._asked.get(name, 0.0) > self._patience[name] + self._under_way.get(name, 0.0)
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
        """Take in what has come; return who is to be asked again at once."""
        again: set[str] = set()
        for sender, data in self.link.receive(seconds):
            self.bytes_up += len(data)
            try:
                if self._receive(sender, data) and self._follow_ups[sender] < _MOST_FOLLOW_UPS:
                    self._follow_ups[sender] += 1
                    again.add(sender)
                self._patience[sender] = _RETRY_SECONDS
                self.refused.pop(sender, None)
            except (ProtocolError, WireError) as error:
                named = isinstance(error, ProtocolError)
                self._refuse(sender, _printable(str(error) if named else f"{sender}: {error}"))
        return again

    def _refuse(self, sender: str, reason: str) -> None:
        if self.refused.get(sender) != reason:
            log.warning("refused: %s", reason)
        self.refused[sender] = reason
        if sender in self.ready:
            self.absent.add(sender)

    def _receive(self, sender: str, data: bytes) -> bool:
        """Take in a message; return whether its sender needs another question."""
        if sender not in self.job.roster:
            raise ProtocolError(f"{sender} is not on the roster of {self.server.run}")
        now = time.monotonic()
        taken = now - self._unanswered.pop(sender, now)
        message = unseal(data)
        match message.kind:
            case "ready":
                known = sender in self.ready - self.restarted
                self._admit(sender, Ready.of(message))
                return not known  # else it replies to another greeting of the same start
            case "restarted":
                if Restarted.of(message).run in ("", self.server.run):
                    self.restarted.add(sender)
                return True
            case _:
                answer = Answer.of(message)
                self.server.receive_answer(sender, answer)
                if taken < self.job.deadline:
                    self.absent.discard(sender)
                # A late one is asked at once, unless the question is under way: a repeated answer that led to
                # a repeated question would go round for ever, and double what the link carries.
                late = not answer.behind and answer.iteration < self.server.iteration
                asked = late and self._asked.get(sender, 0.0) >= self._began
                return sender in self.server.waiting and not asked

    def _admit(self, sender: str, reply: Ready) -> None:
        if reply.client != sender or reply.run != self.server.run:
            raise ProtocolError(f"{sender} speaks of {reply.client} and {reply.run}")
        if reply.fault:
            if not reply.retry:
                self.hopeless.add(sender)
            raise ProtocolError(f"{sender} cannot take part: {reply.fault}")
        model = self.job.model
        if (reply.dim, reply.model) != (model.dim, model.fingerprint()):
            got = f"{reply.dim} parameters, fingerprint {reply.model[:8]}"
            raise ProtocolError(f"{sender} has another model ({got}); is its version of the code the same?")
        self.ready.add(sender)
        self.restarted.discard(sender)

    # Evaluation and status ------------------------------------------------------------------------

    def _evaluation(self) -> dict[str, float | None]:
        evaluation = mean_evaluation(self.server.answers, self.job.roster)
        if self.job.evaluate_test is not None:
            self.job.model.params.copy_(torch.from_numpy(self.server.params))
            found = self.job.evaluate_test()
            # A server that has test samples only holds them where training samples would be.
            evaluation |= {"test_loss": found["train_loss"], "test_accuracy": found["train_accuracy"]}
            if (average := self.server.average) is not None:
                with self.job.model.holding(average):
                    found = self.job.evaluate_test()
                evaluation["average_test_loss"] = found["train_loss"]
                evaluation["average_test_accuracy"] = found["train_accuracy"]
        names = [name for name in EVALUATION_COLUMNS if name != "seconds"]
        found_or_none = {name: evaluation.get(name) for name in names}
        finite = {
            name: value if value is not None and math.isfinite(value) else None
            for name, value in found_or_none.items()
        }
        return finite | {"seconds": self.record.progress.seconds}

    def traffic(self) -> dict[str, Any]:
        """Return the bytes of all messages, and those on the wire where the link counts them."""
        wire = self.link.traffic()
        return {
            "payload_bytes": {"up": self.bytes_up, "down": self.bytes_down},
            "wire_bytes": None if wire is None else {"up": wire[0], "down": wire[1]},
        }

    def _publish(self, state: str) -> None:
        """Flush the record and write the status file, once a second at most."""
        now = time.monotonic()
        if now - self._flushed > _FLUSH_SECONDS:
            self._flushed = now
            self.record.flush()
            present = sorted(self.ready - self.absent)
            self._write_status(state, **self.traffic(), present=present, refused=self.refused)

    def _write_status(self, state: str, **more: Any) -> None:
        Live.of(self.record.progress, state=state, worst=self.record.worst(), **more).write(self.live)


def _printable(reason: str) -> str:
    """Return a text of others, fit for a terminal."""
    kept = "".join(letter if letter.isprintable() or letter == "\n" else "?" for letter in reason)
    return kept if len(kept) <= _LONGEST_REASON else kept[: _LONGEST_REASON - 1] + "…"
