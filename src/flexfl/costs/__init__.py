"""What a decision costs: the protocol, and the costs that ship."""

from flexfl.costs.availability import AvailableCompute, AvailableMessage
from flexfl.costs.base import Cost, CostModel, Measured
from flexfl.costs.channels import GaussMarkov, GilbertElliott
from flexfl.costs.devices import DeviceCompute, DeviceMessage
from flexfl.costs.energy import EnergyCompute, EnergyMessage
from flexfl.costs.factors import CarbonCompute, CarbonMessage, MoneyCompute, MoneyMessage
from flexfl.costs.linear import (
    Affine,
    ConstantCompute,
    ConstantMessage,
    FadingChannel,
    Linear,
    UniformCompute,
)
from flexfl.costs.links import Bandwidth, ByteMessage
from flexfl.costs.measured import MeasuredCompute, MeasuredMessage
from flexfl.costs.packets import PacketMessage, Staircase
from flexfl.costs.traces import Trace
from flexfl.registry import Family

COMPUTE_COSTS = Family(
    "cost of computing",
    {
        "uniform": UniformCompute,
        "constant": ConstantCompute,
        "measured": MeasuredCompute,
        "device": DeviceCompute,
        "energy": EnergyCompute,
        "carbon": CarbonCompute,
        "money": MoneyCompute,
        "available": AvailableCompute,
    },
)
MESSAGE_COSTS = Family(
    "cost of sending",
    {
        "fading": FadingChannel,
        "constant": ConstantMessage,
        "packets": PacketMessage,
        "measured": MeasuredMessage,
        "bytes": ByteMessage,
        "bandwidth": Bandwidth,
        "gauss-markov": GaussMarkov,
        "gilbert-elliott": GilbertElliott,
        "device": DeviceMessage,
        "energy": EnergyMessage,
        "carbon": CarbonMessage,
        "money": MoneyMessage,
        "available": AvailableMessage,
    },
)

__all__ = [
    "COMPUTE_COSTS",
    "MESSAGE_COSTS",
    "Affine",
    "AvailableCompute",
    "AvailableMessage",
    "Bandwidth",
    "ByteMessage",
    "CarbonCompute",
    "CarbonMessage",
    "ConstantCompute",
    "ConstantMessage",
    "Cost",
    "CostModel",
    "DeviceCompute",
    "DeviceMessage",
    "EnergyCompute",
    "EnergyMessage",
    "FadingChannel",
    "GaussMarkov",
    "GilbertElliott",
    "Linear",
    "Measured",
    "MeasuredCompute",
    "MeasuredMessage",
    "MoneyCompute",
    "MoneyMessage",
    "PacketMessage",
    "Staircase",
    "Trace",
    "UniformCompute",
]
