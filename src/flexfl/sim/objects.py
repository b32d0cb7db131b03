"""What a person passes in Python beside a spec: how the resolved spec names it, and what it is."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from torch import nn

from flexfl.compress import Compressor
from flexfl.control import Policy
from flexfl.costs import CostModel
from flexfl.data.federated import Federated
from flexfl.data.partition import FIELD, PARTITIONS
from flexfl.errors import Fault, InputError
from flexfl.identity import Identity, objects_of
from flexfl.learning_rate import Schedule
from flexfl.local import LocalWork
from flexfl.models.build import Accuracy, Loss
from flexfl.parameters import plain
from flexfl.registry import GIVEN, is_given, is_import_path
from flexfl.sim.engine import Problem
from flexfl.spec.load import load_spec, merged
from flexfl.spec.schema import Spec, parse

Given = TypeVar("Given")


@dataclass
class Objects:
    """What was passed in Python instead of being named in the spec; the model as a copy, which is trained."""

    model: nn.Module | None = None
    data: Federated | None = None
    loss: Loss | None = None
    accuracy: Accuracy | None = None
    policy: Policy | None = None
    costs: dict[str, CostModel] = field(default_factory=dict)
    compressors: dict[str, Compressor] = field(default_factory=dict)
    times: dict[str, CostModel] = field(default_factory=dict)
    local: LocalWork | None = None
    schedule: Schedule | None = None


def copied(given: Given) -> Given:
    """Return a copy, so that a module that is passed twice begins twice from where it is."""
    try:
        return copy.deepcopy(given)
    except (RuntimeError, TypeError) as error:
        rule, remedy = f"must be possible to copy ({error})", "make its tensors leaves, or pass a new one"
        raise InputError([Fault("model", rule, type(given).__name__, remedy)], "the call") from error


def resolve(
    spec: Spec | str | Path | None, sections: Mapping[str, Mapping[str, Any]], objects: Objects
) -> tuple[Spec, Objects]:
    """Return the resolved spec, in which objects passed in Python are named, and these objects."""
    base = load_spec(str(spec)) if isinstance(spec, str | Path) else spec
    given: dict[str, Any] = {} if base is None else base.plain()
    for name, table in sections.items():
        table = dict(table)
        for knob, value in list(table.items()):
            if name == "costs" and isinstance(value, CostModel):
                objects.costs[knob], table[knob] = copy.deepcopy(value), _named("kind", value)
            elif name == "clock" and isinstance(value, CostModel):
                objects.times[knob], table[knob] = copy.deepcopy(value), _named("kind", value)
            elif name == "compress" and isinstance(value, Compressor):
                objects.compressors[knob], table[knob] = copy.deepcopy(value), _named("kind", value)
            elif name == "train" and knob == "local" and isinstance(value, LocalWork):
                objects.local, table[knob] = copy.deepcopy(value), _named("kind", value)
            elif name == "train" and knob == "schedule" and isinstance(value, Schedule):
                objects.schedule, table[knob] = copy.deepcopy(value), _named("kind", value)
            elif name == "control" and knob == "policy" and isinstance(value, Policy):
                objects.policy = copy.deepcopy(value)
                table |= _named("policy", value)
        given = merged(given, {name: plain(table)})
    if objects.model is not None:
        given["model"] = {"name": GIVEN + _name_of(objects.model)}
    if objects.data is not None:
        passed = {"name": f"{GIVEN}Federated", "clients": objects.data.clients, "partition": f"{GIVEN}parts"}
        given["data"] = {**given.get("data", {}), **passed}
    return parse(given, where="the settings"), objects


def _named(key: str, thing: object) -> dict[str, Any]:
    """Return how a resolved spec names an object; what it is, is in the run's `objects`."""
    return {key: GIVEN + _name_of(thing)}


def _name_of(thing: object) -> str:
    return f"{type(thing).__module__}.{type(thing).__qualname__}"


def describe(spec: Spec, problem: Problem, objects: Objects) -> Identity:
    """Return what the spec does not say of a run: objects that were passed in, code of one's own, files."""
    given = [f"costs.{knob}" for knob in objects.costs] + [f"compress.{role}" for role in objects.compressors]
    given += [f"clock.{knob}" for knob in objects.times]
    given += ["policy"] if objects.policy is not None else []
    given += ["train.local"] if objects.local is not None else []
    given += ["schedule"] if objects.schedule is not None else []
    given += ["loss"] if objects.loss is not None else []
    given += ["accuracy"] if objects.accuracy is not None else []
    given += ["network"] if is_given(spec.model.name) or is_import_path(spec.model.name) else []
    parts: dict[str, object] = {
        **problem.setup.parts(),
        "network": problem.model.module,
        "loss": problem.loss,
        "accuracy": problem.accuracy,
    }
    kind = spec.data.partition if isinstance(spec.data.partition, str) else spec.data.partition["kind"]
    if objects.data is None and is_import_path(kind):
        parts["data.partition"] = PARTITIONS.member(kind, FIELD)
    described = objects_of(parts, given)
    return described if objects.data is None else described | objects.data.identity()
