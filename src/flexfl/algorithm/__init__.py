"""Algorithm 1: the pure steps, and the oracle."""

from flexfl.algorithm.reference import Step, reference
from flexfl.algorithm.steps import accumulate, equal_weights, step_size

__all__ = ["Step", "accumulate", "equal_weights", "reference", "step_size"]
