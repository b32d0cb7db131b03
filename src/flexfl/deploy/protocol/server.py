"""The server's side of the conversation: asks, takes each update exactly once, commits, goes on.

What became of every update, the model, the residual r and the update u of the model are committed
together, before anyone is told: a server that comes back asks again in the iteration it was in, and
gets the same answers.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flexfl.algorithm.client import keep
from flexfl.compress.topk import DenseMagnitudes, topk
from flexfl.control.policy import SendRule
from flexfl.costs import CostModel, Measured
from flexfl.deploy.protocol.messages import REFUSED, TAKEN, Answer, Ask, Fate, ProtocolError
from flexfl.deploy.protocol.store import Store, packed, plain, unpacked
from flexfl.deploy.protocol.work import measured, recall_measured
from flexfl.streams import Streams
from flexfl.wire.envelope import MOST_BLOBS
from flexfl.wire.sparse import WireError, decode, encode, sendable

Vector = NDArray[Any]

_MOST_UPDATES = MOST_BLOBS // 2
"""That are sent instead of the model, however short they are."""
_SPENT = {"compute": "compute_spent", "uplink": "uplink_cost"}
"""What a client's totals count; it is recorded when it is told, also what a lost answer had cost."""


@dataclass(frozen=True)
class Downlink:
    """What the server decides with: P3.3."""

    rule: SendRule
    cost: CostModel
    streams: Streams
    values: str = "float32"


@dataclass(frozen=True)
class _Known:
    """What the server knows of a client: the fate of its newest update, its model's version, its spending."""

    fate: Fate = field(default_factory=Fate)
    version: int = 0
    spent: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class _State:
    """What is on the disk between two iterations."""

    iteration: int
    params: Vector  # x
    residual: Vector  # r
    known: dict[str, _Known]


class Server:
    """One run.

    roster  the clients by name, with their weights; nobody else is heard
    latest  an update older than so many iterations is refused, and returns to its client's residual
    """

    def __init__(
        self,
        run: str,
        roster: Mapping[str, float],
        store: Store,
        params: Vector,
        downlink: Downlink,
        *,
        latest: int | None = None,
    ) -> None:
        self.run, self.roster = run, dict(roster)
        self._store, self._downlink, self._latest = store, downlink, latest
        self._state = _State(0, params, np.zeros_like(params), {name: _Known() for name in roster})
        self._updates: dict[int, bytes] = {}
        self.records: dict[int, dict[str, Any]] = {}
        self._written: list[int] = []
        self._ending = False
        if kept := store.load():
            self._restore(kept)
        else:
            store.commit(self._changes(self._state))
        self._begin()

    def _begin(self) -> None:
        """What was heard in this iteration, and is on no disk yet."""
        self._heard: dict[tuple[str, int, int], Vector] = {}
        self._now = dict(self._state.known)
        self._answered: dict[str, dict[str, float]] = {}
        self._behind: set[str] = set()
        self._reborn: set[str] = set()
        self._events: list[dict[str, Any]] = []

    # Asking and hearing ----------------------------------------------------------------------

    @property
    def waiting(self) -> list[str]:
        """Who has not answered in this iteration."""
        return [name for name in self.roster if name not in self._answered]

    def asks(
        self, names: Collection[str] | None = None, *, evaluate: bool = False, last: bool = False
    ) -> dict[str, bytes]:
        """A question for everyone (of `names`) who has not answered yet."""
        self._ending = last
        wanted = [name for name in self.waiting if names is None or name in names]
        return {name: replace(self._ask(name), evaluate=evaluate, last=last).encode() for name in wanted}

    def _ask(self, name: str) -> Ask:
        fate, version = self._state.known[name].fate, self._now[name].version
        missing = range(version, self.iteration)
        known = bool(self._now[name].fate.life) and name not in self._behind
        if known and all(number in self._updates for number in missing):
            updates = tuple(self._updates[number] for number in missing)
            if sum(map(len, updates)) <= self.params.nbytes:
                return Ask(self.run, self.iteration, version, updates, b"", fate)
        return Ask(self.run, self.iteration, self.iteration, (), packed(self.params), fate)

    def hear(self, sender: str, data: bytes) -> None:
        """Take in an answer; `sender` is the name that the transport vouches for.

        What does not belong here raises `ProtocolError` with the sender's name and changes nothing,
        but that an update that is no update is refused for good.
        """
        try:
            answer = Answer.decode(data)
        except WireError as error:
            raise ProtocolError(f"{sender}: {error}") from error
        self._admit(sender, answer)
        known = self._now[sender]
        if answer.life != known.fate.life:
            if answer.replaces != known.fate.life or sender in self._reborn:
                return  # of a state that is lost; the one that lives will say what it replaces
            self._reborn.add(sender)
            self._event(sender, "lost its state" if known.fate.life else "joined", known.fate)
            known = _Known(Fate(answer.life))
        self._now[sender] = known = replace(known, version=answer.version)
        if answer.behind:
            self._behind.add(sender)
            return
        if answer.update:
            self._take(sender, answer, known)
        if answer.last != self._ending:
            return  # of the end of a run that goes on, or the reverse
        if answer.iteration == self.iteration and sender not in self._answered:
            totals = {knob: answer.told[f"total.{knob}"] for knob in _SPENT if f"total.{knob}" in answer.told}
            spent = {_SPENT[knob]: total - known.spent.get(knob, 0.0) for knob, total in totals.items()}
            self._now[sender] = replace(self._now[sender], spent=known.spent | totals)
            self._answered[sender] = answer.told | spent

    def _admit(self, sender: str, answer: Answer) -> None:
        if sender not in self.roster:
            raise ProtocolError(f"{sender} is not on the roster of {self.run}")
        if answer.client != sender:
            raise ProtocolError(f"{sender} speaks in the name of {answer.client}")
        if answer.run != self.run:
            raise ProtocolError(f"{sender} answers about {answer.run}, this run is {self.run}")
        if answer.iteration > self.iteration:
            raise ProtocolError(
                f"{sender} is in iteration {answer.iteration}, the server in {self.iteration}; was the "
                "server's state restored from an older copy?"
            )

    def _take(self, sender: str, answer: Answer, known: _Known) -> None:
        if answer.number <= known.fate.number:
            return  # decided before: heard twice
        if answer.number != known.fate.number + 1:
            raise ProtocolError(
                f"{sender} sends update {answer.number} after {known.fate.number}; one is missing"
            )
        key = sender, answer.life, answer.number
        if key in self._heard:
            return
        try:
            update = self._sane(decode(answer.update, len(self.params)))
        except WireError as error:
            self._decide(sender, known, Fate(answer.life, answer.number, REFUSED))
            raise ProtocolError(f"{sender}: {error}") from error
        if self._latest is not None and self.iteration - answer.made_in > self._latest:
            self._decide(sender, known, Fate(answer.life, answer.number, REFUSED))
        else:
            self._heard[key] = update
            self._decide(sender, known, Fate(answer.life, answer.number, TAKEN))

    def _sane(self, update: Vector) -> Vector:
        """Nobody may send what sums and squares cannot hold."""
        most = float(np.finfo(self.params.dtype).max) ** 0.25
        if (largest := float(np.abs(update).max())) > most:
            raise WireError(f"message may hold values up to {most:.3g}, got {largest:.3g}")
        return update

    def _decide(self, sender: str, known: _Known, fate: Fate) -> None:
        """In memory: it holds when the iteration is committed."""
        self._now[sender] = replace(known, fate=fate)
        if fate.what == REFUSED:
            self._event(sender, "update refused", fate)

    def _event(self, sender: str, what: str, fate: Fate) -> None:
        event = {"iteration": self.iteration, "client": sender, "what": what}
        self._events.append(event | {"life": fate.life, "number": fate.number, "fate": fate.what})

    # Going on --------------------------------------------------------------------------------

    @property
    def answered(self) -> dict[str, dict[str, float]]:
        """What was told in this iteration, by name."""
        return dict(self._answered)

    def close(self, more: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """End the iteration with what was heard: missing answers count as v = 0. Commits, then tells.

        The record, with `more` in it, is in the same commit, and stays until `written` is told of it.
        """
        aggregated = self.residual  # line 10, in the order of the roster
        for name, weight in self.roster.items():
            for (sender, _, _), update in self._heard.items():
                if sender == name:
                    aggregated = (aggregated + weight * update).astype(self.params.dtype)
        before = self._memory
        try:
            return self._go_on(aggregated, dict(more or {}))
        except BaseException:
            self._recall(before)
            raise

    def _go_on(self, aggregated: Vector, more: dict[str, Any]) -> dict[str, Any]:
        link, dim = self._downlink, len(self.params)
        moment = link.streams.moment("downlink", self.iteration, dim)
        cost = link.cost.at(moment)
        k = link.rule.decide(cost, DenseMagnitudes(aggregated), moment)  # P3.3
        update = sendable(topk(aggregated, k), link.values)
        encoded, kept = encode(update, link.values), keep(aggregated, update)  # line 11
        told = {"downlink_components": int(k), "downlink_cost": float(cost(k))}
        told["downlink_objective"] = float(np.square(kept, dtype=np.float64).sum())
        if isinstance(link.cost, Measured):
            told["downlink_cost"] = float(len(encoded))
            link.cost.observe(float(k), len(encoded))
        if (queue := link.rule.queue) is not None:
            told["downlink_queue"] = float(queue.pressure)
            queue.charge(told["downlink_cost"])  # (18)
        record: dict[str, Any] = told | {
            "iteration": self.iteration,
            "answers": dict(self._answered),
            "downlink_bytes": len(encoded),
            "events": self._events,
            **more,
        }
        after = replace(
            self._state,
            iteration=self.iteration + 1,
            params=self.params + update,  # line 14
            residual=kept,
            known=self._now,
        )
        updates, changes = self._kept_updates(encoded)
        for place, event in enumerate(self._events):
            changes[f"event/{self.iteration:010d}/{place}"] = plain(event)
        changes[f"record/{self.iteration}"] = plain(record)
        changes |= {f"record/{number}": None for number in self._written}
        self._store.commit(self._changes(after) | changes)
        self._state, self._updates, self._written = after, updates, []
        self.records[after.iteration - 1] = record
        self._begin()
        return record

    def written(self, until: int) -> None:
        """The records before iteration `until` are safe elsewhere; they go with the next commit."""
        for number in [number for number in self.records if number < until]:
            del self.records[number]
            self._written.append(number)

    @property
    def _memory(self) -> dict[str, float]:
        """What the next decision depends on."""
        queue = self._downlink.rule.queue
        lengths = {} if queue is None else {"queue.downlink": float(queue.length)}
        return lengths | measured({"downlink": self._downlink.cost})

    def _recall(self, memory: Mapping[str, float]) -> None:
        if (queue := self._downlink.rule.queue) is not None:
            queue.length = np.asarray(memory["queue.downlink"], dtype=np.float64)
        recall_measured({"downlink": self._downlink.cost}, memory)

    def _kept_updates(self, newest: bytes) -> tuple[dict[int, bytes], dict[str, bytes | None]]:
        """The newest updates that together are no longer than the model, which is sent instead of more."""
        updates = self._updates | {self.iteration: newest}
        changes: dict[str, bytes | None] = {f"update/{self.iteration}": newest}
        size, most = 0, self.params.nbytes
        for place, number in enumerate(sorted(updates, reverse=True)):
            size += len(updates[number])
            if size > most or place >= _MOST_UPDATES:
                del updates[number]
                changes[f"update/{number}"] = None
        return updates, changes

    def _changes(self, state: _State) -> dict[str, bytes | None]:
        clients = {
            name: [known.fate.life, known.fate.number, known.fate.what, known.version, known.spent]
            for name, known in state.known.items()
        }
        return {
            "state": plain({"run": self.run, "iteration": state.iteration, "roster": self.roster}),
            "clients": plain(clients),
            "memory": plain(self._memory),
            "params": packed(state.params),
            "residual": packed(state.residual),
        }

    def _restore(self, kept: Mapping[str, bytes]) -> None:
        told = json.loads(kept["state"])
        if told["run"] != self.run or told["roster"] != self.roster:
            there = ", ".join(f"{name} ({weight:g})" for name, weight in told["roster"].items())
            raise ProtocolError(f"the state is of {told['run']} with other clients or weights: {there}")
        known = {
            name: _Known(Fate(life, number, what), version, spent)
            for name, (life, number, what, version, spent) in json.loads(kept["clients"]).items()
        }
        params, residual = unpacked(kept["params"]), unpacked(kept["residual"])
        self._state = _State(told["iteration"], params, residual, known)
        self._recall(json.loads(kept["memory"]))
        self._updates = {
            int(name.partition("/")[2]): value for name, value in kept.items() if name.startswith("update/")
        }
        self.records = {
            int(name.partition("/")[2]): json.loads(value)
            for name, value in kept.items()
            if name.startswith("record/")
        }

    @property
    def iteration(self) -> int:
        """The one that is under way."""
        return self._state.iteration

    @property
    def params(self) -> Vector:
        """x, as everyone has it or will have it."""
        return self._state.params

    @property
    def residual(self) -> Vector:
        """r."""
        return self._state.residual
