"""Many runs: seeds and variants side by side, sweeps, the paper's figures."""

from flexfl.experiments.cell import Cell, Outcome
from flexfl.experiments.finished import finished, run_rest
from flexfl.experiments.on_ray import run_cells_on_ray
from flexfl.experiments.parallel import run_cells

__all__ = ["Cell", "Outcome", "finished", "run_cells", "run_cells_on_ray", "run_rest"]
