"""Write the tables of docs/evidence.md on the price, from the runs of `make evidence-price`.

    python -m tools.evidence_price.tables runs/evidence-price --out results/price

- quickstart and demo: accuracy (mean of the last ten evaluations) and spent/budget over seeds, by policy
- self-tuning: for each network, budget and learning rate the price beside every V, and how far the price is
  from the best V that keeps the budgets (at most 1 % over)
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tools.written_table import write

from flexfl.parameters import KNOBS
from flexfl.results import Run

HELD = 1.01
"""A budget is kept if no knob is more than 1 % over, on average over seeds."""
POLICIES = ("price", "V=0.002", "V=0.02", "V=0.2", "V=2")
BUDGETS = ("tight", "paper", "loose")


@dataclass(frozen=True)
class Outcome:
    """What the seeds of one setting ended with: (S,) and, by knob, (S, 3)."""

    accuracy: np.ndarray
    shares: np.ndarray
    worst: np.ndarray

    @classmethod
    def of(cls, folder: Path) -> Outcome:
        runs = [Run(path) for path in sorted(folder.glob("seed-*"), key=lambda path: int(path.name[5:]))]
        summaries = [run.summary for run in runs if run.summary is not None]
        if len(summaries) < len(runs) or not runs:
            raise SystemExit(f"{folder} has {len(summaries)} of {len(runs)} runs; finish the sweep first")
        accounts = [[summary["average_cost"][knob] for knob in KNOBS] for summary in summaries]
        shares = [[entry["spent"] / entry["budget"] for entry in row] for row in accounts]
        worst = [
            [
                entry["worst"]["spent"]["spent"] / entry["worst"]["spent"]["budget"]
                if entry["worst"]
                else entry["spent"] / entry["budget"]
                for entry in row
            ]
            for row in accounts
        ]
        accuracy = [summary["recent_test_accuracy"] for summary in summaries]
        return cls(np.array(accuracy), np.array(shares), np.array(worst))

    @property
    def holds(self) -> bool:
        return bool((self.shares.mean(axis=0) <= HELD).all())


def over_seeds(name: str, folder: Path, out: Path) -> None:
    """Write accuracy and spending of each policy over its seeds."""
    rows = []
    for policy in ("price", "online"):
        found = Outcome.of(folder / policy)
        low, high = found.shares.min(axis=0), found.shares.max(axis=0)
        rows.append(
            [
                policy,
                len(found.accuracy),
                f"{found.accuracy.mean():.4f} ± {found.accuracy.std(ddof=1):.4f}",
                *(f"{100 * a:.2f}–{100 * b:.2f} %" for a, b in zip(low, high, strict=True)),
                f"{100 * found.worst.max():.2f} %",
            ]
        )
    spent = [f"{knob} spent, least–most of the seeds" for knob in KNOBS]
    write(out / name, ["policy", "seeds", "accuracy", *spent, "worst client of all seeds"], rows)


def self_tuning(folder: Path, out: Path) -> None:
    """Write the price beside every V."""
    cells = sorted({path.name.split("-name=")[1] for path in folder.glob("tight-price-*")})
    rows, gaps, most = [], [], 0.0
    for budget in BUDGETS:
        for cell in cells:
            network, rate = cell.split("-learning_rate=")
            by_policy = {policy: Outcome.of(folder / f"{budget}-{policy}-name={cell}") for policy in POLICIES}
            price = by_policy.pop("price")
            most = max(most, float(price.shares.max()))
            held = {policy: found.accuracy.mean() for policy, found in by_policy.items() if found.holds}
            best = max(held, key=lambda policy: held[policy]) if held else ""
            gap = price.accuracy.mean() - held[best] if held else np.nan
            gaps.append(gap)
            rows.append(
                [
                    network.rpartition("-")[2],
                    budget,
                    rate,
                    f"{price.accuracy.mean():.4f}",
                    " / ".join(f"{100 * share:.0f}" for share in price.shares.mean(axis=0)),
                    *(_cell(found) for found in by_policy.values()),
                    f"{best} {gap:+.4f}" if held else "no V holds",
                ]
            )
    header = ["network", "budget", "η", "price", "price spent, %", *POLICIES[1:], "price against the best V"]
    write(out / "self-tuning", header, rows)
    known = np.array([gap for gap in gaps if np.isfinite(gap)])
    behind = int((known < -0.005).sum())
    print(f"price: at most {100 * most:.2f} % of a budget; behind the best V by more than 0.005 in {behind}")
    print(f"of {len(known)} settings where a V holds (of {len(gaps)})")
    print(f"worst {known.min():+.4f}, mean {known.mean():+.4f}")


def _cell(found: Outcome) -> str:
    over = found.shares.mean(axis=0).max()
    return f"{found.accuracy.mean():.4f}" + ("" if found.holds else f" ({100 * over:.0f} %)")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", type=Path)
    parser.add_argument("--out", type=Path, default=Path("results/price"))
    parser.add_argument("--only", choices=("quickstart", "demo", "self-tuning"), action="append")
    given = parser.parse_args()
    wanted = given.only or ["quickstart", "demo", "self-tuning"]
    for name in ("quickstart", "demo"):
        if name in wanted:
            over_seeds(name, given.runs / name, given.out)
    if "self-tuning" in wanted:
        self_tuning(given.runs / "self-tuning", given.out)


if __name__ == "__main__":
    main()
