"""The server's side of the conversation: asks, accepts each update exactly once, and commits each iteration.

The acknowledgement of every update, the model, the residual r and the update u of the model are committed
together, before anyone sees them: a server that is restarted asks again in the iteration it was in, and
gets the same answers.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flexfl.compress.message import Message
from flexfl.control.knobs import Sender
from flexfl.control.shared import ANSWERED, SharedQueues
from flexfl.deploy.protocol.history import History
from flexfl.deploy.protocol.messages import (
    ACCEPTED,
    REFUSED,
    SPENT,
    TOTAL,
    Acknowledgement,
    Answer,
    ProtocolError,
    Question,
    check_answer,
    finite_metrics,
)
from flexfl.deploy.protocol.state import ClientStatus, ServerState
from flexfl.deploy.protocol.store import Store, pack_json, pack_state, unpack_state
from flexfl.learning_rate import LearningRate
from flexfl.state import State, restore_all, state_of
from flexfl.wire.sparse import WireError, decode, encode

Vector = NDArray[Any]
_MOST_CHARGED = 1e15
"""The most that one report is charged to a shared queue: what is believed of a client stays finite."""
_UNKNOWN_RATE = LearningRate(np.nan, lambda t: 1.0)


class Server:
    """The server of one run.

    Args:
        run: the ID of the run.
        roster: the clients by name, with their weights w; nobody else may answer.
        store: its durable state; a server continues from what is in there.
        params: x₀, (D,).
        downlink: decides what is sent.
        latest: an update older than so many iterations is refused, and returns to its client's residual.
        shared: the queues that it keeps for its clients; the downlink is charged to them, too.
        rate: the learning rate; sent along where it follows the messages.
        average: form the averaged model x̄, too.

    Attributes:
        records: of the iterations that were closed and not `forget`ten yet, by iteration.
    """

    def __init__(
        self,
        run: str,
        roster: Mapping[str, float],
        store: Store,
        params: Vector,
        downlink: Sender,
        *,
        latest: int | None = None,
        shared: SharedQueues | None = None,
        rate: LearningRate = _UNKNOWN_RATE,
        average: bool = False,
    ) -> None:
        self.shared, self._rate = shared, rate
        self.run, self.roster = run, dict(roster)
        self._store, self.downlink, self._latest = store, downlink, latest
        clients = {name: ClientStatus() for name in roster}
        self._state = ServerState(0, params, np.zeros_like(params), clients, params if average else None)
        self._history = History(params.nbytes)
        self.records: dict[int, dict[str, Any]] = {}
        self._forgotten: list[int] = []
        self._ending = False
        stored = store.load()
        if stored:
            self._restore(stored)
        self._knob = pack_state(self._memory())
        """The state of the downlink and of shared queues as of the last commit."""
        if not stored:
            store.commit(self._values(self._state, self._knob))
        self._begin()

    def _restore(self, stored: Mapping[str, bytes]) -> None:
        self._state = ServerState.from_store(stored, self.run, self.roster)
        self._recall(stored["knob"])
        self._history = History.from_store(self.params.nbytes, stored)
        self.records = {
            int(name.partition("/")[2]): json.loads(value)
            for name, value in stored.items()
            if name.startswith("record/")
        }

    def _memory(self) -> State:
        return state_of(downlink=self.downlink, shared=self.shared, rate=self._rate)

    def _recall(self, knob: bytes) -> None:
        restore_all(unpack_state(knob), downlink=self.downlink, shared=self.shared, rate=self._rate)

    def _begin(self) -> None:
        """Start an iteration; nothing of it is on the disk before it is closed."""
        self._received: dict[tuple[str, int, int], Message] = {}
        self._clients = dict(self._state.clients)
        self._answers: dict[str, dict[str, float]] = {}
        self._behind: set[str] = set()
        self._rejoined: set[str] = set()
        self._events: list[dict[str, Any]] = []

    # Questions and answers --------------------------------------------------------------------

    @property
    def waiting(self) -> list[str]:
        """The clients that have not answered in this iteration."""
        return [name for name in self.roster if name not in self._answers]

    def questions(
        self, names: Collection[str] | None = None, *, evaluate: bool = False, last: bool = False
    ) -> dict[str, bytes]:
        """Return a question for each client (of `names`) that has not answered yet.

        Args:
            names: whom to ask; everyone if left out.
            evaluate: ask for an evaluation of the model.
            last: training is over; hand out the model.
        """
        self._ending = last
        wanted = [name for name in self.waiting if names is None or name in names]
        rate = self._rate.at(self.iteration) if self._rate.follows else None
        more: dict[str, Any] = {"evaluate": evaluate, "last": last, "learning_rate": rate}
        asked = {name: replace(self._question(name), **more) for name in wanted}
        if self.shared is not None:
            self.shared.open(self.iteration)
            places = {name: place for place, name in enumerate(self.roster)}
            lengths = {name: self.shared.lengths(places[name]) for name in asked}
            asked = {name: replace(question, queues=lengths[name]) for name, question in asked.items()}
        return {name: question.encode() for name, question in asked.items()}

    def _question(self, name: str) -> Question:
        known, now = self._state.clients[name].acknowledgement, self._clients[name]
        if now.acknowledgement.life and name not in self._behind:
            updates = self._history.since(now.version, self.iteration)
            if updates is not None:
                return Question(self.run, self.iteration, now.version, updates, b"", known)
        return Question(self.run, self.iteration, self.iteration, (), self._state.model, known)

    def receive(self, sender: str, data: bytes) -> None:
        """Take in an answer.

        Args:
            sender: the name that the transport has authenticated.
            data: the answer.

        Raises:
            ProtocolError: it does not belong to this conversation; names the sender. Nothing has changed,
                except that an update which is not a valid message is refused for good.
        """
        try:
            answer = Answer.decode(data)
        except WireError as error:
            raise ProtocolError(f"{sender}: {error}") from error
        self.receive_answer(sender, answer)

    def receive_answer(self, sender: str, answer: Answer) -> None:
        """Take in an answer that was decoded already."""
        check_answer(answer, sender, self.run, self.roster, self.iteration)
        status = self._clients[sender]
        known = status.acknowledgement
        if answer.life != known.life:
            if answer.replaces != known.life or sender in self._rejoined:
                return  # from a state that is lost; the living one will say what it replaces
            self._rejoined.add(sender)
            self._add_event(sender, "lost its state" if known.life else "joined", known)
            status = ClientStatus(Acknowledgement(answer.life))
        self._clients[sender] = status = replace(status, version=answer.version)
        if answer.behind:
            self._behind.add(sender)
            return
        if answer.update:
            self._receive_update(sender, answer, status)
        if answer.last != self._ending:
            return  # from the end of a run that was made longer, or the reverse
        if answer.iteration == self.iteration and sender not in self._answers:
            metrics = answer.metrics
            summed = [*SPENT, *(self.shared.metrics if self.shared is not None else ())]
            totals = {name: metrics[TOTAL + name] for name in summed if TOTAL + name in metrics}
            spent = {name: total - status.spent.get(name, 0.0) for name, total in totals.items()}
            if any(cost < 0 for cost in spent.values()):  # its disk was set back, or it lies
                self._add_event(sender, "its totals went back", status.acknowledgement)
                spent = {name: max(0.0, cost) for name, cost in spent.items()}
            self._clients[sender] = replace(self._clients[sender], spent=status.spent | totals)
            self._answers[sender] = metrics | spent

    def _receive_update(self, sender: str, answer: Answer, status: ClientStatus) -> None:
        known = status.acknowledgement
        if answer.number <= known.number:
            return  # decided before: it was repeated
        if answer.number != known.number + 1:
            raise ProtocolError(f"{sender} sends update {answer.number} after {known.number}; one is missing")
        key = sender, answer.life, answer.number
        if key in self._received:
            return
        try:
            message = self._summable(decode(answer.update, len(self.params)))
        except WireError as error:
            self._acknowledge(sender, status, Acknowledgement(answer.life, answer.number, REFUSED))
            raise ProtocolError(f"{sender}: {error}") from error
        if self._latest is not None and self.iteration - answer.made_in > self._latest:
            self._acknowledge(sender, status, Acknowledgement(answer.life, answer.number, REFUSED))
        else:
            self._received[key] = message
            self._acknowledge(sender, status, Acknowledgement(answer.life, answer.number, ACCEPTED))

    def _summable(self, message: Message) -> Message:
        """Return the message if sums and squares of its values stay finite."""
        most = float(np.finfo(self.params.dtype).max) ** 0.25
        if (largest := float(np.abs(message.values).max())) > most:
            raise WireError(f"message may hold values up to {most:.3g}, got {largest:.3g}")
        return message

    def _acknowledge(self, sender: str, status: ClientStatus, decision: Acknowledgement) -> None:
        """Decide in memory; the decision holds once the iteration is committed."""
        self._clients[sender] = replace(status, acknowledgement=decision)
        if decision.outcome == REFUSED:
            self._add_event(sender, "update refused", decision)

    def _add_event(self, sender: str, event: str, known: Acknowledgement) -> None:
        about = {"iteration": self.iteration, "client": sender, "event": event}
        self._events.append(about | vars(known))

    # The second half of an iteration -----------------------------------------------------------

    @property
    def answers(self) -> dict[str, dict[str, float]]:
        """The metrics of this iteration so far, by name of the client."""
        return dict(self._answers)

    def close(self, more: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """End the iteration with the answers so far: a missing one counts as v = 0.

        Args:
            more: what else to keep in the record.

        Returns:
            The record of the iteration. It is in the same commit, and stays there until `forget`.
        """
        try:
            return self._close(dict(more or {}))
        except BaseException:
            self._recall(self._knob)
            raise

    def _close(self, more: dict[str, Any]) -> dict[str, Any]:
        t, x = self.iteration, self.params
        a = self._aggregate()
        [message], r, sending = self.downlink.send(t, a)  # P3.3, (18), lines 11–12
        u = message.dense()
        x = x + u  # line 14
        self._charge_shared()
        objective = np.square(r, dtype=np.float64).sum()
        seconds = self.downlink.seconds
        own = {"downlink_objective": objective, "clock": seconds, "learning_rate": self._rate.at(t)}
        record = finite_metrics(sending.record() | own) | {
            "iteration": t,
            "answers": self.answers,
            "events": self._events,
            **more,
        }
        self._rate.add(len(self._received) / len(self.roster))
        self._commit(self._state.after(x, r, self._clients), record, encode(message))
        return record

    def _charge_shared(self) -> None:
        """Charge what clients have reported since their last answer that counted."""
        if self.shared is None:
            return
        reports = [self._answers.get(name, {}) for name in self.roster]
        charged = {
            metric: np.clip([report.get(metric, 0.0) for report in reports], 0.0, _MOST_CHARGED)
            for metric in self.shared.metrics
        }
        first = {
            metric: np.array([report.get(metric, np.nan) for report in reports])
            for metric in self.shared.firsts
        }
        answered = {ANSWERED: np.array([name in self._answers for name in self.roster], dtype=float)}
        self.shared.open(self.iteration)
        self.shared.close(charged | first | answered)

    def _aggregate(self) -> Vector:
        """Return a = r + Σ w·v (line 10), in the order of the roster."""
        place = {name: number for number, name in enumerate(self.roster)}
        a = self.residual
        for key in sorted(self._received, key=lambda key: place[key[0]]):
            w, v = self.roster[key[0]], self._received[key].dense()
            a = (a + w * v).astype(self.params.dtype)  # line 10
        return a

    def _commit(self, after: ServerState, record: dict[str, Any], update: bytes) -> None:
        """Write the new state to the disk, then take it over in memory and start the next iteration."""
        t, knob = self.iteration, pack_state(self._memory())
        history, changes = self._history.append(t, update)
        for place, event in enumerate(self._events):
            changes[f"event/{t:010d}/{place}"] = pack_json(event)
        changes[f"record/{t}"] = pack_json(record)
        changes |= {f"record/{number}": None for number in self._forgotten}
        self._store.commit(self._values(after, knob) | changes)
        self.records[t] = record
        self._state, self._history, self._knob, self._forgotten = after, history, knob, []
        self._begin()

    def _values(self, state: ServerState, knob: bytes) -> dict[str, bytes | None]:
        return {**state.to_store(self.run, self.roster), "knob": knob}

    def forget(self, until: int) -> None:
        """Drop the records before iteration `until`, which are safe elsewhere, with the next commit."""
        for number in [number for number in self.records if number < until]:
            del self.records[number]
            self._forgotten.append(number)

    @property
    def iteration(self) -> int:
        """The iteration that is under way."""
        return self._state.iteration

    @property
    def average(self) -> Vector | None:
        """x̄, (D,); None if it is not formed."""
        return self._state.average

    @property
    def params(self) -> Vector:
        """x, (D,)."""
        return self._state.params

    @property
    def residual(self) -> Vector:
        """r, (D,)."""
        return self._state.residual
