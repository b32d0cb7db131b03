"""What a decision costs: the protocol, and the costs that ship."""

from flexfl.costs.base import Cost, CostModel, Measured
from flexfl.costs.linear import (
    Affine,
    ConstantCompute,
    ConstantMessage,
    FadingChannel,
    Linear,
    UniformCompute,
)
from flexfl.costs.measured import MeasuredCompute, MeasuredMessage
from flexfl.costs.packets import PacketMessage, Staircase
from flexfl.registry import Family

COMPUTE_COSTS = Family(
    "cost of computing",
    {"uniform": UniformCompute, "constant": ConstantCompute, "measured": MeasuredCompute},
)
MESSAGE_COSTS = Family(
    "cost of sending",
    {
        "fading": FadingChannel,
        "constant": ConstantMessage,
        "packets": PacketMessage,
        "measured": MeasuredMessage,
    },
)

__all__ = [
    "COMPUTE_COSTS",
    "MESSAGE_COSTS",
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
