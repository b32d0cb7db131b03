"""The constants of Assumption 1 for a model and its data, estimated: L, σ², ε², and f(x_0).

They are looked for at the start and along a short stretch of training, at some clients that are drawn. The
assumption bounds them for every x and client, so the largest that was found stands for the bound; the mean
over clients comes with an interval. As in Theorem 1, weights are part of F_n: all is of N·w_n·F_n.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from flexfl.arrays import FloatArray, IntArray
from flexfl.data.federated import Federated
from flexfl.data.minibatches import Minibatches
from flexfl.models.build import Loss
from flexfl.models.flat import FlatModel, own_generator, seed_generator
from flexfl.sim.gradients import Looped
from flexfl.streams import Streams
from flexfl.theory import Constants
from flexfl.trees import Tree, converted, mapped, rows

_STEPS = 30
"""Steps of training from one place to the next at which constants are estimated."""
_POWER_STEPS = 30
_CLOSE = 0.005
_RESAMPLES = 500
_INTERVAL = (5.0, 95.0)


@dataclass(frozen=True)
class Estimate:
    """A number that differs by client.

    Attributes:
        mean: over clients.
        low: of the 90 % interval of the mean, by the bootstrap.
        high: of the same.
        largest: over the clients that were looked at; what a bound for every client is made with.
    """

    mean: float
    low: float
    high: float
    largest: float


@dataclass(frozen=True)
class Estimates:
    """What was estimated.

    Attributes:
        smoothness: L, the largest ratio ‖∇F(x) − ∇F(y)‖ / ‖x − y‖ that was found.
        variance: σ² of a minibatch.
        divergence: ε².
        loss: f(x_0).
        clients: how many clients were looked at.
        places: at how many x.
    """

    smoothness: Estimate
    variance: Estimate
    divergence: Estimate
    loss: Estimate
    clients: int
    places: int

    @property
    def constants(self) -> Constants:
        """The constants of Theorem 1, for a loss that is never below 0: f(x_0) − f* ≤ f(x_0)."""
        found = self.smoothness.largest, self.variance.largest, self.divergence.largest
        return Constants(*found, gap=max(0.0, self.loss.mean))


class Probe:
    """Gradients of some clients, at any x, on a copy of the model.

    Args:
        model: the model; it stays as it is.
        loss: the mean loss of a minibatch.
        data: the clients' samples.
        weights: w, (N,).
        batch_size: samples in a minibatch.
        streams: of which clients, samples and minibatches are drawn.
        most_clients: how many clients at most.
        most_samples: of how many of a client's samples its full gradient is taken, at most.
    """

    def __init__(
        self,
        model: FlatModel,
        loss: Loss,
        data: Federated,
        weights: FloatArray,
        *,
        batch_size: int,
        streams: Streams,
        most_clients: int = 24,
        most_samples: int = 512,
    ) -> None:
        self._model = FlatModel(copy.deepcopy(model.module), model.params.dtype)
        self._gradients, self._streams = Looped(self._model, loss), streams
        self._data, device, dtype = data, model.params.device, model.params.dtype
        self._x, self._y = (converted(tree, device, dtype) for tree in (data.train_x, data.train_y))
        drawn = streams.generator("plan/clients").permutation(data.clients)[:most_clients]
        self.clients: IntArray = np.sort(drawn)
        self.population = data.clients
        self.importance = data.clients * weights[self.clients]
        self._parts = [self._some(int(n), most_samples) for n in self.clients]
        self._batches = Minibatches(self._parts, batch_size, streams)
        samples = sum(map(len, self._parts))
        self.complete = samples == sum(map(len, data.parts)) and len(self.clients) == data.clients
        """Whether these are all clients with all their samples."""
        self.start = model.params.detach().clone()

    def _some(self, client: int, most: int) -> IntArray:
        part = self._data.parts[client]
        if len(part) <= most:
            return part
        return np.asarray(self._streams.generator("plan/samples", client).permutation(part)[:most])

    def full(self, place: int, x: Tensor) -> tuple[Tensor, float]:
        """Return ∇(N·w·F) of a client, by its place among those drawn, and the loss N·w·F."""
        with _without_chance(self._model.module):
            return self._at(place, x, self._parts[place])

    def minibatch(self, place: int, x: Tensor, number: int) -> Tensor:
        """Return the gradient of one of a client's minibatches, as training takes it."""
        seed_generator(self._streams.torch_seed("plan/dropout", number), x.device)
        return self._at(place, x, self._batches.peek(place, number))[0]

    def mean(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean of the full gradients, and each of them, (M, D)."""
        each = torch.stack([self.full(place, x)[0] for place in range(len(self.clients))])
        return each.mean(dim=0), each

    def squared_gradient(self, x: Tensor) -> float:
        """Return an estimate of ‖∇f(x)‖², without the bias that a mean over some clients has."""
        mean, each = self.mean(x)
        return max(0.0, _squared(mean) - self._spread(each, mean) * self._unseen)

    @property
    def _unseen(self) -> float:
        """(N − M) / (NM): what the variance of a mean over M of N clients is of that of one client."""
        N, M = self.population, len(self.clients)
        return (N - M) / (N * M)

    def _spread(self, each: Tensor, mean: Tensor) -> float:
        """Return the variance over all clients, as some of them show it."""
        return float(((each - mean).double() ** 2).sum()) / max(1, len(each) - 1)

    def _at(self, place: int, x: Tensor, samples: IntArray) -> tuple[Tensor, float]:
        self._model.params.copy_(x)
        chosen = torch.from_numpy(samples).to(x.device)
        inputs = _as_one_client(rows(self._x, chosen))
        whole = self._data.train_y is self._data.train_x
        labels = inputs if whole else _as_one_client(rows(self._y, chosen))
        pieces, loss = self._gradients(inputs, labels)
        flat = [pieces[name].dense(slice(None)).reshape(-1) for name in self._model.names]
        factor = float(self.importance[place])
        return factor * torch.cat(flat), factor * loss


def _as_one_client(tree: Tree) -> Tree:
    return mapped(lambda tensor: tensor[None], tree)


@contextmanager
def _without_chance(module: nn.Module) -> Iterator[None]:
    """Set a module to eval mode, so that dropout does not blur a full gradient."""
    training = [part for part in module.modules() if part.training]
    module.eval()
    try:
        yield
    finally:
        for part in training:
            part.training = True


def estimate_constants(
    probe: Probe, *, learning_rate: float, places: int = 2, batches: int = 8, smooth_clients: int = 6
) -> Estimates:
    """Estimate L, σ², ε² and f(x_0).

    Args:
        probe: the clients to look at.
        learning_rate: η of the steps from one place to the next.
        places: at how many x.
        batches: how many minibatches of each client.
        smooth_clients: for how many clients L is looked for, which takes many gradients.
    """
    x, M = probe.start.clone(), len(probe.clients)
    variance = np.zeros((places, M, batches))
    divergence, smoothness = np.zeros((places, M)), np.zeros((places, min(M, smooth_clients)))
    with own_generator():
        losses = np.array([probe.full(place, x)[1] for place in range(M)])
        for at in range(places):
            mean, each = probe.mean(x)
            divergence[at] = [_squared(own - mean) for own in each]
            for place in range(M):
                variance[at, place] = [
                    _squared(probe.minibatch(place, x, number) - each[place]) for number in range(batches)
                ]
            for place in range(smoothness.shape[1]):
                smoothness[at, place] = _steepness(probe, place, x)
            if at + 1 < places:
                x = _trained(probe, x, learning_rate, at * _STEPS)
    N = probe.population
    # The mean of some clients is nearer to them than the mean of all.
    known = M / max(1, M - 1) * (N - 1) / N if M < N else 1.0
    sampled = not probe.complete
    steepest = int(np.argmax(variance.mean(axis=(1, 2))))
    return Estimates(
        smoothness=estimate(smoothness.max(axis=0)[:, None], sampled=sampled or len(smoothness[0]) < N),
        variance=estimate(variance[steepest], sampled=sampled),
        divergence=estimate(known * divergence.max(axis=0)[:, None], sampled=sampled),
        loss=estimate(losses[:, None], sampled=sampled),
        clients=M,
        places=places,
    )


def estimate(values: FloatArray, *, sampled: bool, seed: int = 0) -> Estimate:
    """Return the mean over clients with its interval by the bootstrap, and the largest client's mean.

    Args:
        values: repeated estimates by client, (M, K).
        sampled: whether there are clients or samples that were not looked at; else only the K are drawn
            again.
        seed: of the bootstrap.
    """
    rng, (M, K) = np.random.default_rng(seed), values.shape
    clients = rng.integers(M, size=(_RESAMPLES, M)) if sampled else np.tile(np.arange(M), (_RESAMPLES, 1))
    repeats = rng.integers(K, size=(_RESAMPLES, M, K))
    means = values[clients[:, :, None], repeats].mean(axis=(1, 2))
    low, high = np.percentile(means, _INTERVAL)
    by_client = values.mean(axis=1)
    return Estimate(float(by_client.mean()), float(low), float(high), float(by_client.max()))


def _trained(probe: Probe, x: Tensor, learning_rate: float, first: int) -> Tensor:
    """Return x after some steps of SGD by all clients that are looked at."""
    for number in range(first, first + _STEPS):
        steps: Sequence[Tensor] = [probe.minibatch(place, x, number) for place in range(len(probe.clients))]
        x = x - learning_rate * torch.stack(list(steps)).mean(dim=0)
    return x


def _steepness(probe: Probe, place: int, x: Tensor) -> float:
    """Return the largest ‖∇F(y) − ∇F(z)‖ / ‖y − z‖ for y and z on both sides of x.

    The power method, with differences of gradients for products with the Hessian: every ratio is one that
    Assumption 1 speaks of, so it is never above the true L; at kinks (ReLU), it sees both sides.
    """
    generator = torch.Generator().manual_seed(place)
    direction = torch.randn(x.shape, generator=generator, dtype=torch.float64).to(x)
    direction /= direction.norm()
    distance, best = 1e-2 * max(1.0, float(x.norm())), 0.0
    for _ in range(_POWER_STEPS):
        away = distance * direction
        change = (probe.full(place, x + away)[0] - probe.full(place, x - away)[0]) / (2 * distance)
        ratio = float(change.double().norm())
        if not ratio > best * (1 + _CLOSE):
            return max(best, ratio)
        best, direction = ratio, change / ratio
    return best


def _squared(vector: Tensor) -> float:
    return float((vector.double() ** 2).sum())
