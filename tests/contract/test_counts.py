"""What costs count: the charge is for the message as it is written, or for its components."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from flexfl import wire
from flexfl.compress import COMPRESSORS
from flexfl.control import Budget, JointBudget, Price, Setup
from flexfl.control.feasible import budget_faults
from flexfl.costs import MESSAGE_COSTS, ConstantCompute, ConstantMessage, MoneyMessage
from flexfl.errors import InputError
from flexfl.spec.schema import parse
from flexfl.streams import Entities, Streams

CLIENTS, DIM, ITERATIONS = 4, 120, 80
EVERYONE = Entities.all_clients(CLIENTS)
AS_COMPONENTS = ("fading", "constant", "packets", "gauss-markov")
"""Kinds in which the size takes the place of the number of components."""
AS_BYTES = ("bytes", "bandwidth", "device", "energy")
"""Kinds in which a byte is a byte, and the codec's header of 20 is among those that are written."""
AROUND = ("gilbert-elliott", "carbon", "money", "available")
"""Kinds that are another cost times a factor."""
INSIDE = {"carbon": "energy", "available": "constant", "gilbert-elliott": "constant", "money": "bytes"}
MORE: dict[str, dict[str, Any]] = {"available": {"trace": [1, 1]}, "carbon": {"intensity": 300.0}}


def cost_of(kind: str, **more: Any) -> Any:
    return MESSAGE_COSTS.make(
        MESSAGE_COSTS.resolve({"kind": kind, **MORE.get(kind, {}), **more}, "here"), "here"
    )


def setup(uplink: Any, compressor: str = "top-k", **more: Any) -> Setup:
    made = COMPRESSORS.make(COMPRESSORS.resolve(compressor, "here"), "here")
    costs = {"compute": ConstantCompute(), "uplink": uplink, "downlink": ConstantMessage()}
    return Setup(
        Price(),
        costs,
        {"uplink": made, "downlink": made},
        more.pop("budgets", {}),
        Streams(1),
        ITERATIONS,
        **more,
    )


def sent(made: Setup, iterations: int) -> list[tuple[Any, Any, Any]]:
    """k, the bytes as written, and the charge, (N,) in each iteration; what is not sent stays."""
    sender, rng = made.sender("uplink", EVERYONE, DIM), np.random.default_rng(0)
    b, found = np.zeros((CLIENTS, DIM)), []
    for t in range(iterations):
        b = b + rng.standard_t(2.0, size=b.shape)
        messages, b, sending = sender.send(t, b)
        nbytes = [len(wire.encode(message)) if message.components else 0 for message in messages]
        assert sending.nbytes.tolist() == nbytes
        found.append((sending.components, np.array(nbytes), sending.charged))
    return found


def expected(kind: str, counts: str, k: Any, nbytes: Any, moment: Any, **inside: Any) -> Any:
    """What messages cost, by a cost that counts components."""
    if kind == "measured":
        return nbytes
    if counts == "components":
        return cost_of(kind, **inside).at(moment)(k)
    if kind in AS_COMPONENTS:
        return cost_of(kind).at(moment)(nbytes / (4 if counts == "bits" else 1))
    return cost_of(kind, bytes_per_component=1.0, bytes_per_message=94.0 - 20.0).at(moment)(nbytes)


def test_every_kind_is_covered():
    assert {*AS_COMPONENTS, *AS_BYTES, *AROUND, "measured"} == set(MESSAGE_COSTS.members)


@pytest.mark.parametrize("compressor", ["top-k", "levels"])
@pytest.mark.parametrize("kind", [*AS_COMPONENTS, *AS_BYTES, "measured"])
def test_charges_are_by_the_formula(kind, compressor):
    for counts in ("components", "bytes") + (("bits",) if kind in AS_COMPONENTS else ()):
        made = setup(cost_of(kind, counts=counts), compressor)
        for t, (k, nbytes, charged) in enumerate(sent(made, 3)):
            moment = made.streams.moment("uplink", t, DIM, EVERYONE)
            np.testing.assert_allclose(
                charged, expected(kind, counts, k, nbytes, moment), err_msg=f"{kind} {counts}"
            )
            assert (k > 0).all()  # nothing keeps a client from sending all


@pytest.mark.parametrize("kind", AROUND)
def test_a_cost_around_another_counts_what_that_counts(kind):
    inside = {"kind": INSIDE[kind], "counts": "bytes"}
    model, factor = cost_of(kind, cost=inside), cost_of(kind, cost={"kind": INSIDE[kind]})
    assert (model.counts, factor.counts) == ("bytes", "components")
    for t, (_, nbytes, charged) in enumerate(sent(setup(model), 3)):
        moment = Streams(1).moment("uplink", t, DIM, EVERYONE)
        own = cost_of(INSIDE[kind])
        times = factor.at(moment)(np.full(CLIENTS, 7)) / own.at(moment)(np.full(CLIENTS, 7))
        np.testing.assert_allclose(charged, times * expected(INSIDE[kind], "bytes", None, nbytes, moment))


def test_bits_are_refused_where_bytes_are_meant():
    with pytest.raises(InputError, match="counts"):
        parse({"costs": {"uplink": {"kind": "bytes", "counts": "bits"}}})


@pytest.mark.parametrize("compressor", ["top-k", "levels"])
@pytest.mark.parametrize(("counts", "unit"), [("bits", 0.25), ("bytes", 1.0)])
def test_a_hard_budget_of_what_is_written_is_kept_and_used(compressor, counts, unit):
    cost = ConstantMessage(per_message=2.0, whole_model=float(DIM), counts=counts)
    budget = 30.0 * unit
    made = setup(cost, compressor, budgets={"uplink": Budget(budget)})
    _, nbytes, charged = (np.array(values) for values in zip(*sent(made, ITERATIONS), strict=True))
    np.testing.assert_allclose(charged, np.where(nbytes > 0, 2.0 + unit * nbytes, 0.0))
    spent = charged.sum(axis=0)
    assert (np.cumsum(charged, axis=0) <= ITERATIONS * budget * (1 + 1e-9)).all()
    assert (spent > 0.8 * ITERATIONS * budget).all()


def test_a_joint_budget_that_counts_something_else_is_refused():
    def faults(own: Any, uplink: Any) -> list[str]:
        joint = JointBudget(np.full(CLIENTS, 10.0), {"uplink": own}, np.arange(CLIENTS))
        return [str(fault) for fault in budget_faults(setup(uplink, joint={"plan": joint}), CLIENTS, DIM)]

    bits = ConstantMessage(counts="bits")
    [found] = faults(ConstantMessage(), bits)
    assert "budget.plan.uplink.counts must count what costs.uplink counts, bits, got 'components'" in found
    assert 'set counts = "bits"' in found
    [found] = faults(MoneyMessage(cost={"kind": "bytes", "counts": "bytes"}), ConstantMessage())
    assert "must count what costs.uplink counts, components, got 'bytes'" in found
    assert not faults(2.0, bits)
    assert not faults(ConstantMessage(counts="bits"), bits)
