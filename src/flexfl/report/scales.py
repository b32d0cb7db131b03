"""The unit in which a panel draws the costs of a knob, and the labels of its budget lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from flexfl.report.curves import Curve
from flexfl.report.groups import Group
from flexfl.units import scale_of, show


@dataclass(frozen=True)
class Scale:
    """What costs are divided by to be drawn, and the symbol of their unit then.

    Attributes:
        size: Number of basic units in the unit of the axis.
        symbol: The unit of the axis; "" for abstract costs.
        notes: A remark if groups count in different units.
    """

    size: float = 1.0
    symbol: str = ""
    notes: tuple[str, ...] = ()

    def text(self, value: float) -> str:
        """Return a value of the axis with its unit."""
        return f"{value:.3g} {self.symbol}".strip()

    def curve(self, curve: Curve) -> Curve:
        """Return a curve in the unit of the axis."""
        low = None if curve.low is None else curve.low / self.size
        high = None if curve.high is None else curve.high / self.size
        return replace(curve, mean=curve.mean / self.size, low=low, high=high)


def scale_for(groups: Sequence[Group], knob: str, most: float) -> Scale:
    """Return the scale for costs up to `most`; plain numbers if groups count in different units."""
    units = {group.label: group.runs[0].units.get(knob, "") for group in groups}
    if len(set(units.values())) > 1:
        listed = "; ".join(f"{label}: {unit or 'abstract'}" for label, unit in units.items())
        return Scale(notes=(f"units differ ({listed})",))
    return Scale(*scale_of(most, next(iter(units.values()), "")))


def budget_labels(groups: Sequence[Group], knob: str) -> dict[float, str]:
    """Return the budgets for an iteration in increasing order, with the labels of their lines.

    A label has the amount as the spec gives it, and what that is for an iteration. Abstract budgets have
    their value only if there are several.
    """
    found: dict[float, str] = {}
    for group in groups:
        budget, form = group.budget(knob), group.runs[0].form(knob)
        if budget is None:
            continue
        each = "" if form.is_average else f" ({show(budget, form.unit)} / iteration)"
        found.setdefault(budget, "" if form.is_plain else f"budget {form.limit_text}{each}")
    many = len(found) > 1
    return {budget: found[budget] or (f"budget {budget:g}" if many else "budget") for budget in sorted(found)}


def knob_policy(group: Group, knob: str) -> str:
    """Return the name of the policy that decides on a knob."""
    control = group.runs[0].spec.get("control", {})
    return str((control.get(knob) or control).get("policy", ""))


def queue_names(groups: Sequence[Group], knobs: Sequence[str]) -> str:
    """Return what the groups' queue columns hold: "queue", "price", or "queue or price"."""
    prices = {knob_policy(group, knob) == "price" for group in groups for knob in knobs}
    return "queue or price" if len(prices) > 1 else "price" if prices == {True} else "queue"
