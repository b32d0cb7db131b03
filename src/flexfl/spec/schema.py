"""What a person may set, section by section; frozen, unknown keys refused.

`parse` checks every section on its own and then what holds between them, so that one error
lists every fault.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from flexfl.errors import Fault, InputError
from flexfl.spec import checks
from flexfl.spec.budget import BudgetSpec
from flexfl.spec.costs import CostsSpec
from flexfl.spec.names import nearest

POLICIES = ("online", "randomised", "full", "periodic", "top-k", "fixed-prob")


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class DataSpec(Section):
    """name: a dataset that ships or is installed, or "file" with a path to an .npz."""

    name: str = "fashion-mini"
    path: str | None = None
    partition: str = "one-class"
    clients: Annotated[int, checks.whole(1, "give the number of clients N")] = 100
    weights: Literal["equal", "samples"] | list[float] = "equal"
    augment: Literal["none", "crop-flip"] = "none"


class ModelSpec(Section):
    """name: a network that ships, or "module:function" of one's own; options go to it."""

    name: str = "mlp"
    options: dict[str, Any] = Field(default_factory=dict)


class TrainSpec(Section):
    iterations: Annotated[int, checks.whole(1, "give the number of iterations T")] = 10_000
    batch_size: Annotated[int, checks.whole(1, "the paper has 16")] = 16
    learning_rate: checks.PositiveFloat = 0.1
    seed: Annotated[int, checks.whole(0, "any number from 0 on")] = 1
    evaluate_every: Annotated[int, checks.whole(1, "the paper evaluates every 50 iterations")] = 50


def _policy(value: Any) -> Any:
    for name in value.values() if isinstance(value, Mapping) else [value]:
        if name not in POLICIES:
            raise checks.fault(f"must be one of {', '.join(POLICIES)}", name, nearest(name, POLICIES))
    if isinstance(value, Mapping):
        for knob in value:
            if knob not in checks.KNOBS:
                raise checks.fault("takes a table by compute, uplink and downlink", knob, "rename that key")
    return value


class ControlSpec(Section):
    """policy: one for all three knobs, or a table that takes each knob's rule from a policy."""

    policy: Annotated[str | dict[str, str], BeforeValidator(_policy)] = "online"
    tradeoff: checks.Tradeoff = 0.02
    initial_queue: checks.InitialQueue = 1.0
    floor: checks.Floor = Field(default_factory=lambda: {"compute": 0.0, "uplink": 0.001, "downlink": 0.001})
    send_ratio: checks.Ratio = None
    send_every: Annotated[int | None, checks.whole(1, "m: send in every m-th iteration")] = None
    compute_prob: checks.Prob = None

    def policy_of(self, knob: str) -> str:
        return self.policy.get(knob, "online") if isinstance(self.policy, dict) else self.policy


class RecordSpec(Section):
    """clients: also keep every metric by client (N numbers each, for every iteration)."""

    clients: bool = False


class EngineSpec(Section):
    device: Literal["cpu"] = "cpu"
    dtype: Literal["float32", "float64"] = "float32"
    threads: Annotated[int | None, checks.whole(1, "leave it out to use all cores")] = None
    checkpoint_every: Annotated[int, checks.whole(1, "iterations between two checkpoints")] = 500


class Spec(BaseModel):
    """One run, whole."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    data: DataSpec = DataSpec()
    model: ModelSpec = ModelSpec()
    train: TrainSpec = TrainSpec()
    budget: BudgetSpec = BudgetSpec()
    control: ControlSpec = ControlSpec()
    costs: CostsSpec = CostsSpec()
    record: RecordSpec = RecordSpec()
    engine: EngineSpec = EngineSpec()

    def plain(self) -> dict[str, Any]:
        """As TOML would have it: what is not set is left out."""
        return self.model_dump(exclude_none=True)


def parse(given: Mapping[str, Any], *, where: str = "the spec") -> Spec:
    """A valid spec, or one `InputError` that lists every fault."""
    faults: list[Fault] = []
    sections: dict[str, BaseModel] = {}
    for name, content in given.items():
        if name not in Spec.model_fields:
            faults.append(
                Fault(name, "is not a section of a spec", content, nearest(name, Spec.model_fields))
            )
        elif not isinstance(content, Mapping):
            faults.append(Fault(name, "must be a table", content, f"write [{name}] and its keys below"))
    for name, field in Spec.model_fields.items():
        content = given.get(name, {})
        section: Any = field.annotation
        try:
            sections[name] = section.model_validate(content if isinstance(content, Mapping) else {})
        except ValidationError as error:
            faults += [_fault(name, section, entry) for entry in error.errors(include_url=False)]
    faults += _between_sections(sections)
    if faults:
        raise InputError(faults, where)
    return Spec(**sections)  # type: ignore[arg-type]


def _fault(section: str, model: Any, entry: Any) -> Fault:
    """A pydantic error in the project's words."""
    path = ".".join([section, *(str(part) for part in entry["loc"] if part not in _INTERNAL)])
    kind, value, context = entry["type"], entry["input"], entry.get("ctx", {})
    if kind == "fault":
        return Fault(path, context["rule"], context["value"], context["remedy"])
    if kind == "extra_forbidden":
        return Fault(path, "is not a key here", value, nearest(entry["loc"][-1], model.model_fields))
    if kind == "literal_error":
        return Fault(path, f"must be {context['expected']}", value, "choose one of these")
    if kind == "missing":
        return Fault(path, "is needed", None, "add it")
    wanted = _TYPES.get(kind)
    return Fault(path, f"must be {wanted}" if wanted else entry["msg"].lower(), value)


_INTERNAL = {"str", "list[float]", "literal['equal','samples']", "dict[str,str]"}
_TYPES = {
    "string_type": "text in quotes",
    "bool_type": "true or false",
    "dict_type": "a table",
    "list_type": "a list",
    "float_type": "a number",
    "model_type": "a table",
}


def _between_sections(sections: Mapping[str, Any]) -> list[Fault]:
    """Faults that only show when two settings are held side by side."""
    faults: list[Fault] = []
    data, control, budget = (sections.get(name) for name in ("data", "control", "budget"))
    if isinstance(data, DataSpec):
        lengths: dict[str, Any] = {}
        if isinstance(data.weights, list):
            lengths["data.weights"] = data.weights
            total = sum(data.weights)
            if abs(total - 1.0) > 1e-6 or min(data.weights) < 0:
                faults.append(
                    Fault("data.weights", "must be ≥ 0 and sum to 1", total, "divide each by their sum")
                )
        if isinstance(budget, BudgetSpec):
            faults += budget.faults(data.clients)
            lengths |= budget.by_client()
        if isinstance(control, ControlSpec):
            lengths |= _lists(control, "control")
        if isinstance(costs := sections.get("costs"), CostsSpec):
            lengths |= costs.by_client()
        for path, values in lengths.items():
            if ".downlink" in path:
                faults.append(Fault(path, "must be one number: there is one server", values))
            elif len(values) != data.clients:
                rule = f"must have one number for each of the {data.clients} clients"
                faults.append(Fault(path, rule, len(values), "adjust the list or data.clients"))
    if isinstance(control, ControlSpec):
        faults += _needed(control)
        if isinstance(budget, BudgetSpec):
            faults += _shared(control, budget)
    return faults


def _lists(control: ControlSpec, section: str) -> dict[str, list[float]]:
    found = {}
    for name, value in control:
        for knob, entry in value.items() if isinstance(value, dict) else [("", value)]:
            if isinstance(entry, list):
                found[f"{section}.{name}" + (f".{knob}" if knob else "")] = entry
    return found


def _shared(control: ControlSpec, budget: BudgetSpec) -> list[Fault]:
    """A queue that several clients share has one length."""
    return [
        Fault(f"control.{name}.{knob}", "must be one number where the budget is shared", entry)
        for name, table in (("initial_queue", control.initial_queue), ("floor", control.floor))
        if isinstance(table, dict)
        for knob, entry in table.items()
        if isinstance(entry, list) and isinstance(getattr(budget, knob), dict)
    ]


def _needed(control: ControlSpec) -> list[Fault]:
    used = {knob: control.policy_of(knob) for knob in checks.KNOBS}
    sending = {used["uplink"], used["downlink"]}
    needs = {
        "send_ratio": sending & {"randomised", "top-k"},
        "send_every": sending & {"periodic"},
        "compute_prob": {used["compute"]} & {"fixed-prob"},
    }
    return [
        Fault(f"control.{name}", f"is needed by policy {min(policies)}", None, "add it")
        for name, policies in needs.items()
        if policies and getattr(control, name) is None
    ]
