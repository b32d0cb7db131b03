"""Budgets in a spec: of a knob, shared by clients, and over several knobs, clients and the server."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, model_validator
from pydantic_core import PydanticCustomError

from flexfl.control import Budget, JointBudget
from flexfl.costs import COMPUTE_COSTS, MESSAGE_COSTS
from flexfl.errors import Fault, InputError, nearest
from flexfl.parameters import KNOBS, Rule, fault, is_number
from flexfl.registry import Family, for_pydantic
from flexfl.results.accounts import limits_of

_MOST_CLIENTS = 10_000_000
_RANGE = re.compile(r"(\d+)-(\d+)")


def _rule(note: str = "", *, per_client: bool = False) -> Rule:
    return Rule(f"must be > 0{note}", lambda limit: limit > 0, "leave it out for no limit", per_client)


_LIMIT, _GROUP_LIMIT, _OTHERS = _rule(per_client=True), _rule(" (limit)"), _rule(" (others)")


def _client_budget(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return _LIMIT.check(value)
    if unknown := set(value) - {"shared", "others"}:
        remedy = "rename or remove that key; a list gives one number for each client"
        raise fault("takes the keys shared and others", min(unknown, key=str), remedy)
    groups = value.get("shared")
    if not isinstance(groups, list) or not groups or not all(isinstance(group, Mapping) for group in groups):
        example = 'for example shared = [{clients = "0-9", limit = 0.1}]'
        raise fault("must list groups under shared", groups, example)
    table: dict[str, Any] = {"shared": [_group(group) for group in groups]}
    if value.get("others") is not None:
        table["others"] = _OTHERS.check(value["others"])
    return table


def _group(group: Mapping[str, Any], *, allow_none: bool = False) -> dict[str, Any]:
    if set(group) != {"clients", "limit"}:
        raise fault("needs clients and limit in each group", sorted(group), "give just these two")
    clients = group["clients"]
    if not clients and isinstance(clients, list) and allow_none:
        return {"clients": [], "limit": _GROUP_LIMIT.check(group["limit"])}
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

    A shared budget limits the sum over its group; `others` is for clients in no group. A table of another
    name is a joint budget: `limit` for each client, or `shared` groups that may have the server in them, and
    by knob what a decision costs: a kind of cost, or so many times the knob's own.

    Attributes:
        compute: of each client: a number, a list with one for each client, or a table with groups that share.
        uplink: of each client, in the same ways.
        downlink: of the server: a number.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    compute: _ClientBudget = None
    uplink: _ClientBudget = None
    downlink: _ServerBudget = None  # `cross_checks` refuses to share it

    @model_validator(mode="before")
    @classmethod
    def _resolve(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        named = {name: value for name, value in given.items() if name not in KNOBS}
        return dict(given) | for_pydantic("budget", lambda: _all_joint(named))

    @property
    def joint(self) -> dict[str, dict[str, Any]]:
        """The joint budgets, by name."""
        return dict(self.model_extra or {})

    def shared(self, knob: str) -> bool:
        """Return whether groups of clients share the budget of that knob."""
        return isinstance(getattr(self, knob), Mapping)

    def faults(self, clients: int) -> list[Fault]:
        """Return what is wrong with groups for so many clients."""
        found = []
        for name, value in self:
            if not isinstance(value, dict) or name == "downlink" or "shared" not in value:
                continue
            named = [client for group in value["shared"] for client in _clients(group, clients)]
            if max(named, default=0) >= clients:
                rule = f"may name clients from 0 to {clients - 1}"
                found.append(Fault(f"budget.{name}", rule, max(named), "adjust the group or data.clients"))
            if twice := [client for client, times in Counter(named).items() if times > 1]:
                rule = "may name a client in one group only"
                found.append(Fault(f"budget.{name}", rule, min(twice), "remove it from the other"))
        return found

    def build(self, knob: str, clients: int) -> Budget | None:
        """Return the budget of a knob; None without any limit."""
        value = getattr(self, knob)
        if value is None:
            return None
        if not isinstance(value, dict):
            return Budget(np.asarray(value, dtype=float))
        return Budget(*limits_of(value, clients))

    def build_joint(self, clients: int) -> dict[str, JointBudget]:
        """Return the joint budgets, by name."""
        return {name: _build_joint(name, table, clients) for name, table in self.joint.items()}


# Joint budgets -------------------------------------------------------------------------------------

_FACTOR = Rule("must be > 0, so many times the knob's own cost", lambda factor: factor > 0, "or name a kind")
_JOINT_KEYS = ("limit", "shared", *KNOBS)


def _all_joint(tables: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return all joint budgets, resolved; or raise with all that is wrong with any."""
    found, faults = {}, list[Fault]()
    for name, table in tables.items():
        try:
            found[name] = _joint(name, table)
        except InputError as error:
            faults += error.faults
    if faults:
        raise InputError(faults)
    return found


def _joint(name: str, table: Any) -> dict[str, Any]:
    """Return a joint budget, resolved.

    Raises:
        InputError: lists what is wrong with it.
    """
    field = f"budget.{name}"
    if not isinstance(table, Mapping):
        remedy = nearest(name, KNOBS) or "a budget over several knobs is a table"
        raise InputError([Fault(field, "is not a key here", table, remedy)])
    faults = [
        Fault(f"{field}.{key}", "is not a key here", table[key], nearest(key, _JOINT_KEYS))
        for key in table
        if key not in _JOINT_KEYS
    ]
    found: dict[str, Any] = {}
    if ("limit" in table) == ("shared" in table):
        example = 'limit = 0.3 for each client, or shared = [{clients = "all", server = true, limit = 5}]'
        faults.append(Fault(field, "needs either limit or shared", sorted(table), f"for example {example}"))
    if not any(knob in table for knob in KNOBS):
        rule, remedy = "must say what it counts", "for example compute = 1, uplink = 2"
        faults.append(Fault(field, rule, sorted(table), remedy))
    for key, value in table.items():
        try:
            if key in KNOBS:
                found[key] = _joint_cost(f"{field}.{key}", key, value)
            elif key in ("limit", "shared"):
                found[key] = _LIMIT.check(value) if key == "limit" else _joint_groups(value)
        except InputError as error:
            faults += error.faults
        except PydanticCustomError as error:
            details = error.context or {}
            faults.append(Fault(f"{field}.{key}", details["rule"], details["value"], details["remedy"]))
    if "downlink" in table and not any(group["server"] for group in found.get("shared", [])):
        rule, remedy = "is the server's, and no group has it", "add server = true to a group of shared"
        faults.append(Fault(f"{field}.downlink", rule, table["downlink"], remedy))
    if faults:
        raise InputError(faults)
    return found


def _family(knob: str) -> Family:
    return COMPUTE_COSTS if knob == "compute" else MESSAGE_COSTS


def _joint_cost(field: str, knob: str, value: Any) -> Any:
    """Return a factor, or the resolved table of a cost."""
    if is_number(value):
        return _FACTOR.check(value)
    found = _family(knob).resolve(value, field)
    if found["kind"] == "measured":
        remedy = f"measure costs.{knob}, and give a number here: so many times that; for example {knob} = 1"
        raise InputError([Fault(f"{field}.kind", "is for a knob's own cost only", "measured", remedy)])
    return found


def _joint_groups(groups: Any) -> list[dict[str, Any]]:
    if not isinstance(groups, list) or not groups or not all(isinstance(group, Mapping) for group in groups):
        example = 'for example shared = [{clients = "all", server = true, limit = 5}]'
        raise fault("must list groups under shared", groups, example)
    found = []
    for group in groups:
        server, rest = group.get("server", False), {key: group[key] for key in group if key != "server"}
        if not isinstance(server, bool):
            raise fault("must be true or false (server)", server, "server = true counts its downlink")
        everyone = rest.get("clients") == "all"
        named = rest | ({"clients": [0]} if everyone else {"clients": []} if "clients" not in rest else {})
        one = _group(named, allow_none=server)
        found.append(one | {"server": server} | ({"clients": "all"} if everyone else {}))
    if sum(group["server"] for group in found) > 1:
        raise fault("may have the server in one group only", groups, "remove it from the others")
    return found


def _clients(group: Mapping[str, Any], clients: int) -> list[int]:
    """Return the clients of a group, by number."""
    return list(range(clients)) if group["clients"] == "all" else group["clients"]


def _build_joint(name: str, table: Mapping[str, Any], clients: int) -> JointBudget:
    costs = {
        knob: _family(knob).make(table[knob], f"budget.{name}.{knob}")
        if isinstance(table[knob], Mapping)
        else float(table[knob])
        for knob in KNOBS
        if knob in table
    }
    if "limit" in table:
        limits = np.broadcast_to(np.asarray(table["limit"], dtype=float), clients).copy()
        return JointBudget(limits, costs, np.arange(clients))
    members, server, limits = np.full(clients, -1), -1, np.zeros(len(table["shared"]))
    for queue, group in enumerate(table["shared"]):
        members[_clients(group, clients)] = queue
        limits[queue] = group["limit"]
        server = queue if group["server"] else server
    return JointBudget(limits, costs, members, server)
