"""What a report shows: sections of panels, each with the curves of all groups.

Both the PNG figures and the page are drawn from this, so they can't tell different stories.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from flexfl.report.curves import (
    Curve,
    Series,
    curve_over_seeds,
    curve_with_band,
    round_window,
    running_mean,
)
from flexfl.report.groups import Group
from flexfl.results import Run
from flexfl.results.columns import KNOBS

KNOB_TITLES = {"compute": "Computing", "uplink": "Uplink", "downlink": "Downlink"}

OVER_SEEDS = "± one standard deviation over seeds"
OVER_CLIENTS = "10 % to 90 % of the clients"

# A running average of few iterations jumps: this share does not decide how tall a cost panel is.
_UNSETTLED = 0.05
# A method that ends beyond this many budgets would press all others onto the axis.
_OFF_SCALE = 5.0


@dataclass(frozen=True)
class Panel:
    """One pair of axes.

    budgets  horizontal lines
    band     what the bands are; empty without any
    notes    what a reader must know about this panel
    top      upper end of the y axis; None to fit all curves
    """

    key: str
    title: str
    y_label: str
    curves: tuple[Curve, ...]
    notes: tuple[str, ...] = ()
    budgets: tuple[float, ...] = ()
    band: str = ""
    top: float | None = None


@dataclass(frozen=True)
class Section:
    """Panels that are read together; `key` names the figure's file."""

    key: str
    title: str
    text: str
    panels: tuple[Panel, ...]


def sections_of(groups: Sequence[Group]) -> tuple[Section, ...]:
    """All sections, in reading order."""
    return (
        Section(
            "loss",
            "Loss",
            "Loss of the global model at each evaluation.",
            (
                _evaluated(groups, "train_loss", "Training loss", "training loss\n(mean per sample)"),
                _evaluated(groups, "test_loss", "Test loss", "test loss\n(mean per sample)"),
            ),
        ),
        Section(
            "accuracy",
            "Accuracy",
            "Share of samples that the global model classifies correctly.",
            (
                _evaluated(groups, "test_accuracy", "Test accuracy", "test accuracy\n(fraction correct)"),
                _evaluated(
                    groups, "train_accuracy", "Training accuracy", "training accuracy\n(fraction correct)"
                ),
            ),
        ),
        Section(
            "costs",
            "Average costs",
            "What was spent on average from the first iteration up to this one, over all clients; the "
            "dashed line is the budget. Costs have the unit in which the spec gives costs and budgets.",
            tuple(_cost(groups, knob) for knob in KNOBS),
        ),
        Section(
            "queues",
            "Queues",
            "How far spending has run ahead of the budget; the longer the queue, the thriftier the "
            "controller. A queue that stops growing means that the budget is kept in the long run.",
            tuple(_queue(groups, knob) for knob in KNOBS),
        ),
        Section(
            "components",
            "Components and clients",
            "How much was sent, and by how many.",
            _activity(groups),
        ),
    )


def overview_panels(sections: Sequence[Section]) -> tuple[Panel, ...]:
    """The essence: training loss, test accuracy, three average costs."""
    panels = {panel.key: panel for section in sections for panel in section.panels}
    return tuple(panels[key] for key in ("train_loss", "test_accuracy", *(f"{knob}_cost" for knob in KNOBS)))


def _drawn(
    groups: Sequence[Group], draw: Callable[[int, Group], Curve | None]
) -> tuple[tuple[Curve, ...], list[str]]:
    """The curves that exist, and the labels of the groups that have none."""
    curves = [draw(index, group) for index, group in enumerate(groups)]
    missing = [group.label for group, curve in zip(groups, curves, strict=True) if curve is None]
    return tuple(curve for curve in curves if curve is not None), missing


def _over_seeds(series: Callable[[Run], Series]) -> Callable[[int, Group], Curve | None]:
    return lambda index, group: curve_over_seeds(index, group.label, [series(run) for run in group.runs])


def _band(curves: Sequence[Curve]) -> str:
    return OVER_SEEDS if any(curve.low is not None for curve in curves) else ""


def _absent(missing: Sequence[str], groups: Sequence[Group], what: str, why: str) -> tuple[str, ...]:
    if not missing:
        return ()
    if len(missing) == len(groups):
        return (f"no {what} recorded: {why}",)
    return (f"no {what} recorded for {'; '.join(missing)}: {why}",)


def _evaluated(groups: Sequence[Group], column: str, title: str, y_label: str) -> Panel:
    curves, missing = _drawn(
        groups, _over_seeds(lambda run: (run.evaluations["iteration"], run.evaluations[column]))
    )
    why = "not evaluated" + (", or not a classification" if column.endswith("accuracy") else "")
    notes = _absent(missing, groups, title.lower(), why)
    return Panel(column, title, y_label, curves, notes, band=_band(curves))


def _cost(groups: Sequence[Group], knob: str) -> Panel:
    curves, missing = _drawn(
        groups, _over_seeds(lambda run: (run.iterations["iteration"], run.average_cost(knob)))
    )
    limits = {group.budget(knob) for group in groups}
    budgets = tuple(sorted(limit for limit in limits if limit is not None))
    notes = _absent(missing, groups, "cost", "no iteration yet")
    if not budgets:
        notes += ("no budget",)
    top, off = _scale(curves, budgets)
    if off:
        ends = "; ".join(f"{curve.label} (ends at {curve.mean[-1]:.3g})" for curve in off)
        notes += (f"off the scale: {ends}",)
    per = "per iteration" if knob == "downlink" else "per client and iteration"
    y_label = f"average cost so far\n({per})"
    return Panel(f"{knob}_cost", KNOB_TITLES[knob], y_label, curves, notes, budgets, _band(curves), top)


def _scale(curves: Sequence[Curve], budgets: Sequence[float]) -> tuple[float | None, list[Curve]]:
    """The upper end of a cost panel's axis, and the curves that lie beyond it."""
    settled = {curve.group: curve.highest[curve.x >= _UNSETTLED * curve.x[-1]] for curve in curves}
    limit = _OFF_SCALE * max(budgets, default=np.inf)
    off = [curve for curve in curves if curve.mean[-1] > limit]
    if len(off) == len(curves):
        off = []
    inside = [curve for curve in curves if curve not in off]
    tallest = max([*budgets, *(float(settled[curve.group].max()) for curve in inside)], default=0.0)
    everything = max((float(curve.highest.max()) for curve in curves), default=0.0)
    return (1.25 * tallest if 0 < 2 * tallest < everything else None), off


def _queue(groups: Sequence[Group], knob: str) -> Panel:
    by_client = knob != "downlink"
    column = f"{knob}_queue_mean" if by_client else "downlink_queue"
    y_label = "queue length (cost)" + ("\nmean over clients" if by_client else "")

    def over_clients(index: int, group: Group) -> Curve | None:
        iterations = group.runs[0].iterations
        rows = np.array([iterations[name] for name in (column, f"{knob}_queue_p10", f"{knob}_queue_p90")])
        return curve_with_band(index, group.label, iterations["iteration"], rows)

    # Bands of two kinds in one panel would mislead: over clients only if no group has seeds to show.
    if by_client and all(len(group.runs) == 1 for group in groups):
        curves, missing = _drawn(groups, over_clients)
        band = OVER_CLIENTS if curves else ""
    else:
        curves, missing = _drawn(
            groups, _over_seeds(lambda run: (run.iterations["iteration"], run.iterations[column]))
        )
        band = _band(curves)
    notes = _absent(missing, groups, "queue", "no budget, or a policy without queues")
    return Panel(f"{knob}_queue", f"{KNOB_TITLES[knob]} queue", y_label, curves, notes, band=band)


def _activity(groups: Sequence[Group]) -> tuple[Panel, ...]:
    # Most iterations send little or nothing; single values are a comb that nobody can read.
    window = round_window(max((group.iterations for group in groups), default=0))
    smoothed = f"\nrunning mean over {window} iterations" if window > 1 else ""

    def panel(column: str, title: str, y_label: str) -> Panel:
        curves, missing = _drawn(
            groups,
            _over_seeds(
                lambda run: (run.iterations["iteration"], running_mean(run.iterations[column], window))
            ),
        )
        notes = _absent(missing, groups, "iteration", "nothing to draw yet")
        return Panel(column, title, y_label + smoothed, curves, notes, band=_band(curves))

    return (
        panel("uplink_components_mean", "Components sent up", "components per client"),
        panel("downlink_components", "Components sent down", "components broadcast"),
        panel("computed", "Clients that compute", "clients"),
        panel("senders", "Clients that send", "clients"),
    )
