"""The run directory: resolved spec, metrics, checkpoints, summary."""

from flexfl.results.run import Run

__all__ = ["Run"]
