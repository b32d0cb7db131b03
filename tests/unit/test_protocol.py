"""The conversation of a deployment: who is heard, what is refused, what comes late, what survives."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flexfl.compress import TopK
from flexfl.compress.message import Message
from flexfl.control import Budget, ByKnob, Full, Online, Rule, Setup, VirtualQueue
from flexfl.control.baselines import SendAll
from flexfl.costs import Affine, ConstantCompute, ConstantMessage
from flexfl.deploy.protocol import (
    Acknowledgement,
    Answer,
    Client,
    Hello,
    ProtocolError,
    Question,
    Ready,
    Restarted,
    Server,
    SqliteStore,
    Trainer,
)
from flexfl.deploy.protocol.history import History
from flexfl.deploy.protocol.messages import REFUSED
from flexfl.deploy.protocol.store import pack_state, unpack_state
from flexfl.errors import FlexFLError, NonFiniteError
from flexfl.learning_rate import LearningRate
from flexfl.local import ClientMomentum, ClientWork
from flexfl.streams import Entities, Moment, Streams
from flexfl.wire import WireError, encode
from flexfl.wire.envelope import MOST_BLOBS, seal, unseal

DIM, RUN = 4, "run-1"


class Memory:
    """A store without a disk."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}

    def load(self) -> dict[str, bytes]:
        return dict(self.values)

    def commit(self, changes: Any) -> None:
        self.values |= {name: value for name, value in changes.items() if value is not None}


def make_setup(**changes: Any) -> Setup:
    setup = Setup(
        policy=Full(),
        costs={
            "compute": ConstantCompute(),
            "uplink": ConstantMessage(0.1, 1.0),
            "downlink": ConstantMessage(0.1, 1.0),
        },
        compressors={"uplink": TopK(), "downlink": TopK()},
        budgets={},
        streams=Streams(1),
    )
    return replace(setup, **changes)


def make_client(name: str = "a", store: Any = None, *, gradient: Any = None, **changes: Any) -> Client:
    setup, place = make_setup(**changes), "ab".index(name)
    entity = Entities.one_client(place, 2)
    steps = gradient or (lambda *_: (np.full(DIM, -1.0 - place), 0.0))
    knobs = setup.knob(entity, DIM), setup.sender("uplink", entity, DIM)
    trainer = Trainer(*knobs, lambda t: 1.0, steps, work=ClientWork(setup.local))
    return Client(name, RUN, store or Memory(), trainer, dim=DIM, dtype="float64")


def make_server(store: Any = None, latest: int | None = None, **changes: Any) -> Server:
    downlink = make_setup(**changes).sender("downlink", Entities.the_server(), DIM)
    return Server(RUN, {"a": 0.5, "b": 0.5}, store or Memory(), np.zeros(DIM), downlink, latest=latest)


def message_of(vector: Any) -> Message:
    values = np.asarray(vector, dtype=float)
    indices = np.flatnonzero(values)
    return Message(len(values), indices, values[indices], "float64")


def exchange(server: Server, clients: dict[str, Client]) -> None:
    for name, data in server.questions().items():
        if name in clients and (answer := clients[name].answer(data)) is not None:
            server.receive(name, answer)


def test_an_iteration_is_algorithm_1() -> None:
    server, clients = make_server(), {name: make_client(name) for name in "ab"}
    for iteration in range(3):
        exchange(server, clients)
        assert server.waiting == []
        record = server.close()
        assert record["iteration"] == iteration
        # Steps of +1 and +2, weights of a half.
        np.testing.assert_array_equal(server.params, np.full(DIM, 1.5 * (iteration + 1)))
        assert set(record["answers"]) == {"a", "b"}
        assert record["answers"]["a"]["computed"] == 1.0


def test_a_missing_answer_counts_as_nothing_and_the_mean_stays_over_all() -> None:
    server, clients = make_server(), {name: make_client(name) for name in "ab"}
    exchange(server, {"a": clients["a"]})
    assert server.waiting == ["b"]
    server.close()
    np.testing.assert_array_equal(server.params, np.full(DIM, 0.5))


def test_a_late_answer_is_taken_in_the_next_iteration_and_never_twice() -> None:
    server, clients = make_server(), {name: make_client(name) for name in "ab"}
    late = clients["b"].answer(server.questions()["b"])
    server.close()
    server.receive("b", late)
    assert server.waiting == ["a", "b"]  # it is no answer to this question
    again = clients["b"].answer(server.questions()["b"])  # the update goes along once more
    server.receive("b", again)
    server.receive("b", late)
    assert server.waiting == ["a"]
    server.close()
    np.testing.assert_array_equal(server.params, np.full(DIM, 1.0))
    server.receive("b", late)
    server.receive("b", again)
    server.close()
    np.testing.assert_array_equal(server.params, np.full(DIM, 1.0))


def test_an_update_too_old_is_refused_and_returns_to_the_residual() -> None:
    server, client = make_server(latest=0), make_client("b")
    client.answer(server.questions()["b"])  # lost on the way
    server.close()
    server.receive("b", client.answer(server.questions()["b"]))  # one iteration old
    assert server.close()["events"][-1]["event"] == "update refused"
    np.testing.assert_array_equal(server.params, np.zeros(DIM))
    np.testing.assert_array_equal(client.residual, np.zeros(DIM))
    server.receive("b", client.answer(server.questions()["b"]))  # the old and a new step together
    server.close()
    np.testing.assert_array_equal(server.params, np.full(DIM, 2.0))


def test_a_question_asked_again_gets_the_same_answer_and_costs_no_step() -> None:
    client, question = make_client(), make_server().questions()["a"]
    assert client.answer(question) == client.answer(question)
    np.testing.assert_array_equal(client.residual, np.zeros(DIM))


def test_a_question_that_is_out_of_date_gets_none() -> None:
    server, client = make_server(), make_client()
    old = server.questions()["a"]
    server.close()
    assert client.answer(server.questions()["a"]) is not None
    assert client.answer(old) is None


def test_one_that_missed_much_is_sent_the_model_instead_of_updates() -> None:
    first = np.eye(DIM)[0]  # an update of one component is shorter than the model, two are not
    clients = {name: make_client(name, gradient=lambda *_: (-first, 0.0)) for name in "ab"}
    server = make_server()
    exchange(server, clients)
    server.close()
    for _ in range(20):
        exchange(server, {"a": clients["a"]})
        server.close()
    ask = Question.decode(server.questions()["b"])
    assert ask.model
    assert not ask.updates
    one_behind = Question.decode(server.questions()["a"])
    assert len(one_behind.updates) == 1
    exchange(server, clients)
    server.close()
    exchange(server, clients)
    np.testing.assert_array_equal(clients["a"].params, clients["b"].params)


def test_one_that_lost_its_state_joins_anew_and_the_ledger_says_so() -> None:
    server, clients = make_server(), {name: make_client(name) for name in "ab"}
    exchange(server, clients)
    joined = server.close()["events"]
    assert [(event["client"], event["event"]) for event in joined] == [("a", "joined"), ("b", "joined")]
    clients["b"] = make_client("b")
    exchange(server, clients)  # it has no model
    exchange(server, clients)
    assert server.waiting == []
    (event,) = server.close()["events"]
    assert (event["client"], event["event"], event["number"]) == ("b", "lost its state", 1)
    np.testing.assert_array_equal(server.params, np.full(DIM, 3.0))


@pytest.mark.parametrize(
    ("sender", "change", "reason"),
    [
        ("c", {"client": "c"}, "c is not on the roster"),
        ("b", {}, "b speaks in the name of a"),
        ("a", {"run": "other"}, "a answers about other"),
        ("a", {"iteration": 3}, "a is in iteration 3, the server in 0"),
        ("a", {"number": 5}, "a sends update 5 after 0"),
        ("a", {"update": encode(message_of(np.ones(DIM + 1)))}, r"a: message must be for 4 parameters"),
        ("a", {"update": b"garbage"}, "a: message must have a header"),
    ],
)
def test_who_is_refused_is_named_and_the_others_go_on(sender: str, change: Any, reason: str) -> None:
    server, clients = make_server(), {name: make_client(name) for name in "ab"}
    answer = Answer.decode(clients["a"].answer(server.questions()["a"]))
    with pytest.raises(ProtocolError, match=reason):
        server.receive(sender, replace(answer, **change).encode())
    exchange(server, {"b": clients["b"]})
    server.close()
    np.testing.assert_array_equal(server.params, np.full(DIM, 1.0))


def test_an_update_that_is_none_is_refused_for_good_and_returns() -> None:
    server, client = make_server(), make_client()
    answer = Answer.decode(client.answer(server.questions()["a"]))
    with pytest.raises(ProtocolError, match="checksum"):
        server.receive("a", replace(answer, update=answer.update[:-1] + b"\x01").encode())
    server.close()
    assert Question.decode(server.questions()["a"]).acknowledgement == Acknowledgement(
        answer.life, 1, REFUSED
    )
    exchange(server, {"a": client})
    server.close()
    np.testing.assert_array_equal(server.params, np.full(DIM, 1.0))  # two steps of a half


@given(st.binary(max_size=200))
@settings(max_examples=200)
def test_garbage_is_refused_by_name(data: bytes) -> None:
    with pytest.raises(ProtocolError, match=r"^a: "):
        make_server().receive("a", data)


@given(st.data())
@settings(max_examples=300)
def test_damaged_questions_and_answers_give_our_error(data: st.DataObject) -> None:
    """With a checksum that fits, so that what lies behind it is reached."""
    server, client = make_server(), make_client()
    question = server.questions()["a"]
    for message, use in (
        (question, make_client().answer),
        (client.answer(question), lambda d: server.receive("a", d)),
    ):
        assert message is not None
        envelope = unseal(message)
        name = data.draw(st.sampled_from(sorted(envelope.fields)))
        junk = (
            st.none()
            | st.booleans()
            | st.integers(-(2**70), 2**70)
            | st.text(max_size=3)
            | st.lists(st.integers())
        )
        fields = envelope.fields | {name: data.draw(junk)}
        if data.draw(st.booleans()):
            fields.pop(data.draw(st.sampled_from(sorted(fields))))
        blobs = data.draw(st.sampled_from([envelope.blobs, (), (*envelope.blobs, b"x"), (b"x",)]))
        with suppress(FlexFLError):
            use(seal(envelope.kind, fields, blobs))


def test_a_model_of_another_kind_is_refused() -> None:
    ask = Question.decode(make_server().questions()["a"])
    for model in (b"<f8 " + bytes(8), b"<f4 " + bytes(4 * DIM), b"|O " + bytes(8 * DIM), b"junk", b"<f8 123"):
        with pytest.raises((ProtocolError, WireError)):
            make_client().answer(replace(ask, model=model).encode())


def test_a_gradient_that_is_not_finite_stops_its_client_and_changes_nothing() -> None:
    store = Memory()
    client = make_client(store=store, gradient=lambda *_: (np.full(DIM, np.nan), 0.0))
    with pytest.raises(NonFiniteError, match="iteration 0"):
        client.answer(make_server().questions()["a"])
    assert "answer" not in store.values or not store.values["answer"]


def test_a_first_computation_that_fails_leaves_no_memory_of_local_work() -> None:
    broken = [True]
    client = make_client(
        gradient=lambda *_: (np.full(DIM, np.nan if broken[0] else -1.0), 0.0), local=ClientMomentum()
    )
    question = make_server().questions()["a"]
    with pytest.raises(NonFiniteError):
        client.answer(question)
    broken[0] = False
    assert client.answer(question) is not None
    undisturbed = make_client(gradient=lambda *_: (np.full(DIM, -1.0), 0.0), local=ClientMomentum())
    undisturbed.answer(question)
    for name, kept in undisturbed.trainer.work.state().items():
        np.testing.assert_array_equal(client.trainer.work.state()[name], kept)


def test_queues_go_down_while_a_client_is_away() -> None:
    counting = Counting(VirtualQueue(0.25, initial=1.0))
    client, server = make_client(policy=ByKnob({"compute": Full(), "uplink": Only(counting)})), make_server()
    queue = counting.queue
    client.answer(server.questions()["a"])
    paid = float(queue.length)
    for _ in range(3):
        server.close()
    client.answer(server.questions()["a"])
    # Two iterations without it, and one in which the same update was paid again.
    assert float(queue.length) == pytest.approx(max(0.0, paid - 2 * 0.25) + (0.1 + 1.0) - 0.25)


class Counting(SendAll):
    """Sends all, and keeps a queue."""

    def __init__(self, queue: VirtualQueue) -> None:
        self.queue = queue

    @property
    def pressure(self) -> Any:
        return self.queue.pressure

    def charge(self, spent: Any) -> None:
        self.queue.charge(spent)

    def state(self) -> Any:
        return self.queue.state()

    def restore(self, state: Any) -> None:
        self.queue.restore(state)


@dataclass(frozen=True)
class Only:
    """One rule for all."""

    rule: Rule

    def compute_rule(self, scope: Any) -> Any:
        return self.rule

    def send_rule(self, scope: Any) -> Any:
        return self.rule


# What costs, rules and compressors remember -------------------------------------------------------


class Walking:
    """A cost of sending with a memory: a random walk that moves whenever it is asked."""

    def __init__(self) -> None:
        self.level, self.asked = 0.5, 0

    def at(self, moment: Moment) -> Affine:
        self.level = float(np.clip(self.level + 0.4 * (moment.uniform("walk") - 0.5), 0.1, 1.0))
        self.asked += 1
        return Affine(np.asarray(0.01), np.asarray(self.level))

    def state(self) -> Any:
        return {"level": np.array(self.level), "asked": np.array(self.asked)}

    def restore(self, state: Any) -> None:
        self.level, self.asked = float(state["level"]), int(state["asked"])


class Counted(TopK):
    """A compressor with a memory: it counts its messages."""

    def __init__(self) -> None:
        object.__setattr__(self, "messages", 0)

    def compress(self, vector: Any, amount: int, random: Any) -> Message:
        object.__setattr__(self, "messages", self.messages + 1)
        return super().compress(vector, amount, random)

    def state(self) -> Any:
        return {"messages": np.array(self.messages)}

    def restore(self, state: Any) -> None:
        object.__setattr__(self, "messages", int(state["messages"]))


def with_memory() -> dict[str, Any]:
    costs = {"compute": ConstantCompute(), "uplink": Walking(), "downlink": Walking()}
    budgets = {"uplink": Budget(0.6), "downlink": Budget(0.6)}
    compressors = {"uplink": Counted(), "downlink": Counted()}
    policy = Online(tradeoff=0.5, initial_queue=0.1)
    knobs = {"costs": costs, "budgets": budgets, "compressors": compressors, "policy": policy}
    return knobs | {"local": ClientMomentum(0.3)}


def noise(params: Any, used: int, iteration: int, step: int) -> Any:
    return np.random.default_rng(used).normal(size=DIM), 0.0


@pytest.mark.parametrize(
    "restart", [{"a"}, {"server"}, {"a", "b", "server"}], ids=lambda names: "-".join(sorted(names))
)
def test_a_memory_survives_a_restart_bit_for_bit(restart: set[str]) -> None:
    """Of costs, rules, compressors and local work, at clients and at the server."""

    def run(restarted: set[str]) -> tuple[Server, dict[str, Client], list[Any]]:
        stores = {name: Memory() for name in ("a", "b", "server")}

        def start(name: str) -> Any:
            if name == "server":
                return make_server(stores[name], **with_memory())
            return make_client(name, stores[name], gradient=noise, **with_memory())

        processes, records = {name: start(name) for name in stores}, []
        for iteration in range(30):
            if iteration % 7 == 3:
                processes |= {name: start(name) for name in restarted}
            server = processes["server"]
            exchange(server, processes)
            record = server.close()
            records.append({name: record["answers"][name] for name in "ab"} | {"u": server.params.tolist()})
        return processes["server"], {name: processes[name] for name in "ab"}, records

    whole, parts = run(set()), run(restart)
    assert whole[2] == parts[2]
    np.testing.assert_array_equal(whole[0].params, parts[0].params)
    np.testing.assert_array_equal(whole[0].residual, parts[0].residual)
    assert pack_state(whole[0].downlink.state()) == pack_state(parts[0].downlink.state())
    for name in "ab":
        np.testing.assert_array_equal(whole[1][name].residual, parts[1][name].residual)
        assert pack_state(whole[1][name].trainer.state()) == pack_state(parts[1][name].trainer.state())
    sent = [record["a"]["uplink_components"] for record in whole[2]]
    assert 0 < np.mean(sent) < DIM  # or nothing would have been decided


def test_an_answer_that_fails_leaves_all_memories_as_they_were() -> None:
    broken = {"now": False}

    def fails(*given: Any) -> Any:
        return (np.full(DIM, np.nan), 0.0) if broken["now"] else noise(*given)

    client, server = make_client(gradient=fails, **with_memory()), make_server()
    for iteration in range(6):
        question, before = server.questions()["a"], pack_state(client.trainer.state())
        broken["now"] = iteration > 2
        if broken["now"]:
            with pytest.raises(NonFiniteError, match=f"client 0 became NaN .* iteration {iteration}"):
                client.answer(question)
            assert pack_state(client.trainer.state()) == before
            broken["now"] = False
        answer = client.answer(question)
        assert answer is not None
        server.receive("a", answer)
        server.close()


class Failing(Memory):
    """A disk that is full, once."""

    def __init__(self) -> None:
        super().__init__()
        self.full = False

    def commit(self, changes: Any) -> None:
        if self.full:
            self.full = False
            raise OSError("no space left on device")
        super().commit(changes)


def test_a_close_that_fails_can_be_made_again() -> None:
    one, other = (make_server(store, **with_memory()) for store in (Failing(), Memory()))
    clients = {name: make_client(name, gradient=noise) for name in "ab"}
    for iteration in range(5):
        for name, data in one.questions().items():
            answer = clients[name].answer(data)
            assert answer is not None
            one.receive(name, answer)
            other.receive(name, answer)
        if iteration == 2:
            one._store.full = True  # type: ignore[attr-defined]
            with pytest.raises(OSError, match="no space left"):
                one.close()
        assert one.close() == other.close()
        np.testing.assert_array_equal(one.params, other.params)


def test_any_memory_comes_back_from_bytes() -> None:
    state = {
        "number": np.array(0.1),
        "count": np.array(7),
        "flag": np.array(True),
        "spread": np.broadcast_to(np.array(2.5), (3,)),  # one number in memory
        "strided": np.arange(12.0).reshape(3, 4)[:, ::2],
        "empty": np.zeros((0, 3)),
        "small": np.arange(3, dtype=np.uint8),
        "half": np.ones(2, dtype=np.float16),
    }
    found = unpack_state(pack_state(state))
    assert found.keys() == state.keys()
    for name, value in state.items():
        np.testing.assert_array_equal(found[name], value, strict=True)
    assert unpack_state(pack_state({})) == {}


# On a real disk ------------------------------------------------------------------------------------


def test_a_server_and_its_clients_come_back(tmp_path: Path) -> None:
    def start() -> tuple[Server, dict[str, Client], list[SqliteStore]]:
        stores = [SqliteStore(tmp_path / name) for name in ("server", "a", "b")]
        clients = {name: make_client(name, store) for name, store in zip("ab", stores[1:], strict=True)}
        return make_server(stores[0]), clients, stores

    for iteration in range(4):
        server, clients, stores = start()
        assert server.iteration == iteration
        exchange(server, clients)
        server.close()
        np.testing.assert_array_equal(server.params, np.full(DIM, 1.5 * (iteration + 1)))
        for store in stores:
            store.close()


def test_a_store_has_one_writer_and_knows_its_own(tmp_path: Path) -> None:
    first = SqliteStore(tmp_path / "state")
    first.commit({"one": b"1", "two": b"2"})
    with pytest.raises(FlexFLError, match="in use by another process"):
        SqliteStore(tmp_path / "state")
    first.commit({"one": None})
    first.close()
    again = SqliteStore(tmp_path / "state")
    assert again.load() == {"two": b"2"}
    again.commit({"format": b"9"})
    again.close()
    with pytest.raises(FlexFLError, match="has format"):
        SqliteStore(tmp_path / "state")
    (tmp_path / "text").write_text("no database, but long enough to be read as one" * 100)
    with pytest.raises(FlexFLError, match="holds no state"):
        SqliteStore(tmp_path / "text")


def test_a_state_of_another_run_is_not_touched() -> None:
    store = Memory()
    make_client("a", store).answer(make_server().questions()["a"])
    with pytest.raises(ProtocolError, match="another run"):
        Client("a", "run-2", store, make_client().trainer, dim=DIM, dtype="float64")


KILLED = """
import sys, threading, os, time, signal
from pathlib import Path
from flexfl.deploy.protocol.store import SqliteStore

store = SqliteStore(Path(sys.argv[1]))

def die():
    time.sleep(float(sys.argv[2]))
    os.kill(os.getpid(), signal.SIGKILL)

threading.Thread(target=die).start()
number = int(store.load().get("number", b"0"))
while True:
    number += 1
    store.commit({"number": str(number).encode(), "content": bytes([number % 256]) * 200_000})
    print(number, flush=True)
"""


def test_what_was_committed_survives_kill_9(tmp_path: Path) -> None:
    for delay in (0.2, 0.31, 0.4):
        command = [sys.executable, "-c", KILLED, str(tmp_path / "state"), str(delay)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == -signal.SIGKILL
        store = SqliteStore(tmp_path / "state")
        kept = store.load()
        store.close()
        number = int(kept["number"])
        said = int(done.stdout.split()[-1]) if done.stdout.split() else 0
        assert said <= number <= said + 1 or not said
        assert kept["content"] == bytes([number % 256]) * 200_000


@given(sizes=st.lists(st.integers(1, 40), min_size=1, max_size=40), most=st.integers(1, 200), data=st.data())
def test_the_history_holds_the_newest_updates_that_are_no_longer_than_the_model(
    sizes: list[int], most: int, data: st.DataObject
) -> None:
    history, kept = History(most), {}
    updates = [bytes([number]) * size for number, size in enumerate(sizes)]
    for number, update in enumerate(updates):
        history, changes = history.append(number, update)
        kept = {name: value for name, value in (kept | changes).items() if value is not None}
    total, first = len(updates), len(updates)
    while first and sum(sizes[first - 1 :]) <= most:
        first -= 1
    version = data.draw(st.integers(0, total))
    for told in (history, History.from_store(most, {**kept, "state": b"{}"})):
        expected = tuple(updates[version:]) if version >= first else None
        assert told.since(version, total) == expected


def test_the_history_has_no_more_updates_than_a_message_may_carry() -> None:
    history = History(10**9)
    for number in range(MOST_BLOBS):
        history, _ = history.append(number, b"x")
    half = MOST_BLOBS // 2
    assert history.since(half, MOST_BLOBS) == (b"x",) * half
    assert history.since(half - 1, MOST_BLOBS) is None


GREETINGS = [
    Hello(RUN, "[train]\niterations = 3\n", 1, 4, importance=0.4),
    Ready(RUN, "a", 7, "abc", 100),
    Ready(RUN, "a", fault="no disk", retry=True),
    Restarted("", "a"),
]


@pytest.mark.parametrize("said", GREETINGS, ids=lambda said: type(said).__name__)
def test_a_greeting_arrives_as_it_was_said_and_nothing_else_passes(said: Any) -> None:
    envelope = unseal(said.encode())
    assert type(said).of(envelope) == said
    kind, fields, blobs = envelope.kind, envelope.fields, list(envelope.blobs)
    wrong = [
        seal("question", fields, blobs),
        seal(kind, fields | {"more": 1}, blobs),
        seal(kind, fields, [*blobs, b""]),
        *(seal(kind, fields | {name: [value]}, blobs) for name, value in fields.items()),
        *(seal(kind, {key: v for key, v in fields.items() if key != name}, blobs) for name in fields),
        *(seal(kind, fields | {name: -1}, blobs) for name, value in fields.items() if type(value) is int),
    ]
    for message in wrong:
        with pytest.raises(WireError):
            type(said).of(unseal(message))


@pytest.mark.parametrize("importance", [0.0, -1.0, 1e12, 1])
def test_a_weight_that_would_spoil_what_a_client_decides_is_refused(importance: float) -> None:
    fields = {"run": RUN, "place": 1, "clients": 4, "importance": importance}
    with pytest.raises(WireError):
        Hello.of(unseal(seal("hello", fields, [b""])))


# A learning rate that follows the messages, and the averaged model ---------------------------------


def test_a_rate_that_follows_the_messages_comes_with_the_question() -> None:
    def server(store: Memory) -> Server:
        downlink = make_setup().sender("downlink", Entities.the_server(), DIM)
        rate = LearningRate("auto", lambda t: 0.5)
        return Server(RUN, {"a": 0.5, "b": 0.5}, store, np.zeros(DIM), downlink, rate=rate, average=True)

    store = Memory()
    own, client = server(store), make_client()
    client.trainer = replace(client.trainer, learning_rate=lambda t: None)
    client._averages = True
    asked = Question.decode(own.questions()["a"])
    assert asked.learning_rate == pytest.approx(0.05)
    with pytest.raises(ProtocolError, match="a was sent no learning rate"):
        client.reply(replace(asked, learning_rate=None))
    own.receive("a", client.reply(asked))
    assert own.close()["learning_rate"] == asked.learning_rate
    np.testing.assert_allclose(own.params, 0.5 * 0.05 * np.ones(DIM))  # a gradient of −1, a weight of a half
    rate = 0.1 / 0.85
    rate = 0.5 * 0.85 * min(0.1 / 0.85, rate + (0.5 - rate) / 10.9)  # one of two has sent
    assert Question.decode(own.questions()["a"]).learning_rate == pytest.approx(rate)
    again = server(store)  # from its disk
    assert Question.decode(again.questions()["a"]).learning_rate == pytest.approx(rate)
    np.testing.assert_array_equal(again.average, own.params)  # after one iteration


@pytest.mark.parametrize("rate", [0.0, -0.1, 1e300, 1, "fast"])
def test_a_learning_rate_that_cannot_be_is_refused(rate: Any) -> None:
    question = Question(RUN, 0, 0, (), b"", Acknowledgement(), learning_rate=rate)
    with pytest.raises(WireError, match="wrong value in learning_rate"):
        Question.decode(question.encode())


def test_a_whole_model_without_its_average_is_refused() -> None:
    client = make_client()
    client._averages = True
    with pytest.raises(ProtocolError, match=f"of {DIM} numbers of type float64; it has {2 * DIM}"):
        client.answer(make_server().questions()["a"])
