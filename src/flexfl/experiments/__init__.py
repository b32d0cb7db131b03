"""Many runs: seeds and variants side by side."""

from flexfl.experiments.cell import Cell, Outcome
from flexfl.experiments.on_ray import run_cells_on_ray
from flexfl.experiments.parallel import run_cells

__all__ = ["Cell", "Outcome", "run_cells", "run_cells_on_ray"]
