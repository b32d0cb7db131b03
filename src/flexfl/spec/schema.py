"""What a person may set, section by section.

`parse` checks every section on its own and then what holds between them, so that one error lists every
fault. No code of the user's is imported here: that is for `spec.build`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from flexfl.control import POLICIES
from flexfl.errors import ALIASES, Fault, InputError, nearest
from flexfl.parameters import KNOBS, faults_of
from flexfl.spec import sections as parts
from flexfl.spec.budgets import BudgetSpec
from flexfl.spec.clock import ClockSpec
from flexfl.spec.sections import ControlSpec, DataSpec, EngineSpec, decides, members

_MOVED = {"deploy.values": 'write compress.uplink = { kind = "rounded", values = "float16" } instead'}
"""Settings that are now elsewhere: the remedy."""


_ALWAYS = {
    "compute": "every client computes in every iteration",
    "uplink": "clients send everything in every iteration",
    "downlink": "the server sends everything in every iteration",
}


class Spec(BaseModel):
    """One run, whole."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    data: parts.DataSpec = parts.DataSpec()
    model: parts.ModelSpec = parts.ModelSpec()
    train: parts.TrainSpec = parts.TrainSpec()
    budget: BudgetSpec = BudgetSpec()
    control: parts.ControlSpec = parts.ControlSpec()
    costs: parts.CostsSpec = parts.CostsSpec()
    clock: ClockSpec = ClockSpec()
    compress: parts.CompressSpec = parts.CompressSpec()
    track: parts.TrackSpec = parts.TrackSpec({})
    record: parts.RecordSpec = parts.RecordSpec()
    engine: parts.EngineSpec = parts.EngineSpec()
    deploy: parts.DeploySpec = parts.DeploySpec()

    def notes(self) -> list[str]:
        """Return what the run will do that its settings do not show: knobs left alone, budgets not kept.

        Nothing is wrong with it, and a comparison of policies with the same budgets needs it; but it is
        said, by the command line, in the summary and in reports.
        """
        notes: list[str] = []
        unused: dict[str, list[str]] = {}
        for knob in KNOBS:
            policy = (getattr(self.control, knob) or {"policy": self.control.policy})["policy"]
            if not decides(policy, knob):
                notes.append(f"{policy} does not decide for {knob}: {_ALWAYS[knob]}")
            limited = getattr(self.budget, knob) not in (None, math.inf)
            if limited and not getattr(POLICIES.members.get(policy), "keeps_budgets", True):
                unused.setdefault(policy, []).append(f"budget.{knob}")
        for policy, budgets in unused.items():
            listed = "the budgets" if len(budgets) == len(KNOBS) else " and ".join(budgets)
            them = "it" if len(budgets) == 1 else "them"
            notes.append(f"{policy} does not use {listed}: reports show {them} beside what is spent")
        return notes

    def plain(self) -> dict[str, Any]:
        """Return it as TOML has it; left out are settings that are not set, and some by default."""
        plain = self.model_dump(exclude_none=True)
        for name in ("clock", "compress", "track", "deploy"):
            if getattr(self, name) == Spec.model_fields[name].default:
                del plain[name]
        for name in ("schedule", "average", "local"):
            if getattr(self.train, name) == getattr(Spec.model_fields["train"].default, name):
                del plain["train"][name]
        return plain


def parse(given: Mapping[str, Any], *, where: str = "the spec") -> Spec:
    """Return a valid spec.

    Args:
        given: sections with their settings, as TOML has them.
        where: what to call it in messages.

    Raises:
        InputError: lists every fault.
    """
    faults: list[Fault] = []
    sections: dict[str, BaseModel] = {}
    for name, content in given.items():
        if name not in Spec.model_fields:
            place = None if isinstance(content, Mapping) else place_of(name)
            remedy = f"write {place}, below its section" if place else nearest(name, Spec.model_fields)
            faults.append(Fault(name, "is not a section of a spec", content, remedy))
        elif not isinstance(content, Mapping):
            faults.append(Fault(name, "must be a table", content, f"write [{name}] and its keys below"))
        elif name == "clock" and not content:
            remedy = 'write overhead = "50 ms" where costs are in seconds, or iteration = "30 s"'
            faults.append(Fault(name, "must say what takes time", content, remedy))
    for name, field in Spec.model_fields.items():
        content = given.get(name, {})
        section: Any = field.annotation
        try:
            sections[name] = section.model_validate(content if isinstance(content, Mapping) else {})
        except ValidationError as error:
            found = faults_of(error, name, section.model_fields)
            faults += [replace(fault, remedy=_remedy(fault)) for fault in found]
    faults += cross_faults(sections)
    if faults:
        raise InputError(faults, where)
    return Spec(**sections)  # type: ignore[arg-type]


def _remedy(fault: Fault) -> str:
    """Return the remedy, which for a key that belongs to another section names that one."""
    section, _, key = fault.field.partition(".")
    misplaced = fault.rule == "is not a key here" or fault.rule.startswith("is not a parameter of ")
    place = place_of(key) if misplaced else None
    if fault.field in _MOVED:
        return _MOVED[fault.field]
    if section == "model" and misplaced and fault.remedy.startswith("known: "):
        return f"settings of the network are options: write model.options.{key}"
    return f"did you mean {place}?" if place and not place.startswith(f"{section}.") else fault.remedy


def place_of(key: str) -> str | None:
    """Return the full name of a setting, by its last part or by what others call it.

    >>> place_of("iterations"), place_of("lr"), place_of("tradeoff"), place_of("uplink"), place_of("name")
    ('train.iterations', 'train.learning_rate', 'control.tradeoff', 'budget.uplink', None)
    """
    for wanted in (key, ALIASES.get(key.lower(), "")):
        if wanted == "name":  # of the data or of the model
            continue
        for section in ("train", "budget", "data", "control", "model", "engine", "deploy", "clock"):
            model: Any = Spec.model_fields[section].annotation
            parameters = {name for policy in POLICIES.members for name in POLICIES.parameters(policy)}
            if wanted in model.model_fields or (section == "control" and wanted in parameters):
                return f"{section}.{wanted}"
    return None


def keyword_fault(name: str, value: Any) -> Fault:
    """Return the fault of a keyword that is not a section, or not given as a table."""
    if name in Spec.model_fields:
        section: Any = Spec.model_fields[name].annotation
        remedy = f"for example {name}={{{next(iter(section.model_fields))!r}: …}}"
        return Fault(name, "must be a table of settings", value, remedy)
    place = name if name.partition(".")[0] in Spec.model_fields else place_of(name)
    if place is None:
        return Fault(name, "is not a section of a spec", value, nearest(name, Spec.model_fields))
    section, _, key = place.partition(".")
    return Fault(
        name, f"is a setting of the section {section}", value, f"write {section}={{{key!r}: {value!r}}}"
    )


_ONE_SERVER = "must be one number: there is one server"


def cross_faults(sections: Mapping[str, Any]) -> list[Fault]:
    """Return what is wrong between the sections that are valid on their own."""
    data, control, budget, engine = (sections.get(name) for name in ("data", "control", "budget", "engine"))
    faults: list[Fault] = []
    by_client: dict[str, list[float]] = {}
    for path, family, table in members(sections):
        by_client |= {f"{path}.{name}": found for name, found in family.lists_by_client(table).items()}
    if isinstance(engine, EngineSpec):
        faults += _kernels(engine)
    if isinstance(clock := sections.get("clock"), ClockSpec):
        faults += clock.faults()
    if isinstance(budget, BudgetSpec):
        by_client |= {f"budget.{knob}": value for knob, value in budget if isinstance(value, list)}
        by_client |= {
            f"budget.{name}.limit": table["limit"]
            for name, table in budget.joint.items()
            if isinstance(table.get("limit"), list)
        }
        if budget.shared("downlink"):
            faults.append(Fault("budget.downlink", _ONE_SERVER, budget.downlink, "give one number"))
    if isinstance(control, ControlSpec):
        faults += _needed_by_knob(control)
        if isinstance(budget, BudgetSpec):
            faults += _shared_queues(by_client, budget)
    for_server = {path: values for path, values in by_client.items() if ".downlink" in path}
    faults += [Fault(path, _ONE_SERVER, values, "give one number") for path, values in for_server.items()]
    if isinstance(data, DataSpec):
        if isinstance(data.weights, list):
            by_client["data.weights"] = data.weights
            faults += _weights(data.weights)
        if isinstance(budget, BudgetSpec):
            faults += budget.faults(data.clients)
        rule = f"must have one number for each of the {data.clients} clients"
        faults += [
            Fault(path, rule, len(values), "adjust the list or data.clients")
            for path, values in by_client.items()
            if path not in for_server and len(values) != data.clients
        ]
    return faults


def _kernels(engine: EngineSpec) -> list[Fault]:
    """Return what is wrong with the engine: Numba works on the host, and so do files."""
    by_torch = engine.device != "cpu" or engine.kernels == "torch"
    if engine.kernels == "numba" and engine.device != "cpu":
        rule = f"must be auto or torch on {engine.device}"
        return [Fault("engine.kernels", rule, engine.kernels, "leave it out")]
    if engine.residuals == "file" and by_torch:
        rule = "must be memory where torch's kernels are used"
        return [Fault("engine.residuals", rule, engine.residuals, 'use device = "cpu" with numba\'s kernels')]
    return []


def _weights(weights: list[float]) -> list[Fault]:
    total = sum(weights)
    if abs(total - 1.0) <= 1e-6 and min(weights) >= 0:
        return []
    return [Fault("data.weights", "must be ≥ 0 and sum to 1", total, "divide each by their sum")]


def _shared_queues(by_client: Mapping[str, list[float]], budget: BudgetSpec) -> list[Fault]:
    """Return lists for a queue that clients share, which has one length."""
    rule = "must be one number where the budget is shared"
    return [
        Fault(path, rule, values, "give one number for the group")
        for path, values in by_client.items()
        for name, knob in [path.split(".")[-2:]]
        if path.startswith("control.") and name in ("initial_queue", "floor") and budget.shared(knob)
    ]


def _needed_by_knob(control: ControlSpec) -> list[Fault]:
    """Return settings without a default that are given by knob, but not for every knob that needs them."""
    tables = {
        field.removeprefix("control").strip("."): table for field, _, table in members({"control": control})
    }
    faults = []
    for only, table in tables.items():
        policy = table["policy"]
        used = [only] if only else [knob for knob in KNOBS if knob not in tables]
        for name, entry in (POLICIES.parameters(policy) if policy in POLICIES.members else {}).items():
            value = table.get(name)
            if not entry.needed or entry.rule is None or not isinstance(value, Mapping):
                continue
            if missing := [knob for knob in used if knob in entry.rule.knobs and knob not in value]:
                path, rule = f"control.{only}.{name}".replace("..", "."), f"is needed by {policy}"
                faults.append(Fault(path, f"{rule} for {' and '.join(missing)}", value, "add it there"))
    return faults
