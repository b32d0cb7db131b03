"""The engine equals the oracle, for every policy, cost and kind of budget in the package."""

from __future__ import annotations

import numpy as np
import pytest

from flexfl.compress import COMPRESSORS
from flexfl.control import POLICIES as POLICY_FAMILY
from flexfl.costs import COMPUTE_COSTS, MESSAGE_COSTS
from flexfl.learning_rate import SCHEDULES
from flexfl.local import LOCAL_WORK
from flexfl.mapped import mapped_zeros
from flexfl.sim import residuals as residuals_module
from small import BUDGETS, CLIENTS, COSTS, POLICIES, small_engine, small_reference, small_spec

ITERATIONS = 30
CASES = (
    [(policy, costs, "all") for policy in POLICIES for costs in COSTS]
    + [("online", "the paper's", budget) for budget in BUDGETS]
    + [("online", "packets", budget) for budget in BUDGETS]
    + [("randomised", "by client", budget) for budget in BUDGETS]
    + [("price", costs, budget) for costs in ("the paper's", "packets") for budget in BUDGETS]
)

MAIN = [case for case in CASES if case[0] in ("online", "price", "randomised", "mixed")]
"""For other kinds of numbers and kernels: the policies that look at costs, and one that mixes."""


COMPRESSED = {
    "top-k": "top-k",
    "float16": {"kind": "rounded", "values": "float16"},
    "bfloat16": {"kind": "rounded", "values": "bfloat16"},
    "threshold": {"kind": "threshold", "relative": 0.3},
    "rand-k": "rand-k",
    "uniform": {"kind": "uniform", "rounding": "stochastic"},
    "sign": {"kind": "sign"},
    "ternary": {"kind": "ternary"},
    "levels": {"kind": "levels"},
    "levels, 3 bits": {"kind": "levels", "bits": 3},
    "of one's own": "examples.own_compressor:OneMagnitude",
}

LOCAL = {
    "gradient": "gradient",
    "sgd": {"kind": "sgd", "steps": 3},
    "sgd, momentum and decay": {"kind": "sgd", "steps": 4, "momentum": 0.7, "weight_decay": 0.05},
    "adamw": {"kind": "adamw", "steps": 2},
    "adamw, kept": {"kind": "adamw", "steps": 2, "persistent": True},
    "momentum": "momentum",
    "of one's own": "examples.own_local:Proximal",
}


IRRATIONAL = [float(weight) for weight in np.sqrt([2, 3, 5, 7, 11, 13]) / np.sqrt([2, 3, 5, 7, 11, 13]).sum()]
"""Weights with which sums of numbers of a few digits are not halfway between two such numbers."""


def kinds_in(table):
    """Return the kind of a cost, and those of the costs that it is made of."""
    if isinstance(table, str):
        return [table]
    return [table["kind"], *kinds_in(table.get("cost"))] if table else []


def test_every_member_is_covered():
    policies = {case["policy"] for case in POLICIES.values()}
    assert policies >= set(POLICY_FAMILY.members)
    compute = {kind for case in COSTS.values() for kind in kinds_in(case.get("compute"))}
    message = {
        kind for case in COSTS.values() for way in ("uplink", "downlink") for kind in kinds_in(case.get(way))
    }
    assert compute >= set(COMPUTE_COSTS.members) - {"measured"}  # seconds, which a simulation does not have
    assert message >= set(MESSAGE_COSTS.members)
    kinds = {case if isinstance(case, str) else case["kind"] for case in COMPRESSED.values()}
    assert kinds >= set(COMPRESSORS.members)
    assert {kind for case in LOCAL.values() for kind in kinds_in(case)} >= set(LOCAL_WORK.members)


def agree(spec, *, tolerance, weights="equal", **more):
    engine = small_engine(spec, weights, **more)
    # A staircase of costs is searched, which takes its time.
    iterations = ITERATIONS // 3 if spec.costs.uplink["kind"] == "packets" else ITERATIONS
    for step in small_reference(spec, iterations, weights):
        record = engine.step()
        expected = step.compute.record() | step.uplink.record() | step.downlink.record()
        for name, values in expected.items():
            if name.endswith("_bytes") and tolerance > 1e-6:
                continue  # the oracle's messages hold float64, the engine's float32
            exact = name in ("computed", "uplink_components", "downlink_components")
            np.testing.assert_allclose(record[name], values, rtol=0 if exact else tolerance, err_msg=name)
        assert record["learning_rate"] == pytest.approx(step.learning_rate, rel=tolerance)
        if engine.average is not None:
            np.testing.assert_allclose(engine.average.params, step.average, rtol=0, atol=tolerance)
        for mine, theirs in (
            (engine.params, step.params),
            (engine.server_residual, step.server_residual),
            (engine.client_residual, step.client_residual),
        ):
            np.testing.assert_allclose(mine, theirs, rtol=0, atol=tolerance)


@pytest.mark.parametrize(("policy", "costs", "budget"), CASES)
def test_in_float64(policy, costs, budget):
    agree(small_spec(POLICIES[policy], COSTS[costs], BUDGETS[budget]), tolerance=1e-10)


# In float32 a message has another size than the oracle's: with measured costs they decide otherwise.
@pytest.mark.parametrize(("policy", "costs", "budget"), [case for case in MAIN if case[1] != "measured"])
def test_in_float32(policy, costs, budget):
    spec = small_spec(POLICIES[policy], COSTS[costs], BUDGETS[budget], dtype="float32")
    agree(spec, tolerance=1e-4)


@pytest.mark.parametrize("compress", COMPRESSED.values(), ids=COMPRESSED)
@pytest.mark.parametrize("policy", ["online", "randomised", "full"])
@pytest.mark.parametrize("costs", ["the paper's", "packets"])
def test_every_compressor(compress, policy, costs):
    """A value halfway between two of its form may tip with the order of a sum: irrational weights avoid it."""
    spec = small_spec(POLICIES[policy], COSTS[costs], BUDGETS["all"], compress=compress)
    engine = small_engine(spec, IRRATIONAL)
    start = engine.conserved()
    applied = np.zeros(engine.dim)
    for step in small_reference(spec, 12, IRRATIONAL):
        record = engine.step()
        applied += step.applied
        assert np.array_equal(record["computed"], step.compute.computed)
        assert np.array_equal(record["uplink_components"], step.uplink.components)
        assert np.array_equal(record["uplink_bytes"], step.uplink.nbytes)
        np.testing.assert_allclose(engine.params, step.params, rtol=0, atol=1e-10)
        np.testing.assert_allclose(engine.conserved(), start + applied, rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("gradients", "kernels", "chunk"), [("auto", "numba", 2), ("loop", "torch", 100), ("vmap", "numba", 100)]
)
@pytest.mark.parametrize("local", LOCAL.values(), ids=LOCAL)
def test_every_local_work(local, gradients, kernels, chunk):
    """By every path: nothing is lost, and a run that is resumed in the middle goes on bit for bit."""
    spec = small_spec(POLICIES["randomised"], {}, BUDGETS["all"], local=local)
    whole, parts = (small_engine(spec, gradients=gradients, kernels=kernels) for _ in range(2))
    whole._chunk = parts._chunk = chunk
    total = whole.conserved()
    for step in small_reference(spec, ITERATIONS):
        if step.iteration == ITERATIONS // 2:
            state = {name: np.array(array) for name, array in parts.state().items()}
            parts = small_engine(spec, gradients=gradients, kernels=kernels)
            parts._chunk = chunk
            parts.restore(state)
        record, again = whole.step(), parts.step()
        assert record["computed"].sum() == again["computed"].sum() == step.compute.computed.sum()
        assert np.array_equal(record["uplink_components"], step.uplink.components)
        np.testing.assert_allclose(record["compute_cost"], step.compute.charged)
        np.testing.assert_allclose(record["compute_spent"], step.compute.spent)
        np.testing.assert_allclose(whole.params, step.params, rtol=0, atol=1e-10)
        np.testing.assert_allclose(whole.client_residual, step.client_residual, rtol=0, atol=1e-10)
        total = total + step.applied
        np.testing.assert_allclose(whole.conserved(), total, rtol=0, atol=1e-10)
        assert np.array_equal(whole.params, parts.params)
        assert np.array_equal(whole.client_residual, parts.client_residual)
        assert np.isnan(record["batch_loss"]) or record["batch_loss"] == again["batch_loss"]
    assert np.abs(whole.params - small_engine(spec).params).max() > 1e-3  # or nothing would have been sent


TRAINED = {
    "step": {"schedule": {"kind": "step", "at": [0.3, 0.6], "by": 0.3}},
    "cosine": {"schedule": "cosine"},
    "wsd": {"schedule": {"kind": "wsd", "decay": 0.6}, "average": True},
    "auto": {"learning_rate": "auto", "average": True},
    "auto, wsd": {"learning_rate": "auto", "schedule": "wsd"},
    "of one's own": {"schedule": "small:WarmUp"},
}


@pytest.mark.parametrize("train", TRAINED.values(), ids=TRAINED)
@pytest.mark.parametrize(("policy", "budget"), [("online", "all"), ("price", "shared"), ("price", "joint")])
def test_every_schedule_the_rate_that_follows_and_the_average(train, policy, budget):
    spec = small_spec(POLICIES[policy], {}, BUDGETS[budget], iterations=ITERATIONS, **train)
    agree(spec, tolerance=1e-10, kernels="torch" if "average" in train and policy == "online" else None)


def test_schedules_are_covered():
    kinds = [case.get("schedule", "constant") for case in TRAINED.values()]
    assert {kind if isinstance(kind, str) else kind["kind"] for kind in kinds} >= set(SCHEDULES.members)


@pytest.mark.parametrize("policy", ["online", "full"])
def test_with_weighted_clients(policy):
    weights = [0.3, 0.1, 0.2, 0.05, 0.25, 0.1]
    agree(small_spec(POLICIES[policy], {}, BUDGETS["all"]), tolerance=1e-10, weights=weights)


@pytest.mark.parametrize(("policy", "costs", "budget"), MAIN)
def test_by_the_kernels_for_gpus(policy, costs, budget):
    """What runs on cuda and mps, here on the CPU: the same decisions, the same numbers."""
    spec = small_spec(POLICIES[policy], COSTS[costs], BUDGETS[budget])
    agree(spec, tolerance=1e-10, kernels="torch")


@pytest.mark.parametrize("policy", ["online", "randomised", "full"])
def test_in_a_file(policy, tmp_path, monkeypatch):
    """Residuals that are not in memory, a row or two at a time."""
    monkeypatch.setattr(residuals_module, "_MAPPED_BYTES", 1000)
    spec = small_spec(POLICIES[policy], {}, BUDGETS["all"])
    residuals = mapped_zeros((CLIENTS, small_engine(spec).dim), np.float64, tmp_path)
    agree(spec, tolerance=1e-10, residuals=residuals)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_kernels_agree_over_many_iterations(dtype):
    spec = small_spec(POLICIES["online"], {}, BUDGETS["all"], dtype=dtype)
    numba, gpu = small_engine(spec), small_engine(spec, kernels="torch")
    for _ in range(100):
        mine, theirs = numba.step(), gpu.step()
        assert np.array_equal(mine["uplink_components"], theirs["uplink_components"])
        assert mine["downlink_components"] == theirs["downlink_components"]
    tolerance = {"float32": 1e-5, "float64": 1e-12}[dtype]
    np.testing.assert_allclose(numba.params, gpu.params, rtol=0, atol=tolerance)
    np.testing.assert_allclose(numba.client_residual, gpu.client_residual, rtol=0, atol=tolerance)
    np.testing.assert_allclose(numba.conserved(), gpu.conserved(), rtol=0, atol=tolerance)
    state = gpu.state()
    again = small_engine(spec, kernels="torch")
    again.restore(state)
    assert np.array_equal(again.step()["uplink_objective"], gpu.step()["uplink_objective"])
    assert np.array_equal(again.client_residual, gpu.client_residual)


@pytest.mark.parametrize("chunk", [1, 2, 5])
def test_any_chunk_gives_the_same(chunk):
    spec = small_spec(POLICIES["online"], {}, BUDGETS["all"], dtype="float32")
    whole, parts = small_engine(spec), small_engine(spec)
    parts._chunk = chunk
    for _ in range(60):
        whole.step()
        parts.step()
    np.testing.assert_allclose(whole.params, parts.params, rtol=0, atol=1e-5)
    np.testing.assert_allclose(whole.client_residual, parts.client_residual, rtol=0, atol=1e-5)
