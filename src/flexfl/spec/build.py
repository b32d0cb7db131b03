"""From a spec to the objects of the paper's rooms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from flexfl.arrays import FloatArray, spread
from flexfl.control import ComputeRule, FixedCompute, OnlineCompute, OnlineSend, Policy, SendAll, SendRule
from flexfl.control.baselines import PeriodicSend, RandomisedCompute, RandomisedSend, TopKSend
from flexfl.control.queues import VirtualQueue
from flexfl.costs import CostModel
from flexfl.errors import Fault, InputError
from flexfl.spec.checks import is_number
from flexfl.spec.costs import COMPUTE_COSTS, MESSAGE_COSTS
from flexfl.spec.names import GIVEN, import_object, is_import_path, must_be_given_again
from flexfl.spec.schema import Spec
from flexfl.spec.sections import ControlSpec
from flexfl.streams import Streams

_DEFAULTS = ControlSpec()


def build_costs(spec: Spec, given: Mapping[str, CostModel] | None = None) -> dict[str, CostModel]:
    """The three cost models; `given` are those handed over in Python."""
    models: dict[str, CostModel] = dict(given or {})
    for knob, table in spec.costs:
        if knob in models:
            continue
        kind = table["kind"]
        parameters = {name: _array(value) for name, value in table.items() if name != "kind"}
        kinds = COMPUTE_COSTS if knob == "compute" else MESSAGE_COSTS
        if is_import_path(kind):
            make = import_object(kind, f"costs.{knob}.kind")
        elif kind.startswith(GIVEN):
            raise must_be_given_again(f"costs.{knob}", kind)
        else:
            make = kinds[kind]
        try:
            model = make(**parameters)
        except (TypeError, ValueError) as error:
            rule = f"must have parameters that fit {kind} ({error})"
            raise InputError([Fault(f"costs.{knob}", rule, parameters, "adjust them")]) from error
        if not isinstance(model, CostModel):
            remedy = "give it a method at(moment), see flexfl.costs.CostModel"
            raise InputError([Fault(f"costs.{knob}.kind", "must make a cost model", kind, remedy)])
        models[knob] = model
    return models


def check_costs(costs: Mapping[str, CostModel], *, clients: int, dim: int) -> None:
    """Whether each model gives one cost for each entity, tried on the first iteration."""
    faults = []
    for knob, model in costs.items():
        shape = () if knob == "downlink" else (clients,)
        try:
            cost = model.at(Streams(0).moment(knob, 0, dim, shape))
            for candidates in ((), (2,)):  # one decision for each entity, then several to choose from
                _check_cost(cost(np.ones((*candidates, *shape))), (*candidates, *shape))
        except Exception as error:  # whatever a user's model may raise
            rule = f"must give {'one cost' if not shape else f'a cost for each of the {clients} clients'}"
            remedy = "see flexfl.costs.Cost: amounts are arrays, their last axes the entities"
            faults.append(Fault(f"costs.{knob}", f"{rule} ({error})", type(model).__name__, remedy))
    if faults:
        raise InputError(faults, "the costs")


def check_queues(policy: Policy, *, clients: int) -> None:
    """Whether the queues of a policy that was made elsewhere are for so many clients."""
    faults = []
    for knob, queue in policy.queues.items():
        shape, found = () if knob == "downlink" else (clients,), queue.pressure.shape
        if found not in ((), shape):
            rule = f"must have a queue of shape {shape} for {knob}, or one for all"
            faults.append(Fault("control.policy", rule, found, "give its budget that shape"))
    if faults:
        raise InputError(faults, "the policy")


def _check_cost(given: Any, shape: tuple[int, ...]) -> None:
    cost = np.asarray(given)
    if cost.dtype.kind not in "fiu":
        raise TypeError(f"got {type(given).__name__} of {cost.dtype}")
    spread(cost, shape)


def build_policy(spec: Spec, costs: Mapping[str, CostModel], shape: tuple[int, ...] | None = None) -> Policy:
    """The three rules of the policy, each with its own queues.

    shape is that of the clients' decisions: (N,) unless told, () for one client (`spec.own`).
    """
    shape = (spec.data.clients,) if shape is None else shape
    if spec.control.policy_of("compute").startswith(GIVEN):
        raise must_be_given_again("control.policy", spec.control.policy)
    return Policy(
        compute=_compute_rule(spec, shape, getattr(costs["compute"], "mean_cost", None)),
        uplink=_send_rule(spec, "uplink", shape),
        downlink=_send_rule(spec, "downlink", ()),
    )


def _compute_rule(spec: Spec, shape: tuple[int, ...], mean_cost: FloatArray | None) -> ComputeRule:
    policy = spec.control.policy_of("compute")
    queue = _queue(spec, "compute", shape)
    if policy == "fixed-prob":
        return FixedCompute(_array(spec.control.compute_prob))
    if queue is None or policy not in ("online", "randomised"):
        return FixedCompute()
    if policy == "online":
        return OnlineCompute(queue, _setting(spec, "tradeoff", "compute"))
    return RandomisedCompute(_own_share(queue), mean_cost)


def _send_rule(spec: Spec, knob: str, shape: tuple[int, ...]) -> SendRule:
    policy = spec.control.policy_of(knob)
    queue = _queue(spec, knob, shape)
    if policy == "top-k":
        return TopKSend(_setting(spec, "send_ratio", knob))
    if policy == "periodic" and knob == "uplink":
        assert spec.control.send_every is not None
        return PeriodicSend(spec.control.send_every)
    if policy == "randomised":
        budget = np.inf if queue is None else _own_share(queue)
        return RandomisedSend(budget, _setting(spec, "send_ratio", knob))
    if policy == "online" and queue is not None:
        return OnlineSend(queue, _setting(spec, "tradeoff", knob))
    return SendAll()


def _queue(spec: Spec, knob: str, shape: tuple[int, ...]) -> VirtualQueue | None:
    initial, floor = _setting(spec, "initial_queue", knob), _setting(spec, "floor", knob)
    if knob == "downlink":
        limit = spec.budget.downlink
        return None if limit is None else VirtualQueue(limit, initial=initial, floor=floor)
    layout = spec.budget.layout(knob, shape)
    if layout is None:
        return None
    return VirtualQueue(layout.budget, initial=initial, floor=floor, members=layout.members)


def _own_share(queue: VirtualQueue) -> FloatArray:
    """The budget of each entity; a shared one is divided evenly, since nothing couples the draws."""
    if queue.members is None:
        return queue.budget
    return np.asarray((queue.budget / np.bincount(queue.members))[queue.members])


def _setting(spec: Spec, name: str, knob: str) -> Any:
    """A control setting for one knob: by table, for all, or the default."""
    value = getattr(spec.control, name)
    if isinstance(value, Mapping):
        default = getattr(_DEFAULTS, name)
        value = value.get(knob, default.get(knob) if isinstance(default, Mapping) else default)
    return _array(value)


def _array(value: Any) -> Any:
    """A list of numbers as an array; lists of other things are of a user's own cost."""
    numbers = isinstance(value, list) and all(map(is_number, value))
    return np.asarray(value, dtype=float) if numbers else value
