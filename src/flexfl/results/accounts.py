"""What was charged and spent against the budgets: on average, and by the client that is worst off.

*Charged* is what the queues count: for computing the expected cost λ(q), for sending the cost itself. The
controller holds it to the budget. *Spent* is what was really spent: for computing λ(1) by those who computed,
λ(0) by the others. Where λ is linear both agree in the long run; where it is not, the budget holds for what
is charged only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from flexfl.arrays import FloatArray, IntArray
from flexfl.results.columns import CHARGED_COLUMN, SPENT_COLUMN
from flexfl.results.forms import Form
from flexfl.units import Amount, amount_of, average, period_of

# Spent and charged differ if they do by more than this share, and by more than so many standard errors.
_CLOSE = 0.02
_STANDARD_ERRORS = 3.0

_LISTED = 4

Totals = Mapping[str, FloatArray]
"""Sums over iterations for each client, by the names of `columns.SUMMED`, (N,)."""

_SUMS = {"compute": ("compute_spent", "compute_cost"), "uplink": ("uplink_cost", "uplink_cost")}
"""What each client has spent, and what it was charged."""


def account(
    iterations: Mapping[str, FloatArray],
    totals: Totals,
    knob: str,
    *,
    budget: float | None,
    given: Any,
    names: Sequence[str] = (),
    unit: str = "",
    pace: float = np.nan,
    horizon: int = 0,
) -> dict[str, Any]:
    """Return what was spent on a knob, as a summary has it.

    Args:
        iterations: One row per iteration, as columns.
        totals: The sums by client.
        knob: compute, uplink or downlink.
        budget: The mean budget; None for no limit.
        given: The budget as the spec has it.
        names: Names of the clients; by default their numbers.
        unit: Of the costs.
        pace: Seconds of an iteration, for budgets that go by the clock.
        horizon: T, for totals; by default the iterations so far.

    Returns:
        Averages `spent` and `charged`, whether they `agree` apart from sampling noise, the `budget`, the
        `worst` client (see `worst`), and the `unit` where there is one.
    """
    spent, charged = iterations[SPENT_COLUMN[knob]], iterations[CHARGED_COLUMN[knob]]
    return {
        "spent": _mean(spent),
        "charged": _mean(charged),
        "agree": agree(spent, charged),
        "budget": budget,
        "worst": worst(totals, len(spent), knob, given, names, pace, horizon),
    } | ({"unit": unit} if unit else {})


def agree(spent: FloatArray, charged: FloatArray) -> bool:
    """Return whether what was spent, (T,), is on average what was charged, apart from sampling noise.

    >>> agree(np.array([0.0, 1.0, 1.0, 0.0]), np.full(4, 0.6))
    True
    >>> agree(np.array([0.9, 1.0, 1.0, 0.9]), np.full(4, 0.6))
    False
    """
    difference = spent - charged
    if len(difference) < 2 or not np.isfinite(difference).all():
        return True
    gap = abs(float(difference.mean()))
    noise = _STANDARD_ERRORS * float(difference.std(ddof=1)) / len(difference) ** 0.5
    return bool(gap <= max(_CLOSE * abs(float(charged.mean())), noise))


def worst(
    totals: Totals,
    iterations: int,
    knob: str,
    given: Any,
    names: Sequence[str] = (),
    pace: float = np.nan,
    horizon: int = 0,
) -> dict[str, dict[str, Any]] | None:
    """Return who is worst off: whose average is the largest share of its budget.

    Args:
        totals: The sums by client.
        iterations: Over how many iterations they go.
        knob: compute, uplink or downlink; there is only one server, so it has no worst.
        given: The budget as the spec has it: a number, a list, or a table of shared budgets.
        names: Names of the clients; by default their numbers.
        pace: Seconds of an iteration, for budgets that go by the clock.
        horizon: T, for totals; by default `iterations`.

    Returns:
        The worst by `spent` and the worst by `charged`, each with `who` it is, its `clients` (several if they
        share a budget), and what they together have `spent`, were `charged`, and have as `budget`. None if
        nobody has a budget, or the sums are not known.
    """
    if knob not in _SUMS or given is None or not iterations:
        return None
    spent, charged = (totals[name] for name in _SUMS[knob])
    if spent.ndim == 0 or not np.isfinite(spent + charged).all():
        return None
    limits, members = limits_of(
        given, len(spent), lambda amount: average(amount, horizon or iterations, pace)
    )
    if not np.isfinite(limits).any():
        return None
    means = {
        by: np.bincount(members, weights=sums, minlength=len(limits)) / iterations
        for by, sums in (("spent", spent), ("charged", charged))
    }
    found = {}
    for by, mean in means.items():
        place = int(np.argmax(mean / limits))
        clients = np.flatnonzero(members == place).tolist()
        found[by] = {
            "who": _who(clients, names),
            "clients": clients,
            "spent": float(means["spent"][place]),
            "charged": float(means["charged"][place]),
            "budget": float(limits[place]),
        }
    return found


def share(entry: Mapping[str, Any], by: str = "spent") -> float:
    """Return what was spent (or charged) as a share of the budget."""
    return float(entry[by] / entry["budget"])


def limits_of(
    given: Any, clients: int, measure: Callable[[Amount], float] = lambda amount: amount.value
) -> tuple[FloatArray, IntArray]:
    """Return the limit of each budget, and the budget of each client, (N,).

    Args:
        given: A budget as the spec has it: a number or a text, a list, or a table of shared budgets.
        clients: N.
        measure: Returns the number that an amount stands for; by default its value in its unit.

    >>> limits_of({"shared": [{"clients": [0, 2], "limit": "4 kB"}], "others": "1 kB"}, 4)
    (array([4000., 1000., 1000.]), array([0, 1, 0, 2]))
    """
    if isinstance(given, list):
        return np.array([measure(amount_of(one)) for one in given]), np.arange(clients)
    if not isinstance(given, Mapping):
        return np.full(clients, measure(amount_of(given))), np.arange(clients)
    members = np.full(clients, -1)
    limits = [measure(amount_of(group["limit"])) for group in given["shared"]]
    for queue, group in enumerate(given["shared"]):
        members[group["clients"]] = queue
    alone = np.flatnonzero(members < 0)
    members[alone] = len(limits) + np.arange(len(alone))
    rest = given.get("others")
    return np.array(limits + [np.inf if rest is None else measure(amount_of(rest))] * len(alone)), members


def first_amount(given: Any) -> Amount:
    """Return one of the amounts of a budget, which all have the same unit and period."""
    if isinstance(given, Mapping):
        given = given["shared"][0]["limit"]
    return amount_of(given[0] if isinstance(given, list) else given)


def form_of(given: Any, clients: int, unit: str = "") -> Form:
    """Return how the costs of a knob are shown.

    Args:
        given: its budget as the spec has it; None for no limit.
        clients: N.
        unit: of its costs.

    >>> form_of(["2 MB / month", "4 MB / month"], 2, "byte")
    Form(unit='byte', per='month', limit=3000000.0)
    """
    if given is None:
        return Form(unit)
    amount = first_amount(given)
    mean = float(limits_of(given, clients)[0].sum()) / clients
    per = period_of(amount.seconds) if amount.per == "time" else amount.per
    return Form(unit or amount.unit, per, mean if np.isfinite(mean) else None)


def _who(clients: Sequence[int], names: Sequence[str]) -> str:
    """Return clients as text.

    >>> _who([3], []), _who([3, 4, 5], []), _who([0, 1], ["north", "south"])
    ('client 3', 'clients 3–5', 'north, south')
    """
    if names:
        listed = [names[client] for client in clients]
    elif len(clients) > 2 and clients[-1] - clients[0] == len(clients) - 1:
        return f"clients {clients[0]}–{clients[-1]}"
    else:
        listed = [str(client) for client in clients]
    text = ", ".join(listed[:_LISTED])
    if len(listed) > _LISTED:
        text += f", … ({len(listed)} clients)"
    return text if names else f"client{'s' if len(clients) > 1 else ''} {text}"


def _mean(column: FloatArray) -> float | None:
    mean = float(np.mean(column)) if len(column) else np.nan
    return mean if np.isfinite(mean) else None
