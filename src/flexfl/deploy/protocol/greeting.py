"""Before the first question: the server says what the run is, a client says whether it can take part."""

from __future__ import annotations

from dataclasses import dataclass

from flexfl.deploy.protocol.messages import checked
from flexfl.wire.envelope import Envelope, seal


@dataclass(frozen=True)
class Hello:
    """What a client needs to know of a run: its spec, and which of the clients it is."""

    run: str
    spec: str  # TOML
    place: int
    clients: int

    def encode(self) -> bytes:
        return seal(
            "hello", {"run": self.run, "place": self.place, "clients": self.clients}, [self.spec.encode()]
        )

    @classmethod
    def of(cls, message: Envelope) -> Hello:
        envelope = checked(message, "hello", {"run": str, "place": int, "clients": int}, blobs=1)
        fields = envelope.fields
        return cls(
            fields["run"], envelope.blobs[0].decode(errors="replace"), fields["place"], fields["clients"]
        )


@dataclass(frozen=True)
class Ready:
    """A client's reply: its model has `dim` parameters and this fingerprint; or `fault` keeps it away.

    again  the fault may pass: it is worth asking again
    """

    run: str
    client: str
    dim: int = 0
    model: str = ""
    samples: int = 0
    fault: str = ""
    again: bool = False

    def encode(self) -> bytes:
        return seal("ready", dict(vars(self)))

    @classmethod
    def of(cls, message: Envelope) -> Ready:
        return cls(**checked(message, "ready", _READY, blobs=0).fields)


_READY: dict[str, type] = {
    "run": str,
    "client": str,
    "dim": int,
    "model": str,
    "samples": int,
    "fault": str,
    "again": bool,
}


@dataclass(frozen=True)
class Stranger:
    """A client has just been started and knows nothing of the run it was asked about, or of any ("")."""

    run: str
    client: str

    def encode(self) -> bytes:
        return seal("stranger", dict(vars(self)))

    @classmethod
    def of(cls, message: Envelope) -> Stranger:
        return cls(**checked(message, "stranger", {"run": str, "client": str}, blobs=0).fields)
