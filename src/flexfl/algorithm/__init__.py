"""Algorithm 1: the pure steps, and the oracle."""

from flexfl.algorithm.reference import Step, reference
from flexfl.algorithm.steps import accumulate, change_factor, equal_weights, next_average

__all__ = ["Step", "accumulate", "change_factor", "equal_weights", "next_average", "reference"]
