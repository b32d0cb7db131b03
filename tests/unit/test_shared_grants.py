"""What the server grants of a hard budget that clients share: never more than there is, whoever is late."""

from __future__ import annotations

import numpy as np
import pytest

from flexfl.compress import TopK
from flexfl.control import Budget, JointBudget, Price, Setup
from flexfl.control.shared import ANSWERED, JOINT, JOINT_SPENT
from flexfl.costs import ConstantCompute, ConstantMessage
from flexfl.streams import Streams

N, TOTAL = 3, 10.0


def server_queues(kind: str):
    """The server's queues of a total that three clients share, for their uplink or as a joint budget."""
    uplink = Budget(np.array([TOTAL]), np.zeros(N, dtype=int), per="run") if kind == "uplink" else None
    joint = JointBudget(np.array([TOTAL]), {"uplink": 1.0, "compute": 2.0}, np.zeros(N, dtype=int), per="run")
    setup = Setup(
        Price(),
        {"compute": ConstantCompute(), "uplink": ConstantMessage(), "downlink": ConstantMessage()},
        {"uplink": TopK(), "downlink": TopK()},
        {"uplink": uplink},
        Streams(1),
        50,
        joint={"plan": joint} if kind == "joint" else {},
    )
    return setup.shared_queues(N)


def spend_all(kind: str, late, iterations: int = 40):
    """Let every client spend all it is granted; who is late reports with its next answer in time."""
    queues, key = server_queues(kind), "uplink" if kind == "uplink" else "plan"
    decisions = 1 if kind == "uplink" else 2
    spent, unreported = np.zeros(N), np.zeros(N)
    for t in range(iterations):
        queues.open(t)
        grants = np.array([queues.lengths(n).get(f"{key}.left", 0.0) for n in range(N)])
        again = np.array([queues.lengths(n).get(f"{key}.left", 0.0) for n in range(N)])
        np.testing.assert_array_equal(grants, again)  # a question that is repeated grants the same
        spent += decisions * grants
        unreported += decisions * grants
        answered = np.array([not late(t, n) for n in range(N)], dtype=float)
        reports = {name: np.zeros(N) for name in queues.metrics}
        for name in ("uplink_cost", JOINT + "plan", JOINT_SPENT + "plan"):
            if name in reports:
                reports[name] = np.where(answered > 0, unreported, 0.0)
        unreported = np.where(answered > 0, 0.0, unreported)
        reports |= {name: np.full(N, np.nan) for name in queues.firsts}
        queues.close(reports | {ANSWERED: answered})
        state = queues.state()
        queues = server_queues(kind)  # another process
        queues.restore(state)
    return spent


@pytest.mark.parametrize("kind", ["uplink", "joint"])
@pytest.mark.parametrize(
    "late",
    [lambda t, n: False, lambda t, n: n == 0, lambda t, n: (t + n) % 3 == 0, lambda t, n: t < 20],
    ids=["nobody", "one always", "now and then", "all at first"],
)
def test_nobody_can_spend_more_than_there_is(kind, late):
    spent = spend_all(kind, late)
    assert spent.sum() <= TOTAL * (1 + 1e-9)
    assert spent.sum() > 0.5 * TOTAL  # and others are not kept from spending
