"""What a report draws: panels with curves and budget lines, in sections."""

from __future__ import annotations

from dataclasses import dataclass

from flexfl.report.curves import Curve


@dataclass(frozen=True)
class Panel:
    """One pair of axes.

    Attributes:
        key: Identifies the panel.
        title: Title of the panel.
        y_label: Label of the y axis.
        y_range: Both ends of the y axis.
        curves: A curve for each group that has data.
        notes: Remarks for the caption.
        budgets: Budgets, drawn as horizontal lines.
        budget_labels: A label for each of them.
        band: What the bands show; empty if there are none.
        x_label: Label of the x axis.
        unit: Symbol of the unit of y, for single values; "" without one.
        is_log: Whether the y axis is logarithmic; values that are not positive are left out then.
    """

    key: str
    title: str
    y_label: str
    y_range: tuple[float, float]
    curves: tuple[Curve, ...]
    notes: tuple[str, ...] = ()
    budgets: tuple[float, ...] = ()
    budget_labels: tuple[str, ...] = ()
    band: str = ""
    x_label: str = "iteration"
    unit: str = ""
    is_log: bool = False

    @property
    def x_end(self) -> float:
        """The end of the x axis, which starts at 0."""
        return max((float(curve.x[-1]) for curve in self.curves), default=0.0) or 1.0

    @property
    def has_charged(self) -> bool:
        """Whether thin lines show what was charged."""
        return any(curve.thin for curve in self.curves)

    @property
    def has_averaged(self) -> bool:
        """Whether dashed lines show the averaged model."""
        return any(curve.averaged for curve in self.curves)


@dataclass(frozen=True)
class Section:
    """Panels in one figure; `key` is the name of its file."""

    key: str
    title: str
    text: str
    panels: tuple[Panel, ...]
