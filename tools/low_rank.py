"""Compare low-rank factors of weight matrices with sparse messages, at equal bytes, on residuals of a run.

PowerSGD (Vogels et al., NeurIPS 2019) sends P·Qᵀ for each weight matrix. Here P and Q come from the truncated
singular value decomposition, the best that a rank can do: PowerSGD's one power iteration is at most as good.
Biases are sent whole, as float16. Vectors b are those of a short run of a shipped spec: the residuals of
clients that have not just sent, and what the server has before it sends. Printed is the share of ‖b‖² that a
message takes off, the mean over vectors and iterations. Run: python tools/low_rank.py
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flexfl.compress import Compressor, Levels, Offers, RoundedTopK, TopK
from flexfl.compress.message import HEADER_BYTES
from flexfl.models.flat import FlatModel
from flexfl.sim.engine import Engine
from flexfl.sim.process import threads
from flexfl.sim.run import prepared
from flexfl.spec.load import load_spec

ITERATIONS, EVERY, CLIENTS = 150, 30, 8
RANKS = (1, 2, 4)
WAYS: dict[str, Compressor] = {
    "top-k": TopK(),
    "top-k, bfloat16": RoundedTopK("bfloat16"),
    "levels, 4 bits": Levels(bits=4),
    "levels": Levels(),
}
Vector = NDArray[Any]


def vectors(engine: Engine) -> Iterator[tuple[str, Vector]]:
    """Yield who, and b, for some clients and the server every few iterations."""
    rng = np.random.default_rng(0)
    for iteration in range(1, ITERATIONS + 1):
        before = np.array(engine.params)
        record = engine.step()
        if iteration % EVERY:
            continue
        rows = np.flatnonzero((record["uplink_components"] == 0) & engine.client_residual.any(axis=1))
        for row in rng.permutation(rows)[:CLIENTS]:
            yield "clients", np.array(engine.client_residual[row])
        yield "server", np.array(engine.server_residual) + (np.array(engine.params) - before)


def factored(
    b: Vector, shapes: list[tuple[slice, tuple[int, ...]]], rank: int, bits: int
) -> tuple[int, float]:
    """Return the bytes of factors of that rank with values of so many bits, and what they take off ‖b‖²."""
    sent, nbytes = np.zeros(len(b)), HEADER_BYTES
    for place, shape in shapes:
        part = b[place].astype(np.float64)
        if len(shape) < 2:
            sent[place], nbytes = part.astype(np.float16), nbytes + 2 * len(part)
            continue
        u, s, v = np.linalg.svd(part.reshape(shape[0], -1), full_matrices=False)
        r = min(rank, len(s))
        p, q = (coarse(factor, bits) for factor in (u[:, :r].T, v[:r]))
        sent[place] = np.einsum("r,rm,rn->mn", s[:r], p, q).reshape(-1)
        nbytes += r * (4 + (u.shape[0] + v.shape[1]) * bits // 8)  # a scale for each pair, as float32
    energy = np.square(b, dtype=np.float64).sum()
    return nbytes, 1.0 - float(np.square(b - sent).sum() / energy)


def coarse(rows: Vector, bits: int) -> Vector:
    """Return unit vectors as float16, or as multiples of a 127th of their largest component."""
    if bits == 16:
        return rows.astype(np.float16).astype(np.float64)
    step = np.abs(rows).max(axis=1, keepdims=True) / 127
    return np.rint(rows / step) * step


def sparse(offers: Offers, nbytes: int) -> float:
    """Return what the best message of at most so many bytes takes off ‖b‖²."""
    return 1.0 - float(offers.kept[offers.nbytes <= nbytes].min() / offers.kept[0])


def compared(engine: Engine, model: FlatModel) -> dict[tuple[str, int, int], list[tuple[float, ...]]]:
    """Return, by whose vectors, bits and rank: bytes, and the shares taken off by factors and by messages."""
    shapes = list(zip(model.slices, [tuple(shape) for shape in model.shapes], strict=True))
    found: dict[tuple[str, int, int], list[tuple[float, ...]]] = {}
    for who, b in vectors(engine):
        offers = [way.offers(b, np.random.default_rng) for way in WAYS.values()]
        for bits, rank in itertools.product((16, 8), RANKS):
            nbytes, share = factored(b, shapes, rank, bits)
            row = (nbytes, share, *(sparse(offered, nbytes) for offered in offers))
            found.setdefault((who, bits, rank), []).append(row)
    return found


def main() -> None:
    with threads(1):
        problem = prepared(load_spec("quickstart", []))
        engine = Engine(problem)
        found = compared(engine, problem.model)
        engine.release()
    print(f"| vectors | factors | rank | bytes | low rank | {' | '.join(WAYS)} |\n|{'---|' * 9}")
    for (who, bits, rank), rows in found.items():
        nbytes, *shares = np.mean(rows, axis=0)
        cells = " | ".join(f"{share:.3f}" for share in shares)
        print(f"| {who} ({len(rows)}) | {bits} bits | {rank} | {nbytes:.0f} | {cells} |")


if __name__ == "__main__":
    main()
