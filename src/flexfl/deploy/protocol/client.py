"""The client's side of the conversation: answers each question once, and remembers before it speaks.

All that an answer is made of (residual, queues, model, the update itself) is on the disk before the
answer leaves. A question that comes again gets the same answer. An update stays pending until the
server says what became of it: taken, and it is forgotten here; refused, and it returns to the residual;
nothing, and it is sent again instead of making another.
"""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flexfl.deploy.protocol.messages import REFUSED, SPENT, Answer, Ask, ProtocolError
from flexfl.deploy.protocol.store import Store, packed, plain, unpacked
from flexfl.deploy.protocol.work import Work
from flexfl.wire.sparse import decode

Vector = NDArray[Any]


@dataclass(frozen=True)
class _State:
    """What a client remembers; `pending` is the update whose fate it does not know."""

    life: int = 0  # begins with the first question
    iteration: int = -1  # the last one it answered in
    version: int = 0  # of its model; without a model, 0
    used: int = 0  # minibatches
    number: int = 0  # of its newest update
    made_in: int = 0
    spent: dict[str, float] = field(default_factory=dict)  # since the beginning of this life
    pending: bytes = b""
    answer: bytes = b""


class Client:
    """One client of a run; `dim` is the number of parameters, `dtype` theirs.

    ledger  also keep the sum of all steps −(η/q)·g that it has taken, so that anyone can check that
            nothing is lost: x + r + Σ w·(e + in flight) = x₀ + Σ w·steps
    """

    def __init__(
        self,
        name: str,
        run: str,
        store: Store,
        work: Work,
        *,
        dim: int,
        dtype: str,
        ledger: bool = False,
        new_life: Callable[[], int] = lambda: secrets.randbits(63) | 1,
    ) -> None:
        self.name, self.run, self._new_life = name, run, new_life
        self._store, self._work = store, work
        self._ended: tuple[int, bytes] | None = None
        self._dim, self._dtype = dim, np.dtype(dtype)
        kept = store.load()
        self.params: Vector | None = None
        self._steps = unpacked(kept["steps"]) if "steps" in kept else np.zeros(dim) if ledger else None
        if not kept:
            self.residual: Vector = np.zeros(dim, dtype=self._dtype)
            self._state = _State()
            return
        told = json.loads(kept["state"])
        if told.pop("run") != run:
            raise ProtocolError(f"{name} has the state of another run; give it another folder")
        self._state = _State(**told, pending=kept.get("pending", b""), answer=kept.get("answer", b""))
        self.residual = unpacked(kept["residual"])
        self.params = unpacked(kept["params"]) if "params" in kept else None
        work.recall(json.loads(kept["memory"]))

    def answer(self, data: bytes) -> bytes | None:
        """The answer to a question; None for one that is out of date."""
        return self.reply(Ask.decode(data))

    def reply(self, ask: Ask) -> bytes | None:
        """The same for a question that has been read already."""
        if ask.run != self.run:
            raise ProtocolError(f"{self.name} takes part in {self.run}, and was asked about {ask.run}")
        if not self._state.life:
            self._commit(_State(life=self._new_life()))
        state = self._state
        if ask.iteration < state.iteration:
            return None
        if ask.iteration == state.iteration:
            return state.answer  # asked again
        model = self._model(ask)
        if model is None:
            return replace(self._said(ask, state), version=state.version, behind=True).encode()
        if ask.last:
            return self._end(ask, model)
        memory = self._work.memory
        try:
            return self._work_on(ask, model)
        except BaseException:
            self._work.recall(memory)
            raise

    def _end(self, ask: Ask, params: Vector) -> bytes:
        """The trained model; an update that was not decided on stays pending, should training go on."""
        if self._ended is not None and self._ended[0] == ask.iteration:
            return self._ended[1]  # asked again
        state, residual = self._settled(ask)
        self._commit(replace(state, version=ask.iteration), params=params, residual=residual)
        told = _finite(self._work.evaluate(params))
        answer = replace(self._said(ask, state), last=True, told=told).encode()
        self._ended = ask.iteration, answer
        return answer

    def _settled(self, ask: Ask) -> tuple[_State, Vector]:
        """State and residual after what the question says of the pending update."""
        state, residual = self._state, self.residual
        if state.pending and ask.fate.life == state.life and ask.fate.number >= state.number:
            if ask.fate.what == REFUSED:
                residual = residual + decode(state.pending, self._dim)
            state = replace(state, pending=b"")
        return state, residual

    def _said(self, ask: Ask, state: _State) -> Answer:
        """An answer without anything in it yet."""
        replaces = ask.fate.life if ask.fate.life != state.life else 0
        return Answer(self.run, self.name, state.life, replaces, ask.iteration, version=ask.iteration)

    def _model(self, ask: Ask) -> Vector | None:
        """x of this iteration, from what the question brings; None if something is missing."""
        if ask.model:
            model = unpacked(ask.model)
            if model.shape != (self._dim,) or model.dtype != self._dtype or not np.isfinite(model).all():
                told = f"{self.name} was sent a model of {model.size} numbers of type {model.dtype}"
                raise ProtocolError(f"{told}; it has {self._dim} of type {self._dtype}, all finite")
            return model
        version = self._state.version
        if self.params is None or ask.first > version or ask.first + len(ask.updates) != ask.iteration:
            return None
        params = self.params
        for update in ask.updates[version - ask.first :]:
            if update:
                params = params + decode(update, self._dim)  # line 14
        return params

    def _work_on(self, ask: Ask, params: Vector) -> bytes:
        state, residual = self._settled(ask)
        if state.iteration >= 0:
            self._work.pass_by(ask.iteration - state.iteration - 1)
        told = self._work.evaluate(params) if ask.evaluate else {}
        steps = self._steps
        if state.pending:
            components = np.count_nonzero(decode(state.pending, self._dim))
            told |= self._work.send_again(ask.iteration, int(components), len(state.pending), self._dim)
        else:
            made = self._work.step(ask.iteration, params, residual, state.used)
            if steps is not None and made.accumulated is not residual:
                steps = steps + (made.accumulated - residual)
            residual, told = made.residual, told | made.told
            state = replace(state, used=made.used, pending=made.update)
            if state.pending:
                state = replace(state, number=state.number + 1, made_in=ask.iteration)
        spent = {knob: state.spent.get(knob, 0.0) + told[name] for knob, name in SPENT.items()}
        told |= {f"total.{knob}": total for knob, total in spent.items()}
        answer = replace(self._said(ask, state), told=_finite(told))
        if state.pending:
            answer = replace(answer, number=state.number, made_in=state.made_in, update=state.pending)
        state = replace(
            state, spent=spent, iteration=ask.iteration, version=ask.iteration, answer=answer.encode()
        )
        self._commit(state, params=params, residual=residual, steps=steps)
        return self._state.answer

    def _commit(
        self,
        state: _State,
        *,
        params: Vector | None = None,
        residual: Vector | None = None,
        steps: Vector | None = None,
    ) -> None:
        """First on the disk, then in memory."""
        told = {name: value for name, value in vars(state).items() if name not in ("pending", "answer")}
        residual = self.residual if residual is None else residual
        changes: dict[str, bytes | None] = {
            "state": plain(told | {"run": self.run}),
            "residual": packed(residual),
            "memory": plain(self._work.memory),
            "pending": state.pending,
            "answer": state.answer,
        }
        if params is not None:
            changes["params"] = packed(params)
        if steps is not self._steps and steps is not None:
            changes["steps"] = packed(steps)
        self._store.commit(changes)
        self._state, self.residual = state, residual
        if params is not None:
            self.params = params
        if steps is not None:
            self._steps = steps


def _finite(told: dict[str, float]) -> dict[str, float]:
    """A loss may overflow while the gradient does not; what is no number is not told."""
    return {name: value for name, value in told.items() if math.isfinite(value)}
