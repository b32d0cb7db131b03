"""A small federation, trained by the engine and by the oracle on the same numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from flexfl.algorithm import Step, reference
from flexfl.control import Setup
from flexfl.costs import Cost
from flexfl.data.federated import Federated
from flexfl.data.minibatches import Minibatches
from flexfl.models.flat import FlatModel
from flexfl.sim.engine import Engine, Problem
from flexfl.spec.build import build_setup
from flexfl.spec.schema import Spec, parse
from flexfl.streams import Moment, Streams

CLIENTS, FEATURES, CLASSES = 6, 5, 3

POLICIES: dict[str, dict[str, Any]] = {
    "online": {"policy": "online"},
    "online, V and W by knob and client": {
        "policy": "online",
        "tradeoff": {"compute": 0.05, "uplink": [0.01 * (n + 1) for n in range(CLIENTS)], "downlink": 0.1},
        "initial_queue": {"compute": [0.1 * n for n in range(CLIENTS)], "uplink": 0.5},
    },
    "price": {"policy": "price"},
    "randomised": {"policy": "randomised", "send_ratio": 0.2},
    "randomised, all": {"policy": "randomised", "send_ratio": 1.0},
    "sampled": {"policy": "sampled", "participation": 0.4, "send_ratio": 0.5},
    "paced": {"policy": "paced", "send_ratio": 0.3},
    "adaptive-k": {"policy": "adaptive-k", "send_every": 3},
    "adaptive-bits": {"policy": "adaptive-bits", "first_bits": 4.0, "last_bits": 40.0},
    "full": {"policy": "full"},
    "periodic": {"policy": "periodic", "send_every": 4},
    "top-k": {"policy": "top-k", "send_ratio": 0.1},
    "fixed-prob": {"policy": "fixed-prob", "compute_prob": 0.4},
    "mixed": {
        "policy": "price",
        "uplink": {"policy": "top-k", "send_ratio": 0.3},
        "downlink": {"policy": "full"},
    },
}


class SquaredCompute:
    """A cost of the user's own, without a closed form: λ = α·q², as if idle time cooled a battery."""

    def at(self, moment: Moment) -> Cost:
        alpha = 0.2 + moment.uniform("alpha")
        return lambda q: alpha * np.asarray(q) ** 2


class WarmUp:
    """A schedule of the user's own, which begins low."""

    def factor(self, t: int, T: int) -> float:
        return min(1.0, (t + 1) / (0.5 * T))


COSTS: dict[str, dict[str, Any]] = {
    "the paper's": {},
    "constant": {
        "compute": {"kind": "constant", "per_gradient": 0.5},
        "uplink": {"kind": "constant", "per_message": 0.02, "whole_model": 0.5},
        "downlink": {"kind": "constant", "per_message": 0.0, "whole_model": 0.1},
    },
    "by client": {
        "compute": {"kind": "uniform", "low": 0.1, "high": [0.2 * (n + 1) for n in range(CLIENTS)]},
        "uplink": {"kind": "fading", "factor": [0.5 + n for n in range(CLIENTS)]},
    },
    "of one's own": {"compute": {"kind": "small:SquaredCompute"}},
    "measured": {"uplink": {"kind": "measured"}, "downlink": {"kind": "measured"}},
    "packets": {
        "uplink": {"kind": "packets", "per_packet": 0.01, "components_per_packet": 7},
        "downlink": {"kind": "packets", "per_packet": 0.002, "components_per_packet": 5},
    },
}

_COMPONENT = {"bytes_per_component": 0.005, "bytes_per_message": 0.02}
"""Bytes of a small world, whose budgets are those of the paper's costs."""
COSTS |= {
    "clients that come and go": {
        "compute": {
            "kind": "available",
            "trace": {"values": [1, 1, 0, 1], "random_start": True},
            "cost": {"kind": "carbon", "trace": [5e6, 1e6], "cost": {"kind": "energy", "power": 0.2}},
        },
        "uplink": {
            "kind": "available",
            "trace": {"values": [1, 1, 0, 1], "random_start": True},
            "cost": {"kind": "bandwidth", "rate": 3000, "trace": [1.0, 0.5, 3.0, 0.0, 1.0]},
        },
        "downlink": {"kind": "bandwidth", "rate": 1e6, "latency": 0.001},
    },
    "channels with a memory": {
        "compute": {"kind": "money", "price": "0.2 EUR / second", "cost": "device"},
        "uplink": {"kind": "gilbert-elliott", "worse": float("inf"), "cost": "gauss-markov"},
        "downlink": {"kind": "gilbert-elliott", "cost": {"kind": "packets", "components_per_packet": 9}},
    },
    "devices": {
        "compute": {"kind": "device", "per_gradient": [0.1 * (n + 1) for n in range(CLIENTS)]},
        "uplink": {"kind": "device", "bytes_per_component": 1e3},
        "downlink": {"kind": "carbon", "intensity": 40.0, "cost": {"kind": "energy", "technology": "wifi"}},
    },
    "bytes": {
        "compute": {"kind": "energy", "power": "300 mW"},
        "uplink": {"kind": "money", "price": "1 EUR / byte", "cost": {"kind": "bytes", **_COMPONENT}},
        "downlink": {"kind": "bytes", **_COMPONENT},
    },
}

BUDGETS: dict[str, dict[str, Any]] = {
    "all": {"compute": 0.25, "uplink": 0.05, "downlink": 0.02},
    "none": {},
    "some": {"compute": [0.1, 0.2, 0.3, 0.4, float("inf"), 0.5], "uplink": 0.05},
    "shared": {
        "compute": {"shared": [{"clients": [0, 1, 2], "limit": 0.6}], "others": 0.3},
        "uplink": {"shared": [{"clients": [1, 4], "limit": 0.08}, {"clients": [0], "limit": 0.05}]},
        "downlink": 0.02,
    },
    "joint": {
        "compute": 0.3,
        "battery": {"limit": 0.2, "compute": 1.0, "uplink": 2.0},
        "bytes": {"limit": [0.04 * (n + 1) for n in range(CLIENTS)], "uplink": {"kind": "constant"}},
        "bill": {
            "shared": [{"clients": [0, 1, 2], "server": True, "limit": 0.1}, {"clients": [4], "limit": 0.05}],
            "uplink": {"kind": "packets", "per_packet": 0.01, "components_per_packet": 7},
            "downlink": 0.5,
            "compute": {"kind": "small:SquaredCompute"},
        },
    },
}


def small_data(seed: int = 0, samples: int = 90) -> Federated:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, CLASSES, samples)
    features = rng.normal(size=(samples, FEATURES)) + np.eye(CLASSES, FEATURES)[labels]
    return Federated.split((features, labels), (features[:20], labels[:20]), clients=CLIENTS)


def small_network(seed: int = 0) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(FEATURES, 7), nn.Tanh(), nn.Linear(7, CLASSES))


def small_spec(
    control: dict[str, Any],
    costs: dict[str, Any],
    budget: dict[str, Any],
    *,
    dtype: str = "float64",
    compress: Any = "top-k",
    clock: dict[str, Any] | None = None,
    **train: Any,
) -> Spec:
    return parse(
        {
            "data": {"clients": CLIENTS},
            "train": {"batch_size": 4, "learning_rate": 0.3, **train},
            "control": control,
            "costs": costs,
            "budget": budget,
            "compress": {"uplink": compress, "downlink": compress},
            "engine": {"dtype": dtype},
            **({} if clock is None else {"clock": clock}),
        }
    )


def small_engine(
    spec: Spec,
    weights: Any = "equal",
    watch: Callable[[Setup], Setup] = lambda setup: setup,
    **more: Any,
) -> Engine:
    data = small_data()
    dtype = getattr(torch, spec.engine.dtype)
    problem = Problem(
        model=FlatModel(small_network(), dtype),
        loss=cross_entropy,
        data=data,
        setup=watch(build_setup(spec)),
        weights=data.weights(weights),
        learning_rate=spec.train.learning_rate,
        batch_size=spec.train.batch_size,
        average=spec.train.average,
    )
    return Engine(problem, **more)


def small_reference(spec: Spec, iterations: int, weights: Any = "equal") -> Iterator[Step]:
    """The oracle on the same data; each gradient by plain autograd over one client's minibatch."""
    data = small_data()
    model = FlatModel(small_network(), torch.float64)
    streams = Streams(spec.train.seed)
    batches = Minibatches(data.parts, spec.train.batch_size, streams)
    start = model.params.numpy().copy()

    def gradient(client: int, params: np.ndarray, used: int) -> np.ndarray:
        model.params.copy_(torch.from_numpy(params))
        samples = torch.from_numpy(batches.peek(client, used))
        model.module.zero_grad()
        cross_entropy(model.module(data.train_x[samples]), data.train_y[samples]).backward()
        return torch.cat([p.grad.reshape(-1) for p in model.module.parameters()]).numpy()

    return reference(
        start,
        gradient,
        clients=CLIENTS,
        setup=build_setup(spec, streams=streams),
        learning_rate=spec.train.learning_rate,
        iterations=iterations,
        weights=data.weights(weights),
    )
