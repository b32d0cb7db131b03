"""A trial of what decides, before any work starts: faults of own members in words, on throwaway copies."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from flexfl.arrays import BoolArray, Count, FloatArray, IntArray, Number
from flexfl.compress.base import Compressor, LargestFirst, Offers
from flexfl.compress.message import Message, message_bytes
from flexfl.control.knobs import Knob, Sender
from flexfl.control.policy import ByKnob, ComputeRule, Policy, Scope, SendRule
from flexfl.control.setup import Setup
from flexfl.control.timing import Timing, seconds_of
from flexfl.costs.base import CostModel
from flexfl.counting import Counts, size_in
from flexfl.errors import CostError, DecisionError, Fault, InputError, RuleError, ScheduleError, in_words
from flexfl.local import Array, first_memory
from flexfl.parameters import KNOBS
from flexfl.streams import Entities, Moment, Streams


def check_setup(setup: Setup, clients: int, dim: int) -> None:
    """Try the first iteration of every knob.

    Args:
        setup: whose members are tried; on copies, so that their memory stays as it is.
        clients: N.
        dim: D.

    Raises:
        InputError: names the field and the member of all that raised, or returned something of another kind.
    """
    streams = Streams(0)
    faults: list[Fault] = []
    for knob in KNOBS:
        entities = Entities.the_server() if knob == "downlink" else Entities.all_clients(clients)
        moment = streams.moment(knob, 0, dim, entities)
        faults += _costs(setup, moment)
        faults += [] if knob == "compute" else _compressor(setup, moment)
        if not faults:  # else they would show here again
            faults += _policy(replace(setup, streams=streams), moment)
    faults += _times(setup, clients, dim) + _schedule(setup) + _local(setup)
    if faults:
        raise InputError(faults, "the costs, the policy, the compressors and the local work")


def _attempt(field: str, rule: str, thing: object, remedy: str, work: Callable[[], None]) -> list[Fault]:
    """Return the faults of `work`, whatever a user's own member may raise."""
    try:
        work()
    except InputError as error:
        return list(error.faults)
    except (CostError, DecisionError, RuleError, ScheduleError) as error:  # which say it all themselves
        return [Fault(field, "is refused", type(thing).__name__, str(error))]
    except Exception as error:
        return [Fault(field, f"{rule} ({in_words(error)})", type(thing).__name__, remedy)]
    return []


def _costs(setup: Setup, moment: Moment) -> list[Fault]:
    """Return the fault of a cost that is not one number for each entity."""
    shape, model = moment.shape, setup.costs[moment.role]

    def work() -> None:
        own: CostModel = copy.deepcopy(model)
        cost = own.at(moment)
        for candidates in ((), (2,)):  # one decision for each entity, then two to choose from
            wanted = (*candidates, *shape)
            found = np.asarray(cost(np.ones(wanted)))
            if found.dtype.kind not in "fiu":
                raise TypeError(f"got an array of {found.dtype}")
            np.broadcast_to(found, wanted)

    rule = f"must give {f'a cost for each of the {shape[0]} clients' if shape else 'one cost'}"
    remedy = "see flexfl.costs.Cost: amounts are arrays, their last axes the entities"
    return _attempt(f"costs.{moment.role}", rule, model, remedy, work)


def _times(setup: Setup, clients: int, dim: int) -> list[Fault]:
    """Return the faults of times of the clock that are not one number for each entity."""
    models, faults = (setup.clock.models if isinstance(setup.clock, Timing) else {}), list[Fault]()
    for knob, model in models.items():
        who = Entities.the_server() if knob == "downlink" else Entities.all_clients(clients)
        moment = Streams(0).moment(f"clock.{knob}", 0, dim, who, 0.0)

        def work(model: CostModel = model, moment: Moment = moment) -> None:
            ones = np.ones(moment.shape, dtype=np.int64)
            np.broadcast_to(seconds_of(copy.deepcopy(model).at(moment), ones, ones), moment.shape)

        rule = f"must give {f'a time for each of the {clients} clients' if who.shape else 'one time'}"
        remedy = "see flexfl.costs.Cost: amounts are arrays, their last axes the entities"
        faults += _attempt(f"clock.{knob}", rule, model, remedy, work)
    return faults


def _local(setup: Setup) -> list[Fault]:
    """Return the fault of local work whose change, of one client or two, is not of the shape of x."""

    def work() -> None:
        local = copy.deepcopy(setup.local)
        asked: list[int] = []

        def gradient(y: Array, k: int) -> Array:
            asked.append(k)
            return y + 1.0

        for shape in ((3,), (2, 3)):
            x = np.ones(shape)
            delta, memory = local.change(gradient, x, 0.1, first_memory(local, x))
            if np.shape(delta) != shape:
                raise ValueError(f"the change has shape {np.shape(delta)}, the parameters {shape}")
            if memory.keys() != first_memory(local, x).keys():
                raise ValueError(f"begin returned {list(first_memory(local, x))}, change {list(memory)}")
        if asked and not 0 <= min(asked) <= max(asked) < local.gradients:
            raise ValueError(f"it asked for minibatch {max(asked)} of {local.gradients}")

    rule, remedy = "must return a change of the shape of x, and its memory", "see flexfl.LocalWork"
    return _attempt("train.local", rule, setup.local, remedy, work)


def _schedule(setup: Setup) -> list[Fault]:
    """Return the fault of a schedule whose factor is not a number > 0, at some places of the run."""

    def work() -> None:
        for t in sorted({0, setup.iterations // 2, max(0, setup.iterations - 1)}):
            setup.factor(t)

    rule, remedy = "must give a factor for every iteration", "see flexfl.learning_rate.Schedule"
    return _attempt("train.schedule", rule, setup.schedule, remedy, work)


def _compressor(setup: Setup, moment: Moment) -> list[Fault]:
    """Return the fault of a compressor whose messages are not as it offers them."""
    compressor = setup.compressors[moment.role]

    def random() -> np.random.Generator:
        return moment.generator("compress")

    def work() -> None:
        own: Compressor = copy.deepcopy(compressor)
        vector = np.cos(np.arange(1.0, moment.dim + 1))  # no two components alike
        offers = own.offers(vector, random)
        if not isinstance(offers, Offers):
            raise TypeError(f"offers returned {type(offers).__name__}")
        most = len(offers.components) - 1
        for amount in {min(1, most), most}:
            message = copy.deepcopy(compressor).compress(vector, amount, random) if amount else None
            if message is None:
                continue
            if not isinstance(message, Message):
                raise TypeError(f"compress returned {type(message).__name__}")
            announced = int(offers.components[amount]), int(offers.nbytes[amount])
            if (message.components, message.nbytes) != announced:
                found = f"{message.components} components in {message.nbytes} bytes"
                raise ValueError(
                    f"amount {amount} has {found}, offered were {announced[0]} in {announced[1]}"
                )

    remedy = "see flexfl.compress.Compressor, and try it with flexfl.testing"
    rule = "must give the messages that it offers"
    return _attempt(f"compress.{moment.role}", rule, compressor, remedy, work)


def _policy(setup: Setup, moment: Moment) -> list[Fault]:
    """Return the fault of a policy whose rule cannot decide."""
    knob, entities, dim = moment.role, moment.entities, moment.dim
    policy = setup.policy.policies[knob] if isinstance(setup.policy, ByKnob) else setup.policy
    trial = replace(setup, policy=policy, costs={knob: copy.deepcopy(setup.costs[knob])})

    def work() -> None:
        tried_setup = replace(trial, policy=_Rules(copy.deepcopy(policy)))
        tried: Knob | Sender
        if knob == "compute":
            tried = computing = tried_setup.knob(entities, dim)
            computing.decide(0)
        else:
            tried = sender = tried_setup.sender(knob, entities, dim)
            sender.prepare(0)
            largest_first = isinstance(setup.compressors[knob], LargestFirst)
            sender.decide(0, _Choices(entities.shape, dim, largest_first, sender.counts))
        _check_memory(tried, setup.compressors.get(knob))

    rule, remedy = f"must make a rule that decides for {knob}", "see flexfl.control.Policy"
    return _attempt("control.policy", rule, policy, remedy, work)


@dataclass(frozen=True)
class _Rules:
    """A policy whose rules are looked at before they are used."""

    policy: Policy

    def compute_rule(self, scope: Scope) -> ComputeRule:
        rule = self.policy.compute_rule(scope)
        self._check(rule, "compute_rule")
        return rule

    def send_rule(self, scope: Scope) -> SendRule:
        rule = self.policy.send_rule(scope)
        self._check(rule, "send_rule")
        return rule

    def _check(self, rule: object, method: str) -> None:
        if isinstance(rule, type):
            raise TypeError(f"{method} returned the class {rule.__name__}, not an object of it")
        for needed in ("decide", "charge", "pressure"):
            if not hasattr(rule, needed):
                raise TypeError(f"{method} returned {rule!r} without {needed}; subclass flexfl.control.Rule")


def _check_memory(tried: Knob | Sender, compressor: Compressor | None) -> None:
    """Raise for a memory that no checkpoint could keep."""
    for part in (tried.rule, tried.cost, compressor):
        has = {name for name in ("state", "restore") if callable(getattr(part, name, None))}
        if len(has) == 1:
            raise TypeError(f"{type(part).__name__} has {min(has)}, but a memory needs state and restore")
    for name, array in tried.state().items():
        if array.dtype.kind not in "biuf":
            raise TypeError(f"{name} of its state is an array of {array.dtype}, not of numbers")


@dataclass(frozen=True)
class _Choices:
    """Vectors b that are all zero, as those of clients that have not computed yet."""

    shape: tuple[int, ...]
    dim: int
    largest_first: bool
    counts: Counts = "components"

    @property
    def energy(self) -> FloatArray:
        return np.zeros(self.shape)

    def above(self, cut: Number, enough: Number = 0.0) -> tuple[IntArray, FloatArray]:
        return self.everything(), self.energy

    def everything(self) -> IntArray:
        return np.zeros(self.shape, dtype=np.int64)

    def at_most(self, components: Count) -> IntArray:
        return self.everything()

    def offers(self, place: int) -> Offers:
        return Offers(np.zeros(1, dtype=np.int64), np.zeros(1), np.zeros(1, dtype=np.int64))

    def possible(self, amounts: IntArray) -> BoolArray:
        return np.asarray(amounts <= self.dim)  # which amounts there are for other vectors is not known here

    def components(self, amounts: IntArray) -> IntArray:
        return amounts

    def nbytes(self, amounts: IntArray) -> Any:
        return message_bytes(amounts, self.dim, "float32")

    def sizes(self, amounts: IntArray) -> Any:
        return size_in(self.counts, amounts, self.nbytes(amounts))

    sizes_of = sizes
