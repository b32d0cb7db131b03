"""What decides, charges and compresses in a run; makes its knobs."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from flexfl.arrays import FloatArray
from flexfl.clock import Clock, NoClock
from flexfl.compress.base import Compressor
from flexfl.control.allowance import Allowance, RemoteAllowance
from flexfl.control.budget import Budget
from flexfl.control.joint import JointBudget, JointQueues
from flexfl.control.knobs import Knob, Sender
from flexfl.control.policy import ByKnob, ComputeRule, Policy, Scope, SendRule, importance
from flexfl.control.price import LogPrice
from flexfl.control.queues import VirtualQueue
from flexfl.control.shared import CHARGED, SharedQueues
from flexfl.control.timing import Timing
from flexfl.costs.base import CostModel
from flexfl.costs.gradients import OfGradients, of_gradients
from flexfl.learning_rate import Constant, Factor, Schedule, factor_of
from flexfl.local import LocalWork, OneGradient
from flexfl.streams import Entities, Streams


@dataclass(frozen=True)
class Setup:
    """A policy with its costs, compressors and budgets, each by knob.

    Attributes:
        policy: makes the rules; each knob gets copies of its cost and compressor, which may have a memory.
        costs: a model for compute, uplink and downlink.
        compressors: one for uplink and downlink.
        budgets: by knob; None for no limit.
        streams: of the run.
        iterations: T.
        joint: budgets over several knobs or entities, by name.
        importance: N·w, how much each client counts in f; one for all or one for each client.
        clock: of the run; of a simulation, its `Timing` until it has `started`.
        duration: seconds by the clock after which the run ends, if T iterations have not ended it.
        schedule: of the learning rate.
        local: what a client computes in an iteration; set by `with_local`, which also counts its gradients.
    """

    policy: Policy
    costs: Mapping[str, CostModel]
    compressors: Mapping[str, Compressor]
    budgets: Mapping[str, Budget | None]
    streams: Streams
    iterations: int = 0
    importance: Any = 1.0
    joint: Mapping[str, JointBudget] = field(default_factory=dict)
    clock: Clock = field(default_factory=NoClock)
    duration: float = math.inf
    schedule: Schedule = field(default_factory=Constant)
    local: LocalWork = field(default_factory=OneGradient)

    @property
    def factor(self) -> Factor:
        """η_t/η of the schedule, by iteration."""
        return factor_of(self.schedule, self.iterations)

    def with_local(self, local: LocalWork) -> Setup:
        """Return the same for clients that do this work, whose costs and times are those of one gradient."""

        def counted(models: Mapping[str, Any]) -> dict[str, Any]:
            one = models.get("compute")
            whole = {"compute": of_gradients(one, local.gradients)} if isinstance(one, CostModel) else {}
            return {**models, **whole}

        joint = {name: replace(budget, costs=counted(budget.costs)) for name, budget in self.joint.items()}
        clock = self.clock
        if isinstance(clock, Timing):
            clock = replace(clock, models=counted(clock.models))
        return replace(self, local=local, costs=counted(self.costs), joint=joint, clock=clock)

    def started(self, clients: int, dim: int) -> Setup:
        """Return the same with a clock of its own for a simulation of N clients and D parameters."""
        if not isinstance(self.clock, Timing):
            return self
        return replace(self, clock=self.clock.start(self.streams, clients, dim))

    def weighted(self, weights: FloatArray) -> Setup:
        """Return the same for clients with weights w, (N,)."""
        return replace(self, importance=importance(weights))

    def parts(self) -> dict[str, object]:
        """Return policies, costs and compressors by name, those of joint budgets and of the clock too.

        Costs of computing are those of one gradient.
        """
        timed = self.clock.models if isinstance(self.clock, Timing) else {}
        policies = self.policy.policies if isinstance(self.policy, ByKnob) else {}
        parts: dict[str, object] = {
            "policy": self.policy,
            "train.local": self.local,
            **{f"policy.{knob}": policy for knob, policy in policies.items()},
            **{f"costs.{knob}": cost for knob, cost in self.costs.items()},
            **{f"compress.{role}": compressor for role, compressor in self.compressors.items()},
            **{
                f"budget.{name}.{knob}": cost
                for name, budget in self.joint.items()
                for knob, cost in budget.costs.items()
            },
            **{f"clock.{knob}": time for knob, time in timed.items()},
            "schedule": self.schedule,
        }
        return {name: part.one if isinstance(part, OfGradients) else part for name, part in parts.items()}

    def joint_queues(self, who: Entities | None = None) -> JointQueues:
        """Return the queues of the joint budgets: all of them, or one client's.

        A client keeps those that are its alone; the lengths of others come from the server.
        """
        if who is None or who.everyone or who.server:
            budgets, local = dict(self.joint), list(self.joint)
        else:
            budgets = {name: budget.of_client(int(who.numbers)) for name, budget in self.joint.items()}
            local = [name for name, budget in self.joint.items() if budget.is_local]
        allowances = {
            name: (Allowance if name in local else RemoteAllowance)(
                budget,
                budget.limits,
                iterations=self.iterations,
                hard=self._hard(budget, next(iter(budget.costs))),
                duration=self.duration,
                sharing=budget.sharing,
            )
            for name, budget in budgets.items()
        }
        choose = getattr(
            self.policy, "joint_queue", lambda budget, allowance: VirtualQueue(allowance.nominal)
        )

        def make(name: str, allowance: Allowance) -> VirtualQueue | LogPrice:
            queues: VirtualQueue | LogPrice = choose(budgets[name], allowance)
            return queues if name in local else queues.as_remote()

        return JointQueues(budgets, allowances, make)

    def _hard(self, budget: Budget | JointBudget, knob: str) -> bool:
        """Return whether a budget may never be exceeded: as it says, as a total, or as its policy has it."""
        if budget.hard is not None:
            return budget.hard
        policy = self.policy.policies[knob] if isinstance(self.policy, ByKnob) else self.policy
        return budget.per == "run" or bool(getattr(policy, "keeps_totals", False))

    def allowance(self, role: str, entities: Entities) -> Allowance | None:
        """Return the budget of these entities with its horizon; None without a budget."""
        budget = self.budgets.get(role)
        if budget is None:
            return None
        plan: dict[str, Any] = {
            "iterations": self.iterations,
            "hard": self._hard(budget, role),
            "duration": self.duration,
        }
        members, limits = budget.members, np.asarray(budget.limits, dtype=float)
        if members is None:
            return Allowance(budget, np.broadcast_to(entities.pick(limits), entities.shape), **plan)
        together = np.bincount(members)
        if entities.everyone:
            return Allowance(budget, limits, members=members, sharing=together, **plan)
        queue = int(entities.pick(members))
        kind = RemoteAllowance if together[queue] > 1 else Allowance
        return kind(budget, limits[queue], sharing=together[queue], **plan)

    def unused_budgets(self, clients: int, dim: int) -> list[str]:
        """Return a remark for each joint budget that no rule looks at."""
        joint, everyone = self.joint_queues(), Entities.all_clients(clients)
        knobs = (
            self.knob(everyone, dim, joint),
            self.sender("uplink", everyone, dim, joint),
            self.sender("downlink", Entities.the_server(), dim, joint),
        )
        ignored = joint.unseen(*knobs) if self.joint else []
        return [f"budget.{name} is only recorded: the policy ignores it" for name in ignored]

    def shared_queues(self, clients: int) -> SharedQueues:
        """Return the queues that the server of a deployment keeps for its clients."""
        everyone = Entities.all_clients(clients)
        shared = {
            knob: budget.members
            for knob, budget in self.budgets.items()
            if knob in CHARGED and budget is not None and budget.members is not None
        }
        rules: dict[str, tuple[ComputeRule | SendRule, Allowance | None]] = {}
        for knob in shared:
            make = self.policy.compute_rule if knob == "compute" else self.policy.send_rule
            scope = self._scope(knob, everyone, None)
            rules[knob] = make(scope), scope.allowance
        return SharedQueues(rules, shared, self.joint_queues(), self.clock)

    def knob(self, entities: Entities, dim: int, joint: JointQueues | None = None) -> Knob:
        """Return the knob of computing for these clients, charged to joint budgets if there are any."""
        scope = self._scope("compute", entities, joint)
        rule, cost = self.policy.compute_rule(scope), copy.deepcopy(self.costs["compute"])
        kept = scope.joint, scope.allowance, self.clock
        knob = Knob("compute", cost, rule, entities, self.streams, dim, *kept)
        knob.remote = tuple(scope.remote)
        return knob

    def sender(self, role: str, entities: Entities, dim: int, joint: JointQueues | None = None) -> Sender:
        """Return the uplink of these clients, or the downlink of the server."""
        scope = self._scope(role, entities, joint)
        rule = self.policy.send_rule(scope)
        cost, compressor = copy.deepcopy((self.costs[role], self.compressors[role]))
        kept = scope.joint, scope.allowance, self.clock
        sender = Sender(role, cost, rule, entities, self.streams, dim, compressor, *kept)
        sender.remote = tuple(scope.remote)
        return sender

    def _scope(self, role: str, entities: Entities, joint: JointQueues | None) -> Scope:
        return Scope(
            role,
            entities,
            self.budgets.get(role),
            self.iterations,
            getattr(self.costs.get(role), "mean_cost", None),
            np.asarray(1.0) if entities.server else entities.pick(self.importance),
            None if joint is None else joint.view(role, entities, self.factor),
            allowance=self.allowance(role, entities),
            factor=self.factor,
            computing=self._scope("compute", entities, None) if role == "uplink" else None,
        )
