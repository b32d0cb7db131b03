"""What a person may set, section by section.

`parse` checks every section on its own and then what holds between them, so that one error lists every
fault. No code of the user's is imported here: that is for `spec.build`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from flexfl.errors import Fault, InputError, nearest
from flexfl.parameters import faults_of
from flexfl.spec import sections as parts
from flexfl.spec.budget import BudgetSpec
from flexfl.spec.cross_checks import cross_faults

_MOVED = {"deploy.values": 'write compress.uplink = { kind = "rounded", values = "float16" } instead'}
"""Settings that are now elsewhere: the remedy."""


class Spec(BaseModel):
    """One run, whole."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    data: parts.DataSpec = parts.DataSpec()
    model: parts.ModelSpec = parts.ModelSpec()
    train: parts.TrainSpec = parts.TrainSpec()
    budget: BudgetSpec = BudgetSpec()
    control: parts.ControlSpec = parts.ControlSpec()
    costs: parts.CostsSpec = parts.CostsSpec()
    compress: parts.CompressSpec = parts.CompressSpec()
    track: parts.TrackSpec = parts.TrackSpec({})
    record: parts.RecordSpec = parts.RecordSpec()
    engine: parts.EngineSpec = parts.EngineSpec()
    deploy: parts.DeploySpec = parts.DeploySpec()

    def plain(self) -> dict[str, Any]:
        """Return it as TOML has it; left out are settings that are not set, and some sections by default."""
        plain = self.model_dump(exclude_none=True)
        for name in ("compress", "track", "deploy"):
            if getattr(self, name) == Spec.model_fields[name].default:
                del plain[name]
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
            remedy = nearest(name, Spec.model_fields)
            faults.append(Fault(name, "is not a section of a spec", content, remedy))
        elif not isinstance(content, Mapping):
            faults.append(Fault(name, "must be a table", content, f"write [{name}] and its keys below"))
    for name, field in Spec.model_fields.items():
        content = given.get(name, {})
        section: Any = field.annotation
        try:
            sections[name] = section.model_validate(content if isinstance(content, Mapping) else {})
        except ValidationError as error:
            found = faults_of(error, name, section.model_fields)
            faults += [replace(fault, remedy=_MOVED.get(fault.field, fault.remedy)) for fault in found]
    faults += cross_faults(sections)
    if faults:
        raise InputError(faults, where)
    return Spec(**sections)  # type: ignore[arg-type]
