"""Passes over the residuals (N, D), fused, parallel and compiled.

Inner loops run over one-dimensional slices from 0 on: that is what the compiler turns into vector
instructions (an index such as row, start + j costs a factor of three).

Every sum over a row has a fixed order, so results do not depend on the number of threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, prange, types
from numba.extending import get_cython_function_address, intrinsic
from numpy.typing import NDArray

Array = NDArray[Any]

# Sums may be regrouped into vector lanes; NaN and infinity keep their meaning.
_SUMS = {"reassoc", "contract", "nsz"}
_BLOCK = 2048
_TINY = float(np.finfo(np.float64).tiny)


@njit(cache=True, fastmath=_SUMS)
def _sums(vector: Array, limit: float) -> tuple[int, float, float]:
    """#{|b| > limit}, the sum of their squares, and the sum of all squares."""
    count, above, total = 0, 0.0, 0.0
    for j in range(len(vector)):
        size = abs(vector[j])
        square = np.float64(size) * np.float64(size)
        total += square
        count += size > limit
        above += square if size > limit else 0.0
    return count, above, total


@njit(cache=True, fastmath=_SUMS)
def _add_block(columns: Array, factor: float, new: Array, limit: float) -> tuple[int, float, float]:
    """columns += factor·new; returns `_sums`, taken while the columns are at hand."""
    c, s, a = 0, 0.0, 0.0
    for begin in range(0, len(columns), _BLOCK):
        block, added = columns[begin : begin + _BLOCK], new[begin : begin + _BLOCK]
        for j in range(len(block)):
            block[j] += factor * added[j]
        dc, ds, da = _sums(block, limit)
        c, s, a = c + dc, s + ds, a + da
    return c, s, a


@njit(parallel=True, cache=True, fastmath=_SUMS)
def add_and_measure(
    residual: Array,
    rows: Array,
    start: int,
    step: Array,
    grads: Array,
    cut: Array,
    count: Array,
    above: Array,
    total: Array,
) -> None:
    """residual[rows[i], start:start+P] += step[i]·grads[i], measured while it is at hand.

    The sums of `measure` over these columns are added to count, above and total.
    """
    for i in prange(len(rows)):
        row = rows[i]
        columns = residual[row][start : start + grads.shape[1]]
        c, s, a = _add_block(columns, step[i], grads[i], cut[row])
        count[row] += c
        above[row] += s
        total[row] += a


@intrinsic
def _call(typing: Any, routine: Any, arguments: Any) -> Any:
    """Calls the routine at that address; its arguments are addresses, as everywhere in BLAS.

    Not numba's own function objects: unpacking one costs more than a small product.
    """

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        word = ir.IntType(64)
        kind = ir.FunctionType(ir.VoidType(), [word] * len(arguments))
        function = builder.inttoptr(values[0], kind.as_pointer())
        given = [builder.extract_value(values[1], n) for n in range(len(arguments))]
        builder.call(function, given)
        return context.get_dummy_value()

    return types.void(types.uintp, arguments), generate


GEMM = {
    np.dtype(dtype): np.uintp(get_cython_function_address("scipy.linalg.cython_blas", name))
    for dtype, name in ((np.float32, "sgemm"), (np.float64, "dgemm"))
}
TRANSPOSED = np.frombuffer(b"NT", dtype=np.uint8)
PIECE = 2**17
"""Components of a product that are made at once: they stay in the second-level cache."""


@njit(parallel=True, cache=True, fastmath=_SUMS)
def add_outer_and_measure(
    gemm: Any,
    transposed: Array,
    sizes: Array,
    one: Array,
    residual: Array,
    rows: Array,
    start: int,
    step: Array,
    x: Array,
    g: Array,
    cut: Array,
    count: Array,
    above: Array,
    total: Array,
) -> None:
    """As above for gradients gᵀ·x given as x (M, K, in) and g (M, K, out), never written down whole.

    gemm is the address of the routine in `GEMM`; `residuals.Residuals.add_outer` prepares what it needs.
    """
    width, at_once, outputs = sizes[0], sizes[1], sizes[3]
    pieces = (outputs + at_once - 1) // at_once
    n = sizes.ctypes.data
    found = np.zeros((len(rows) * pieces, 3))
    for task in prange(len(rows) * pieces):
        i, piece = task // pieces, task % pieces
        first, final = piece * at_once, piece == pieces - 1
        last = outputs if final else first + at_once
        block = residual[rows[i]][start + first * width : start + last * width]
        # Row-major to us is transposed to BLAS: block (in, out) += step · xᵀ (in, K) · g (K, out).
        addresses = (
            transposed.ctypes.data,
            transposed.ctypes.data + np.uintp(1),
            n,
            n + np.uintp(16 if final else 4),
            n + np.uintp(8),
            step.ctypes.data + np.uintp(i * step.itemsize),
            x[i].ctypes.data,
            n,
            g[i].ctypes.data + np.uintp(first * g.itemsize),
            n + np.uintp(12),
            one.ctypes.data,
            block.ctypes.data,
            n,
        )
        _call(gemm, addresses)
        c, s, a = _sums(block, cut[rows[i]])
        found[task, 0], found[task, 1], found[task, 2] = c, s, a
    for task in range(len(found)):
        row = rows[task // pieces]
        count[row] += int(found[task, 0])
        above[row] += found[task, 1]
        total[row] += found[task, 2]


@njit(parallel=True, cache=True, fastmath=_SUMS)
def add_over_samples_and_measure(
    residual: Array,
    rows: Array,
    start: int,
    step: Array,
    g: Array,
    cut: Array,
    count: Array,
    above: Array,
    total: Array,
) -> None:
    """As above for gradients Σ g over the samples, given as g (M, K, P)."""
    samples, width = g.shape[1:]
    for i in prange(len(rows)):
        row, factor = rows[i], step[i]
        columns = residual[row][start : start + width]
        for b in range(samples):
            new = g[i, b]
            for j in range(len(columns)):
                columns[j] += factor * new[j]
        c, s, a = _sums(columns, cut[row])
        count[row] += c
        above[row] += s
        total[row] += a


@njit(parallel=True, cache=True, fastmath=_SUMS)
def measure(residual: Array, rows: Array, cut: Array, count: Array, above: Array, total: Array) -> None:
    """For each of `rows`: #{|b| > cut}, the sum of their squares, and the sum of all squares."""
    for i in prange(len(rows)):
        row = rows[i]
        limit = cut[row]
        count[row], above[row], total[row] = _sums(residual[row], limit)


@njit(cache=True)
def unsure(
    cut: Array,
    seen_cut: Array,
    count: Array,
    above: Array,
    total: Array,
    scale: Array,
    changed: Array,
    level: Array,
    rounding: float,
) -> Array:
    """The rows whose excess Σ (b² − cut²)₊ is not known and may, after earlier measurements, reach `level`.

    As a function of cut² the excess is convex and falls. So it is at most what it was at a lower
    threshold, and below the chord from ‖b‖² at zero to what it was at a higher one.
    """
    rows = np.empty(len(cut), dtype=np.int64)
    found = 0
    for n in range(len(cut)):
        if not changed[n]:
            if cut[n] == seen_cut[n]:
                continue
            now, then = np.float64(cut[n]) ** 2, np.float64(seen_cut[n]) ** 2
            excess = above[n] - count[n] * then
            share = now / max(now, then, _TINY)
            if total[n] + (excess - total[n]) * share + rounding * scale[n] < level[n]:
                continue
        rows[found] = n
        found += 1
    return rows[:found]


@njit(cache=True)
def reaches(
    grid: Array, sizes: Array, known: tuple[Array, ...], prices: tuple[Array, ...], margin: float
) -> Array:
    """The largest k of the grid that may be worth its price, 0 where there is none, (M,).

    From one k of the grid to the next, the price is at least that of the lower end, of whose message `sizes`
    are the sizes, and what is taken off ‖b‖² is at most what the tangent at `known` says of the upper end.

    Args:
        grid: 0 = k₀ < k₁ < … = D.
        sizes: of messages of kᵢ + 1 components.
        known: the threshold that each row was measured against, count and energy above it, ‖b‖², slack.
        prices: V, and Φ·φ of a message in any case and for each unit of its size.
        margin: relative error of what is compared.
    """
    cut, count, above, total, slack = known
    V, fixed, slope = prices
    found = np.zeros(len(V), dtype=np.int64)
    for i in range(len(V)):
        square = np.float64(cut[i]) ** 2
        for place in range(len(grid) - 1, 0, -1):
            most = min(above[i] + (grid[place] - count[i]) * square, total[i]) + slack[i]
            if most > 0 and V[i] * most * (1 + margin) >= fixed[i] + slope[i] * sizes[place - 1]:
                found[i] = grid[place] * np.isfinite(total[i])
                break
    return found


@njit(cache=True)
def rounded_down(cut: Array, zero: float) -> Array:
    """The largest numbers of the type of `zero` that are not above the cut, so that |b| > cut is exact."""
    rounded = np.full(len(cut), zero)
    for n in range(len(cut)):
        rounded[n] = cut[n]
        if rounded[n] > cut[n]:
            rounded[n] = np.nextafter(rounded[n], zero)
    return rounded


@njit(parallel=True, cache=True)
def find_cuts(residual: Array, bits: Array, shift: int, rows: Array, k: Array) -> tuple[Array, Array]:
    """For each of `rows`, the k-th largest magnitude and the last index at which it still counts.

    The k largest, lowest index first among equals, are those with |b| > cut, or |b| = cut at an index of at
    most `last`. Magnitudes are counted by exponent and four digits of the mantissa: their bits are in order.
    Only those that share the bin of the k-th largest are looked at one by one.
    """
    dim = residual.shape[1]
    cut = np.zeros(len(rows), dtype=residual.dtype)
    last = np.full(len(rows), -1, dtype=np.int64)
    sign = bits.dtype.type(1) << bits.dtype.type(bits.itemsize * 8 - 1)
    places = bits.dtype.type(shift)
    for i in prange(len(rows)):
        vector, ordered = residual[rows[i]], bits[rows[i]]
        counts = np.zeros(int((sign - bits.dtype.type(1)) >> places) + 1, dtype=np.int32)
        for j in range(dim):
            counts[(ordered[j] & ~sign) >> places] += 1
        chosen, missing = len(counts) - 1, k[i]  # of the chosen bin, so many are sent
        while missing > counts[chosen]:
            missing -= counts[chosen]
            chosen -= 1
        inside = np.empty(counts[chosen], dtype=residual.dtype)
        found = 0
        for j in range(dim):
            if (ordered[j] & ~sign) >> places == chosen:
                inside[found] = abs(vector[j])
                found += 1
        cut[i] = np.partition(inside, found - missing)[found - missing]
        for j in range(found):
            missing -= inside[j] > cut[i]
        for j in range(dim):
            if missing <= 0:
                break
            if abs(vector[j]) == cut[i]:
                missing -= 1
                last[i] = j
    return cut, last


@njit(parallel=True, cache=True)
def move(residual: Array, rows: Array, cut: Array, last: Array, weights: Array, total: Array) -> None:
    """total (D,) += Σ weights[i]·v_i, where v_i is what row i sends; what is sent leaves the row.

    Parallel over columns: each sum is over the senders in their order, whatever the threads.
    """
    dim = residual.shape[1]
    for block in prange((dim + _BLOCK - 1) // _BLOCK):
        begin = block * _BLOCK
        sums = total[begin : begin + _BLOCK]
        for i in range(len(rows)):
            limit, weight = cut[i], weights[i]
            vector = residual[rows[i]][begin : begin + _BLOCK]
            if begin <= last[i]:
                # Of those equal to the cut, the first ones go as well.
                for j in range(min(len(vector), last[i] + 1 - begin)):
                    if abs(vector[j]) == limit:
                        sums[j] += weight * vector[j]
                        vector[j] = 0
            for j in range(len(vector)):
                value = vector[j]
                sent = value if abs(value) > limit else residual.dtype.type(0)
                sums[j] += weight * sent
                vector[j] = value - sent
