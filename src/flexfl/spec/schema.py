"""What a person may set, section by section; frozen, unknown keys refused.

`parse` checks every section on its own and then what holds between them, so that one error
lists every fault.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from flexfl.errors import Fault, InputError
from flexfl.spec.between import faults_between
from flexfl.spec.budget import BudgetSpec
from flexfl.spec.costs import CostsSpec
from flexfl.spec.names import nearest
from flexfl.spec.sections import (
    ControlSpec,
    DataSpec,
    DeploySpec,
    EngineSpec,
    ModelSpec,
    RecordSpec,
    TrainSpec,
)


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
    deploy: DeploySpec = DeploySpec()

    def plain(self) -> dict[str, Any]:
        """As TOML would have it: what is not set is left out, and so is [deploy] with nothing in it."""
        plain = self.model_dump(exclude_none=True)
        if self.deploy == DeploySpec():
            del plain["deploy"]
        return plain


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
    faults += faults_between(sections)
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
    return Fault(path, f"must be {wanted}" if wanted else entry["msg"].lower(), value, "correct it")


_INTERNAL = {"str", "dict[str,str]"}
_TYPES = {
    "string_type": "text in quotes",
    "bool_type": "true or false",
    "dict_type": "a table",
    "list_type": "a list",
    "float_type": "a number",
    "model_type": "a table",
}
