"""Algorithm 2: who computes, what is sent, within the budgets."""

from flexfl.control.adaptive_bits import AdaptiveBits
from flexfl.control.adaptive_k import AdaptiveK
from flexfl.control.baselines import FixedProb, Full, Periodic, Randomised, TopKRatio
from flexfl.control.budget import Budget
from flexfl.control.joint import JointBudget, JointQueues
from flexfl.control.knobs import Computing, Knob, Sender, Sending
from flexfl.control.online import Online
from flexfl.control.paced import Paced
from flexfl.control.policy import ByKnob, ComputeRule, Policy, Rule, Scope, SendRule
from flexfl.control.price import Price
from flexfl.control.queues import VirtualQueue, next_queue
from flexfl.control.sampled import Sampled
from flexfl.control.setup import Setup
from flexfl.registry import Family

POLICIES = Family(
    "policy",
    {
        "online": Online,
        "price": Price,
        "randomised": Randomised,
        "sampled": Sampled,
        "paced": Paced,
        "adaptive-k": AdaptiveK,
        "adaptive-bits": AdaptiveBits,
        "full": Full,
        "periodic": Periodic,
        "top-k": TopKRatio,
        "fixed-prob": FixedProb,
    },
    key="policy",
)

__all__ = [
    "POLICIES",
    "AdaptiveBits",
    "AdaptiveK",
    "Budget",
    "ByKnob",
    "ComputeRule",
    "Computing",
    "FixedProb",
    "Full",
    "JointBudget",
    "JointQueues",
    "Knob",
    "Online",
    "Paced",
    "Periodic",
    "Policy",
    "Price",
    "Randomised",
    "Rule",
    "Sampled",
    "Scope",
    "SendRule",
    "Sender",
    "Sending",
    "Setup",
    "TopKRatio",
    "VirtualQueue",
    "next_queue",
]
