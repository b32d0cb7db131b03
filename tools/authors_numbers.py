"""Reference points of docs/evidence.md over many seeds, with the random numbers of the authors' code.

    python tools/authors_numbers.py results/fashion/authors-numbers.csv 20

The reference points are from one seed. Other seeds can be simulated, since in that code:
- costs come from generators seeded by iteration and client, the same for every seed;
- one Mersenne Twister draws a number for each training image, then in each iteration, client by
  client, who computes and (for the baseline) who sends, and last whether the server sends;
- torch's generator initialises the network; the images of a class are assigned to its clients in turn.
All else is ours: the engine, the policies, the minibatches. If the mean equals that with our own random
numbers, the two programs do the same; the deviation shows how far a single seed may be from the mean.
"""

from __future__ import annotations

import csv
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
from evidence import AROUND, WITHIN
from numpy.random import MT19937, RandomState, SeedSequence
from torch import nn

from flexfl.arrays import BoolArray, FloatArray
from flexfl.control import Sender, Setup
from flexfl.control.baselines import RandomisedSend, components_of
from flexfl.data.datasets import load_federated
from flexfl.data.federated import Federated
from flexfl.evaluate import Evaluator, default_loss
from flexfl.models.flat import FlatModel
from flexfl.sim.engine import Engine
from flexfl.sim.process import threads
from flexfl.sim.run import problem_of
from flexfl.spec.build import build_setup
from flexfl.spec.load import load_spec
from flexfl.streams import Entities, Streams

ITERATIONS, CLIENTS, JOBS = AROUND[-1] + WITHIN, 100, 2
METHODS = {"online": [], "kr-0.01": ["control.policy=randomised", "control.send_ratio=0.01"]}


class Drawn(Streams):
    """Random streams whose uniform numbers are given; all others come from the seed."""

    def __init__(self, seed: int, known: dict[str, FloatArray]) -> None:
        super().__init__(seed)
        object.__setattr__(self, "known", known)

    def uniform(self, purpose: str, iteration: int, shape: tuple[int, ...] = ()) -> FloatArray:
        if purpose not in self.known:
            return super().uniform(purpose, iteration, shape)
        return np.asarray(self.known[purpose][iteration])


def costs_of(iterations: range) -> dict[str, FloatArray]:
    """Return the random numbers of the costs, by iteration; the server is client −1."""

    def seeded(number: int) -> RandomState:
        return RandomState(MT19937(SeedSequence(number)))

    alpha = [[seeded(1000 * t + n).random_sample() for n in range(CLIENTS)] for t in iterations]
    snr = np.array(
        [[seeded(800 * t + n + 23456).chisquare(2) for n in range(-1, CLIENTS)] for t in iterations]
    )
    fading = -np.expm1(-snr / 2)  # the distribution function of χ²₂ at these values
    return {"compute/alpha": np.array(alpha), "uplink/fading": fading[:, 1:], "downlink/fading": fading[:, 0]}


class Asked:
    """The probabilities, in the order in which the authors' code draws."""

    def __init__(self, setup: Setup, dim: int) -> None:
        everyone, self.dim = Entities.all_clients(CLIENTS), dim
        # Who computes is not drawn yet, and does not change the probabilities.
        known = setup.streams.known | {"compute/bernoulli": np.ones((ITERATIONS, CLIENTS))}
        setup = replace(setup, streams=Drawn(setup.streams.seed, known))
        self.streams = setup.streams
        self.compute = setup.knob(everyone, dim)
        self.senders = [
            setup.sender("uplink", everyone, dim),
            setup.sender("downlink", Entities.the_server(), dim),
        ]

    def in_iteration(self, t: int) -> FloatArray:
        """Return q of every client; for the baseline (q, sending) of every client, then the server."""
        q = self.compute.decide(t).prob
        if not all(isinstance(sender.rule, RandomisedSend) for sender in self.senders):
            return q
        uplink, downlink = (self._sends(sender, t) for sender in self.senders)
        return np.append(np.column_stack((q, uplink)), downlink)

    def _sends(self, sender: Sender, t: int) -> FloatArray:
        """Return the sending probabilities; the code draws even if there is nothing to send."""
        cost = sender.cost.at(self.streams.moment(sender.role, t, self.dim, sender.entities))
        assert isinstance(sender.rule, RandomisedSend)
        return np.minimum(1.0, sender.rule.budget / cost(components_of(sender.rule.ratio, self.dim)))


def decided(asked: Asked, random: RandomState) -> dict[str, FloatArray]:
    """Return uniform numbers that reproduce who computes and who sends: 0 for yes, 1 for no."""
    draws = random.binomial(1, [asked.in_iteration(t) for t in range(ITERATIONS)])
    no: BoolArray = draws == 0
    if draws.shape[1] == CLIENTS:
        return {"compute/bernoulli": no.astype(float)}
    return {
        "compute/bernoulli": no[:, :-1:2].astype(float),
        "uplink/send": no[:, 1:-1:2].astype(float),
        "downlink/send": no[:, -1].astype(float),
    }


def initial_network(seed: int) -> nn.Module:
    """Return the network as the authors' code initialises it."""
    torch.manual_seed(seed)
    hidden, last = nn.Linear(784, 50), nn.Linear(50, 10)
    nn.init.kaiming_normal_(hidden.weight, nonlinearity="relu")
    nn.init.zeros_(hidden.bias)
    return nn.Sequential(nn.Flatten(), hidden, nn.ReLU(), last)


def dealt_in_turn(data: Federated) -> Federated:
    """Assign the images of a class to its clients in turn."""
    each = CLIENTS // 10
    labels = data.train_y.numpy()
    return replace(
        data, parts=tuple(np.flatnonzero(labels == n // each)[n % each :: each] for n in range(CLIENTS))
    )


def points(costs_known: dict[str, FloatArray], method: str, seed: int) -> list[float]:
    """Return the test accuracy around the reference points."""
    spec = load_spec("fashion", [*METHODS[method], f"data.clients={CLIENTS}", f"train.seed={seed}"])
    loaded = load_federated(spec.data.name, clients=CLIENTS, partition=spec.data.partition, seed=seed)
    data, model = dealt_in_turn(loaded), FlatModel(initial_network(seed), torch.float32)
    random = RandomState(seed)
    random.random_sample(len(data.train_y))
    asked = Asked(build_setup(spec, streams=Drawn(seed, costs_known)), model.dim)
    streams = Drawn(seed, costs_known | decided(asked, random))
    problem = problem_of(spec, model, data, default_loss(data), streams=streams)
    with threads(1):
        engine, evaluate = Engine(problem), Evaluator(model, problem.loss, data)
        evaluations = []
        for _ in range(ITERATIONS):
            engine.step()
            if engine.iteration % spec.train.evaluate_every == 0:
                evaluations.append((engine.iteration, evaluate()["test_accuracy"]))
    iterations, accuracy = np.array(evaluations).T
    return [float(accuracy[abs(iterations - point) <= WITHIN].mean()) for point in AROUND]


def main(path: Path, seeds: int) -> None:
    cells = [(method, seed) for method in METHODS for seed in range(1, seeds + 1)]
    pieces = [range(t, min(t + 250, ITERATIONS)) for t in range(0, ITERATIONS, 250)]
    with ProcessPoolExecutor(JOBS, mp_context=get_context("spawn")) as pool:
        drawn = list(pool.map(costs_of, pieces))
        known = {purpose: np.concatenate([piece[purpose] for piece in drawn]) for purpose in drawn[0]}
        rows = []
        found = pool.map(partial(points, known), *zip(*cells, strict=True))
        for cell, values in zip(cells, found, strict=True):
            rows.append([*cell, *(f"{value:.4f}" for value in values)])
            print(*rows[-1], flush=True)
    with path.open("w", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([["method", "seed", *AROUND], *rows])


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
