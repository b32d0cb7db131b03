"""How fast the engine is, as ratios within one process: against the limit and against the oracle.

The limit is what any implementation must do: one plain forward and backward pass over the samples
of everyone who computes, in the memory format and chunk that suit this machine best, and after it
one fused read pass over the N × D residuals.
"""

from __future__ import annotations

import ctypes
import gc
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from flexfl.algorithm import reference
from flexfl.data.federated import Federated
from flexfl.data.minibatches import Minibatches
from flexfl.evaluate import Evaluator
from flexfl.models.build import build_model
from flexfl.models.flat import FlatModel
from flexfl.models.networks import cnn, mlp
from flexfl.sim import kernels
from flexfl.sim.engine import Engine, Problem
from flexfl.sim.process import default_threads, threads
from flexfl.sim.run import problem_of
from flexfl.spec.load import load_spec
from flexfl.spec.schema import parse
from flexfl.streams import Streams

WARM_UP = 200
"""The steady state of the paper's setting: queues and residuals have found their size by then."""


@dataclass(frozen=True)
class Shape:
    """A dataset and network of the paper, by their sizes."""

    spec: str
    sample: tuple[int, ...]
    network: Callable[[], nn.Module]
    chunks: Sequence[int]
    samples: int
    """Training and test samples, which an evaluation goes through."""


SHAPES = {
    "fashion": Shape("fashion", (28, 28), mlp, (128, 256, 512, 928), 70_000),
    "cifar": Shape("cifar10", (3, 32, 32), cnn, (32, 64, 128, 256), 60_000),
}

SCALE = (100, 1_000, 10_000)
"""Numbers of clients whose costs are compared."""

_CLASSES, _POOL = 10, 6000
_COMPUTING = 0.58  # share of clients that compute in the paper's setting
_ROUNDS = 10


def bench(shape: str, *, clients: int = 100, iterations: int = 100, oracle: bool = True) -> dict[str, Any]:
    """Measure one shape; times are medians in milliseconds.

    Engine and limit take turns, a few iterations each, so that both see the machine in the same
    mood; the ratio is the median over these rounds. `ratio_limit_apart` holds the engine against
    both parts of the limit timed apart, each in a loop of its own that keeps its data in the caches.
    """
    with threads(default_threads()):
        problem = _problem(SHAPES[shape], clients)
        _take_what_torch_takes(SHAPES[shape])
        before = _resident()
        engine = _warm(problem)
        resident = _resident() - before
        plain = _best_pass(SHAPES[shape], round(_COMPUTING * clients) * problem.batch_size)
        read = _reader(engine.client_residual)
        watch = _Stopwatch(engine)
        times, limits, ratios, apart = [], [], [], []
        for _ in range(_ROUNDS):
            ours = [watch.step() for _ in range(max(2, iterations // _ROUNDS))]
            theirs = [_seconds(lambda: (plain(), read())) for _ in ours]
            apart.append(median(ours) / sum(median(_seconds(work) for _ in ours) for work in (plain, read)))
            times += ours
            limits += theirs
            ratios.append(median(ours) / median(theirs))
        engine.release()
        result = {
            "shape": shape,
            "clients": clients,
            "parameters": engine.dim,
            "threads": torch.get_num_threads(),
            "threading": numba.threading_layer(),
            "gradients": engine.gradients.name,
            "computing": watch.computing,
            "ms": 1e3 * median(times),
            "limit_ms": 1e3 * median(limits),
            "ratio_limit": median(ratios),
            "ratio_limit_apart": median(apart),
            "stages_ms": watch.stages_ms,
            "rss_per_client_parameter": resident / (clients * engine.dim),
        }
        seconds = _evaluation(problem, SHAPES[shape].samples)
        share = seconds / (50 * median(times) + seconds)
        result |= {"evaluation_ms": 1e3 * seconds, "evaluation_share": share}
        if oracle:
            seconds = _oracle(problem)
            result |= {"oracle_ms": 1e3 * seconds, "ratio_oracle": seconds / median(times)}
        return result


def compressors(
    shape: str, names: Sequence[str], *, clients: int = 100, iterations: int = 100
) -> list[dict[str, Any]]:
    """Milliseconds of an iteration with other compressors, and their ratio to top-k as the paper counts it.

    All under the policy `price`. Others than top-k count the bits of their messages. They take turns, and the
    ratio is the median over the rounds.
    """
    with threads(default_threads()):
        watches = {}
        for name in ("top-k", *(name for name in names if name != "top-k")):
            counts = "components" if name == "top-k" else "bits"
            up, down = (
                {"kind": "fading", "counts": counts},
                {"kind": "fading", "factor": 0.2, "counts": counts},
            )
            change = {
                "control": {"policy": "price"},
                "costs": {"uplink": up, "downlink": down},
                "compress": {role: {"kind": name} for role in ("uplink", "downlink")},
            }
            watches[name] = _Stopwatch(_warm(_problem(SHAPES[shape], clients, change)))
        rounds = [
            {
                name: [watch.step() for _ in range(max(2, iterations // _ROUNDS))]
                for name, watch in watches.items()
            }
            for _ in range(_ROUNDS)
        ]
        return [
            {
                "compressor": name,
                "ms": 1e3 * median(seconds for turn in rounds for seconds in turn[name]),
                "ratio": median(median(turn[name]) / median(turn["top-k"]) for turn in rounds),
                "stages_ms": watch.stages_ms,
            }
            for name, watch in watches.items()
        ]


def scaling(shape: str, sizes: Sequence[int] = SCALE, *, seconds: float = 3.0) -> list[dict[str, Any]]:
    """Milliseconds by client as the number of clients grows; the first size is what others are held against.

    All sizes are warm before any is measured, and they take turns.
    """
    with threads(default_threads()):
        watches, resident = [], []
        _take_what_torch_takes(SHAPES[shape])
        for clients in sizes:
            problem = _problem(SHAPES[shape], clients)
            before = _resident()
            watches.append(_Stopwatch(_warm(problem)))
            resident.append(_resident() - before)
        times: list[list[float]] = [[] for _ in sizes]
        for _ in range(_ROUNDS):
            for watch, found in zip(watches, times, strict=True):
                end = time.perf_counter() + seconds / _ROUNDS
                taken = [watch.step()]
                while time.perf_counter() < end:
                    taken.append(watch.step())
                found.append(median(taken))
        rows = []
        for clients, watch, found, memory in zip(sizes, watches, times, resident, strict=True):
            watch.engine.release()
            ratios = [own / clients / (first / sizes[0]) for own, first in zip(found, times[0], strict=True)]
            rows.append(
                {
                    "clients": clients,
                    "ms": 1e3 * median(found),
                    "ms_per_client": 1e3 * median(found) / clients,
                    "ratio_per_client": median(ratios),
                    "rss_per_client_parameter": memory / (clients * watch.engine.dim),
                }
            )
        return rows


def _take_what_torch_takes(shape: Shape) -> None:
    """Run a few clients, so that libraries have what they keep before memory is measured."""
    engine = Engine(_problem(shape, _CLASSES))
    for _ in range(3):
        engine.step()
    engine.release()


def _warm(problem: Problem) -> Engine:
    engine = Engine(problem)
    for _ in range(WARM_UP):
        engine.step()
    return engine


class _Stopwatch:
    """Runs iterations and notes where the time goes."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._laps: dict[str, list[float]] = {}
        self._computed: list[int] = []

    def step(self) -> float:
        marks: list[tuple[str, float]] = []
        start = time.perf_counter()
        record = self.engine.step(lambda stage: marks.append((stage, time.perf_counter())))
        taken = time.perf_counter() - start
        self._computed.append(int(record["computed"].sum()))
        spent: dict[str, float] = {}
        for (stage, end), (_, begin) in zip(marks, [("", start), *marks], strict=False):
            spent[stage] = spent.get(stage, 0.0) + end - begin
        for stage, seconds in spent.items():
            self._laps.setdefault(stage, []).append(seconds)
        return taken

    @property
    def computing(self) -> float:
        return float(np.mean(self._computed))

    @property
    def stages_ms(self) -> dict[str, float]:
        return {stage: 1e3 * median(seconds) for stage, seconds in self._laps.items()}


def _problem(shape: Shape, clients: int, change: Mapping[str, Any] | None = None) -> Problem:
    """The paper's setting on random images; clients draw from a pool, so that memory is theirs alone."""
    spec = load_spec(shape.spec, [f"data.clients={clients}"])
    spec = parse(spec.plain() | dict(change or {}))
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(_CLASSES), _POOL // _CLASSES)
    # Each class has its own picture, so that training finds something and ReLUs fall silent.
    pictures = rng.standard_normal((_CLASSES, *shape.sample), dtype=np.float32)
    noise = rng.standard_normal((_POOL, *shape.sample), dtype=np.float32)
    features = torch.from_numpy((pictures[labels] + 2 * noise) / np.float32(5**0.5))
    each, size = _POOL // _CLASSES, min(600, max(spec.train.batch_size, 60_000 // clients))
    classes = np.arange(clients) * _CLASSES // clients
    parts = tuple(c * each + rng.choice(each, size, replace=False) for c in classes)
    data = Federated(features, torch.from_numpy(labels), None, None, parts)
    module = build_model(spec.model.name, spec.model.options, Streams(spec.train.seed))
    return problem_of(spec, FlatModel(module, torch.float32), data, cross_entropy)


def _best_pass(shape: Shape, samples: int) -> Callable[[], None]:
    """One forward and backward pass of plain torch over so many samples, as fast as it goes here."""
    x, y = torch.randn(samples, *shape.sample), torch.randint(_CLASSES, (samples,))
    ways: dict[Callable[[], None], float] = {}
    for memory_format in (torch.contiguous_format, torch.channels_last):
        if memory_format is torch.channels_last and x.ndim != 4:
            continue
        network = shape.network()
        network.to(memory_format=memory_format)  # type: ignore[call-overload]
        inputs = x.to(memory_format=memory_format)
        for chunk in dict.fromkeys(min(chunk, samples) for chunk in (*shape.chunks, samples)):
            way = partial(_pass, network, inputs, y, chunk)
            ways[way] = min(_seconds(way) for _ in range(5))
    return min(ways, key=lambda way: ways[way])


def _pass(network: nn.Module, x: Tensor, y: Tensor, chunk: int) -> None:
    network.zero_grad(set_to_none=True)
    for inputs, labels in zip(torch.split(x, chunk), torch.split(y, chunk), strict=True):
        loss = cross_entropy(network(inputs), labels, reduction="sum") / len(x)
        torch.autograd.backward([loss])


def _reader(residual: np.ndarray[Any, Any]) -> Callable[[], None]:
    """One fused pass that reads the residuals and writes nothing."""
    rows, cut = np.arange(len(residual)), np.full(len(residual), 1e-3, residual.dtype)
    count, above, total = np.zeros(len(rows), np.int64), np.zeros(len(rows)), np.zeros(len(rows))
    return partial(kernels.measure, residual, rows, cut, count, above, total)


def _oracle(problem: Problem, iterations: int = 3) -> float:
    """Seconds of an iteration of the reference loop, in float32."""
    model, data, streams = problem.model, problem.data, problem.streams
    batches = Minibatches(data.parts, problem.batch_size, streams)

    def gradient(client: int, params: np.ndarray[Any, Any], used: int) -> np.ndarray[Any, Any]:
        model.params.copy_(torch.from_numpy(params))
        samples = torch.from_numpy(batches.peek(client, used))
        model.module.zero_grad()
        loss = cross_entropy(model.module(data.train_x[samples]), data.train_y[samples])
        torch.autograd.backward([loss])
        return np.concatenate([p.grad.reshape(-1).numpy() for p in model.module.parameters()])  # type: ignore[union-attr]

    steps = reference(
        model.params.numpy().copy(),
        gradient,
        clients=data.clients,
        setup=problem.setup,
        learning_rate=problem.learning_rate,
        iterations=iterations,
        dtype=np.float32,
    )
    return median(_seconds(lambda: next(steps)) for _ in range(iterations))


def _evaluation(problem: Problem, samples: int) -> float:
    """Return the seconds of an evaluation over so many samples, estimated from a part of them."""
    part = 10_000
    x, y = torch.randn(part, *problem.data.train_x.shape[1:]), torch.randint(_CLASSES, (part,))
    data = Federated(x, y, None, None, (np.arange(part),))
    evaluate = Evaluator(problem.model, problem.loss, data)
    evaluate()
    return median(_seconds(evaluate) for _ in range(5)) * samples / part


def _seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _resident() -> int:
    """Bytes of memory that this process occupies, without what the C library keeps for later."""
    gc.collect()
    with suppress(OSError, AttributeError):  # of glibc only
        ctypes.CDLL(None).malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1]) if Path("/proc/self/statm").exists() else 0
    return pages * resource.getpagesize() or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
