"""The contract suite of local work; `flexfl.testing` offers it with the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flexfl.local import ClientWork, LocalWork, Memory, first_memory

_CLIENTS, _DIM, _ITERATIONS = 3, 7, 6
_ETA = 0.05


def check_local_work(make: Callable[[], LocalWork]) -> None:
    """Check local work: a pure change, alone as among many, by NumPy as by torch, and its memory.

    Args:
        make: returns fresh local work.
    """
    import torch  # heavy

    taken = make().gradients
    assert isinstance(taken, int) and taken >= 1, "gradients must be a whole number ≥ 1"  # noqa: PT018
    for dtype in (np.float32, np.float64):
        x: NDArray[Any] = np.random.default_rng(1).normal(size=(_CLIENTS, _DIM)).astype(dtype)
        together = _run(make(), x)
        for found in together:
            assert found.shape == x.shape, "the change must have the shape of x"
            assert found.dtype == x.dtype, "the change must have the type of x"
            assert np.isfinite(found).all(), "the change must be finite where gradients are"
        again = _run(make(), x)
        same = all(np.array_equal(a, b) for a, b in zip(together, again, strict=True))
        assert same, "the same gradients must give the same change"
        rtol, atol = (1e-5, 1e-6) if dtype == np.float32 else (1e-12, 0.0)
        for name, others in {
            "a client alone must change as it does among many": [
                np.stack(rows) for rows in zip(*(_run(make(), row) for row in x), strict=True)
            ],
            "torch's tensors must give what NumPy's arrays give": _run(make(), torch.from_numpy(x.copy())),
        }.items():
            for a, b in zip(together, others, strict=True):
                assert np.allclose(a, b, rtol, atol), name
    _check_client_memory(make)


def _run(local: LocalWork, x: Any) -> list[NDArray[Any]]:
    """Return the changes of some iterations, as arrays; x is the same in all of them."""
    memory, changes = first_memory(local, x), list[NDArray[Any]]()
    for t in range(_ITERATIONS):
        asked: list[int] = []
        before, known = _copies({"x": x}), _copies(memory)
        delta, after = local.change(_gradient(t, asked), x, _ETA, memory)
        assert sorted(set(asked)) == list(range(local.gradients)), (
            f"must use minibatches 0 to {local.gradients - 1}, as announced, got {asked}"
        )
        assert np.array_equal(np.asarray(x), before["x"]), "x must not be changed in place"
        unchanged = all(np.array_equal(known[name], np.asarray(memory[name])) for name in known)
        assert unchanged, "a memory must not be changed in place: return the new one"
        assert after.keys() == memory.keys(), "begin must return a memory with all that change returns"
        for name, kept in after.items():
            assert kept.shape == memory[name].shape, f"the memory {name} must keep its shape"
            assert kept.dtype == x.dtype, f"the memory {name} must have the type of x"
        memory = after
        changes.append(np.asarray(delta))
    return changes


def _copies(arrays: Memory) -> dict[str, NDArray[Any]]:
    return {name: np.asarray(array).copy() for name, array in arrays.items()}


def _gradient(t: int, asked: list[int]) -> Callable[[Any, int], Any]:
    """Return the gradient of ½·Σ s·(y − z)², other s and z for each minibatch."""

    def gradient(y: Any, k: int) -> Any:
        asked.append(k)
        rng = np.random.default_rng([t, k])
        kind = str(y.dtype).removeprefix("torch.")
        scale, place = (rng.uniform(0.5, 1.5, _DIM).astype(kind) for _ in range(2))
        if isinstance(y, np.ndarray):
            return scale * (y - place)
        return y.new_tensor(scale) * (y - y.new_tensor(place))

    return gradient


def _check_client_memory(make: Callable[[], LocalWork]) -> None:
    """Check that work with the state of another continues as that one does."""
    first, second = ClientWork(make()), ClientWork(make())
    x: NDArray[Any] = np.random.default_rng(2).normal(size=_DIM)
    for t in range(_ITERATIONS):
        if t == _ITERATIONS // 2:
            second.restore({name: array.copy() for name, array in first.state().items()})
        found = first.change(_gradient(t, []), x, _ETA)
        if t >= _ITERATIONS // 2:
            same = np.array_equal(found, second.change(_gradient(t, []), x, _ETA))
            assert same, "all that work remembers must be in the memory that change returns"
