"""The tables of a comparison as text, the same in Markdown, on the page and in the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flexfl.parameters import KNOBS
from flexfl.report.axes import byte_unit
from flexfl.report.compare import HELD, Comparison, Contender, largest_share
from flexfl.report.summary import Estimate
from flexfl.report.targets import RESOURCES, Reached

NEVER = "never"
_NOTHING = "–"


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        title: What it shows.
        text: How to read it.
        heads: The heading of each column.
        rows: The cells of each method.
    """

    title: str
    text: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def markdown(self) -> str:
        """Return it as Markdown, below its title."""
        lines = [self.heads, ("---",) * len(self.heads), *self.rows]
        cells = "".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |\n" for line in lines)
        return f"## {self.title}\n\n{self.text}\n\n{cells}"


def results_table(comparison: Comparison) -> Table:
    """Return accuracy, area, shares of the budgets and bytes of each method."""
    averaged = ("averaged model",) if comparison.has_averaged else ()
    heads = ("method", "seeds", "final accuracy", "last evaluation", *averaged)
    heads += ("area, uplink cost", "area, bytes", *KNOBS, "worst client", "bytes up", "bytes down")
    rows = []
    for one in comparison.contenders:
        more = (_text(one.averaged),) if comparison.has_averaged else ()
        cells = (_name(one), str(len(one.point.runs)), one.point.text, _text(one.last), *more)
        cells += tuple(str(comparison.area(one, name)) for name in comparison.ends)
        cells += (*(_share(one, knob) for knob in KNOBS), _worst(one))
        rows.append((*cells, _bytes(one, "uplink-bytes"), _bytes(one, "downlink-bytes")))
    over = f"! marks who has spent more than {1 + HELD:.0%} of a budget. "
    text = (
        "Final accuracy is the mean test accuracy of the last ten evaluations, as far as they are in the "
        "last fifth of the run; mean ± one standard deviation over seeds. Area is the mean accuracy while "
        "the uplink budget of the run is spent (or the most bytes that any of them sends); who spends less "
        "keeps the last accuracy. Compute, uplink and downlink are shares of the budget, on average over "
        "clients; the worst client is that which has spent the largest share of one of its budgets. "
        f"{over if any(one.is_over for one in comparison.contenders) else ''}"
        "Bytes are those of all clients, and of the server, whose broadcast counts once."
    )
    return Table("Methods", text, heads, tuple(rows))


def target_table(comparison: Comparison, target: float) -> Table:
    """Return what each method has used until it first reached a test accuracy."""
    resources = [name for name in RESOURCES if name != "seconds"]
    heads = ("method", "seeds that reach it", *(RESOURCES[name] for name in resources))
    rows = [
        (one.name, f"{found.reached} of {found.seeds}", *(_resource(found, name) for name in resources))
        for one, found in zip(comparison.contenders, comparison.reached[target], strict=True)
    ]
    text = (
        "What was used until the first evaluation with this test accuracy: mean ± one standard deviation "
        "over the seeds that reach it. Costs and bytes are totals over all clients; a broadcast counts once."
    )
    return Table(f"Until test accuracy {target:g}", text, heads, tuple(rows))


def tuning_table(comparison: Comparison) -> Table | None:
    """Return the grid of each method and what was chosen; None if nothing was tuned."""
    tuned = [one for one in comparison.contenders if one.tried]
    if not tuned:
        return None
    rows = [
        (one.name, one.settings, one.tried[one.chosen].text, f"{len(one.tried)}", _tried(one))
        for one in tuned
    ]
    text = (
        "Every combination was run with the seeds for tuning; the most accurate at the end, of those that "
        f"keep all budgets within {HELD:.0%}, runs with all seeds. In parentheses: accuracy; ! is over "
        "budget, and a combination that failed has no accuracy."
    )
    heads = ("method", "chosen", "accuracy when tuned", "tried", "all combinations")
    return Table("Tuning", text, heads, tuple(rows))


def tables_of(comparison: Comparison) -> list[Table]:
    """Return all tables, in reading order."""
    tuning = tuning_table(comparison)
    targets = [target_table(comparison, target) for target in comparison.targets]
    return [results_table(comparison), *targets, *([] if tuning is None else [tuning])]


def _name(one: Contender) -> str:
    return f"{one.name} ({one.paper})" if one.paper else one.name


def _text(found: Estimate | None) -> str:
    if found is None:
        return _NOTHING
    return f"{found.mean:.3f}" if found.deviation is None else str(found)


def _share(one: Contender, knob: str) -> str:
    spent, budget = one.point.spent(knob), one.point.budget(knob)
    if spent is None:
        return _NOTHING
    if not budget:
        return spent.text(one.point.unit(knob))
    part = spent.mean / budget
    return f"{part:.1%}{' !' if part > 1 + HELD else ''}"


def _worst(one: Contender) -> str:
    worst = one.point.worst
    return _NOTHING if worst is None else f"{worst.share:.0%} {worst.knob} ({worst.who})"


def _bytes(one: Contender, name: str) -> str:
    found = one.total(name)
    size, unit = byte_unit(found.mean)
    return f"{found.times(1 / size)} {unit}"


def _resource(found: Reached, name: str) -> str:
    return found.text(name) if found.reached else NEVER


def _tried(one: Contender) -> str:
    texts: Sequence[str] = [
        f"{point.label} ({point.text}{' !' if largest_share(point) > 1 + HELD else ''})"
        for point in one.tried
    ]
    return "; ".join(texts)
