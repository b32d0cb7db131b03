"""Measure alternatives to the engine's implementation: the tables in docs/performance.md.

Each alternative and the engine itself alternate in one process, N = 100, on the shape `fashion` (for
convolutions: `cifar`); the median and its ratio to the engine's are printed. Settings of the process are
tried in separate processes, also alternating. Run: make trials
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from statistics import median
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from flexfl import evaluate as whole_set
from flexfl.compress import Message
from flexfl.compress.message import shortened
from flexfl.evaluate import Evaluator
from flexfl.experiments.bench import SHAPES, _problem, _warm
from flexfl.sim import kernels
from flexfl.sim.engine import Engine
from flexfl.sim.gradients import OnePass, one_pass
from flexfl.sim.process import default_threads, threads
from flexfl.sim.residuals import Residuals
from flexfl.wire import coder, decode, encode, plain_coder

ROUNDS, EACH = 25, 8
PIECES = (8, 2, 4, 16, 32)


@contextmanager
def replaced(holder: Any, name: str, value: Any) -> Iterator[None]:
    """Replace an attribute within the context."""
    before = getattr(holder, name)
    setattr(holder, name, value)
    try:
        yield
    finally:
        setattr(holder, name, before)


def all_rows(self: Residuals, level: Any) -> np.ndarray:
    return ((self._seen_cut != self._cut) | self._changed).nonzero()[0]


def autograd_cross_entropy(outputs: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    with torch.enable_grad():
        leaf = outputs.detach().requires_grad_()
        total = functional.cross_entropy(leaf, y.reshape(-1), reduction="sum") / y.shape[1]
        return total, torch.autograd.grad(total, leaf)[0]


def batched_product(self: Residuals, rows: Any, start: int, step: Any, x: Any, g: Any) -> None:
    grads = torch.bmm(torch.from_numpy(g).transpose(1, 2), torch.from_numpy(x))
    self.add(rows, start, step, grads.reshape(len(rows), -1).numpy())


def trials(engine: Engine, hooked: OnePass) -> dict[str, Callable[[], Any]]:
    def with_hooks() -> Any:
        return replaced(engine, "gradients", hooked)

    return {
        "the engine": nullcontext,
        "rows without a gradient are read in every iteration": lambda: replaced(
            Residuals, "_unsure", all_rows
        ),
        "weight gradients by torch.bmm, then a pass that adds them": lambda: replaced(
            Residuals, "add_outer", batched_product
        ),
        "the same for eight clients at a time, to stay in the caches": lambda: replaced(engine, "_chunk", 8),
        "cross-entropy by autograd": lambda: replaced(one_pass, "cross_entropy", autograd_cross_entropy),
        "autograd and hooks instead of a chain written out": with_hooks,
        "products in pieces of 32 KB": lambda: replaced(kernels, "PIECE", 2**13),
        "products in pieces of 128 KB": lambda: replaced(kernels, "PIECE", 2**15),
    }


def compare_in_process() -> None:
    """Compare the trials in one process."""
    with threads(default_threads()):
        engine = _warm(_problem(SHAPES["fashion"], 100))
        hooked = OnePass(engine._problem.model, engine._problem.loss)
        found: dict[str, list[float]] = {name: [] for name in trials(engine, hooked)}
        for _ in range(ROUNDS):
            for name, trial in trials(engine, hooked).items():
                with trial():
                    taken = [seconds(engine.step) for _ in range(EACH)]
                hooked.release()
                found[name].append(median(taken[1:]))
        table(found)


def convolutions() -> None:
    """Compare the CNN's chain with autograd and hooks, and chunk sizes of an evaluation."""
    with threads(default_threads()):
        engine = _warm(_problem(SHAPES["cifar"], 100))
        hooked = OnePass(engine._problem.model, engine._problem.loss)
        ways = {
            "the engine": nullcontext,
            "autograd and hooks instead of a chain written out": lambda: replaced(
                engine, "gradients", hooked
            ),
        }
        found: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(ROUNDS):
            for name, way in ways.items():
                with way():
                    found[name].append(seconds(engine.step))
                hooked.release()
        table(found)
        problem = engine._problem
        evaluate = Evaluator(problem.model, problem.loss, problem.data)
        pieces: dict[str, list[float]] = {f"evaluation by {size} MB": [] for size in PIECES}
        for _ in range(5):
            for name, size in zip(pieces, PIECES, strict=True):
                with replaced(whole_set, "_LAYER_BYTES", size * 2**20):
                    pieces[name].append(seconds(evaluate))
        table(pieces)


ENVIRONMENTS = {
    "as it is": {},
    "OMP_WAIT_POLICY=passive": {"OMP_WAIT_POLICY": "passive"},
    "GOMP_SPINCOUNT=1000": {"GOMP_SPINCOUNT": "1000"},
    "numba's workqueue threads": {"NUMBA_THREADING_LAYER": "workqueue"},
}


def compare_environments() -> None:
    """Compare environment variables, each in separate processes."""
    found: dict[str, list[float]] = {name: [] for name in ENVIRONMENTS}
    for _ in range(3):
        for name, settings in ENVIRONMENTS.items():
            command = [sys.executable, __file__, "one"]
            done = subprocess.run(
                command, env=os.environ | settings, capture_output=True, text=True, check=True
            )
            found[name].append(float(done.stdout))
    table(found)


def one() -> None:
    """Print the seconds of an iteration."""
    with threads(default_threads()):
        engine = _warm(_problem(SHAPES["fashion"], 100))
        print(median(seconds(engine.step) for _ in range(200)))


def evaluation() -> None:
    """Print the time of an evaluation if it were only its matrix products, at the speed of a large one."""
    print("| shape | 10⁹ operations | 10⁹ per second | ms at least | ms of 50 iterations | share at least |")
    print("|---|---|---|---|---|---|")
    square = torch.randn(2048, 2048)
    with threads(default_threads()):
        for name, shape in SHAPES.items():
            problem = _problem(shape, 100)
            work = shape.samples * operations(problem.model.module, problem.data.train_x[:1]) / 1e9
            engine = _warm(problem)
            paces, steps = [], []
            for _ in range(5):
                paces += [2 * len(square) ** 3 / 1e9 / seconds(lambda: square @ square) for _ in range(3)]
                steps += [seconds(engine.step) for _ in range(EACH)][2:]  # the first have cold caches
            fifty, least = 50e3 * median(steps), 1e3 * work / median(paces)
            cells = (name, f"{work:.1f}", f"{median(paces):.0f}", f"{least:.0f}", f"{fifty:.0f}")
            print(f"| {' | '.join(cells)} | {least / (least + fifty):.0%} |", flush=True)


def operations(module: torch.nn.Module, x: torch.Tensor) -> int:
    """Return the multiplications and additions of dense and convolution layers for one sample."""
    total = 0

    def count(part: Any, inputs: Any, output: torch.Tensor) -> None:
        nonlocal total
        places = output.numel() // part.weight.shape[0]
        total += 2 * part.weight.numel() * places

    kinds = torch.nn.Linear, torch.nn.Conv2d
    handles = [part.register_forward_hook(count) for part in module.modules() if isinstance(part, kinds)]
    with torch.no_grad():
        module(x)
    for handle in handles:
        handle.remove()
    return total


def codec() -> None:
    """Print the speed of encoding and decoding messages, in megabytes of the dense vector."""
    dim, rng = 1_000_000, np.random.default_rng(0)
    print("| share sent | bytes per component | encoding, MB/s | decoding, MB/s |\n|---|---|---|---|")
    for share in (0.0005, 0.001, 0.01, 0.1, 0.3):
        sent = np.sort(rng.choice(dim, round(share * dim), replace=False))
        message = Message(dim, sent, rng.standard_normal(len(sent), dtype=np.float32), "float32")
        print(f"| {share} | {codec_row(message)}", flush=True)
    heads = "bits per component | encoding, MB/s | decoding, MB/s"
    print(f"\n| d | levels | share sent | {heads} |\n|---|---|---|---|---|---|")
    for dim, number, share in itertools.product((39_760, 551_786), (8, 16), (0.01, 0.05, 1.0)):
        count, shares = round(share * dim), 0.8 ** np.arange(number)
        sent = np.sort(rng.choice(dim, count, replace=False))
        codes = rng.choice(number, count, p=shares / shares.sum())
        levels = shortened(0.7 ** np.arange(number), np.float32)
        message = Message.of_levels(dim, sent, rng.random(count) < 0.5, codes, levels, "short")
        print(f"| {dim:,} | {number} | {share:.0%} | {codec_row(message, 8)}", flush=True)


def codec_row(message: Message, unit: int = 1) -> str:
    """Return the size of a component and the speeds of both ways."""
    data = encode(message)
    speeds = [
        4e-6 * message.dim / median(seconds(work) for _ in range(9))
        for work in (lambda: encode(message), lambda: decode(data, message.dim))
    ]
    return f"{unit * len(data) / message.components:.2f} | {speeds[0]:.0f} | {speeds[1]:.0f} |"


def coders() -> None:
    """Print what naming 1 % of the components takes at least, with and without numba."""
    print("| d | coder | writing, ms | reading, ms |\n|---|---|---|---|")
    for dim in (39_760, 551_786):
        sent = np.sort(np.random.default_rng(0).choice(dim, dim // 100, replace=False))
        for name, one in (("compiled", coder), ("plain", plain_coder)):
            code = np.zeros(dim, dtype=np.uint8)
            code = code[: one.encode_subset(sent, dim, code)]
            took = [
                1e3 * min(seconds(work) for _ in range(15))
                for work in (
                    lambda one=one, code=code, sent=sent, dim=dim: one.encode_subset(sent, dim, code),
                    lambda one=one, code=code, sent=sent, dim=dim: one.decode_subset(code, len(sent), dim),
                )
            ]
            print(f"| {dim:,} | {name} | {took[0]:.2f} | {took[1]:.2f} |", flush=True)


def seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def table(found: dict[str, list[float]]) -> None:
    first = next(iter(found.values()))
    print("| | ms | ratio |\n|---|---|---|")
    for name, values in found.items():
        ratio = median(value / base for value, base in zip(values, first, strict=True))
        print(f"| {name} | {1e3 * median(values):.2f} | {ratio:.2f} |")
    print(flush=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["one"]:
        one()
    elif sys.argv[1:] == ["evaluation"]:
        evaluation()
    elif sys.argv[1:] == ["codec"]:
        codec()
    elif sys.argv[1:] == ["coders"]:
        coders()
    elif sys.argv[1:] == ["convolutions"]:
        convolutions()
    else:
        compare_in_process()
        convolutions()
        compare_environments()
        evaluation()
