"""Algorithm 2: who computes, what is sent, within the budgets."""

from flexfl.control import baselines, closed_form, search
from flexfl.control.policy import (
    ComputeRule,
    FixedCompute,
    OnlineCompute,
    OnlineSend,
    Policy,
    SendAll,
    SendRule,
    online,
)
from flexfl.control.queues import VirtualQueue, next_queue

__all__ = [
    "ComputeRule",
    "FixedCompute",
    "OnlineCompute",
    "OnlineSend",
    "Policy",
    "SendAll",
    "SendRule",
    "VirtualQueue",
    "baselines",
    "closed_form",
    "next_queue",
    "online",
    "search",
]
