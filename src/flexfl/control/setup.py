"""All that the knobs of a run are made of; the same for a simulation, one client and the server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from flexfl.compress.base import Compressor
from flexfl.control.knobs import Knob, Sender
from flexfl.control.policy import Budget, Policy, Scope
from flexfl.costs.base import CostModel
from flexfl.streams import Entities, Streams


@dataclass(frozen=True)
class Setup:
    """A policy with its costs, compressors and budgets, each by knob.

    Attributes:
        policy: makes the rules.
        costs: a model for compute, uplink and downlink.
        compressors: one for uplink and downlink.
        budgets: by knob; None for no limit.
        streams: of the run.
        iterations: T.
    """

    policy: Policy
    costs: Mapping[str, CostModel]
    compressors: Mapping[str, Compressor]
    budgets: Mapping[str, Budget | None]
    streams: Streams
    iterations: int = 0

    def knob(self, entities: Entities, dim: int) -> Knob:
        """Return the knob of computing for these clients."""
        scope = self._scope("compute", entities)
        rule = self.policy.compute_rule(scope)
        return Knob("compute", self.costs["compute"], rule, entities, self.streams, dim)

    def sender(self, role: str, entities: Entities, dim: int) -> Sender:
        """Return the uplink of these clients, or the downlink of the server."""
        rule = self.policy.send_rule(self._scope(role, entities))
        return Sender(role, self.costs[role], rule, entities, self.streams, dim, self.compressors[role])

    def _scope(self, role: str, entities: Entities) -> Scope:
        mean_cost = getattr(self.costs[role], "mean_cost", None)
        return Scope(role, entities, self.budgets.get(role), self.iterations, mean_cost)
