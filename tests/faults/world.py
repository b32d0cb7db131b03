"""A deterministic world that goes wrong: one server, some clients, a network and disks, from one seed.

The network drops, delays, repeats and reorders. A disk loses what was not synced, and may keep a torn
part of it. Processes are killed at every step: before, within and after a write, before and after they
send. After every event the ledger is held, exactly, against what is on the disks:

    x + r + Σ w·e + what is in flight + what was wiped = x₀ + Σ w·(applied steps)

and now and then the memory of every living process (queues, costs) against its disk.

Numbers are small multiples of powers of two, so that sums are exact in any order.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from random import Random
from typing import Any

import numpy as np

from flexfl.compress import TopK
from flexfl.control import Budget, ByKnob, FixedProb, Full, JointBudget, Online, Randomised, Setup, TopKRatio
from flexfl.costs import Affine, ConstantCompute, ConstantMessage
from flexfl.deploy.protocol import Client, ProtocolError, Server, Trainer
from flexfl.deploy.protocol.messages import ACCEPTED
from flexfl.deploy.protocol.store import unpack, unpack_state
from flexfl.state import State
from flexfl.streams import Entities, Moment, Streams
from flexfl.wire.sparse import decode

DIM = 6
RATE, PROB = 0.5, 0.5  # −η/q = −1
RUN = "world"


class Killed(BaseException):
    """The process is gone; what it had in memory with it."""


class Disk:
    """A file that grows; what was not synced may be lost or torn when its process dies."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self.synced, self._written = b"", b""
        self._read: tuple[bytes, dict[str, bytes], int] = b"", {}, 0
        self.fuse: int | None = None
        """So many operations from now on, the process dies."""

    @property
    def values(self) -> dict[str, bytes]:
        """What a process that starts now would find."""
        seen, values, place = self._read
        if self.synced is not seen:
            if not self.synced.startswith(seen[:place]):
                values, place = {}, 0
            values, place = read_log(self.synced, values, place)
            self._read = self.synced, values, place
        return values

    def burn(self) -> None:
        if self.fuse is not None:
            self.fuse -= 1
            if self.fuse < 0:
                raise Killed

    def append(self, data: bytes) -> None:
        self.burn()
        self._written += data
        self.burn()

    def sync(self) -> None:
        self.burn()
        self.synced, self._written = self.synced + self._written, b""
        self.burn()

    def crash(self) -> None:
        """Of what was not synced, nothing, a part, or a part with damage is left."""
        left = bytearray(self._written[: self._rng.randint(0, len(self._written))])
        if left and self._rng.random() < 0.5:
            left[self._rng.randrange(len(left))] ^= 1 << self._rng.randrange(8)
        self.synced, self._written, self.fuse = self.synced + bytes(left), b"", None


class Log:
    """A store as a log of records, each with its length and checksum, on such a disk."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk

    def load(self) -> dict[str, bytes]:
        values, place = read_log(self.disk.synced)
        self.disk.synced = self.disk.synced[:place]  # a torn end is cut off
        return values

    def commit(self, changes: Mapping[str, bytes | None]) -> None:
        named = {name: None if value is None else value.hex() for name, value in changes.items()}
        text = json.dumps(named).encode()
        self.disk.append(struct.pack("<II", len(text), zlib.crc32(text)) + text)
        self.disk.sync()


def read_log(
    data: bytes, values: dict[str, bytes] | None = None, place: int = 0
) -> tuple[dict[str, bytes], int]:
    """The values in a log and where its whole records end; goes on from earlier ones."""
    values = dict(values or {})
    while place + 8 <= len(data):
        size, crc = struct.unpack_from("<II", data, place)
        text = data[place + 8 : place + 8 + size]
        if len(text) < size or zlib.crc32(text) != crc:
            break
        for name, value in json.loads(text).items():
            if value is None:
                values.pop(name, None)
            else:
                values[name] = bytes.fromhex(value)
        place += 8 + size
    return values, place


@dataclass
class Machine:
    """A process that comes and goes, and its disk."""

    disk: Disk
    process: Any = None


@dataclass
class Wiped:
    """A client's state that is gone: what its steps had applied, what was lost, what was on its way."""

    client: str
    life: int
    applied: np.ndarray
    residual: np.ndarray
    number: int
    pending: bytes


@dataclass
class World:
    """`make_client` and `make_store` let tests put a broken part in."""

    seed: int
    make_client: Any = Client
    make_store: Any = Log
    make_server: Any = Server
    wiped: list[Wiped] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = rng = Random(self.seed)
        self.names = [f"site-{n}" for n in range(rng.choice([1, 2, 4]))]
        self.weights = dict.fromkeys(self.names, 1 / len(self.names))
        self.latest = rng.choice([None, None, 0, 2])
        self.start = np.array([rng.randint(-4, 4) for _ in range(DIM)], dtype=float)
        self.server = Machine(Disk(rng))
        self.clients = {name: Machine(Disk(rng)) for name in self.names}
        self.network: list[tuple[str, str, bytes]] = []  # to, from, bytes
        self.kinds = [rng.choice(["online", "randomised", "top-k", "all"]) for _ in range(2)]
        self.shares = rng.random() < 0.5

    # Processes ---------------------------------------------------------------------------------

    def boot(self, name: str) -> None:
        machine = self.machine(name)
        try:
            machine.process = self._new(name, self.make_store(machine.disk))
        except Killed:
            self.kill(name)

    def _new(self, name: str, store: Any) -> Any:
        setup = self.setup()
        if name == "server":
            shared = setup.shared_queues(len(self.names))
            downlink = setup.sender("downlink", Entities.the_server(), DIM, shared.joint)
            more = {"latest": self.latest, "shared": shared, "average": True}
            return self.make_server(RUN, self.weights, store, self.start, downlink, **more)
        place = self.names.index(name)
        client = Entities.one_client(place, len(self.names))
        joint = setup.joint_queues(client)
        trainer = Trainer(
            setup.knob(client, DIM, joint),
            setup.sender("uplink", client, DIM, joint),
            lambda t: RATE,
            lambda params, used, *_: (gradient(place, used), 0.0),
            joint=joint,
        )
        more = {"average": True, "new_life": lambda: self.rng.getrandbits(40) | 1}
        return self.make_client(name, RUN, store, trainer, dim=DIM, dtype="float64", **more)

    def setup(self) -> Setup:
        """Return the setup that a process makes for itself."""
        policies = {
            "compute": FixedProb(PROB),
            "downlink": policy(self.kinds[0]),
            "uplink": policy(self.kinds[1]),
        }
        together = np.zeros(len(self.names), dtype=int)
        budget, limit = _BUDGET[self.kinds[1]], np.array([0.25 * len(self.names)])
        uplink = Budget(budget) if not self.shares else Budget(np.array([budget * len(self.names)]), together)
        exact = ConstantMessage(0.25, DIM / 8)  # sums of such numbers are exact
        bill = JointBudget(limit, {"compute": 1.0, "uplink": exact, "downlink": exact}, together, server=0)
        battery = JointBudget(np.full(len(self.names), 0.5), {"uplink": exact}, np.arange(len(self.names)))
        return Setup(
            policy=ByKnob(policies),
            costs={"compute": ConstantCompute(), "uplink": Drifting(), "downlink": Drifting()},
            compressors={"uplink": TopK(), "downlink": TopK()},
            budgets={"uplink": uplink, "downlink": Budget(_BUDGET[self.kinds[0]])},
            streams=Streams(self.seed),
            joint={"bill": bill, "battery": battery} if self.shares else {},
        )

    def machine(self, name: str) -> Machine:
        return self.server if name == "server" else self.clients[name]

    def kill(self, name: str) -> None:
        machine = self.machine(name)
        machine.process = None
        machine.disk.crash()

    # Events ------------------------------------------------------------------------------------

    def send(self, to: str, sender: str, data: bytes) -> None:
        self.machine(sender).disk.burn()
        self.network.append((to, sender, data))
        self.machine(sender).disk.burn()

    def ask(self) -> None:
        for name, data in self.server.process.questions().items():
            self.send(name, "server", data)

    def deliver(self, place: int, *, keep: bool = False) -> None:
        to, sender, data = self.network[place] if keep else self.network.pop(place)
        process = self.machine(to).process
        if process is None:
            return
        try:
            if to == "server":
                process.receive(sender, data)
            elif (answer := process.answer(data)) is not None:
                self.send("server", to, answer)
        except ProtocolError as error:
            raise AssertionError(f"refused without cause: {error}") from error

    def happen(self) -> None:
        """One event."""
        rng = self.rng
        victim = rng.choice(["server", *self.names])
        match rng.choices(
            ["deliver", "repeat", "drop", "ask", "close", "kill", "fuse", "boot", "wipe"],
            [10, 2, 1, 4, 3, 1, 2, 4, 0.3],
        )[0]:
            case "deliver" if self.network:
                to = self.network[place := rng.randrange(len(self.network))][0]
                self.guard(to, lambda: self.deliver(place))
            case "repeat" if self.network:
                to = self.network[place := rng.randrange(len(self.network))][0]
                self.guard(to, lambda: self.deliver(place, keep=True))
            case "drop" if self.network:
                self.network.pop(rng.randrange(len(self.network)))
            case "ask" if self.server.process:
                self.guard("server", self.ask)
            case "close" if self.server.process:
                self.guard("server", self.server.process.close)
            case "kill":
                self.kill(victim)
            case "fuse":
                self.machine(victim).disk.fuse = rng.randint(0, 12)
            case "boot":
                for name in ["server", *self.names]:
                    if self.machine(name).process is None:
                        self.boot(name)
            case "wipe" if victim != "server":
                self.wipe(victim)

    def guard(self, name: str, event: Any) -> None:
        try:
            event()
        except Killed:
            self.kill(name)

    def wipe(self, name: str) -> None:
        self.kill(name)
        kept = self.clients[name].disk.values
        if kept:
            state = json.loads(kept["state"])
            applied = steps(self.names.index(name), state["used"])
            self.wiped.append(
                Wiped(
                    name, state["life"], applied, unpack(kept["residual"]), state["number"], kept["pending"]
                )
            )
        self.clients[name].disk.synced = b""

    # The ledger ----------------------------------------------------------------------------------

    def check(self) -> None:
        """Exact, from the disks alone."""
        kept = self.server.disk.values
        if not kept:
            return
        found = unpack(kept["params"]) + unpack(kept["residual"])
        expected = self.start.copy()
        known = json.loads(kept["clients"])
        events = [json.loads(value) for name, value in kept.items() if name.startswith("event/")]
        for place, name in enumerate(self.names):
            own = self.clients[name].disk.values
            if own:
                state = json.loads(own["state"])
                expected += self.weights[name] * steps(place, state["used"])
                found += self.weights[name] * unpack(own["residual"])
                life, number, outcome, *_ = known[name]
                accepted = (life, number, outcome) == (state["life"], state["number"], ACCEPTED)
                if own["pending"] and not accepted:
                    found += self.weights[name] * decode(own["pending"], DIM).dense()
        for gone in self.wiped:
            weight = self.weights[gone.client]
            expected += weight * (gone.applied - gone.residual)
            if gone.pending:
                newest = tuple(known[gone.client][:3])
                earlier = [(event["life"], event["number"], event["outcome"]) for event in events]
                accepted = (gone.life, gone.number, ACCEPTED) in [newest, *earlier]
                if not accepted:  # still on its way, or lost with the rest
                    found += weight * decode(gone.pending, DIM).dense()
        assert np.array_equal(found, expected), f"seed {self.seed}: {found} is not {expected}"

    def check_memories(self) -> None:
        """What a process remembers of its knobs is what its disk holds, bit for bit."""
        for name in ["server", *self.names]:
            machine = self.machine(name)
            values = machine.disk.values
            if machine.process is None or not values:
                continue
            server = name == "server"
            memory = machine.process._memory() if server else machine.process.trainer.state()
            stored = unpack_state(values["knob" if server else "knobs"])
            same = memory.keys() == stored.keys() and all(
                np.array_equal(value, stored[key], equal_nan=value.dtype.kind == "f")
                for key, value in memory.items()
            )
            assert same, f"seed {self.seed}: {name} remembers {memory}, its disk {stored}"

    def check_shared(self) -> None:
        """What was charged to joint budgets is what clients have spent on them, lost answers included."""
        kept = self.server.disk.values
        records = [json.loads(value) for name, value in kept.items() if name.startswith("record/")]
        known = json.loads(kept["clients"])
        for budget in ("bill", "battery") if self.shares else ():
            name = f"joint.{budget}"
            for client in self.names:
                own = json.loads(self.clients[client].disk.values["state"])
                told = known[client][4][name]
                assert own["spent"][name] == told, f"seed {self.seed}: {client} spent {own['spent']}, {told}"
            reported = sum(answer.get(name, 0.0) for each in records for answer in each["answers"].values())
            if budget == "bill":
                sent = [each["downlink_components"] for each in records]
                reported += sum(0.25 + k / 8 for k in sent if k)
            total = unpack_state(kept["knob"])[f"shared.joint.{budget}.total"].sum()
            assert total == reported, f"seed {self.seed}: {budget} was charged {total}, not {reported}"

    def run(self, events: int) -> None:
        for number in range(events):
            self.happen()
            self.check()
            if number % 10 == 0:
                self.check_memories()

    def heal(self) -> None:
        """No more faults: everyone takes part again, and every update arrives."""
        for name in ["server", *self.names]:
            self.machine(name).disk.fuse = None
            if self.machine(name).process is None:
                self.boot(name)
        server = self.server.process
        before = server.iteration
        for number in range(8):
            for _ in range(3):  # one that is behind is asked twice
                self.ask()
                while self.network:
                    self.deliver(0)
            # A state that is lost may have been met last: that takes an iteration to clear up.
            assert number < 3 or not server.waiting, f"seed {self.seed}: {server.waiting} do not answer"
            server.close()
            self.check()
        for _ in range(2):  # training is over: everyone gets the model
            for name, data in server.questions(last=True).items():
                self.send(name, "server", data)
            while self.network:
                self.deliver(0)
            self.check()
        assert not server.waiting, f"seed {self.seed}: {server.waiting} did not take the model"
        assert server.iteration == before + 8
        self.check_shared()
        versions = {client.process.params.tobytes() for client in self.clients.values()}
        assert len(versions) == 1, f"seed {self.seed}: the models differ"
        averages = {client.process.average.tobytes() for client in self.clients.values()}
        assert averages == {server.average.tobytes()}, f"seed {self.seed}: the averaged models differ"


_BUDGET = {"online": 0.3, "randomised": 0.4, "top-k": 1.0, "all": 1.0}


def policy(kind: str) -> Any:
    return {
        "online": Online(tradeoff=0.5, initial_queue=0.1, floor=0.001),
        "randomised": Randomised(0.5),
        "top-k": TopKRatio(0.34),
        "all": Full(),
    }[kind]


class Drifting:
    """A cost with a memory: every iteration in which it is asked makes the next one dearer, up to a limit."""

    def __init__(self) -> None:
        self.asked = 0

    def at(self, moment: Moment) -> Affine:
        self.asked = self.asked % 7 + 1
        return ConstantMessage(0.01 * self.asked, 1.0).at(moment)

    def state(self) -> State:
        return {"asked": np.array(self.asked)}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.asked = int(state["asked"])


@cache
def gradient(place: int, used: int) -> np.ndarray:
    """A few small whole numbers, other ones in every step of every client."""
    rng = Random(1_000_003 * place + used)
    return np.array([rng.choice([0, 0, 1, -1, 2, -3]) for _ in range(DIM)], dtype=float)


@cache
def steps(place: int, used: int) -> np.ndarray:
    """Σ −(η/q)·g over a client's first steps."""
    if not used:
        return np.zeros(DIM)
    return steps(place, used - 1) - RATE / PROB * gradient(place, used - 1)
