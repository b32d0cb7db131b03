"""What a client computes in one iteration, and the local work that ships."""

from flexfl.local.adamw import LocalAdamW
from flexfl.local.base import Array, ClientWork, Gradient, LocalWork, Memory, first_memory
from flexfl.local.gradient import OneGradient
from flexfl.local.momentum import ClientMomentum
from flexfl.local.sgd import LocalSGD
from flexfl.registry import Family

LOCAL_WORK = Family(
    "local work",
    {"gradient": OneGradient, "sgd": LocalSGD, "adamw": LocalAdamW, "momentum": ClientMomentum},
)

__all__ = [
    "LOCAL_WORK",
    "Array",
    "ClientMomentum",
    "ClientWork",
    "Gradient",
    "LocalAdamW",
    "LocalSGD",
    "LocalWork",
    "Memory",
    "OneGradient",
    "first_memory",
]
