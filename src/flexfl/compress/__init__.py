"""What may be sent of a vector."""

from flexfl.compress.base import Magnitudes
from flexfl.compress.topk import DenseMagnitudes, topk, topk_mask

__all__ = ["DenseMagnitudes", "Magnitudes", "topk", "topk_mask"]
