"""Before the first question: the server sends what the run is, a client replies whether it can take part."""

from __future__ import annotations

from dataclasses import dataclass

from flexfl.deploy.protocol.messages import checked
from flexfl.wire.envelope import Envelope, seal
from flexfl.wire.sparse import WireError


@dataclass(frozen=True)
class Hello:
    """What a client needs to know of a run.

    Attributes:
        run: its ID.
        spec: its settings, as TOML.
        place: which of the clients the receiver is, from 0.
        clients: N.
        importance: N·w, how much the receiver counts in f.
    """

    run: str
    spec: str
    place: int
    clients: int
    importance: float = 1.0

    def encode(self) -> bytes:
        """Return the message as bytes."""
        fields = {name: getattr(self, name) for name in _HELLO}
        return seal("hello", fields, [self.spec.encode()])

    @classmethod
    def of(cls, message: Envelope) -> Hello:
        """Return the message in an envelope, checked."""
        envelope = checked(message, "hello", _HELLO, blobs=1)
        if not 0 < envelope.fields["importance"] <= _MOST_IMPORTANT:
            raise WireError("hello has a wrong value in importance")
        return cls(**envelope.fields, spec=envelope.blobs[0].decode(errors="replace"))


_HELLO: dict[str, type] = {"run": str, "place": int, "clients": int, "importance": float}
_MOST_IMPORTANT = 1e9
"""N·w is at most N; a number beyond any federation would spoil what a client decides."""


@dataclass(frozen=True)
class Ready:
    """A client's reply to `Hello`: it is ready, or `fault` keeps it away.

    Attributes:
        run: the run that it replies about.
        client: its name.
        dim: D of its model.
        model: the model's fingerprint.
        samples: how many it has.
        fault: why it cannot take part; empty if it can.
        retry: the fault may pass, so that another `Hello` is worthwhile.
    """

    run: str
    client: str
    dim: int = 0
    model: str = ""
    samples: int = 0
    fault: str = ""
    retry: bool = False

    def encode(self) -> bytes:
        """Return the message as bytes."""
        return seal("ready", dict(vars(self)))

    @classmethod
    def of(cls, message: Envelope) -> Ready:
        """Return the message in an envelope, checked."""
        return cls(**checked(message, "ready", _READY, blobs=0).fields)


_READY: dict[str, type] = {
    "run": str,
    "client": str,
    "dim": int,
    "model": str,
    "samples": int,
    "fault": str,
    "retry": bool,
}


@dataclass(frozen=True)
class Restarted:
    """A client has just been started and needs a `Hello` before it can answer.

    Attributes:
        run: the run that it was asked about; empty if it was asked about none yet.
        client: its name.
    """

    run: str
    client: str

    def encode(self) -> bytes:
        """Return the message as bytes."""
        return seal("restarted", dict(vars(self)))

    @classmethod
    def of(cls, message: Envelope) -> Restarted:
        """Return the message in an envelope, checked."""
        return cls(**checked(message, "restarted", {"run": str, "client": str}, blobs=0).fields)
