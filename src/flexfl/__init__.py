"""Federated learning that keeps to a budget for computing, uplink and downlink."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flexfl.data.federated import Federated as Federated
    from flexfl.errors import FlexFLError as FlexFLError
    from flexfl.errors import InputError as InputError
    from flexfl.results.run import Run as Run
    from flexfl.sim.run import Result as Result
    from flexfl.sim.run import RunInterruptedError as RunInterruptedError
    from flexfl.sim.run import simulate as simulate

__version__ = "0.1.0"

# Torch takes a second to import: names are resolved when first used, so that the command line
# and the paper's rooms stay light.
_HOMES = {
    "Federated": "flexfl.data.federated",
    "FlexFLError": "flexfl.errors",
    "InputError": "flexfl.errors",
    "Result": "flexfl.sim.run",
    "Run": "flexfl.results.run",
    "RunInterruptedError": "flexfl.sim.run",
    "simulate": "flexfl.sim.run",
}

__all__ = [
    "Federated",
    "FlexFLError",
    "InputError",
    "Result",
    "Run",
    "RunInterruptedError",
    "__version__",
    "simulate",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'flexfl' has no attribute {name!r}")
