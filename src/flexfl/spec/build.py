"""From a spec to objects. Only here is code of the user's own imported."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flexfl.clock import Clock, NoClock
from flexfl.compress import Compressor
from flexfl.control import Budget, ByKnob, Policy, Setup
from flexfl.control.feasible import budget_faults, units_of
from flexfl.control.trial import check_setup as check_setup
from flexfl.costs import CostModel
from flexfl.errors import Fault, InputError, within
from flexfl.learning_rate import SCHEDULES, Constant, Schedule
from flexfl.local import LocalWork
from flexfl.parameters import KNOBS
from flexfl.registry import is_given, is_import_path
from flexfl.results.accounts import form_of
from flexfl.results.observer import Observer
from flexfl.results.run import mean_budget
from flexfl.spec.schema import Spec, keyword_fault
from flexfl.spec.sections import members
from flexfl.streams import Entities, Streams
from flexfl.units import parse_amount, show

_REMEDIES: dict[type, str] = {
    CostModel: "give it a method at(moment), see flexfl.costs.CostModel",
    Policy: "give it the methods compute_rule(scope) and send_rule(scope), see flexfl.control.Policy",
    Compressor: "give it the methods offers and compress, see flexfl.compress.Compressor",
    LocalWork: "give it gradients, a whole number, and the method change, see flexfl.LocalWork",
    Observer: "subclass flexfl.results.observer.Observer",
    Schedule: "give it a method factor(t, T), see flexfl.learning_rate.Schedule",
}


def build_costs(spec: Spec, given: Mapping[str, CostModel] | None = None) -> dict[str, CostModel]:
    """Return the three cost models; `given` are those passed in Python."""
    return _build_all(spec, "costs", CostModel, given)


def build_compressors(spec: Spec, given: Mapping[str, Compressor] | None = None) -> dict[str, Compressor]:
    """Return the compressors of uplink and downlink; `given` are those passed in Python."""
    return _build_all(spec, "compress", Compressor, given)


def build_policy(spec: Spec, given: Policy | None = None) -> Policy:
    """Return the policy, with those of single knobs; `given` instead of the one of the whole section."""
    policies = _build_all(spec, "control", Policy, {} if given is None else {"": given})
    whole: Policy = policies.pop("")
    return ByKnob(dict.fromkeys(KNOBS, whole) | policies) if policies else whole


def build_local(spec: Spec, given: LocalWork | None = None) -> LocalWork:
    """Return what a client computes in an iteration; `given` instead of the spec's.

    Raises:
        InputError: own work does not say how many gradients it takes.
    """
    passed = {} if given is None else {"local": given}
    local: LocalWork = _build_all(spec, "train", LocalWork, passed, only="local")["local"]
    taken = local.gradients
    if isinstance(taken, bool) or not isinstance(taken, int) or taken < 1:
        rule, remedy = "must take a whole number of gradients ≥ 1", "set its attribute gradients"
        raise InputError([Fault("train.local", rule, taken, remedy)])
    return local


def build_trackers(spec: Spec) -> list[Observer]:
    """Return the trackers, in the order of the spec."""
    return list(_build_all(spec, "track", Observer).values())


def build_schedule(spec: Spec, given: Schedule | None = None) -> Schedule:
    """Return the schedule of the learning rate; `given` is the one passed in Python."""
    passed = {} if given is None else {"schedule": given}
    schedule: Schedule = _build_all(spec, "train", Schedule, passed, only="schedule")["schedule"]
    return schedule


def build_budgets(spec: Spec) -> dict[str, Budget | None]:
    """Return the budget of each knob; None for no limit."""
    return {knob: spec.budget.build(knob, spec.data.clients) for knob in KNOBS}


def build_setup(
    spec: Spec,
    *,
    streams: Streams | None = None,
    costs: Mapping[str, CostModel] | None = None,
    policy: Policy | None = None,
    compressors: Mapping[str, Compressor] | None = None,
    times: Mapping[str, CostModel] | None = None,
    clock: Clock | None = None,
    local: LocalWork | None = None,
    schedule: Schedule | None = None,
) -> Setup:
    """Return what decides, computes, charges and compresses in a run.

    Args:
        spec: the settings.
        streams: by default those of the spec's seed.
        costs: models passed in Python, by knob, instead of the spec's.
        policy: passed in Python instead of the one of the whole section.
        compressors: passed in Python, by role, instead of the spec's.
        times: of the virtual clock, passed in Python, by knob, instead of the spec's.
        clock: of the run; by default the spec's virtual one.
        local: passed in Python instead of the spec's.
        schedule: of the learning rate, passed in Python instead of the spec's.

    Raises:
        InputError: an own member cannot be imported, or is not what it must be.
    """
    models = build_costs(spec, costs)
    setup = Setup(
        policy=build_policy(spec, policy),
        costs=models,
        compressors=build_compressors(spec, compressors),
        budgets=build_budgets(spec),
        streams=Streams(spec.train.seed) if streams is None else streams,
        iterations=spec.train.iterations,
        joint=spec.budget.build_joint(spec.data.clients),
        clock=build_clock(spec, models, times) if clock is None else clock,
        duration=math.inf if spec.train.duration is None else spec.train.duration,
        schedule=build_schedule(spec, schedule),
    )
    setup = setup.with_local(build_local(spec, local))
    _prepare(setup, spec.data.clients)
    return setup


def _prepare(setup: Setup, clients: int) -> None:
    """Let costs read and check the files that they need, before any work starts."""
    faults: list[Fault] = []
    for field, part in setup.parts().items():
        if callable(prepare := getattr(part, "prepare", None)):
            server = field.endswith(".downlink")
            entities = Entities.the_server() if server else Entities.all_clients(clients)
            try:
                within(field, lambda prepare=prepare, who=entities: prepare(who))  # type: ignore[misc]
            except InputError as error:
                faults += error.faults
    if faults:
        raise InputError(faults, "the files that costs are read from")


def build_clock(
    spec: Spec, costs: Mapping[str, CostModel], times: Mapping[str, CostModel] | None = None
) -> Clock:
    """Return what takes time in a simulation; `times` are those passed in Python."""
    if not spec.clock.on:
        return NoClock()
    return spec.clock.build(costs, _build_all(spec, "clock", CostModel, times))


def _build_all(
    spec: Spec, section: str, protocol: type, given: Mapping[str, Any] | None = None, *, only: str = ""
) -> dict[str, Any]:
    """Return the members that a section names, by their place in it; checked, and so are those given.

    `only` is a place, where a section has members of several families.
    """
    built = {}
    for field, family, table in members({section: getattr(spec, section)}):
        place = field.removeprefix(section).removeprefix(".")
        if only not in ("", place):
            continue
        is_passed = given is not None and place in given
        thing = given[place] if given is not None and is_passed else family.make(table, field)
        if not isinstance(thing, protocol) or isinstance(thing, type):
            rule = f"must {'be' if is_passed else 'make'} a {protocol.__name__}"
            value, remedy = type(thing).__name__ if is_passed else table[family.key], _REMEDIES[protocol]
            if isinstance(thing, type) and isinstance(thing, protocol):
                value, remedy = f"the class {thing.__name__}", f"give an object of it: {thing.__name__}(…)"
            raise InputError([Fault(f"{field}.{family.key}", rule, value, remedy)])
        built[place] = thing
    return built


def budget_terms(spec: Spec, setup: Setup) -> dict[str, Any]:
    """Return budgets, rates, units and forms as `results.observer.Progress` takes them."""
    clients, iterations = spec.data.clients, spec.train.iterations
    budgets, rates = dict[str, float | None](), dict[str, tuple[float, float]]()
    totals = dict[str, float]()
    for knob in KNOBS:
        given, amount = getattr(spec.budget, knob), spec.budget.amount(knob)
        budgets[knob] = mean_budget(given, clients=clients, iterations=iterations)
        if amount is not None and amount.per == "time":
            of_window = mean_budget(given, clients=clients, pace=amount.seconds)
            rates |= {} if of_window is None else {knob: (of_window, amount.seconds)}
        if amount is not None and amount.per == "run" and math.isfinite(setup.duration):
            of_run = mean_budget(given, clients=clients, iterations=1)
            totals |= {} if of_run is None else {knob: of_run}
    units = units_of(setup)
    return {
        "budgets": budgets,
        "rates": rates,
        "units": units,
        "forms": {knob: form_of(getattr(spec.budget, knob), clients, units.get(knob, "")) for knob in KNOBS},
        "totals": totals,
        "duration": setup.duration,
    }


def check_budgets(setup: Setup, clients: int, dim: int) -> None:
    """Raise an `InputError` for budgets in another unit than their cost, without a clock, or too small."""
    if faults := budget_faults(setup, clients, dim):
        raise InputError(faults, "the spec")


def packages(spec: Spec) -> dict[str, str]:
    """Return the packages whose code a spec would import, by the setting that names them."""
    named = {"model.name": spec.model.name}
    for field, family, table in members(dict(spec)):
        by_name = isinstance(spec.data.partition, str) and field == "data.partition"
        named[field if by_name else f"{field}.{family.key}"] = table[family.key]
    return {
        setting: name.partition(":")[0].partition(".")[0]
        for setting, name in named.items()
        if is_import_path(name)
    }


def paths_of_costs(spec: Spec) -> dict[str, str]:
    """Return the files that costs would read, by the setting that names them."""
    found: dict[str, str] = {}
    for field, _, table in members({"costs": spec.costs, "budget": spec.budget}):
        found |= _paths(table, field)
    return found


def _paths(table: Mapping[str, Any], field: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            found |= _paths(value, f"{field}.{key}")
        elif key == "path" and isinstance(value, str):
            found[f"{field}.{key}"] = value
    return found


def plans_for_end(spec: Spec) -> bool:
    """Return whether decisions depend on `train.iterations`; then a run is no beginning of a longer one.

    So it is with a policy whose class has `uses_horizon = True`, with a budget for the whole run, with hard
    budgets, which are kept as a total, and with a schedule of the learning rate.

    Raises:
        InputError: a policy of one's own cannot be imported.
    """
    policies = [
        family.member(table["policy"], f"{field}.policy")
        for field, family, table in members({"control": spec.control})
        if not is_given(table["policy"])
    ]
    planning = any(getattr(policy, "uses_horizon", False) for policy in policies)
    budget, schedule = spec.plain().get("budget", {}), spec.train.schedule["kind"]
    planning = planning or SCHEDULES.members.get(schedule) is not Constant
    return planning or budget.get("hard") is True or _has_total(budget)


def _has_total(budget: Any) -> bool:
    """Return whether a budget, or an entry of its tables and lists, is a text such as "20 MB"."""
    if isinstance(budget, Mapping | list):
        return any(map(_has_total, budget.values() if isinstance(budget, Mapping) else budget))
    try:
        return isinstance(budget, str) and parse_amount(budget).per == "run"
    except ValueError:  # the kind of a joint budget's cost, a range of clients
        return False


def refuse_for_simulation(spec: Spec) -> None:
    """Raise an `InputError` for costs that are only available in deployments."""
    rule, remedy = "is only available in deployments", "choose another kind, or run it with flexfl deploy"
    faults = [
        Fault(f"{field}.kind", rule, table["kind"], remedy)
        for field, family, table in members({"costs": spec.costs, "budget": spec.budget})
        if not is_given(table["kind"])
        and getattr(family.member(table["kind"], f"{field}.kind"), "needs_clock", False)
    ]
    if spec.train.duration is not None and not spec.clock.on:
        rule, remedy = "needs a clock", 'say how long an iteration takes: [clock] iteration = "30 s"'
        faults.append(Fault("train.duration", rule, show(spec.train.duration, "second"), remedy))
    if faults:
        raise InputError(faults, "the spec")


def refuse_arguments(
    spec: object,
    model: object,
    data: object,
    loss: object,
    out: object,
    resume: object,
    observers: object,
    sections: Mapping[str, object],
) -> None:
    """Raise an `InputError` for arguments of `flexfl.simulate` that are of another kind than they must be."""
    from torch import nn

    from flexfl.data.federated import Federated

    faults = []
    if not isinstance(spec, Spec | str | Path | None):
        meant = "model" if isinstance(spec, nn.Module) else "data" if isinstance(spec, Federated) else None
        remedy = f"write {meant}=…" if meant else 'give sections as keywords: train={"iterations": 500}'
        faults.append(Fault("spec", "must be a name, a path or a Spec", spec, remedy))
    if isinstance(model, type):
        remedy = f"give an object of it: {model.__name__}(…)"
        faults.append(Fault("model", "must be an nn.Module", f"the class {model.__name__}", remedy))
    elif not isinstance(model, nn.Module | None):
        remedy = f'give the module itself, or {{"name": "{model if isinstance(model, str) else "cnn"}"}}'
        faults.append(Fault("model", "must be an nn.Module, or a table of settings", model, remedy))
    if not isinstance(data, Federated | None):
        remedy = "make one with Federated.split or Federated.of_clients"
        remedy = f'write data={{"name": "{data}"}}' if isinstance(data, str) else remedy
        value = data if isinstance(data, str) else type(data).__name__
        faults.append(Fault("data", "must be a Federated, or a table of settings", value, remedy))
    if isinstance(loss, type):
        remedy = f"give an object of it: {loss.__name__}()"
        faults.append(Fault("loss", "must be a function", f"the class {loss.__name__}", remedy))
    elif loss is not None and not callable(loss):
        remedy = "give a function of outputs and labels, as torch.nn.functional.cross_entropy"
        faults.append(Fault("loss", "must be a function", loss, remedy))
    if not isinstance(out, str | Path | None):
        faults.append(Fault("out", "must be the path of a folder", out, 'for example out="runs/first"'))
    if resume and out is None:
        faults.append(Fault("resume", "needs the run directory", None, "give out=…"))
    if not isinstance(observers, Sequence):
        remedy = "write observers=[…]"
        faults.append(Fault("observers", "must be a list of observers", type(observers).__name__, remedy))
        observers = ()
    for observer in observers:
        if not isinstance(observer, Observer):
            remedy = "subclass flexfl.Observer"
            faults.append(Fault("observers", "must be observers", type(observer).__name__, remedy))
    faults += [
        keyword_fault(name, table) for name, table in sections.items() if not isinstance(table, Mapping)
    ]
    if faults:
        raise InputError(faults, "the call")
