"""What is wrong with budgets before any work starts: their unit, their clock, their size."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from flexfl.arrays import FloatArray
from flexfl.compress.plain import least_bytes
from flexfl.control.allowance import Allowance
from flexfl.control.budget import Budget, JointBudget
from flexfl.control.policy import ByKnob
from flexfl.control.setup import Setup
from flexfl.counting import size_in
from flexfl.errors import Fault
from flexfl.streams import Entities
from flexfl.units import period_of, show

_LOOKED_AT = 50
"""Iterations whose costs are drawn to find the cheapest."""
_ONE = {"compute": "computation", "uplink": "message", "downlink": "message"}
_PER = {"iteration": " / iteration", "run": ""}


def budget_faults(setup: Setup, clients: int, dim: int) -> list[Fault]:
    """Return what is wrong with the budgets of a run, for N clients and D parameters."""
    faults = [*_units(setup), *_counts(setup), *_clocks(setup)]
    if faults:
        return faults
    small = [fault for knob, fault in _too_small(setup, clients, dim) if not _by_policy(setup, knob)]
    explicit = any(joint.per != "iteration" or joint.hard is not None for joint in setup.joint.values())
    return [*small, *(_joint_too_small(setup, clients, dim) if explicit else ())]


def budget_notes(setup: Setup, clients: int, dim: int) -> list[str]:
    """Return a remark for each average of which a run so short cannot pay one message or computation.

    A total or a rate that is too small is a fault; an average may be that of a longer run which is tried.
    """
    return [
        f"{fault.field} {fault.rule}; in so short a run nobody will: {fault.remedy}"
        for knob, fault in _too_small(setup, clients, dim)
        if _by_policy(setup, knob)
    ]


def _by_policy(setup: Setup, knob: str) -> bool:
    """Return whether a budget is an average that is hard only because the policy keeps totals."""
    budget = setup.budgets.get(knob)
    return budget is not None and budget.per == "iteration" and budget.hard is None


def units_of(setup: Setup) -> dict[str, str]:
    """Return what the costs of each knob are counted in; no entry for abstract costs."""
    units = {knob: getattr(cost, "unit", "") for knob, cost in setup.costs.items()}
    return {knob: unit for knob, unit in units.items() if unit}


def _units(setup: Setup) -> Iterator[Fault]:
    """Yield budgets in another unit than their cost; a plain number is in the cost's unit."""
    for knob, cost in setup.costs.items():
        budget, unit = setup.budgets.get(knob), getattr(cost, "unit", "")
        if budget is not None:
            yield from _unit(f"budget.{knob}", budget.unit, f"costs.{knob}", cost, unit)
    for name, joint in setup.joint.items():
        for knob, own in joint.costs.items():
            if not isinstance(own, int | float):  # a factor may be a price for a unit
                unit = getattr(own, "unit", "")
                yield from _unit(f"budget.{name}", joint.unit, f"budget.{name}.{knob}", own, unit)


def _unit(field: str, given: str, place: str, cost: object, unit: str) -> Iterator[Fault]:
    if not given or given == unit:
        return
    name = type(cost).__name__
    if unit:
        remedy = f"write it in {unit}s, or choose a cost in {given}s for {place}"
        yield Fault(field, f"must be in {unit}s, as {place} is ({name})", given, remedy)
    else:
        remedy = f"choose a cost in {given}s for {place}, or give a plain number"
        yield Fault(field, f"must be a plain number, since {place} has no unit ({name})", given, remedy)


def _counts(setup: Setup) -> Iterator[Fault]:
    """Yield costs of joint budgets that count something else of a message than the knob's own cost does."""
    for name, joint in setup.joint.items():
        for knob, own in joint.costs.items():
            counts, wanted = (getattr(cost, "counts", "components") for cost in (own, setup.costs[knob]))
            if not isinstance(own, int | float) and counts != wanted:
                rule, remedy = f"must count what costs.{knob} counts, {wanted}", f'set counts = "{wanted}"'
                yield Fault(f"budget.{name}.{knob}.counts", rule, counts, remedy)


def _clocks(setup: Setup) -> Iterator[Fault]:
    """Yield budgets for a time, without a clock or a policy that goes by it."""
    for name, budget in _all_budgets(setup):
        if budget.per != "time":
            continue
        knobs = list(budget.costs) if isinstance(budget, JointBudget) else [name]
        for knob in knobs:
            policy = setup.policy.policies[knob] if isinstance(setup.policy, ByKnob) else setup.policy
            if getattr(policy, "keeps_budgets", True) and not getattr(policy, "follows_clock", False):
                rule = "must be for an iteration or the whole run under this policy"
                remedy = 'set control.policy = "price", which goes by the clock'
                yield Fault(f"budget.{name}", rule, type(policy).__name__, remedy)
                break
        if math.isnan(setup.clock.seconds):
            rule, value = "needs a clock: it is for a time", period_of(budget.seconds)
            remedy = 'say how long an iteration takes: [clock] iteration = "30 s", or by its parts'
            yield Fault(f"budget.{name}", rule, value, remedy)


def _all_budgets(setup: Setup) -> Iterator[tuple[str, Budget | JointBudget]]:
    yield from ((knob, budget) for knob, budget in setup.budgets.items() if budget is not None)
    yield from setup.joint.items()


def _too_small(setup: Setup, clients: int, dim: int) -> Iterator[tuple[str, Fault]]:
    """Yield knobs with a hard budget of which not even one message or computation can be paid."""
    for knob in setup.costs:
        who = Entities.the_server() if knob == "downlink" else Entities.all_clients(clients)
        allowance, budget = setup.allowance(knob, who), setup.budgets.get(knob)
        if allowance is None or budget is None or not allowance.hard:
            continue
        cheapest = _cheapest(setup, knob, who, dim)
        short = np.atleast_1d(cheapest > allowance.left_each * (1 + 1e-9))
        if short.any():
            place = int(np.flatnonzero(short)[0])
            least = float(np.atleast_1d(cheapest)[place])
            budget = replace(budget, unit=getattr(setup.costs[knob], "unit", ""))
            yield knob, _short(knob, budget, allowance, who, place, least, setup.iterations)


def _joint_too_small(setup: Setup, clients: int, dim: int) -> Iterator[Fault]:
    """Yield hard joint budgets of which someone cannot pay one message or computation."""
    allowances = setup.joint_queues().allowances
    for name, joint in setup.joint.items():
        for knob, own in joint.costs.items():
            who = Entities.the_server() if knob == "downlink" else Entities.all_clients(clients)
            place = joint.queue_of(who)
            if not allowances[name].hard or not np.any(place >= 0):
                continue
            factor = float(own) if isinstance(own, int | float) else 1.0
            model = setup.costs[knob] if isinstance(own, int | float) else own
            cheapest = factor * _cheapest(replace(setup, costs={**setup.costs, knob: model}), knob, who, dim)
            left = np.append(allowances[name].left / joint.sharing, np.inf)[place]
            short = np.atleast_1d(cheapest > left * (1 + 1e-9))
            if short.any():
                one = int(np.flatnonzero(short)[0])
                least, has = (show(float(np.atleast_1d(x)[one]), joint.unit) for x in (cheapest, left))
                rule = f"must allow for one {_ONE[knob]} of {who.name(one)}, which costs at least {least}"
                remedy = "raise the limit: each decision has an even share of what is left"
                yield Fault(f"budget.{name}", rule, f"{has} for each decision", remedy)
                break


def _short(
    knob: str, budget: Budget, own: Allowance, who: Entities, place: int, least: float, iterations: int
) -> Fault:
    unit, one = budget.unit, _ONE[knob]
    shared = float(np.atleast_1d(own.by_entity(own.sharing * np.ones(own.limits.shape)))[place])
    enough = least * shared / (iterations if budget.per == "iteration" else 1)
    period = f" / {period_of(budget.seconds)}" if budget.per == "time" else _PER[budget.per]
    has = float(np.atleast_1d(own.by_entity(own.limits))[place])
    rule = f"must allow for one {one} of {who.name(place)}, which costs at least {show(least, unit)}"
    remedy = f"the smallest that would do is {show(enough, unit, 4)}{period}"
    return Fault(f"budget.{knob}", rule, f"{show(has, unit, 4)}{period}", remedy)


def _cheapest(setup: Setup, knob: str, who: Entities, dim: int) -> FloatArray:
    """Return the least that one computation or one component costs each entity, as far as can be seen."""
    model = copy.deepcopy(setup.costs[knob])
    looked_at = min(_LOOKED_AT, setup.iterations or _LOOKED_AT)
    least, least_size = np.full(who.shape, np.inf), 1.0
    if knob != "compute":
        one = np.ones((), dtype=np.int64)
        nbytes = least_bytes(setup.compressors[knob], one, dim, np.float32)
        least_size = float(size_in(getattr(model, "counts", "components"), one, nbytes))
    for t in range(looked_at):
        moment = setup.streams.moment(knob, t, dim, who, setup.clock.seconds)
        found = np.asarray(model.at(moment)(np.full(who.shape, least_size)), dtype=float)
        least = np.fmin(least, np.where(np.isfinite(found), found, np.inf))
    return np.where(np.isfinite(least), least, 0.0)
