"""Federated learning that keeps to a budget for computing, uplink and downlink.

    result = flexfl.simulate("quickstart", budget={"uplink": 0.02}, out="runs/mine")
    result.summary["test_accuracy"], result.summary["average_cost"]

`simulate` takes a spec by name or file, or your own model, data, costs, policies and compressors as objects;
`Federated` holds data by client; `Run` reads a run directory. The protocols for members of your own are
`CostModel`, `Policy`, `Compressor`, `Schedule` and `Observer`; `flexfl.testing` checks them. Every error that
is raised on purpose is a `FlexFLError`. On the command line: flexfl --help.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flexfl.compress import Compressor as Compressor
    from flexfl.control import Policy as Policy
    from flexfl.costs import CostModel as CostModel
    from flexfl.data.federated import Federated as Federated
    from flexfl.errors import FlexFLError as FlexFLError
    from flexfl.errors import FlexFLWarning as FlexFLWarning
    from flexfl.errors import InputError as InputError
    from flexfl.learning_rate import Schedule as Schedule
    from flexfl.local import LocalWork as LocalWork
    from flexfl.results.observer import Observer as Observer
    from flexfl.results.run import Run as Run
    from flexfl.sim.run import Result as Result
    from flexfl.sim.run import simulate as simulate
    from flexfl.sim.train import RunInterruptedError as RunInterruptedError

__version__ = "0.1.0"

# Torch takes a second to import: names are resolved when first used, so that the command line
# and the paper's rooms stay light.
_HOMES = {
    "Compressor": "flexfl.compress",
    "CostModel": "flexfl.costs",
    "Federated": "flexfl.data.federated",
    "FlexFLError": "flexfl.errors",
    "FlexFLWarning": "flexfl.errors",
    "InputError": "flexfl.errors",
    "LocalWork": "flexfl.local",
    "Observer": "flexfl.results.observer",
    "Policy": "flexfl.control",
    "Result": "flexfl.sim.run",
    "Run": "flexfl.results.run",
    "RunInterruptedError": "flexfl.sim.train",
    "Schedule": "flexfl.learning_rate",
    "simulate": "flexfl.sim.run",
}

__all__ = [
    "Compressor",
    "CostModel",
    "Federated",
    "FlexFLError",
    "FlexFLWarning",
    "InputError",
    "LocalWork",
    "Observer",
    "Policy",
    "Result",
    "Run",
    "RunInterruptedError",
    "Schedule",
    "__version__",
    "simulate",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        from flexfl.errors import nearest

        raise AttributeError(f"module 'flexfl' has no attribute {name!r}; {nearest(name, __all__)}")
    from flexfl.extras import needed_for

    with needed_for(f"flexfl.{name}"):
        return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return list(__all__)
