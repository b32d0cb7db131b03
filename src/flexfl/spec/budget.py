"""Budgets: a number, one for each client, or shared by groups of clients."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict

from flexfl.control import Budget
from flexfl.errors import Fault
from flexfl.parameters import Rule, fault

_MOST_CLIENTS = 10_000_000
_RANGE = re.compile(r"(\d+)-(\d+)")


def _rule(note: str = "", *, per_client: bool = False) -> Rule:
    return Rule(f"must be > 0{note}", lambda limit: limit > 0, "leave it out for no limit", per_client)


_LIMIT, _GROUP_LIMIT, _OTHERS = _rule(per_client=True), _rule(" (limit)"), _rule(" (others)")


def _client_budget(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return _LIMIT.check(value)
    if unknown := set(value) - {"shared", "others"}:
        raise fault("takes the keys shared and others", min(unknown), "rename or remove that key")
    groups = value.get("shared")
    if not isinstance(groups, list) or not groups or not all(isinstance(group, Mapping) for group in groups):
        example = 'for example shared = [{clients = "0-9", limit = 0.1}]'
        raise fault("must list groups under shared", groups, example)
    table: dict[str, Any] = {"shared": [_group(group) for group in groups]}
    if value.get("others") is not None:
        table["others"] = _OTHERS.check(value["others"])
    return table


def _group(group: Mapping[str, Any]) -> dict[str, Any]:
    if set(group) != {"clients", "limit"}:
        raise fault("needs clients and limit in each group", sorted(group), "give just these two")
    clients = group["clients"]
    if isinstance(clients, str):
        matched = _RANGE.fullmatch(clients.strip())
        if not matched or not 0 <= int(matched[2]) - int(matched[1]) < _MOST_CLIENTS:
            raise fault("must name clients as a list or a range", clients, 'for example "0-9"')
        clients = list(range(int(matched[1]), int(matched[2]) + 1))
    if not isinstance(clients, list) or not clients or not all(type(n) is int and n >= 0 for n in clients):
        raise fault("must name clients by whole numbers from 0", clients, 'a list or a range "0-9"')
    return {"clients": clients, "limit": _GROUP_LIMIT.check(group["limit"])}


_ClientBudget = Annotated[Any, BeforeValidator(_client_budget)]
_ServerBudget = Annotated[Any, BeforeValidator(lambda v: v if isinstance(v, Mapping) else _LIMIT.check(v))]


class BudgetSpec(BaseModel):
    """The average cost of an iteration that each client (compute, uplink) and the server may have.

    A shared budget limits the sum over its group; `others` is for clients in no group.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    compute: _ClientBudget = None
    uplink: _ClientBudget = None
    downlink: _ServerBudget = None  # `cross_checks` refuses to share it

    def shared(self, knob: str) -> bool:
        """Return whether groups of clients share the budget of that knob."""
        return isinstance(getattr(self, knob), Mapping)

    def faults(self, clients: int) -> list[Fault]:
        """Return what is wrong with groups for so many clients."""
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

    def build(self, knob: str, clients: int) -> Budget | None:
        """Return the budget of a knob; None without any limit."""
        value = getattr(self, knob)
        if value is None:
            return None
        if not isinstance(value, dict):
            return Budget(np.asarray(value, dtype=float))
        members = np.full(clients, -1)
        limits = []
        for queue, group in enumerate(value["shared"]):
            members[group["clients"]] = queue
            limits.append(group["limit"])
        alone = np.flatnonzero(members < 0)
        members[alone] = len(limits) + np.arange(len(alone))
        limits += [value.get("others", math.inf)] * len(alone)
        return Budget(np.array(limits), members)
