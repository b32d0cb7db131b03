"""Many runs: seeds and variants side by side, sweeps, the paper's figures."""

from flexfl.experiments.finished import finished, run_rest
from flexfl.experiments.parallel import Cell, Outcome, run_cells

__all__ = ["Cell", "Outcome", "finished", "run_cells", "run_rest"]
