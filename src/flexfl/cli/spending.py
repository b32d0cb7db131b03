"""Costs against budgets as text for the terminal: in their unit, and in the form of the budget."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.text import Text

from flexfl.results.forms import Form, stored_form
from flexfl.units import scale_of

if TYPE_CHECKING:
    from flexfl.results.observer import Live, Progress

    AnyProgress = Progress | Live

_DIGITS, _LIMIT_DIGITS = 3, 4


def progress_texts(progress: AnyProgress) -> list[Text]:
    """Return a text for each knob: what was spent so far, and of what budget."""
    texts = []
    for knob, spent in progress.average_cost.items():
        budget = progress.budgets.get(knob)
        form = progress.forms.get(knob) or Form(progress.units.get(knob, ""), limit=budget)
        shown = spent_text(form, spent, progress.iteration, budget)
        texts.append(Text(f"{knob} ") + shown)
    return texts


def join_texts(texts: Sequence[Text], width: int) -> Text:
    """Return texts one after another; a line that would be too long is broken between two of them."""
    joined, used = Text(), 0
    for text in texts:
        needed = text.cell_len + (2 if used else 0)
        breaks = used and used + needed > width
        joined += Text("\n  " if breaks else "  " if used else "") + text
        used = 2 + text.cell_len if breaks else used + needed
    return joined


def spent_text(form: Form, average: float, iterations: int, budget: float | None) -> Text:
    """Return what was spent, and of what budget; arguments as those of `Form.factor`."""
    if form.is_plain:
        return _plain_text(average, budget)
    limit = form.period if form.limit is None else f" of {form.limit_text}"
    shown = Text(
        form.amount(average, iterations, budget), style=_form_style(form, average, iterations, budget)
    )
    return shown + Text(limit, style="dim")


def _plain_text(spent: float, budget: float | None) -> Text:
    if budget is None:
        return Text(f"{spent:.{_DIGITS}g}")
    limit = Text(f"/{budget:.{_LIMIT_DIGITS}g}", style="dim")
    return Text(f"{spent:.{_DIGITS}g}", style=style(spent, budget)) + limit


def share_text(spent: float, budget: float | None, unit: str = "") -> Text:
    """Return what was spent in percent of the budget; without a budget, as an amount for an iteration."""
    if budget is None:
        return Text(Form(unit).amount(spent, 1, None))
    return Text(f"{spent / budget:.1%}", style=style(spent, budget))


def style(spent: float, budget: float) -> str:
    """Return the colour of an amount: within the budget, a little over it, or far over."""
    return "green" if spent <= budget else "yellow" if spent <= 1.05 * budget else "red"


def _form_style(form: Form, average: float, iterations: int, budget: float | None) -> str:
    spent = average * form.factor(iterations, budget)
    return "" if form.limit is None or math.isnan(spent) else style(spent, form.limit)


class CostColumn:
    """One knob in a table of runs: narrow cells, with what they have in common in the heading.

    Args:
        costs: of the runs, as `average_cost` of a summary has them for this knob.

    Attributes:
        is_plain: whether all are abstract costs.
        period: what all its budgets are for; nothing if they are plain, or differ.
    """

    def __init__(self, costs: Sequence[Mapping[str, Any]]) -> None:
        forms = [stored_form(cost) for cost in costs]
        self.is_plain = all(form.is_plain for form in forms)
        periods = {(form.unit, form.per): form.period.strip() or "in all" for form in forms}
        self._alike = len(periods) == 1
        self.period = "" if self.is_plain or not self._alike else next(iter(periods.values()))

    def cell(self, cost: Mapping[str, Any], iterations: int) -> Text:
        """Return what a run has spent, of what."""
        form, budget = stored_form(cost), cost["budget"]
        if form.limit is None or not form.unit or not self._alike:
            return spent_text(form, cost["spent"], iterations, budget)
        size, symbol = scale_of(form.limit, form.unit)
        spent = cost["spent"] * form.factor(iterations, budget) / size
        shown = Text(f"{spent:.{_DIGITS}g}", style=_form_style(form, cost["spent"], iterations, budget))
        return shown + Text(f" of {form.limit / size:.{_LIMIT_DIGITS}g} {symbol}", style="dim")
