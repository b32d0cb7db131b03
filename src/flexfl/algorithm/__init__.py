"""Algorithm 1: the pure steps, and the oracle."""

from flexfl.algorithm.reference import Step, reference
from flexfl.algorithm.steps import accumulate, equal_weights, next_average, step_size

__all__ = [
    "Step",
    "accumulate",
    "equal_weights",
    "next_average",
    "reference",
    "step_size",
]
