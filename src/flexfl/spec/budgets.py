"""Budgets in a spec: of a knob, shared by clients, and over several knobs, clients and the server."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from flexfl.control import Budget, JointBudget
from flexfl.costs import COMPUTE_COSTS, MESSAGE_COSTS
from flexfl.errors import Fault, InputError, nearest
from flexfl.parameters import KNOBS, Rule, as_number, fault, is_number, plain
from flexfl.registry import Family, for_pydantic
from flexfl.results.accounts import first_amount, limits_of
from flexfl.units import Amount, amount_of, parse_amount

_MOST_CLIENTS = 10_000_000
_RANGE = re.compile(r"(\d+)-(\d+)")


@dataclass(frozen=True)
class _Limit(Rule):
    """A rule for limits: numbers, or texts such as "50 MB / month", which stay as they are written."""

    def _numbers(self, value: Any, text: str) -> Any:
        value = plain(value)
        entries = value if isinstance(value, list) and self.per_client else [value]
        if not any(isinstance(entry, str) and not as_number(entry) for entry in entries):
            return super()._numbers(value, text)
        if not all(isinstance(entry, str) for entry in entries):
            raise fault(f"{text}, with a unit or without one for all", value, "write them in one way")
        amounts = [_amount(entry, text) for entry in entries]
        if len({(amount.unit, amount.per, amount.seconds) for amount in map(_comparable, amounts)}) > 1:
            raise fault("must have one unit and one period for all clients", value, 'as in ["2 MB", "5 MB"]')
        return value


def _amount(text: str, rule: str) -> Amount:
    try:
        amount = parse_amount(text)
    except ValueError as error:
        example = 'for example "50 MB / month", "2 kB / iteration" or "20 MB" for the whole run'
        raise fault(str(error), text, example) from error
    if not amount.value > 0:
        raise fault(rule, text, "leave it out for no limit")
    return amount


def _comparable(amount: Amount) -> Amount:
    return replace(amount, seconds=0.0) if math.isnan(amount.seconds) else amount


def _rule(note: str = "", *, per_client: bool = False) -> Rule:
    return _Limit(f"must be > 0{note}", lambda limit: limit > 0, "leave it out for no limit", per_client)


_LIMIT, _GROUP_LIMIT, _OTHERS = _rule(per_client=True), _rule(" (limit)"), _rule(" (others)")


def _same_period(groups: list[dict[str, Any]], others: Any = None) -> None:
    """Raise unless all limits of a shared budget have one unit and one period."""
    limits = [group["limit"] for group in groups] + ([] if others is None else [others])
    if len({(one.unit, one.per, one.seconds) for one in map(_comparable, map(amount_of, limits))}) > 1:
        raise fault("must have one unit and one period for all groups", limits, "write them in one way")


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
    _same_period(table["shared"], table.get("others"))
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
    """What each client (compute, uplink) and the server may spend.

    A number is the average cost of an iteration, in the paper's abstract costs. A text has the unit of
    the cost, and says what for: "2 kB / iteration", "20 MB" for the whole run, "50 MB / month".

    A shared budget limits the sum over its group; `others` is for clients in no group. A table of another
    name is a joint budget: `limit` for each client, or `shared` groups that may have the server in them, and
    by knob what a decision costs: a kind of cost, or so many times the knob's own.

    Attributes:
        compute: of each client: a number, a list with one for each client, or a table with groups that share.
        uplink: of each client, in the same ways.
        downlink: of the server: a number.
        hard: whether budgets may never be exceeded: in all, or by the clock in any window. By default they
            may not under policy = "price", and under the others if they are totals.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    compute: _ClientBudget = None
    uplink: _ClientBudget = None
    downlink: _ServerBudget = None  # `cross_checks` refuses to share it
    hard: Annotated[bool | None, Field(strict=True)] = None

    @model_validator(mode="before")
    @classmethod
    def _resolve(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        named = {name: value for name, value in given.items() if name not in (*KNOBS, "hard")}
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
        limits, members = limits_of(value, clients)
        if isinstance(value, dict):
            return Budget(limits, members, **self._period(value))
        return Budget(limits if isinstance(value, list) else limits[0], **self._period(value))

    def _period(self, value: Any) -> dict[str, Any]:
        """Return what the limits of a budget are for, as fields of `Budget`."""
        amount = first_amount(value)
        return {"per": amount.per, "seconds": amount.seconds, "unit": amount.unit, "hard": self.hard}

    def amount(self, knob: str) -> Amount | None:
        """Return one of the amounts of that knob's budget, which all have one unit and period."""
        return None if getattr(self, knob) is None else first_amount(getattr(self, knob))

    def build_joint(self, clients: int) -> dict[str, JointBudget]:
        """Return the joint budgets, by name."""
        return {
            name: _build_joint(name, table, clients, self._period(table.get("limit", table)))
            for name, table in self.joint.items()
        }


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
    _same_period(found)
    return found


def _clients(group: Mapping[str, Any], clients: int) -> list[int]:
    """Return the clients of a group, by number."""
    return list(range(clients)) if group["clients"] == "all" else group["clients"]


def _build_joint(name: str, table: Mapping[str, Any], clients: int, period: Mapping[str, Any]) -> JointBudget:
    costs = {
        knob: _family(knob).make(table[knob], f"budget.{name}.{knob}")
        if isinstance(table[knob], Mapping)
        else float(table[knob])
        for knob in KNOBS
        if knob in table
    }
    if "limit" in table:
        limits, _ = limits_of(table["limit"], clients)
        return JointBudget(limits, costs, np.arange(clients), **period)
    members, server, limits = np.full(clients, -1), -1, np.zeros(len(table["shared"]))
    for queue, group in enumerate(table["shared"]):
        members[_clients(group, clients)] = queue
        limits[queue] = amount_of(group["limit"]).value
        server = queue if group["server"] else server
    return JointBudget(limits, costs, members, server, **period)
