"""The client's side of the conversation: answers each question once, and commits before it answers.

All that an answer depends on (residual, knobs, model, the update itself) is on the disk before the answer
leaves. A question that is repeated gets the same answer. An update stays pending until the server
acknowledges it: accepted, and the client forgets it; refused, and it returns to the residual; without an
acknowledgement it is sent again instead of computing another.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from flexfl.algorithm.steps import next_average
from flexfl.deploy.protocol.messages import (
    REFUSED,
    TOTAL,
    Answer,
    ProtocolError,
    Question,
    finite_metrics,
)
from flexfl.deploy.protocol.store import Store, pack, pack_json, pack_state, unpack, unpack_state
from flexfl.deploy.protocol.trainer import Trainer
from flexfl.wire.sparse import decode, encode

Vector = NDArray[Any]


@dataclass(frozen=True)
class _State:
    """What a client remembers besides its vectors and knobs."""

    life: int = 0  # set by the first question
    iteration: int = -1  # the last one it answered in
    version: int = 0  # of its model; 0 without a model
    used: int = 0  # minibatches
    number: int = 0  # of its newest update
    made_in: int = 0
    spent: dict[str, float] = field(default_factory=dict)  # since the beginning of this life
    pending: bytes = b""  # the update that is not acknowledged yet
    answer: bytes = b""


class Client:
    """One client of a run.

    Args:
        name: its name on the roster.
        run: the ID of the run.
        store: its durable state; a client continues from what is in there.
        trainer: what it computes and decides with.
        dim: D.
        dtype: of the parameters.
        average: form the averaged model x̄, too: from the same updates, as the server does.
        ledger: also keep the sum of all steps (1/q)·Δ that it has taken, so that anyone can check that
            nothing is lost: x + r + Σ w·(e + in flight) = x₀ + Σ w·steps.
        new_life: returns a number that no other life has.

    Raises:
        ProtocolError: the store holds the state of another run.
    """

    def __init__(
        self,
        name: str,
        run: str,
        store: Store,
        trainer: Trainer,
        *,
        dim: int,
        dtype: str,
        average: bool = False,
        ledger: bool = False,
        new_life: Callable[[], int] = lambda: secrets.randbits(63) | 1,
    ) -> None:
        self.name, self.run, self._new_life = name, run, new_life
        self._store, self.trainer = store, trainer
        self._final: tuple[int, bytes] | None = None
        self._dim, self._dtype = dim, np.dtype(dtype)
        self.params: Vector | None = None
        self._averages, self.average = average, cast("Vector | None", None)
        self.residual: Vector = np.zeros(dim, dtype=self._dtype)  # line 2
        self._steps: Vector | None = np.zeros(dim) if ledger else None
        self._state = _State()
        if stored := store.load():
            self._restore(stored)
        self._knobs = pack_state(trainer.state())
        """The state of the knobs as of the last commit."""

    def _restore(self, stored: dict[str, bytes]) -> None:
        fields = json.loads(stored["state"])
        if fields.pop("run") != self.run:
            raise ProtocolError(f"{self.name} has the state of another run; give it another folder")
        self._state = _State(**fields, pending=stored.get("pending", b""), answer=stored.get("answer", b""))
        self.residual = unpack(stored["residual"])
        self.params = unpack(stored["params"]) if "params" in stored else None
        self.average = unpack(stored["average"]) if "average" in stored else None
        if "steps" in stored:
            self._steps = unpack(stored["steps"])
        self.trainer.restore(unpack_state(stored["knobs"]))

    def answer(self, data: bytes) -> bytes | None:
        """Return the answer to a question; None for one that is out of date."""
        return self.reply(Question.decode(data))

    def reply(self, question: Question) -> bytes | None:
        """Return the answer to a question that was decoded already; None for one that is out of date.

        Raises:
            ProtocolError: the question is about another run, or brings a model of another kind.
            NonFiniteError: the gradient is not finite; nothing has changed.
        """
        if question.run != self.run:
            raise ProtocolError(f"{self.name} takes part in {self.run}, and was asked about {question.run}")
        if not self._state.life:
            self._commit(_State(life=self._new_life()))
        state = self._state
        if question.iteration < state.iteration:
            return None
        if question.iteration == state.iteration:
            return state.answer  # the question is repeated
        models = self._models(question)
        if models is None:
            return replace(self._empty_answer(question, state), version=state.version, behind=True).encode()
        if question.last:
            return self._finish(question, *models)
        try:
            return self._take_part(question, *models)
        except BaseException:
            self.trainer.restore(unpack_state(self._knobs))
            raise

    def _finish(self, question: Question, x: Vector, x_bar: Vector | None) -> bytes:
        """Take the trained model; an update without acknowledgement stays pending, for a longer run."""
        if self._final is not None and self._final[0] == question.iteration:
            return self._final[1]  # the question is repeated
        state, e = self._acknowledged(question)
        self._commit(replace(state, version=question.iteration), params=x, average=x_bar, residual=e)
        metrics = finite_metrics(self.trainer.evaluate(x))
        answer = replace(self._empty_answer(question, state), last=True, metrics=metrics).encode()
        self._final = question.iteration, answer
        return answer

    def _acknowledged(self, question: Question) -> tuple[_State, Vector]:
        """Return state and residual after the question's acknowledgement of the pending update."""
        state, e, known = self._state, self.residual, question.acknowledgement
        if state.pending and known.life == state.life and known.number >= state.number:
            if known.outcome == REFUSED:
                v = decode(state.pending, self._dim).dense()
                e = (e + v).astype(self._dtype)
            state = replace(state, pending=b"")
        return state, e

    def _empty_answer(self, question: Question, state: _State) -> Answer:
        replaces = question.acknowledgement.life if question.acknowledgement.life != state.life else 0
        return Answer(
            self.run, self.name, state.life, replaces, question.iteration, version=question.iteration
        )

    def _models(self, question: Question) -> tuple[Vector, Vector | None] | None:
        """Return x of the question's iteration, and x̄ where it is formed; None if updates are missing."""
        if question.model:
            sent = unpack(question.model)
            parts = 2 if self._averages else 1
            if sent.shape != (parts * self._dim,) or sent.dtype != self._dtype or not np.isfinite(sent).all():
                got = f"{self.name} was sent a model of {sent.size} numbers of type {sent.dtype}"
                raise ProtocolError(f"{got}; it has {parts * self._dim} of type {self._dtype}, all finite")
            return sent[: self._dim], sent[self._dim :] if self._averages else None
        version, first = self._state.version, question.first
        if self.params is None or first > version or first + len(question.updates) != question.iteration:
            return None
        return catch_up(self.params, self.average, question.updates[version - first :], version)

    def _take_part(self, question: Question, x: Vector, x_bar: Vector | None) -> bytes:
        """Run this client's half of the iteration, commit it, and return the answer."""
        t, steps = question.iteration, self._steps
        state, e = self._acknowledged(question)
        if state.iteration >= 0:
            self.trainer.skip(t - state.iteration - 1)
        self._learn(question)
        metrics: dict[str, Any] = self.trainer.evaluate(x) if question.evaluate else {}
        if state.pending:
            message = decode(state.pending, self._dim)
            metrics |= self.trainer.resend(t, message.components, len(state.pending))
            sent = bool(metrics["uplink_components"])  # else it waits until it can be paid
        else:
            result = self.trainer.step(t, x, e, state.used, self._learning_rate(question))
            if steps is not None and result.computed:
                steps = steps + (result.accumulated - e)
            e = result.residual
            metrics |= result.metrics
            state = replace(state, used=state.used + result.minibatches, pending=encode(result.message))
            if sent := bool(state.pending):
                state = replace(state, number=state.number + 1, made_in=t)
        names = self.trainer.totalled
        spent = {name: state.spent.get(name, 0.0) + float(metrics[name]) for name in names}
        # Not what the server can tell itself: the last cost from the totals, and 1/q.
        metrics = {
            name: value for name, value in metrics.items() if name not in (*spent, "compute_objective")
        }
        metrics |= {TOTAL + name: total for name, total in spent.items()}
        answer = replace(self._empty_answer(question, state), metrics=finite_metrics(metrics))
        if sent:
            answer = replace(answer, number=state.number, made_in=state.made_in, update=state.pending)
        state = replace(state, spent=spent, iteration=t, version=t, answer=answer.encode())
        self._commit(state, params=x, average=x_bar, residual=e, steps=steps)
        return state.answer

    def _learning_rate(self, question: Question) -> float:
        """Return η_t: this client's own, or the server's where it follows the messages of all."""
        found = self.trainer.learning_rate(question.iteration)
        found = question.learning_rate if found is None else found
        if found is None:
            raise ProtocolError(f"{self.name} was sent no learning rate, which follows the messages of all")
        return found

    def _learn(self, question: Question) -> None:
        try:
            self.trainer.learn(question.queues)
        except KeyError as error:
            raise ProtocolError(f"{self.name} was sent no length of the shared queue {error}") from error

    def _commit(
        self,
        state: _State,
        *,
        params: Vector | None = None,
        average: Vector | None = None,
        residual: Vector | None = None,
        steps: Vector | None = None,
    ) -> None:
        """Write the new state to the disk, then take it over in memory."""
        fields = {name: value for name, value in vars(state).items() if name not in ("pending", "answer")}
        residual = self.residual if residual is None else residual
        knobs = pack_state(self.trainer.state())
        changes: dict[str, bytes | None] = {
            "state": pack_json(fields | {"run": self.run}),
            "residual": pack(residual),
            "knobs": knobs,
            "pending": state.pending,
            "answer": state.answer,
        }
        if params is not None:
            changes["params"] = pack(params)
        if average is not None:
            changes["average"] = pack(average)
        if steps is not self._steps and steps is not None:
            changes["steps"] = pack(steps)
        self._store.commit(changes)
        self._state, self.residual, self._knobs = state, residual, knobs
        if params is not None:
            self.params, self.average = params, average
        if steps is not None:
            self._steps = steps


def catch_up(
    params: Vector, average: Vector | None, updates: Sequence[bytes], version: int
) -> tuple[Vector, Vector | None]:
    """Return x, and x̄ where it is formed, after more updates: bit for bit those of the server.

    Args:
        params: x of that version, (D,).
        average: x̄ of that version, (D,); None if it is not formed.
        updates: u of the iterations from `version` on, as bytes; empty for u = 0.
        version: how many iterations have led to `params`.
    """
    x, x_bar = params, average
    for t, update in enumerate(updates, start=version):
        if update:
            u = decode(update, len(x)).dense()
            x = (x + u).astype(params.dtype)  # line 14
        x_bar = None if x_bar is None else next_average(x_bar, x, t)
    return x, x_bar
