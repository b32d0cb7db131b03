"""Theorems 1 and 3 on runs of the oracle whose constants are known exactly: quadratics.

F_n(x) = ½·(x − c_n)ᵀA(x − c_n) with one A for all: L is its largest eigenvalue, ∇F_n − ∇f = A(c̄ − c_n)
wherever x is, f is smallest at c̄, and a minibatch adds a vector of length σ in a random direction.
Theorem 2 is in test_theorem_2.py.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from flexfl.algorithm import reference
from flexfl.compress import TopK
from flexfl.control import Budget, Full, Online, Periodic, Policy, Randomised, Setup, TopKRatio
from flexfl.control.policy import ByKnob, Rule
from flexfl.costs.linear import ConstantCompute, ConstantMessage, UniformCompute
from flexfl.streams import Entities, Streams
from flexfl.theory import (
    Constants,
    convergence_bound,
    convergence_over_time,
    inverse_prob_bound,
    kept_bound,
    largest_learning_rate,
    offline_probs,
)

N, D = 5, 8
EVERYONE = Entities.all_clients(N)
COSTS = {
    "compute": UniformCompute(0.2, 1.0),
    "uplink": ConstantMessage(per_message=0.05, whole_model=0.8),
    "downlink": ConstantMessage(per_message=0.01, whole_model=0.2),
}
BUDGETS = {"compute": 0.25, "uplink": 0.1, "downlink": 0.05}


@dataclass(frozen=True)
class Quadratic:
    """The clients' losses, with every constant of Assumption 1."""

    curvature: np.ndarray  # A is diagonal
    centres: np.ndarray  # c_n, (N, D)
    noise: float  # σ

    @classmethod
    def drawn(cls, seed: int, *, spread: float = 1.0, noise: float = 0.5, steepest: float = 2.0) -> Quadratic:
        rng = np.random.default_rng(seed)
        curvature = np.concatenate([rng.uniform(0.1, 1.0, D - 1) * steepest, [steepest]])
        return cls(curvature, spread * rng.normal(size=(N, D)), noise)

    def gradient(self, client: int, x: np.ndarray, used: int) -> np.ndarray:
        direction = np.random.default_rng([client, used, 7]).normal(size=x.size)
        return self.curvature * (x - self.centres[client]) + self.noise * direction / np.linalg.norm(
            direction
        )

    def full_gradient(self, x: np.ndarray) -> np.ndarray:
        return self.curvature * (x - self.centres.mean(axis=0))

    def constants(self, start: np.ndarray) -> Constants:
        away = self.centres - self.centres.mean(axis=0)
        gap = 0.5 * float(self.curvature @ (start - self.centres.mean(axis=0)) ** 2)
        return Constants(
            smoothness=float(self.curvature.max()),
            variance=self.noise**2,
            divergence=float(np.max(np.sum((self.curvature * away) ** 2, axis=1))),
            gap=gap,
        )


@dataclass
class Measured:
    """What a run had: the average of ‖∇f(x_t)‖², and what the terms of the bound are made of."""

    gradient: float
    server_kept: np.ndarray  # ‖r_{t+1}‖², (T,)
    client_kept: np.ndarray  # the mean of ‖e_{t+1}‖² over clients, (T,)
    inverse_prob: np.ndarray  # the mean of 1/q over clients, (T,)


def setup_of(policy: Policy, seed: int = 1, *, budgets=BUDGETS, costs=COSTS, iterations: int = 0) -> Setup:
    return Setup(
        policy=policy,
        costs=costs,
        compressors={"uplink": TopK(), "downlink": TopK()},
        budgets={knob: Budget(np.asarray(limit)) for knob, limit in budgets.items()},
        streams=Streams(seed),
        iterations=iterations,
    )


def run(
    problem: Quadratic, start: np.ndarray, policy: Policy, eta: float, iterations: int, seed: int = 1
) -> Measured:
    x, squared, server, clients, inverse = start, [], [], [], []
    for step in reference(
        start,
        problem.gradient,
        clients=len(problem.centres),
        setup=setup_of(policy, seed),
        learning_rate=eta,
        iterations=iterations,
    ):
        squared.append(np.sum(problem.full_gradient(x) ** 2))
        x = step.params
        server.append(np.sum(step.server_residual**2))
        clients.append(np.mean(np.sum(step.client_residual**2, axis=1)))
        inverse.append(np.mean(1.0 / step.compute.prob))
    return Measured(float(np.mean(squared)), *(np.array(found) for found in (server, clients, inverse)))


def bound_of(
    found: Measured, constants: Constants, eta: float, *, corollary: bool = False
) -> dict[str, float]:
    """The terms of Theorem 1, or of Corollary 1."""
    T, late = len(found.inverse_prob), 1 if corollary else 0
    terms = convergence_bound(
        constants,
        learning_rate=eta,
        iterations=T,
        server_residual=found.server_kept[: T - 1 + late].sum() / T,
        client_residual=found.client_kept[: T - 1 + late].sum() / T,
        inverse_prob=found.inverse_prob.mean(),
    )
    return vars(terms) | {"total": terms.total}


POLICIES = {
    "online": Online(tradeoff=0.02, initial_queue=1.0),
    "online, thrifty": Online(tradeoff=0.001, initial_queue=3.0),
    "randomised": Randomised(send_ratio=0.25),
    "full": Full(),
    "periodic": Periodic(send_every=7),
    "top-k": TopKRatio(send_ratio=0.15),
}


@pytest.mark.parametrize("name", POLICIES)
def test_theorem_1_and_corollary_1_hold(name):
    T = 100
    for seed in range(4):
        problem = Quadratic.drawn(seed, spread=[0.0, 0.3, 1.0, 3.0][seed], noise=[0.0, 1.0, 0.2, 0.5][seed])
        start = problem.centres.mean(axis=0) + [5.0, 0.0, 1.0, 0.3][seed]
        constants = problem.constants(start)
        knob = setup_of(POLICIES[name], seed).knob(EVERYONE, D)  # who computes does not depend on x
        worst = max(float(np.mean(1.0 / knob.decide(t).prob)) for t in range(T))
        eta = largest_learning_rate(constants.smoothness, worst)
        found = run(problem, start, POLICIES[name], eta, T, seed)
        assert found.inverse_prob.max() == pytest.approx(worst)
        bound = bound_of(found, constants, eta)
        assert found.gradient <= bound["total"]
        assert bound["total"] <= bound_of(found, constants, eta, corollary=True)["total"]
        whole = convergence_over_time(
            constants,
            learning_rate=eta,
            server_kept=found.server_kept,
            client_kept=found.client_kept,
            inverse_prob=found.inverse_prob,
        )
        assert whole.total[-1] == pytest.approx(bound["total"], rel=1e-12)
        assert whole.start[0] == pytest.approx(4 * constants.gap / eta)
        assert whole.client_residual[0] == whole.server_residual[0] == 0.0


class EverySoOften(Rule):
    """Sends everything in every m-th iteration, as a client or as the server."""

    def __init__(self, every):
        self.every = every

    def decide(self, cost, choices, moment):
        due = (moment.iteration + 1) % self.every == 0
        return choices.everything() if due else np.zeros(moment.shape, dtype=np.int64)


@dataclass(frozen=True)
class LateServer:
    """A policy whose server hoards."""

    every: int

    def compute_rule(self, scope):
        return Full().compute_rule(scope)

    def send_rule(self, scope):
        return EverySoOften(self.every)


def tight(term: str) -> tuple[Quadratic, np.ndarray, Policy, float, int]:
    """A run in which that term alone carries the bound: problem, start, policy, η·L, T."""
    smooth = Quadratic.drawn(1, spread=0.0, noise=0.0, steepest=3.0)
    steep = Quadratic(np.full(D, 3.0), np.zeros((N, D)), 0.0)
    every = {"server_residual": LateServer(8), "client_residual": Periodic(8)}
    if term in every:  # 8 steps of 0.24/L at once: beyond the optimum, to almost as far on the other side
        other = {"client_residual": "downlink", "server_residual": "uplink"}[term]
        policy = ByKnob({"compute": Full(), "uplink": every[term], "downlink": every[term], other: Full()})
        return steep, np.ones(D), policy, 0.24, 240
    if term == "start":
        return smooth, np.ones(D), Full(), 0.05, 100
    return Quadratic(np.full(D, 3.0), np.zeros((1, D)), 2.0), np.zeros(D), Full(), 0.25, 400


@pytest.mark.parametrize("term", ["start", "server_residual", "client_residual", "computing"])
def test_a_bound_with_a_wrong_factor_is_caught(term):
    """Each term is needed: the bound holds, and with a tenth of that term it does not."""
    problem, start, policy, rate, T = tight(term)
    constants = problem.constants(start)
    eta = rate / constants.smoothness
    found = run(problem, start, policy, eta, T)
    terms = bound_of(found, constants, eta)
    assert found.gradient <= terms["total"]
    assert found.gradient > terms["total"] - 0.9 * terms[term]


# Theorem 3 -------------------------------------------------------------------------------------------


def knob_run(cost, budget: float, V: float, W: float, T: int, clients: int = 1, seed: int = 1):
    """The knob of computing alone: 1/q, (T, N); and the costs α, (T, N)."""
    everyone, streams = Entities.all_clients(clients), Streams(seed)
    policy = Online(tradeoff=V, initial_queue=W)
    knob = setup_of(policy, seed, budgets={"compute": budget}, costs=dict(COSTS) | {"compute": cost}).knob(
        everyone, D
    )
    q = np.array([knob.decide(t).prob for t in range(T)])
    alpha = [
        np.broadcast_to(cost.at(streams.moment("compute", t, D, everyone)).per_gradient, clients)
        for t in range(T)
    ]
    return 1.0 / q, np.array(alpha)


@pytest.mark.parametrize("V", [0.001, 0.02, 0.5])
@pytest.mark.parametrize("W", [0.0, 1.0, 10.0])
@pytest.mark.parametrize("T", [5, 200])
def test_theorem_3_for_costs_that_never_change(V, W, T):
    """On the path itself: the best plan is the same in every iteration."""
    for alpha, budget in [(1.0, 0.5), (0.7, 0.1), (0.3, 1.0)]:
        inverse, costs = knob_run(ConstantCompute(alpha), budget, V, W, T)
        optimum = offline_probs(costs[:, 0], budget).value
        B = max(alpha, budget) ** 2 / 2
        assert inverse.mean() <= inverse_prob_bound(optimum, V=V, W=W, T=T, B=B) * (1 + 1e-12)


@pytest.mark.parametrize(("V", "W"), [(0.002, 0.0), (0.02, 1.0), (0.2, 5.0)])
def test_theorem_3_for_costs_that_are_drawn(V, W):
    """In expectation: the mean over many clients, against the mean of what each could have reached."""
    T, clients, budget = 150, 200, 0.25
    inverse, costs = knob_run(UniformCompute(0.0, 1.0), budget, V, W, T, clients)
    optima = np.array([offline_probs(column, budget).value for column in costs.T])
    bound = inverse_prob_bound(optima.mean(), V=V, W=W, T=T, B=0.5)
    assert optima.mean() <= inverse.mean() <= bound


def test_each_part_of_the_bound_on_computing_is_needed():
    late, costs = knob_run(ConstantCompute(1.0), budget=1.0, V=10.0, W=40.0, T=50)
    optimum = offline_probs(costs[:, 0], 1.0).value
    assert optimum == 1.0
    whole = inverse_prob_bound(optimum, V=10.0, W=40.0, T=50, B=0.5)
    assert inverse_prob_bound(optimum, V=10.0, W=0.0, T=50, B=0.5) < late.mean() <= whole
    swings, costs = knob_run(ConstantCompute(1.0), budget=0.5, V=0.001, W=0.0, T=100)
    optimum = offline_probs(costs[:, 0], 0.5).value
    assert optimum < swings.mean() <= inverse_prob_bound(optimum, V=0.001, W=0.0, T=100, B=0.5)


@pytest.mark.parametrize(("V", "W"), [(0.002, 0.1), (0.02, 1.0), (0.5, 0.0)])
def test_theorem_3_for_what_is_kept(V, W):
    """‖b − v‖² ≤ min{D, Φ√(2B)/V}, for every client and iteration; and for the server."""
    problem = Quadratic.drawn(3)
    most = {"uplink": 0.85, "downlink": 0.21}  # a whole message
    setup = setup_of(Online(tradeoff=V, initial_queue=W))
    tightest = 0.0
    for step in reference(
        np.zeros(D), problem.gradient, clients=N, setup=setup, learning_rate=0.1, iterations=80
    ):
        pairs = [(step.client_residual, step.uplink), (step.server_residual, step.downlink)]
        for kept, sending in pairs:
            energy = np.sum(np.atleast_2d(kept) ** 2, axis=1)
            limit = kept_bound(
                V=V, D=np.inf, B=most[sending.role] ** 2 / 2, queue=np.atleast_1d(sending.pressure)
            )
            assert (energy <= limit * (1 + 1e-9)).all()
            tightest = max(tightest, float((energy / limit).max()))
    assert tightest > 0.1  # the bound is near: a tenth of it would not hold
    assert kept_bound(V=1.0, D=3.0, B=0.5, queue=np.array([2.0, 1e9])).tolist() == [2.0, 3.0]
