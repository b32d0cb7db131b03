"""Before the first question: the server sends what the run is, a client replies whether it can take part."""

from __future__ import annotations

from dataclasses import dataclass

from flexfl.deploy.protocol.messages import checked
from flexfl.wire.envelope import Envelope, seal


@dataclass(frozen=True)
class Hello:
    """What a client needs to know of a run.

    Attributes:
        run: its ID.
        spec: its settings, as TOML.
        place: which of the clients the receiver is, from 0.
        clients: N.
    """

    run: str
    spec: str
    place: int
    clients: int

    def encode(self) -> bytes:
        """Return the message as bytes."""
        fields = {"run": self.run, "place": self.place, "clients": self.clients}
        return seal("hello", fields, [self.spec.encode()])

    @classmethod
    def of(cls, message: Envelope) -> Hello:
        """Return the message in an envelope, checked."""
        envelope = checked(message, "hello", {"run": str, "place": int, "clients": int}, blobs=1)
        fields = envelope.fields
        return cls(
            fields["run"], envelope.blobs[0].decode(errors="replace"), fields["place"], fields["clients"]
        )


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
