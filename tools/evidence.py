"""Print the numbers of docs/evidence.md that are in no table of results.

    python tools/evidence.py runs/paper/fashion   # the runs of the figures
    python tools/evidence.py runs/half            # one method: a folder with seed-1, seed-2, …

The first prints the reference points, the distance between the proposed method and the best baseline,
and how much the baseline with the smallest k_r delivers and broadcasts; the second the accuracy.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from flexfl.results import Run

AROUND, WITHIN = (500, 1000, 2000, 3000), 250
REFERENCE = {"online": (0.78, 0.82, 0.84, 0.85), "kr-0.01": (0.60, 0.73, 0.77, 0.80)}


def main(folder: Path) -> None:
    if method_runs := runs(folder):
        report(method_runs, {})
        return
    for method, reference in REFERENCE.items():
        report(runs(folder / method), {"reference": np.array(reference)})
    print("mean test accuracy above the best baseline")
    accuracy = {path.name: accuracies(path) for path in sorted(folder.glob("kr-*"))}
    best = np.max(list(accuracy.values()), axis=0)
    gap = accuracies(folder / "online") - best
    at = runs(folder / "online")[0].evaluations["iteration"]
    print(f"  at least {gap[at > 1000].min():.3f} after iteration 1000")
    least = runs(folder / "kr-0.001")
    delivered = np.mean([run.iterations["uplink_components_mean"].mean() * clients(run) for run in least])
    broadcast = np.mean([run.iterations["downlink_components"].mean() for run in least])
    print("kr-0.001: components per iteration")
    print(f"  {delivered:.0f} from all clients together, {broadcast:.0f} broadcast")


def report(seeds: list[Run], rows: dict[str, np.ndarray]) -> None:
    """Print the test accuracy around the points, as far as the runs go, and over the last ten evaluations."""
    name = seeds[0].directory.parent.name
    print(f"{name}: test accuracy around iterations {AROUND}, ± {WITHIN}; at the end")
    found = np.array([[*near(run), run.evaluations["test_accuracy"][-10:].mean()] for run in seeds])
    rows |= {
        f"mean of {len(found)} seeds": found.mean(axis=0),
        "deviation": found.std(axis=0, ddof=1),
        "smallest": found.min(axis=0),
        "largest": found.max(axis=0),
    }
    for name, row in rows.items():
        print(f"  {name:16s}", *(f"{value:.3f}" for value in row))


def runs(folder: Path) -> list[Run]:
    return [Run(path) for path in sorted(folder.glob("seed-*"))]


def near(run: Run) -> list[float]:
    """Return the test accuracy around each reference point."""
    iterations, accuracy = run.evaluations["iteration"], run.evaluations["test_accuracy"]
    return [accuracy[abs(iterations - at) <= WITHIN].mean() for at in AROUND]


def accuracies(folder: Path) -> np.ndarray:
    """Return the test accuracy at each evaluation, averaged over seeds."""
    return np.mean([run.evaluations["test_accuracy"] for run in runs(folder)], axis=0)


def clients(run: Run) -> int:
    return int(run.spec["data"]["clients"])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
