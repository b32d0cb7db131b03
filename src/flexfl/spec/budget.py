"""Budgets: a number, one for each client, or shared by groups of clients."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict

from flexfl.arrays import FloatArray, IntArray
from flexfl.errors import Fault
from flexfl.spec import checks

_RULE, _REMEDY = "must be > 0", "leave it out for no limit"
_MOST_CLIENTS = 10_000_000
_RANGE = re.compile(r"(\d+)-(\d+)")


def _budget(value: Any) -> Any:
    if isinstance(value, Mapping):
        return value
    return checks.check_numbers(value, _RULE, lambda v: v > 0, _REMEDY)


def _client_budget(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return _budget(value)
    if unknown := set(value) - {"shared", "others"}:
        raise checks.fault("takes the keys shared and others", min(unknown), "rename or remove that key")
    groups = value.get("shared")
    if not isinstance(groups, list) or not groups or not all(isinstance(group, Mapping) for group in groups):
        raise checks.fault(
            "must list groups under shared", groups, 'for example shared = [{clients = "0-9", limit = 0.1}]'
        )
    table: dict[str, Any] = {"shared": [_group(group) for group in groups]}
    if value.get("others") is not None:
        table["others"] = checks.check_number(value["others"], f"{_RULE} (others)", lambda v: v > 0, _REMEDY)
    return table


def _group(group: Mapping[str, Any]) -> dict[str, Any]:
    if set(group) != {"clients", "limit"}:
        raise checks.fault("needs clients and limit in each group", sorted(group), "give just these two")
    clients = group["clients"]
    if isinstance(clients, str):
        matched = _RANGE.fullmatch(clients.strip())
        if not matched or not 0 <= int(matched[2]) - int(matched[1]) < _MOST_CLIENTS:
            raise checks.fault("must name clients as a list or a range", clients, 'for example "0-9"')
        clients = list(range(int(matched[1]), int(matched[2]) + 1))
    if not isinstance(clients, list) or not clients or not all(type(n) is int and n >= 0 for n in clients):
        raise checks.fault("must name clients by whole numbers from 0", clients, 'a list or a range "0-9"')
    limit = checks.check_number(group["limit"], f"{_RULE} (limit)", lambda v: v > 0, _REMEDY)
    return {"clients": clients, "limit": limit}


ClientBudget = Annotated[Any, BeforeValidator(_client_budget)]


@dataclass(frozen=True)
class QueueLayout:
    """Budgets of the queues, and the queue of each entity (None: each its own)."""

    budget: FloatArray
    members: IntArray | None


class BudgetSpec(BaseModel):
    """The average cost of an iteration that each client (compute, uplink) and the server may have.

    A shared budget limits the sum over its group; `others` is for clients in no group.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    compute: ClientBudget = None
    uplink: ClientBudget = None
    downlink: Annotated[Any, BeforeValidator(_budget)] = None

    def by_client(self) -> dict[str, list[float]]:
        """The budgets that are lists."""
        return {f"budget.{knob}": value for knob, value in self if isinstance(value, list)}

    def faults(self, clients: int) -> list[Fault]:
        """Groups that do not fit the clients."""
        found = []
        for knob, value in self:
            if not isinstance(value, dict) or knob == "downlink":
                continue
            named = [client for group in value["shared"] for client in group["clients"]]
            if max(named) >= clients:
                rule = f"may name clients from 0 to {clients - 1}"
                found.append(Fault(f"budget.{knob}", rule, max(named), "adjust the group or data.clients"))
            if twice := [client for client, times in Counter(named).items() if times > 1]:
                rule = "may name a client in one group only"
                found.append(Fault(f"budget.{knob}", rule, min(twice), "remove it from the other"))
        return found

    def layout(self, knob: str, shape: tuple[int, ...]) -> QueueLayout | None:
        """The queues of a knob of the clients, (N,), or of one of them, (); None without any limit."""
        value = getattr(self, knob)
        if value is None:
            return None
        if not isinstance(value, dict):
            return QueueLayout(np.broadcast_to(np.asarray(value, dtype=float), shape), None)
        members = np.full(shape, -1)
        budget = []
        for queue, group in enumerate(value["shared"]):
            members[group["clients"]] = queue
            budget.append(group["limit"])
        alone = np.flatnonzero(members < 0)
        members[alone] = len(budget) + np.arange(len(alone))
        budget += [value.get("others", math.inf)] * len(alone)
        return QueueLayout(np.array(budget), members)
