"""A spec as one of its clients sees it."""

from __future__ import annotations

from typing import Any

from flexfl.errors import Fault, InputError
from flexfl.spec.budget import BudgetSpec
from flexfl.spec.costs import MEASURED, CostsSpec
from flexfl.spec.names import is_import_path
from flexfl.spec.schema import Spec
from flexfl.spec.sections import ControlSpec


def own_settings(spec: Spec, client: int) -> Spec:
    """The spec in which whatever is given for each client is that of client n, as one number."""
    for_network(spec)
    sections = (spec.budget, spec.control, spec.costs)
    budget, control, costs = (_own(section.model_dump(exclude_none=True), client) for section in sections)
    return spec.model_copy(
        update={
            "budget": BudgetSpec.model_validate(budget),
            "control": ControlSpec.model_validate(control),
            "costs": CostsSpec.model_validate(costs),
        }
    )


def for_network(spec: Spec) -> None:
    """Refuse what clients that decide on their own cannot do."""
    faults = [
        Fault(
            f"budget.{knob}",
            "may not be shared in a deployment: nothing couples what sites decide",
            "shared",
            "give each client its own",
        )
        for knob in ("compute", "uplink")
        if isinstance(getattr(spec.budget, knob), dict)
    ]
    if faults:
        raise InputError(faults, "the spec")


def packages(spec: Spec) -> dict[str, str]:
    """The packages whose functions a spec calls, by setting."""
    named: dict[str, Any] = {"model.name": spec.model.name}
    named |= {f"costs.{knob}.kind": table["kind"] for knob, table in spec.costs}
    return {
        setting: name.partition(":")[0].partition(".")[0]
        for setting, name in named.items()
        if is_import_path(name)
    }


def for_simulation(spec: Spec) -> None:
    """Refuse what only a deployment has."""
    if faults := [
        Fault(f"costs.{knob}.kind", "is of deployments only: a simulation measures nothing", MEASURED, _OTHER)
        for knob, table in spec.costs
        if table["kind"] == MEASURED
    ]:
        raise InputError(faults, "the spec")


_OTHER = "choose another kind, or run it with flexfl deploy"


def _own(value: Any, client: int) -> Any:
    if isinstance(value, dict):
        return {key: _own(entry, client) for key, entry in value.items()}
    return value[client] if isinstance(value, list) else value
