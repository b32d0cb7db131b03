"""What a decision costs: the protocol, and the costs that ship."""

from flexfl.costs.base import Affine, Cost, CostModel, Linear
from flexfl.costs.channel import FadingChannel
from flexfl.costs.constant import ConstantCompute, ConstantMessage
from flexfl.costs.linear import UniformCompute
from flexfl.costs.measured import Measured, MeasuredCompute, MeasuredMessage
from flexfl.costs.packets import PacketMessage, Staircase

__all__ = [
    "Affine",
    "ConstantCompute",
    "ConstantMessage",
    "Cost",
    "CostModel",
    "FadingChannel",
    "Linear",
    "Measured",
    "MeasuredCompute",
    "MeasuredMessage",
    "PacketMessage",
    "Staircase",
    "UniformCompute",
]
