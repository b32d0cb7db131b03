"""Many runs: seeds and variants side by side."""

from flexfl.experiments.parallel import Cell, Outcome, run_cells

__all__ = ["Cell", "Outcome", "run_cells"]
