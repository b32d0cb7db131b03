"""Faults that only show when settings are held side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flexfl.control.policy import KNOBS
from flexfl.errors import Fault
from flexfl.spec.budget import BudgetSpec
from flexfl.spec.costs import CostsSpec
from flexfl.spec.sections import ControlSpec, DataSpec, EngineSpec

_ONE_SERVER = "must be one number: there is one server"


def faults_between(sections: Mapping[str, Any]) -> list[Fault]:
    """What is wrong between the sections that are valid on their own."""
    data, control, budget, costs = (sections.get(name) for name in ("data", "control", "budget", "costs"))
    faults: list[Fault] = []
    engine = sections.get("engine")
    if isinstance(engine, EngineSpec):
        faults += _kernels(engine)
    by_client: dict[str, list[float]] = {}
    if isinstance(budget, BudgetSpec):
        by_client |= budget.by_client()
        if isinstance(budget.downlink, dict):
            faults.append(Fault("budget.downlink", _ONE_SERVER, budget.downlink, "give one number"))
    if isinstance(costs, CostsSpec):
        by_client |= costs.by_client()
    if isinstance(control, ControlSpec):
        by_client |= _lists(control)
        faults += _needed(control)
        if isinstance(budget, BudgetSpec):
            faults += _shared(control, budget)
    for_server = {path: values for path, values in by_client.items() if ".downlink" in path}
    faults += [Fault(path, _ONE_SERVER, values, "give one number") for path, values in for_server.items()]
    if isinstance(data, DataSpec):
        faults += _weights(data)
        if isinstance(budget, BudgetSpec):
            faults += budget.faults(data.clients)
        if isinstance(data.weights, list):
            by_client["data.weights"] = data.weights
        if isinstance(data.partition, dict) and isinstance(data.partition.get("sizes"), list):
            by_client["data.partition.sizes"] = data.partition["sizes"]
        rule = f"must have one number for each of the {data.clients} clients"
        faults += [
            Fault(path, rule, len(values), "adjust the list or data.clients")
            for path, values in by_client.items()
            if path not in for_server and len(values) != data.clients
        ]
    return faults


def _kernels(engine: EngineSpec) -> list[Fault]:
    """Numba works on the host, and so do files."""
    by_torch = engine.device != "cpu" or engine.kernels == "torch"
    if engine.kernels == "numba" and engine.device != "cpu":
        rule = f"must be auto or torch on {engine.device}"
        return [Fault("engine.kernels", rule, engine.kernels, "leave it out")]
    if engine.residuals == "file" and by_torch:
        rule = "must be memory where torch's kernels are used"
        return [Fault("engine.residuals", rule, engine.residuals, 'use device = "cpu" with numba\'s kernels')]
    return []


def _weights(data: DataSpec) -> list[Fault]:
    if not isinstance(data.weights, list) or not data.weights:
        return []
    total = sum(data.weights)
    if abs(total - 1.0) <= 1e-6 and min(data.weights) >= 0:
        return []
    return [Fault("data.weights", "must be ≥ 0 and sum to 1", total, "divide each by their sum")]


def _lists(control: ControlSpec) -> dict[str, list[float]]:
    found = {}
    for name, value in control:
        for knob, entry in value.items() if isinstance(value, dict) else [("", value)]:
            if isinstance(entry, list):
                found[f"control.{name}" + (f".{knob}" if knob else "")] = entry
    return found


def _shared(control: ControlSpec, budget: BudgetSpec) -> list[Fault]:
    """A queue that several clients share has one length."""
    rule = "must be one number where the budget is shared"
    return [
        Fault(f"control.{name}.{knob}", rule, entry, "give one number for the group")
        for name, table in (("initial_queue", control.initial_queue), ("floor", control.floor))
        if isinstance(table, dict)
        for knob, entry in table.items()
        if isinstance(entry, list) and isinstance(getattr(budget, knob), dict)
    ]


def _needed(control: ControlSpec) -> list[Fault]:
    """Settings that a policy cannot do without."""
    used = {knob: control.policy_of(knob) for knob in KNOBS}
    by_ratio = [knob for knob in ("uplink", "downlink") if used[knob] in ("randomised", "top-k")]
    ratio = control.send_ratio
    missing = {
        "send_ratio": [k for k in by_ratio if ratio is None or (isinstance(ratio, dict) and k not in ratio)],
        "send_every": ["uplink"] * (used["uplink"] == "periodic" and control.send_every is None),
        "compute_prob": ["compute"] * (used["compute"] == "fixed-prob" and control.compute_prob is None),
    }
    return [
        Fault(f"control.{name}", f"is needed by policy {used[knobs[0]]}", None, f"add it for {knobs[0]}")
        for name, knobs in missing.items()
        if knobs
    ]
