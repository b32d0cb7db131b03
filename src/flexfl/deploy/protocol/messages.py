"""The messages of an iteration: one question to each client, and its answer.

The question brings what the client needs (the updates of the model it has missed, or the whole model) and
acknowledges its last update; the answer brings the next update.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from flexfl.errors import FlexFLError
from flexfl.wire.envelope import Envelope, seal, unseal
from flexfl.wire.sparse import WireError

ACCEPTED, REFUSED = "accepted", "refused"
SPENT = ("compute_spent", "uplink_cost")
"""Metrics that a client also reports as totals, so that the cost of a lost answer is not lost with it."""
TOTAL = "total."
_LARGEST = 1e100
"""The largest metric that is believed: sums of such numbers stay finite."""


class ProtocolError(FlexFLError):
    """A message that does not belong to this conversation; the text names its sender."""


@dataclass(frozen=True)
class Acknowledgement:
    """The server's decision about a client's update, once and for all.

    Attributes:
        life: names the client's state: one that lost its state starts another life, and counts from one.
        number: of the update.
        outcome: `ACCEPTED`, or `REFUSED`: the update returns to the client's residual.
    """

    life: int = 0
    number: int = 0
    outcome: str = ACCEPTED


@dataclass(frozen=True)
class Question:
    """The server's question to one client in one iteration.

    Attributes:
        run: the ID of the run; questions about another are not answered.
        iteration: t.
        first: the model version that `updates` start from; they lead up to `iteration`.
        updates: u of the iterations from `first` on, as bytes.
        model: the whole model x instead of updates, with x̄ after it where that is formed; empty otherwise.
        acknowledgement: of the client's newest update that was decided on.
        evaluate: the client is to evaluate the model on its samples.
        last: training is over; the client takes the model and evaluates it, and nothing else.
        queues: the lengths of queues that the server keeps for the client (`control.shared`), by name.
        learning_rate: η_t, where it follows the messages of all clients; else None: a client knows it.
    """

    run: str
    iteration: int
    first: int
    updates: tuple[bytes, ...]
    model: bytes
    acknowledgement: Acknowledgement
    evaluate: bool = False
    last: bool = False
    queues: dict[str, float] = field(default_factory=dict)
    learning_rate: float | None = None

    def encode(self) -> bytes:
        """Return the message as bytes."""
        known = self.acknowledgement
        fields = {
            "run": self.run,
            "iteration": self.iteration,
            "first": self.first,
            "acknowledgement": [known.life, known.number, known.outcome],
            "evaluate": self.evaluate,
            "last": self.last,
            "queues": self.queues,
        } | ({} if self.learning_rate is None else {"learning_rate": self.learning_rate})
        return seal("question", fields, [self.model, *self.updates])

    @classmethod
    def decode(cls, data: bytes) -> Question:
        """Return the question in `data`, checked."""
        return cls.of(unseal(data))

    @classmethod
    def of(cls, message: Envelope) -> Question:
        """Return the question in an envelope, checked; trusts nothing."""
        rate = {"learning_rate": float} if "learning_rate" in message.fields else {}
        envelope = checked(message, "question", _QUESTION | rate)
        fields = envelope.fields
        if rate and not 0 < fields["learning_rate"] <= _LARGEST:
            raise WireError("question has a wrong value in learning_rate")
        if not envelope.blobs:
            raise WireError("question must have a place for the model")
        return cls(
            fields["run"],
            fields["iteration"],
            fields["first"],
            envelope.blobs[1:],
            envelope.blobs[0],
            _acknowledgement(fields["acknowledgement"]),
            fields["evaluate"],
            fields["last"],
            _numbers(fields["queues"], "question", "queues"),
            fields.get("learning_rate"),
        )


@dataclass(frozen=True)
class Answer:
    """A client's answer.

    Attributes:
        run: the ID of the run.
        client: its name.
        life: names its state.
        replaces: the life in the question's acknowledgement, if that is another: it is lost.
        iteration: of the question.
        version: how many updates of the model the client has applied.
        number: of its newest update, 0 for none.
        made_in: the iteration in which that update was made; earlier than this one for a late update.
        update: that update v as bytes, or empty.
        behind: the client lacks updates before the question's `first`, and did nothing.
        last: answers a question with `last`.
        metrics: for the server's record.
    """

    run: str
    client: str
    life: int
    replaces: int
    iteration: int
    version: int
    number: int = 0
    made_in: int = 0
    update: bytes = b""
    behind: bool = False
    last: bool = False
    metrics: dict[str, float] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Return the message as bytes."""
        fields = {name: getattr(self, name) for name in _ANSWER}
        return seal("answer", fields, [self.update])

    @classmethod
    def decode(cls, data: bytes) -> Answer:
        """Return the answer in `data`, checked."""
        return cls.of(unseal(data))

    @classmethod
    def of(cls, message: Envelope) -> Answer:
        """Return the answer in an envelope, checked; trusts nothing."""
        envelope = checked(message, "answer", _ANSWER, blobs=1)
        plain = _numbers(envelope.fields["metrics"], "answer", "metrics")
        return cls(**envelope.fields | {"metrics": plain}, update=envelope.blobs[0])


_QUESTION: dict[str, type] = {
    "run": str,
    "iteration": int,
    "first": int,
    "acknowledgement": list,
    "evaluate": bool,
    "last": bool,
    "queues": dict,
}
_ANSWER: dict[str, type] = {
    "run": str,
    "client": str,
    "life": int,
    "replaces": int,
    "iteration": int,
    "version": int,
    "number": int,
    "made_in": int,
    "behind": bool,
    "last": bool,
    "metrics": dict,
}


def check_answer(answer: Answer, sender: str, run: str, roster: Collection[str], iteration: int) -> None:
    """Raise a `ProtocolError` for an answer that does not belong to the conversation of a server.

    Args:
        answer: what has come.
        sender: the name that the transport has authenticated.
        run: the server's.
        roster: who may answer.
        iteration: the server's.
    """
    if sender not in roster:
        raise ProtocolError(f"{sender} is not on the roster of {run}")
    if answer.client != sender:
        raise ProtocolError(f"{sender} speaks in the name of {answer.client}")
    if answer.run != run:
        raise ProtocolError(f"{sender} answers about {answer.run}, this run is {run}")
    if answer.iteration > iteration:
        raise ProtocolError(
            f"{sender} is in iteration {answer.iteration}, the server in {iteration}; was the "
            "server's state restored from an older copy?"
        )


def _numbers(values: dict[str, Any], kind: str, what: str) -> dict[str, float]:
    """Return numbers of others, checked."""
    # NaN fails the comparison, and so does what no float can hold.
    if not all(type(value) in (int, float) and -_LARGEST <= value <= _LARGEST for value in values.values()):
        raise WireError(f"{kind} must have {what} of at most {_LARGEST:g}")
    return {name: float(value) for name, value in values.items()}


def finite_metrics(values: Mapping[str, Any]) -> dict[str, float]:
    """Return the metrics as floats, without those that are not finite.

    A decision without a queue has none to report, and a loss may overflow while the gradient does not.

    >>> finite_metrics({"loss": 0.5, "queue": float("nan")})
    {'loss': 0.5}
    """
    floats = {name: float(value) for name, value in values.items()}
    return {name: value for name, value in floats.items() if math.isfinite(value)}


def checked(
    envelope: Envelope, kind: str, types: Mapping[str, type], *, blobs: int | None = None
) -> Envelope:
    """Return the envelope if it is of that kind, with fields of these types and so many blobs.

    Raises:
        WireError: it is not.
    """
    if envelope.kind != kind:
        raise WireError(f"message must be of kind {kind}, got {envelope.kind}")
    if set(envelope.fields) != set(types):
        raise WireError(f"{kind} must have the fields {', '.join(types)}")
    for name, wanted in types.items():
        value = envelope.fields[name]
        if type(value) is not wanted or (type(value) is int and not 0 <= value < 2**63):
            raise WireError(f"{kind} has a wrong value in {name}")
    if blobs is not None and len(envelope.blobs) != blobs:
        raise WireError(f"{kind} must have {blobs} blobs, got {len(envelope.blobs)}")
    return envelope


def _acknowledgement(given: list[Any]) -> Acknowledgement:
    if [type(part) for part in given] != [int, int, str] or given[2] not in (ACCEPTED, REFUSED):
        raise WireError("question has a wrong value in acknowledgement")
    return Acknowledgement(*given)
