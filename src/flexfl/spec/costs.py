"""The [costs] section: a kind and its parameters for each of the three costs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from flexfl.costs import (
    ConstantCompute,
    ConstantMessage,
    FadingChannel,
    MeasuredCompute,
    MeasuredMessage,
    PacketMessage,
    UniformCompute,
)
from flexfl.spec import checks
from flexfl.spec.names import GIVEN, is_import_path, nearest

COMPUTE_COSTS: dict[str, type] = {
    "uniform": UniformCompute,
    "constant": ConstantCompute,
    "measured": MeasuredCompute,
}
MESSAGE_COSTS: dict[str, type] = {
    "fading": FadingChannel,
    "constant": ConstantMessage,
    "packets": PacketMessage,
    "measured": MeasuredMessage,
}
MEASURED = "measured"
"""The kind of costs that only a deployment has: seconds of computing, bytes of messages."""
_POSITIVE = {"factor", "components_per_packet", "high"}
_DEFAULTS: dict[str, dict[str, Any]] = {
    "compute": {"kind": "uniform"},
    "uplink": {"kind": "fading"},
    "downlink": {"kind": "fading", "factor": 0.2},
}


def _above_zero(value: float) -> bool:
    return 0 < value < math.inf


def _share(value: float) -> bool:
    return 0 < value <= 1


def _from_zero(value: float) -> bool:
    return 0 <= value < math.inf


def _resolve(knob: str, value: Any) -> dict[str, Any]:
    """Check kind and parameters, and fill in the defaults."""
    kinds = COMPUTE_COSTS if knob == "compute" else MESSAGE_COSTS
    default = _DEFAULTS[knob]
    if not isinstance(value, Mapping):
        raise checks.fault(f"must be a table with a kind ({', '.join(kinds)})", value, "add kind = …")
    kind = value.get("kind", default["kind"])
    if is_import_path(kind) or str(kind).startswith(GIVEN):
        return dict(value)
    if not isinstance(kind, str) or kind not in kinds:
        rule = f"must have a kind among {', '.join(kinds)} or module:name"
        raise checks.fault(rule, kind, nearest(kind, kinds))
    parameters = {field.name: field.default for field in fields(kinds[kind]) if field.init}
    if kind == default["kind"]:
        parameters |= {name: entry for name, entry in default.items() if name != "kind"}
    for name in value:
        if name != "kind" and name not in parameters:
            raise checks.fault(f"of kind {kind} has no such parameter", name, nearest(name, parameters))
    resolved: dict[str, Any] = {"kind": kind}
    for name, fallback in parameters.items():
        holds, least = (_above_zero, "> 0") if name in _POSITIVE else (_from_zero, "≥ 0")
        rule = f"needs {name} {least} and finite"
        if name == "smoothing":
            holds, rule = _share, "needs smoothing in (0, 1]"
        resolved[name] = checks.check_numbers(value.get(name, fallback), rule, holds, "correct it")
    if "low" in resolved:
        low, high = np.atleast_1d(resolved["low"]), np.atleast_1d(resolved["high"])
        if len(low) != len(high) and 1 not in (len(low), len(high)):
            rule = "needs low and high for the same clients"
            raise checks.fault(rule, (len(low), len(high)), "give one number for each client in both")
        if np.any(high < low):
            raise checks.fault("needs low ≤ high", dict(value), "swap them")
    return resolved


def _cost_of(knob: str) -> BeforeValidator:
    return BeforeValidator(lambda value: _resolve(knob, value))


class CostsSpec(BaseModel):
    """The paper's costs by default: α ~ U(0, 1); a fading channel, five times cheaper downward."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)

    compute: Annotated[dict[str, Any], _cost_of("compute")] = Field(default_factory=dict)
    uplink: Annotated[dict[str, Any], _cost_of("uplink")] = Field(default_factory=dict)
    downlink: Annotated[dict[str, Any], _cost_of("downlink")] = Field(default_factory=dict)

    def by_client(self) -> dict[str, list[float]]:
        """The parameters that are lists; what those of an own kind mean is for it to know."""
        return {
            f"costs.{knob}.{name}": entry
            for knob, table in self
            if not is_import_path(table["kind"])
            for name, entry in table.items()
            if isinstance(entry, list)
        }
