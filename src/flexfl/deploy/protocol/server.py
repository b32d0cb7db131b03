"""The server's side of the conversation: asks, takes each update exactly once, commits, goes on.

What became of every update, the model, the residual r and the update u of the model are committed
together, before anyone is told: a server that comes back asks again in the iteration it was in, and
gets the same answers.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flexfl.deploy.protocol.downlink import Downlink
from flexfl.deploy.protocol.history import History
from flexfl.deploy.protocol.messages import REFUSED, SPENT, TAKEN, Answer, Ask, Fate, ProtocolError
from flexfl.deploy.protocol.state import Known, State
from flexfl.deploy.protocol.store import Store, packed, plain
from flexfl.wire.sparse import WireError, decode

Vector = NDArray[Any]


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
        self._state = State(0, params, np.zeros_like(params), {name: Known() for name in roster})
        self._history = History(params.nbytes)
        self.records: dict[int, dict[str, Any]] = {}
        self._written: list[int] = []
        self._ending = False
        if kept := store.load():
            self._restore(kept)
        else:
            store.commit(self._values(self._state))
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
        fate, now = self._state.known[name].fate, self._now[name]
        if now.fate.life and name not in self._behind:
            updates = self._history.between(now.version, self.iteration)
            if updates is not None:
                return Ask(self.run, self.iteration, now.version, updates, b"", fate)
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
        self.take_in(sender, answer)

    def take_in(self, sender: str, answer: Answer) -> None:
        """The same for an answer that has been read already."""
        self._admit(sender, answer)
        known = self._now[sender]
        if answer.life != known.fate.life:
            if answer.replaces != known.fate.life or sender in self._reborn:
                return  # of a state that is lost; the one that lives will say what it replaces
            self._reborn.add(sender)
            self._event(sender, "lost its state" if known.fate.life else "joined", known.fate)
            known = Known(Fate(answer.life))
        self._now[sender] = known = replace(known, version=answer.version)
        if answer.behind:
            self._behind.add(sender)
            return
        if answer.update:
            self._take(sender, answer, known)
        if answer.last != self._ending:
            return  # of the end of a run that goes on, or the reverse
        if answer.iteration == self.iteration and sender not in self._answered:
            totals = {knob: answer.told[f"total.{knob}"] for knob in SPENT if f"total.{knob}" in answer.told}
            spent = {SPENT[knob]: total - known.spent.get(knob, 0.0) for knob, total in totals.items()}
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

    def _take(self, sender: str, answer: Answer, known: Known) -> None:
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

    def _decide(self, sender: str, known: Known, fate: Fate) -> None:
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
        before = self._downlink.memory
        try:
            return self._go_on(dict(more or {}))
        except BaseException:
            self._downlink.recall(before)
            raise

    def _go_on(self, more: dict[str, Any]) -> dict[str, Any]:
        sent = self._downlink.send(self.iteration, self._aggregated())
        record = sent.told | {
            "iteration": self.iteration,
            "answers": self.answered,
            "events": self._events,
            **more,
        }
        after = replace(
            self._state,
            iteration=self.iteration + 1,
            params=self.params + sent.update,  # line 14
            residual=sent.residual,
            known=self._now,
        )
        history, changes = self._history.and_then(self.iteration, sent.encoded)
        for place, event in enumerate(self._events):
            changes[f"event/{self.iteration:010d}/{place}"] = plain(event)
        changes[f"record/{self.iteration}"] = plain(record)
        changes |= {f"record/{number}": None for number in self._written}
        self._store.commit(self._values(after) | changes)
        self.records[self.iteration] = record
        self._state, self._history, self._written = after, history, []
        self._begin()
        return record

    def _aggregated(self) -> Vector:
        """a: line 10, in the order of the roster."""
        place = {name: number for number, name in enumerate(self.roster)}
        total = self.residual
        for sender, life, number in sorted(self._heard, key=lambda key: place[key[0]]):
            update = self.roster[sender] * self._heard[sender, life, number]
            total = (total + update).astype(self.params.dtype)
        return total

    def written(self, until: int) -> None:
        """The records before iteration `until` are safe elsewhere; they go with the next commit."""
        for number in [number for number in self.records if number < until]:
            del self.records[number]
            self._written.append(number)

    def _values(self, state: State) -> dict[str, bytes | None]:
        return {**state.values(self.run, self.roster), "memory": plain(self._downlink.memory)}

    def _restore(self, kept: Mapping[str, bytes]) -> None:
        self._state = State.stored(kept, self.run, self.roster)
        self._downlink.recall(json.loads(kept["memory"]))
        self._history = History.stored(self.params.nbytes, kept)
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
