"""What server and clients say to each other: one question and one answer for each iteration.

The question brings what the client needs (the updates of the model it has missed, or the whole
model) and what became of its last update; the answer brings the next update.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flexfl.errors import FlexFLError
from flexfl.wire.envelope import Envelope, seal, unseal
from flexfl.wire.sparse import WireError

TAKEN, REFUSED = "taken", "refused"
SPENT = {"compute": "compute_spent", "uplink": "uplink_cost"}
"""What a client tells as totals as well: what an answer that was lost had cost is not lost with it."""
_LARGEST = 1e100
"""That a client may tell: sums of such numbers are numbers still."""


class ProtocolError(FlexFLError):
    """A message that does not belong here, named by who sent it."""


@dataclass(frozen=True)
class Fate:
    """What the server has decided about a client's update, once and for all.

    life  names the client's state: one that lost its state begins another life, and counts from one
    """

    life: int = 0
    number: int = 0
    what: str = TAKEN


@dataclass(frozen=True)
class Ask:
    """The server's question to one client in one iteration.

    run      names the training; what belongs to another is not answered
    first    the model version that `updates` begin at; they lead up to `iteration`
    model    the whole model x, instead of updates; empty otherwise
    fate     of the newest update that was decided on
    evaluate the client is to tell how good the model is on its samples
    last     training is over: here is the model, and there is nothing more to do
    """

    run: str
    iteration: int
    first: int
    updates: tuple[bytes, ...]
    model: bytes
    fate: Fate
    evaluate: bool = False
    last: bool = False

    def encode(self) -> bytes:
        fields = {
            "run": self.run,
            "iteration": self.iteration,
            "first": self.first,
            "fate": [self.fate.life, self.fate.number, self.fate.what],
            "evaluate": self.evaluate,
            "last": self.last,
        }
        return seal("ask", fields, [self.model, *self.updates])

    @classmethod
    def decode(cls, data: bytes) -> Ask:
        return cls.of(unseal(data))

    @classmethod
    def of(cls, message: Envelope) -> Ask:
        """Trusts nothing."""
        envelope = checked(message, "ask", _ASK)
        fields = envelope.fields
        if not envelope.blobs:
            raise WireError("ask must have a place for the model")
        return cls(
            fields["run"],
            fields["iteration"],
            fields["first"],
            envelope.blobs[1:],
            envelope.blobs[0],
            _fate(fields["fate"]),
            fields["evaluate"],
            fields["last"],
        )


@dataclass(frozen=True)
class Answer:
    """A client's answer.

    life       names its state
    replaces   the life that the server last said it knows, if that is another: it is lost
    iteration  of the question
    version    how many updates of the model the client has applied
    number     of its newest update, 0 for none; `update` is that update, or empty
    made_in    the iteration in which the update was made: earlier for one that comes late
    behind     the client could not work, since it lacks updates before `first`
    last       of a question that said that training is over
    told       metrics for the server's record
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
    told: dict[str, float] = field(default_factory=dict)

    def encode(self) -> bytes:
        fields = {name: getattr(self, name) for name in _ANSWER}
        return seal("answer", fields, [self.update])

    @classmethod
    def decode(cls, data: bytes) -> Answer:
        return cls.of(unseal(data))

    @classmethod
    def of(cls, message: Envelope) -> Answer:
        """Trusts nothing."""
        envelope = checked(message, "answer", _ANSWER, blobs=1)
        told = envelope.fields["told"]
        # NaN fails the comparison, and so does what no float can hold.
        if not all(type(value) in (int, float) and -_LARGEST <= value <= _LARGEST for value in told.values()):
            raise WireError(f"answer must tell numbers of at most {_LARGEST:g}")
        plain = {name: float(value) for name, value in told.items()}
        return cls(**envelope.fields | {"told": plain}, update=envelope.blobs[0])


_ASK: dict[str, type] = {
    "run": str,
    "iteration": int,
    "first": int,
    "fate": list,
    "evaluate": bool,
    "last": bool,
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
    "told": dict,
}


def checked(
    envelope: Envelope, kind: str, types: Mapping[str, type], *, blobs: int | None = None
) -> Envelope:
    """The message, if it is of that kind, with fields of these types and so many blobs."""
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


def _fate(given: list[Any]) -> Fate:
    if [type(part) for part in given] != [int, int, str] or given[2] not in (TAKEN, REFUSED):
        raise WireError("ask has a wrong value in fate")
    return Fate(*given)
