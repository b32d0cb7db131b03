"""The averaged model beside the trained one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flexfl.algorithm.steps import next_average
from flexfl.sim.vectors import on_host
from flexfl.state import State


class Averaged:
    """x̄, in the arrays and on the device of x.

    Args:
        params: x₀, (D,), of NumPy or torch.
    """

    def __init__(self, params: Any) -> None:
        self._average = 1 * params

    def add(self, params: Any, t: int) -> None:
        """Take in x after iteration t."""
        self._average = next_average(self._average, params, t)

    @property
    def params(self) -> NDArray[Any]:
        """x̄, (D,)."""
        return on_host(self._average)

    def state(self) -> State:
        return {"params": self.params}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        found, own = state["params"], self.params
        if found.shape != own.shape or found.dtype != own.dtype:
            raise ValueError(f"average must be {own.dtype} of shape {own.shape}, got {found.shape}")
        now = self._average
        self._average = found if isinstance(now, np.ndarray) else now.new_tensor(found)
