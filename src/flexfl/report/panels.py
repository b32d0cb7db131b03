"""The content of a report: sections of panels, each with the curves of all groups.

Both the PNG figures and the page are drawn from it, so they show the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from flexfl.parameters import KNOBS
from flexfl.report.axes import Axis
from flexfl.report.curves import (
    Curve,
    Series,
    curve_over_seeds,
    curve_with_band,
    round_window,
    running_mean,
)
from flexfl.report.groups import Group
from flexfl.report.panel import Panel as Panel
from flexfl.report.panel import Section as Section
from flexfl.report.scales import budget_labels, queue_names, scale_for
from flexfl.report.summary import agrees, worst_of
from flexfl.results import Run
from flexfl.units import scale_of

KNOB_TITLES = {"compute": "Computing", "uplink": "Uplink", "downlink": "Downlink"}

OVER_SEEDS = "± one standard deviation over seeds"
OVER_CLIENTS = "10th to 90th percentile over clients"

# A running average of few iterations fluctuates: the y range of a cost panel ignores this share of the run.
_UNSETTLED = 0.05
# The y range ignores methods that end above this many budgets: others would be hard to see.
_OFF_SCALE = 5.0
_PLURALS = {"queue": "Queues", "price": "Prices", "queue or price": "Queues and prices"}
# A logarithmic y range goes so many times beyond the smallest and the largest value.
_LOG_MARGIN = 1.3
# Up to this many groups, each has a note on its worst client.
_MOST_NOTES = 3
# Up to this many, each has a dashed line for its averaged model, too.
MOST_LINES = 6

AVERAGED = "averaged model"
CHARGED = "charged: the expected cost λ(q), which the controller holds to the budget"


EVALUATED = {
    "train_loss": ("Training loss", "training loss\n(f, mean over clients)"),
    "test_loss": ("Test loss", "test loss\n(mean per sample)"),
    "test_accuracy": ("Test accuracy", "test accuracy\n(fraction correct)"),
    "train_accuracy": ("Training accuracy", "training accuracy\n(fraction correct)"),
}
"""Title and y label of the panel of each evaluated metric."""


def sections_of(groups: Sequence[Group], x: Axis | None = None) -> tuple[Section, ...]:
    """Return all sections, in reading order; `x` is the x axis of loss and accuracy, else iterations."""
    axis = x or Axis()
    against = f" The x axis is {axis.label}; seeds are interpolated, as far as all of a group reach."
    against = "" if axis.is_iteration else against
    return (
        Section(
            "loss",
            "Loss",
            f"Loss of the global model at each evaluation.{against}",
            tuple(evaluated_panel(groups, metric, axis) for metric in ("train_loss", "test_loss")),
        ),
        Section(
            "accuracy",
            "Accuracy",
            f"Share of samples that the global model classifies correctly.{against}",
            tuple(evaluated_panel(groups, metric, axis) for metric in ("test_accuracy", "train_accuracy")),
        ),
        Section(
            "costs",
            "Average costs",
            "Average cost from the first iteration up to this one, over all clients; the dashed line is "
            "the budget. Costs are what was really spent, in their unit, or as plain numbers if they have "
            "none; where the expected cost, which the controller holds to the budget, differs from it, "
            "a thin line shows that, too. A budget holds for each client: the worst one is named.",
            tuple(_cost(groups, knob) for knob in KNOBS),
        ),
        Section("queues", *_queue_texts(groups), tuple(_queue(groups, knob) for knob in KNOBS)),
        Section(
            "components",
            "Components and clients",
            "How much was sent, and by how many clients.",
            _activity(groups),
        ),
    )


def overview_panels(sections: Sequence[Section]) -> tuple[Panel, ...]:
    """Return the main panels: training loss, test accuracy, three average costs."""
    panels = {panel.key: panel for section in sections for panel in section.panels}
    return tuple(panels[key] for key in ("train_loss", "test_accuracy", *(f"{knob}_cost" for knob in KNOBS)))


def _curves_of(
    groups: Sequence[Group], curve_of: Callable[[int, Group], Curve | None]
) -> tuple[tuple[Curve, ...], list[str]]:
    """Return the curves of the groups, and the labels of the groups that have none."""
    curves, missing = [], []
    for index, group in enumerate(groups):
        curve = curve_of(index, group)
        if curve is None:
            missing.append(group.label)
        else:
            curves.append(replace(curve, origin=group.origin))
    return tuple(curves), missing


def _over_seeds(series: Callable[[Run], Series]) -> Callable[[int, Group], Curve | None]:
    return lambda index, group: curve_over_seeds(index, group.label, [series(run) for run in group.runs])


def _band(curves: Sequence[Curve]) -> str:
    return OVER_SEEDS if any(curve.low is not None for curve in curves) else ""


def _fitted(values: Sequence[float]) -> tuple[float, float]:
    """Return a y range from zero, so that heights can be compared, to just above the largest value."""
    low, high = min([0.0, *values]), max([0.0, *values])
    margin = 0.08 * (high - low)
    return (low - margin if low < 0 else 0.0, high + margin if margin > 0 else 1.0)


def _range_of(curves: Sequence[Curve]) -> tuple[float, float]:
    """Return a y range for all curves; it does not go below zero for a band alone."""
    ends = [float(end) for curve in curves for end in (curve.mean.min(), curve.highest.max())]
    return _fitted(ends)


def _missing_note(missing: Sequence[str], groups: Sequence[Group], what: str, why: str) -> tuple[str, ...]:
    """Return a note that names the groups without data, or nothing."""
    if not missing:
        return ()
    if len(missing) == len(groups):
        return (f"no {what} recorded: {why}",)
    if len(missing) > 2:
        return (f"no {what} recorded for {len(missing)} of {len(groups)} groups: {why}",)
    return (f"no {what} recorded for {'; '.join(missing)}: {why}",)


def evaluated_panel(groups: Sequence[Group], column: str, x: Axis) -> Panel:
    """Return the panel of an evaluated metric against `x`."""
    title, y_label = EVALUATED[column]

    def curve_of(index: int, group: Group) -> Curve | None:
        series = [(x.at_evaluations(run), run.evaluations[column]) for run in group.runs]
        return curve_over_seeds(index, group.label, series, same_x=x.is_iteration)

    curves, missing = _curves_of(groups, curve_of)
    why = "not evaluated yet" + (", or not a classification" if column.endswith("accuracy") else "")
    notes = _missing_note(missing, groups, title.lower(), why)
    if len(groups) <= MOST_LINES:
        curves += _averaged(groups, column, x)
    y_range = _range_of(curves)
    return Panel(column, title, y_label, y_range, curves, notes, band=_band(curves), x_label=x.label)


def _averaged(groups: Sequence[Group], column: str, x: Axis) -> tuple[Curve, ...]:
    """Return the curves of the averaged model for a metric of the test set, of groups that have it."""
    if not column.startswith("test_"):
        return ()

    def curve_of(index: int, group: Group) -> Curve | None:
        series = [(x.at_evaluations(run), run.evaluations[f"average_{column}"]) for run in group.runs]
        curve = curve_over_seeds(index, f"{group.label}, {AVERAGED}", series, same_x=x.is_iteration)
        return None if curve is None else replace(curve, low=None, high=None, averaged=True)

    return _curves_of(groups, curve_of)[0]


def _charged(groups: Sequence[Group], knob: str) -> list[Curve]:
    """Return thin curves of what was charged, of groups that have spent something else."""
    differ = [index for index, group in enumerate(groups) if group.started and not agrees(group, knob)]
    curves = []
    for index in differ:
        group = groups[index]
        series = [
            (run.iterations["iteration"], run.average_cost(knob, charged=True)) for run in group.started
        ]
        curve = curve_over_seeds(index, f"{group.label}, charged", series)
        if curve is not None:
            curves.append(replace(curve, low=None, high=None, thin=True, origin=group.origin))
    return curves


def _worst_notes(groups: Sequence[Group], knob: str) -> tuple[str, ...]:
    """Return notes on the worst client: of each group, or of all if these are many."""
    found = [(group.label, worst) for group in groups if (worst := worst_of(group, knob)) is not None]
    if not found:
        return ()
    if len(groups) == 1:
        return (f"worst client: {found[0][1]}",)
    if len(found) > _MOST_NOTES:
        found = [max(found, key=lambda pair: pair[1].share)]
    return tuple(f"worst client of {label}: {worst}" for label, worst in found)


def _cost(groups: Sequence[Group], knob: str) -> Panel:
    curves, missing = _curves_of(
        groups, _over_seeds(lambda run: (run.iterations["iteration"], run.average_cost(knob)))
    )
    charged = _charged(groups, knob)
    labels = budget_labels(groups, knob)
    scale = scale_for(groups, knob, max([*labels, *(float(curve.mean[-1]) for curve in curves)], default=0.0))
    curves, charged = tuple(map(scale.curve, curves)), list(map(scale.curve, charged))
    budgets = tuple(budget / scale.size for budget in labels)
    notes = _missing_note(missing, groups, "cost", "no iteration yet")
    notes += () if budgets else ("no budget",)
    beyond = _OFF_SCALE * max(budgets, default=np.inf)
    off = [curve for curve in curves if curve.mean[-1] > beyond]
    if 0 < len(off) < len(curves):
        ends = "; ".join(f"{curve.label} (ends at {scale.text(curve.mean[-1])})" for curve in off)
        notes += (f"off the scale: {ends}",)
    notes += scale.notes + _worst_notes(groups, knob)
    inside = curves if len(off) == len(curves) else [curve for curve in curves if curve not in off]
    inside = (*inside, *charged)
    settled = [float(curve.highest[curve.x >= _UNSETTLED * curve.x[-1]].max()) for curve in inside]
    per = f"{scale.symbol} per {'' if knob == 'downlink' else 'client and '}iteration".strip()
    return Panel(
        f"{knob}_cost",
        f"{KNOB_TITLES[knob]} cost",
        f"average cost so far\n({per})",
        _fitted([*budgets, *settled]),
        (*curves, *charged),
        notes,
        budgets,
        tuple(labels.values()),
        _band(curves),
        unit=scale.symbol,
    )


def _queue_texts(groups: Sequence[Group]) -> tuple[str, str]:
    """Return title and text of the section of queues and prices."""
    name, texts = queue_names(groups, KNOBS), []
    if name != "price":
        texts.append(
            "A queue is how far spending has exceeded the budget; the longer it is, the less the controller "
            "spends. A queue that stops growing means that the budget is met in the long run."
        )
    if name != "queue":
        texts.append(
            "A price is what a unit of cost counts for when the controller weighs it against progress: it "
            "rises while more than the budget's share is spent, and falls while less is."
        )
    return _PLURALS[name], " ".join(texts)


def _queue(groups: Sequence[Group], knob: str) -> Panel:
    by_client = knob != "downlink"
    column = f"{knob}_queue_mean" if by_client else "downlink_queue"
    name = queue_names(groups, [knob])

    def over_clients(index: int, group: Group) -> Curve | None:
        iterations = group.runs[0].iterations
        rows = np.array([iterations[name] for name in (column, f"{knob}_queue_p10", f"{knob}_queue_p90")])
        return curve_with_band(index, group.label, iterations["iteration"], rows)

    # Two kinds of bands in one panel would mislead: over clients only if every group has one seed.
    if by_client and all(len(group.runs) == 1 for group in groups):
        curves, missing = _curves_of(groups, over_clients)
        band = OVER_CLIENTS if curves else ""
    else:
        curves, missing = _curves_of(
            groups, _over_seeds(lambda run: (run.iterations["iteration"], run.iterations[column]))
        )
        band = _band(curves)
    notes = _missing_note(missing, groups, name, f"no budget, or a policy without {_PLURALS[name].lower()}")
    scale = scale_for(groups, knob, max((float(curve.highest.max()) for curve in curves), default=0.0))
    if name == "queue":
        what, y_range = f"queue length (in {scale.symbol or 'units of cost'})", None
        curves = tuple(map(scale.curve, curves))
    else:
        each = scale_of(1.0, groups[0].runs[0].units.get(knob, ""))[1]
        of_unit = f"1 {each}" if each and not scale.notes else "a unit of cost"
        what, y_range = f"{name} (of {of_unit}), log scale", _log_range(curves)
    return Panel(
        f"{knob}_queue",
        f"{KNOB_TITLES[knob]} {name}",
        what + ("\nmean over clients" if by_client else ""),
        y_range or _range_of(curves),
        curves,
        notes + (scale.notes if curves else ()),
        band=band,
        unit=scale.symbol if name == "queue" else "",
        is_log=y_range is not None,
    )


def _log_range(curves: Sequence[Curve]) -> tuple[float, float] | None:
    """Return a y range for the positive values of all curves; None if there are none."""
    rows = [row for curve in curves for row in (curve.mean, curve.low, curve.high) if row is not None]
    values = np.concatenate([[], *rows])
    values = values[values > 0]
    return (float(values.min()) / _LOG_MARGIN, float(values.max()) * _LOG_MARGIN) if len(values) else None


def _activity(groups: Sequence[Group]) -> tuple[Panel, ...]:
    # Most iterations send little or nothing; single values would be unreadable.
    window = round_window(max((group.iterations for group in groups), default=0))
    smoothed = f"\nrunning mean over {window} iterations" if window > 1 else ""

    def panel(column: str, title: str, y_label: str) -> Panel:
        curves, missing = _curves_of(
            groups,
            _over_seeds(
                lambda run: (run.iterations["iteration"], running_mean(run.iterations[column], window))
            ),
        )
        notes = _missing_note(missing, groups, "iteration", "nothing to draw yet")
        return Panel(column, title, y_label + smoothed, _range_of(curves), curves, notes, band=_band(curves))

    return (
        panel("uplink_components_mean", "Components sent up", "components per client"),
        panel("downlink_components", "Components sent down", "components broadcast"),
        panel("computed", "Clients that compute", "clients"),
        panel("senders", "Clients that send", "clients"),
    )
