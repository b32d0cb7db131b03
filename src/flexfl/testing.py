"""Contract suites for members of one's own: call them from a test of your own.

    from flexfl.testing import check_cost

    def test_my_cost():
        check_cost(lambda: MyCost(levels=[0.1, 0.2]))

Each suite takes a function that makes a fresh member, and raises AssertionError with the rule that is
broken. The suites run over every member that ships, too.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flexfl.compress import Compressor, Message, Offers, PlainVectors, Random, TopK
from flexfl.control import Budget, Knob, Policy, Sender, Setup
from flexfl.costs import ConstantCompute, ConstantMessage, CostModel
from flexfl.learning_rate import Schedule, factor_of
from flexfl.results.observer import Observer, Progress, RunInfo
from flexfl.state import has_memory
from flexfl.streams import Entities, Moment, Streams
from flexfl.testing_local import check_local_work
from flexfl.wire import decode, encode

__all__ = [
    "check_compressor",
    "check_cost",
    "check_local_work",
    "check_model",
    "check_observer",
    "check_partition",
    "check_policy",
    "check_schedule",
]

_CLIENTS, _DIM, _ITERATIONS = 4, 30, 12


def check_cost(make: Callable[[], CostModel], *, role: str = "uplink") -> None:
    """Check a cost model: shapes, finite costs ≥ 0, the same numbers at every client, and its memory.

    The cost of those who are `away` is infinite, and 0 for doing nothing.

    Args:
        make: returns a fresh cost model, for 4 clients.
        role: compute, uplink or downlink.
    """
    everyone = Entities.the_server() if role == "downlink" else Entities.all_clients(_CLIENTS)
    amounts = np.linspace(0, 1, 5) if role == "compute" else np.array([0, 1, 2, _DIM])
    whole = make()
    alone = [make() for _ in range(everyone.numbers.size)]
    for t in range(_ITERATIONS):
        moment = Streams(3).moment(role, t, _DIM, everyone)
        cost = whole.at(moment)
        candidates = amounts.reshape(-1, *[1] * len(everyone.shape))
        found = np.broadcast_to(cost(candidates), (len(amounts), *everyone.shape))
        forbidden = np.asarray(getattr(cost, "away", False)) & (candidates > 0)
        sound = np.where(forbidden, found == np.inf, (found >= 0) & np.isfinite(found))
        assert sound.all(), "costs must be finite and ≥ 0, and infinite for those who are away"
        for place, model in enumerate(alone):
            own = np.asarray(model.at(moment.of(place))(amounts))
            same = np.allclose(own, found.reshape(len(amounts), -1)[:, place], rtol=1e-12)
            assert same, f"client {place} alone must have the cost that it has among all"
    _check_memory(make, lambda model, t: model.at(Streams(3).moment(role, t, _DIM, everyone))(amounts[-1]))


@dataclass(frozen=True)
class _Pairs(TopK):
    """A compressor whose amounts are not numbers of components: each sends two more of the largest."""

    def offers(self, vector: NDArray[Any], random: Random) -> Offers:
        offers = TopK().offers(vector, random)
        last = len(offers.components) - 1
        some = np.append(np.arange(0, last, 2), last) if last else np.zeros(1, dtype=np.int64)
        return Offers(offers.components[some], offers.kept[some], offers.nbytes[some])

    def compress(self, vector: NDArray[Any], amount: int, random: Random) -> Message:
        return TopK().compress(vector, 2 * amount, random)

    gains = None  # type: ignore[assignment]  # what a component gains is then not asked


def check_policy(make: Callable[[], Policy]) -> None:
    """Check a policy: decisions that can be done, alone as among all, with and without budgets, memory.

    Args:
        make: returns a fresh policy, for 4 clients.
    """
    for limits in (np.array([0.1, 0.2, 0.3, np.inf]), 0.05, None):
        whole = _decisions(make(), Entities.all_clients(_CLIENTS), limits)
        for client in range(_CLIENTS):
            alone = _decisions(make(), Entities.one_client(client, _CLIENTS), limits)
            for name, values in whole.items():
                same = np.allclose(alone[name], values[:, client], rtol=1e-9, equal_nan=True)
                assert same, f"client {client} alone must decide on {name} as it does among all"
    server = _setup(make(), 0.05).sender("downlink", Entities.the_server(), _DIM)
    server.send(0, _vectors(0)[0])
    _decisions(make(), Entities.all_clients(_CLIENTS), 0.05, _Pairs())

    _check_knob_memory(make)


def check_schedule(make: Callable[[], Schedule]) -> None:
    """Check a schedule: a finite factor > 0 for every iteration, the same from every object, in any order.

    Args:
        make: returns a fresh schedule.
    """
    for T in (1, 2, 7, 100):
        factors = [factor_of(make(), T)(t) for t in range(T)]
        one = make()
        again = [float(one.factor(t, T)) for t in reversed(range(T))]
        assert factors == again[::-1], "a factor must depend on t and T alone: every client has its object"


def check_compressor(make: Callable[[], Compressor]) -> None:
    """Check a compressor: sent plus kept is b, sizes as announced, coded and decoded without loss.

    On ties, zeros, tiny and large numbers, one component, float32 and float64, one vector and a batch.

    Args:
        make: returns a fresh compressor.
    """
    for dtype in (np.float32, np.float64):
        for name, vector in _shapes(dtype).items():
            moment = Streams(5).moment("uplink", 3, len(vector), Entities.one_client(1, 3))
            _check_one(make(), vector, moment, f"{name}, {np.dtype(dtype).name}")
        rows: NDArray[Any] = _vectors(1).astype(dtype)
        moment = Streams(5).moment("uplink", 3, _DIM, Entities.all_clients(_CLIENTS))
        vectors = PlainVectors(rows, make(), moment)
        amounts = vectors.everything()
        assert vectors.possible(amounts).all(), "everything must be an amount that is offered"
        for row, message in zip(rows, vectors.messages(amounts), strict=True):
            assert message.dim == len(row)
    _check_memory(make, lambda compressor, t: _sent(compressor, t))


def check_partition(partition: Any) -> None:
    """Check a partition: every sample at one client at most, none empty, the same for the same seed.

    Args:
        partition: as in a spec, a name or a table with a kind and its options. One by a column is given
            the column "client", which holds as many values as there are clients.
    """
    from flexfl.data.federated import Federated  # imports torch

    labels = np.random.default_rng(1).integers(0, 4, 400)
    features = np.arange(800.0).reshape(400, 2)
    for clients in (4, 8):
        columns = {"client": np.arange(400) % clients}
        first, again, other = (
            Federated.split(
                (features, labels), clients=clients, partition=partition, seed=seed, columns=columns
            )
            for seed in (1, 1, 2)
        )
        held = np.concatenate(first.parts)
        assert first.clients == other.clients == clients, "must have a part for each client"
        assert len(np.unique(held)) == len(held), "a sample must lie at one client only"
        assert held.min() >= 0, "parts must hold indices of samples"
        assert held.max() < 400, "parts must hold indices of samples"
        same = all(np.array_equal(a, b) for a, b in zip(first.parts, again.parts, strict=True))
        assert same, "must draw from the generator that it is given"


def check_model(make: Callable[[], Any], sample: Any) -> None:
    """Check a model: any nn.Module that keeps each client's gradient its own.

    Args:
        make: returns the module.
        sample: features of a few samples, (B, …), as a tensor or an array.
    """
    import torch
    from torch.nn import functional

    from flexfl.models.flat import FlatModel
    from flexfl.sim.gradients import choose
    from flexfl.sim.gradients.general import Looped

    x = torch.as_tensor(sample).double()
    model = FlatModel(make(), torch.float64)
    assert model.dim, "must have trainable parameters"
    with torch.no_grad():
        outputs = model.module(x)
    y = torch.arange(len(x)) % outputs.shape[1]
    both, labels = torch.stack([x, x.flip(0)]), torch.stack([y, y])
    path = choose(model, functional.cross_entropy, both, labels)
    found, expected = (way(both, labels)[0] for way in (path, Looped(model, functional.cross_entropy)))
    path.release()
    for name, piece in expected.items():
        wanted = piece.dense(slice(None))
        gap = (found[name].dense(slice(None)).reshape(wanted.shape) - wanted).abs().max()
        assert gap <= 1e-8, f"the gradient of {name} must be that of each client's own samples"


def check_observer(make: Callable[[], Observer], path: Any) -> None:
    """Check an observer: it takes every call of a run, and of one that is resumed.

    Args:
        make: returns a fresh observer.
        path: a folder that stands for the run directory.
    """
    for start in (0, 5):
        observer, progress = make(), Progress(10)
        assert isinstance(observer, Observer), "must subclass flexfl.Observer"
        observer.begin(RunInfo(path, _CLIENTS, _DIM, 10, start))
        metrics = {"train_loss": 1.0, "train_accuracy": None, "test_loss": None, "test_accuracy": 0.5}
        for _ in range(start, 10):
            observer.evaluated(progress, metrics)
            observer.iteration(progress, {"iteration": progress.iteration})
        observer.checkpoint(progress, {"params": np.zeros(_DIM)})
        observer.end(progress, {"iterations": 10})


def _shapes(dtype: Any) -> dict[str, NDArray[Any]]:
    rng = np.random.default_rng(2)
    return {
        "normal numbers": rng.normal(size=_DIM).astype(dtype),
        "ties": (rng.integers(-2, 3, _DIM) / 2).astype(dtype),
        "zeros": np.zeros(_DIM, dtype),
        "one component": np.array([0.25], dtype),
        "one that is not zero": np.eye(1, _DIM, 7).reshape(-1).astype(dtype),
        "many scales": (10.0 ** rng.uniform(-30, 10, _DIM)).astype(dtype),
        "denormals": np.full(_DIM, np.finfo(dtype).smallest_subnormal, dtype),
    }


def _check_one(compressor: Compressor, b: NDArray[Any], moment: Moment, where: str) -> None:
    vectors = PlainVectors(b, compressor, moment)
    offers = vectors.offers(0)
    assert (offers.components[0], offers.nbytes[0]) == (0, 0), f"{where}: amount 0 must send nothing"
    assert (np.diff(offers.components) >= 0).all(), f"{where}: components must not fall as amounts grow"
    energy = float(np.square(b, dtype=np.float64).sum())
    assert np.isclose(offers.kept[0], energy), f"{where}: sending nothing must keep ‖b‖²"
    for amount in range(len(offers.components)):
        [message] = vectors.messages(np.asarray(amount))
        kept = b.copy()
        kept[message.indices] -= message.values
        assert message.components == offers.components[amount], f"{where}: components not as announced"
        assert message.nbytes == offers.nbytes[amount], f"{where}: not of the size announced"
        assert message.values.dtype == b.dtype, f"{where}: values must have the vector's type"
        left = float(np.square(kept, dtype=np.float64).sum())
        scale = 1e-4 if b.dtype == np.float32 else 1e-9
        as_announced = abs(left - offers.kept[amount]) <= scale * (energy + 1e-300)
        assert as_announced, f"{where}: keeps not what it announced"
        sent = message.dense()
        off = np.abs(kept + sent - b) > 2 * np.finfo(b.dtype).eps * (np.abs(sent) + np.abs(kept))
        assert not off.any(), f"{where}: sent and kept are not all there was"
        data = encode(message)
        assert len(data) == message.nbytes, f"{where}: the code is not as long as announced"
        if data:
            arrived = decode(data, len(b))
            same = np.array_equal(arrived.dense(), message.dense())
            assert same, f"{where}: what arrives must be what was subtracted"


def _sent(compressor: Compressor, t: int) -> Any:
    b = _vectors(t)[0]
    vectors = PlainVectors(b, compressor, Streams(5).moment("uplink", t, _DIM, Entities.one_client(1, 3)))
    [message] = vectors.messages(vectors.everything())
    return message.dense()


def _vectors(t: int) -> NDArray[Any]:
    return np.random.default_rng(t).normal(size=(_CLIENTS, _DIM))


def _setup(policy: Policy, limits: Any, compressor: Compressor | None = None) -> Setup:
    budget = None if limits is None else Budget(limits)
    one = None if limits is None else Budget(float(np.min(limits)))
    costs: Mapping[str, CostModel] = {
        "compute": ConstantCompute(0.5),
        "uplink": ConstantMessage(0.02, 0.5),
        "downlink": ConstantMessage(0.02, 0.5),
    }
    compressors = dict.fromkeys(("uplink", "downlink"), compressor or TopK())
    budgets = {"compute": budget, "uplink": budget, "downlink": one}
    return Setup(policy, costs, compressors, budgets, Streams(3), 100)


def _decisions(
    policy: Policy, entities: Entities, limits: Any, compressor: Compressor | None = None
) -> dict[str, NDArray[Any]]:
    """Return q, who computes, k and what was charged over some iterations, (T, ...)."""
    setup = _setup(policy, limits, compressor)
    knob, sender = setup.knob(entities, _DIM), setup.sender("uplink", entities, _DIM)
    rows: list[dict[str, Any]] = []
    for t in range(_ITERATIONS):
        computing = knob.decide(t)
        _, _, sending = sender.send(t, _vectors(t)[entities.numbers])
        rows.append(
            {
                "q": computing.prob,
                "who computes": computing.computed,
                "k": sending.components,
                "cost": sending.charged,
            }
        )
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def _check_knob_memory(make: Callable[[], Policy]) -> None:
    def pair() -> tuple[Knob, Sender]:
        setup, everyone = _setup(make(), 0.05), Entities.all_clients(_CLIENTS)
        return setup.knob(everyone, _DIM), setup.sender("uplink", everyone, _DIM)

    def step(knobs: tuple[Knob, Sender], t: int) -> list[NDArray[Any]]:
        return [knobs[0].decide(t).prob, knobs[1].send(t, _vectors(t))[2].components]

    first, second = pair(), pair()
    for t in range(_ITERATIONS // 2):
        step(first, t)
    for old, new in zip(first, second, strict=True):
        new.restore(copy.deepcopy(old.state()))
    for t in range(_ITERATIONS // 2, _ITERATIONS):
        same = all(np.array_equal(a, b) for a, b in zip(step(first, t), step(second, t), strict=True))
        assert same, "a rule that is restored must decide as the one whose state it got"


def _check_memory(make: Callable[[], Any], step: Callable[[Any, int], Any]) -> None:
    """Check that a fresh member with the state of another continues as that one does."""
    first, second = make(), make()
    for t in range(_ITERATIONS // 2):
        step(first, t)
    if has_memory(first):
        second.restore(copy.deepcopy(first.state()))
    for t in range(_ITERATIONS // 2, _ITERATIONS):
        same = np.array_equal(step(first, t), step(second, t))
        assert same, "a member with a memory must have state() and restore(), which carry all of it"
