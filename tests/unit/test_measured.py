"""Costs that are measured: told from what was, charged as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexfl.compress import TopK
from flexfl.compress.message import Message
from flexfl.control import Budget, ByKnob, Full, Online, Setup
from flexfl.costs import ConstantMessage, MeasuredCompute, MeasuredMessage
from flexfl.deploy.protocol import Client, Server, SqliteStore, Trainer, trainer
from flexfl.errors import InputError
from flexfl.sim.run import simulate
from flexfl.spec.build import build_setup
from flexfl.spec.schema import parse
from flexfl.streams import Entities, Streams
from flexfl.wire import encode

DIM = 50
MOMENT = Streams(1).moment("compute", 0, DIM, Entities.one_client(0, 1))


def test_the_first_computation_is_free_and_the_next_costs_what_it_took() -> None:
    cost = MeasuredCompute(smoothing=0.5)
    assert float(cost.at(MOMENT)(1.0)) == 0.0
    cost.observe(1.0, 0.2)
    assert float(cost.at(MOMENT)(1.0)) == 0.2
    cost.observe(1.0, 0.4)
    assert float(cost.at(MOMENT)(0.5)) == pytest.approx(0.15)


@given(st.lists(st.floats(1e-6, 1e3), min_size=1), st.floats(0.01, 1.0))
def test_an_estimate_stays_between_what_was_seen(seen: list[float], smoothing: float) -> None:
    cost = MeasuredCompute(smoothing)
    for seconds in seen:
        cost.observe(1.0, seconds)
    assert min(seen) * (1 - 1e-9) <= cost.estimate <= max(seen) * (1 + 1e-9)


def test_a_component_costs_what_the_codec_writes_for_one() -> None:
    """β is its header; γ comes to the bytes of a component, whatever the first guess."""
    rng = np.random.default_rng(0)
    cost = MeasuredMessage(smoothing=0.2, per_component=100.0)
    for _ in range(60):
        size = len(encode(ones_at(rng.choice(5000, 200, replace=False))))
        cost.observe(200, size)
    assert float(cost.at(MOMENT)(200)) == pytest.approx(size, rel=1e-3)
    assert float(cost.at(MOMENT)(0)) == 0.0
    one = encode(ones_at(np.array([7])))
    assert cost.per_message <= len(one) <= cost.per_message + 8
    before = cost.estimate
    cost.observe(0, 0)  # nothing was sent
    assert cost.estimate == before


def ones_at(places: Any) -> Message:
    return Message(5000, np.sort(places), np.ones(len(places), dtype=np.float32), "float32")


def make_client(store: Any, clock: Any, monkeypatch: pytest.MonkeyPatch) -> Client:
    monkeypatch.setattr(trainer.time, "perf_counter", clock)
    setup = Setup(
        policy=ByKnob(
            {
                "compute": Online(tradeoff=0.02, initial_queue=1.0),
                "uplink": Online(tradeoff=50.0, initial_queue=10.0, floor=0.001),
            }
        ),
        costs={"compute": MeasuredCompute(), "uplink": MeasuredMessage()},
        compressors={"uplink": TopK()},
        budgets={"compute": Budget(0.1), "uplink": Budget(30.0)},
        streams=Streams(1),
    )
    rng, entity = np.random.default_rng(1), Entities.one_client(0, 1)
    own = Trainer(
        setup.knob(entity, DIM),
        setup.sender("uplink", entity, DIM),
        lambda t: 0.1,
        lambda *_: (rng.standard_normal(DIM), 0.5),
    )
    return Client("a", "run", store, own, dim=DIM, dtype="float64")


def estimates(client: Client) -> dict[str, float]:
    costs = {"compute": client.trainer.compute.cost, "uplink": client.trainer.uplink.cost}
    return {name: float(cost.estimate) for name, cost in costs.items()}  # type: ignore[attr-defined]


class Clock:
    """A second passes between two looks at it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def make_server() -> Server:
    class Memory:
        def load(self) -> dict[str, bytes]:
            return {}

        def commit(self, changes: Any) -> None:
            pass

    setup = Setup(Full(), {"downlink": ConstantMessage(0.1, 1.0)}, {"downlink": TopK()}, {}, Streams(1))
    downlink = setup.sender("downlink", Entities.the_server(), DIM)
    return Server("run", {"a": 1.0}, Memory(), np.zeros(DIM), downlink)


def test_seconds_and_bytes_come_to_their_budgets_and_survive_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, records, kept = make_server(), [], {}
    for part in range(4):
        store = SqliteStore(tmp_path / "a.sqlite")
        client = make_client(store, Clock(), monkeypatch)
        if part:
            assert estimates(client) == kept
        for _ in range(150):
            answer = client.answer(server.questions()["a"])
            assert answer is not None
            server.receive("a", answer)
            records.append(server.close()["answers"]["a"])
        kept = estimates(client)
        store.close()
    assert kept["compute"] == pytest.approx(1.0)  # a second each
    computed = [metrics["compute_spent"] for metrics in records]
    assert set(computed) == {0.0, 1.0}
    assert np.mean(computed) < 0.1 * 1.3
    paid = [metrics["uplink_cost"] for metrics in records]
    assert paid == [metrics["uplink_bytes"] for metrics in records]
    assert 10 < np.mean(paid) < 30 * 1.2


def test_a_spec_may_name_them_and_a_simulation_refuses_them() -> None:
    spec = parse(
        {"costs": {"compute": {"kind": "measured"}, "uplink": {"kind": "measured", "smoothing": 0.5}}}
    )
    costs = build_setup(spec).costs
    assert isinstance(costs["compute"], MeasuredCompute)
    assert costs["uplink"].smoothing == 0.5  # type: ignore[attr-defined]
    with pytest.raises(InputError, match=r"costs\.compute\.kind is only available in deployments"):
        simulate(spec)
    with pytest.raises(InputError, match=r"costs\.uplink\.smoothing must be in \(0, 1\], got 0"):
        parse({"costs": {"uplink": {"kind": "measured", "smoothing": 0}}})
    with pytest.raises(InputError, match="estimate"):
        parse({"costs": {"uplink": {"kind": "measured", "estimate": 3.0}}})
