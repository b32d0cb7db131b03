"""How costs are shown to people: in their unit, and in the form of their budget.

Files hold averages for an iteration, in base units. A person reads "1.9 kB of 2 kB / iteration", "19.2 MB of
20 MB" for a total, "48 MB of 50 MB / month" for a rate: what is spent at the pace so far.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flexfl.units import show

_NOTHING = "–"


@dataclass(frozen=True)
class Form:
    """How the costs of one knob are shown.

    Attributes:
        unit: one of `units.COST_UNITS`; "" for abstract costs.
        per: what the budget is for: an "iteration", the "run", or the time of a rate, such as "month".
        limit: the budget for that, in `unit`, averaged over clients; None for no limit.
    """

    unit: str = ""
    per: str = "iteration"
    limit: float | None = None

    @property
    def is_average(self) -> bool:
        """Whether costs are shown for an iteration, as they are stored."""
        return self.per == "iteration"

    @property
    def is_plain(self) -> bool:
        """Whether costs are shown as the numbers that are stored."""
        return self.is_average and not self.unit

    @property
    def period(self) -> str:
        """What follows an amount: " / iteration", " / month"; nothing after a total."""
        return "" if self.per == "run" else f" / {self.per}"

    def factor(self, iterations: int, budget: float | None) -> float:
        """Return what turns an average for an iteration into this form.

        Args:
            iterations: over how many the average goes.
            budget: for an iteration, at the pace so far; NaN is returned for a rate without it.
        """
        if self.is_average:
            return 1.0
        if self.per == "run":
            return float(iterations)
        return self.limit / budget if self.limit is not None and budget else math.nan

    def amount(self, average: float | None, iterations: int, budget: float | None) -> str:
        """Return what was spent, with its unit; arguments as those of `factor`."""
        value = math.nan if average is None else average * self.factor(iterations, budget)
        return show(value, self.unit) if math.isfinite(value) else _NOTHING

    @property
    def limit_text(self) -> str:
        """The budget with its unit and what it is for."""
        return _NOTHING if self.limit is None else show(self.limit, self.unit, 4) + self.period

    def against_budget(self, average: float | None, iterations: int, budget: float | None) -> str:
        """Return what was spent, and of what.

        >>> Form("byte", "run", 20e6).against_budget(24e3, 800, 20e3)
        '19.2 MB of 20 MB'
        >>> Form("byte", "month", 50e6).against_budget(480.0, 10, 500.0)
        '48 MB of 50 MB / month'
        >>> Form("byte").against_budget(480.0, 10, None)
        '480 B / iteration'
        """
        spent = self.amount(average, iterations, budget)
        return f"{spent}{self.period}" if self.limit is None else f"{spent} of {self.limit_text}"


def stored_form(cost: Mapping[str, Any]) -> Form:
    """Return how a cost of a summary is shown: an entry of `average_cost` or of `joint_budgets`.

    >>> stored_form({"spent": 3.0, "budget": 4.0, "unit": "byte"})
    Form(unit='byte', per='iteration', limit=4.0)
    """
    unit, per = cost.get("unit", ""), cost.get("per", "iteration")
    return Form(unit, per, cost.get("limit", cost["budget"]))
