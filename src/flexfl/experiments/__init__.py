"""Experiments of many runs: seeds and variants in parallel, sweeps, the paper's figures."""

from flexfl.experiments.cell import Cell, Outcome
from flexfl.experiments.finished import finished_run, run_unfinished
from flexfl.experiments.on_ray import run_cells_on_ray
from flexfl.experiments.parallel import run_cells

__all__ = ["Cell", "Outcome", "finished_run", "run_cells", "run_cells_on_ray", "run_unfinished"]
