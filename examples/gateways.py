"""Twelve gateways with a data plan, a battery and a deadline teach a network what its maker did not know.

    python examples/gateways.py        # a day
    python examples/gateways.py 0.25   # so many days

The maker has trained a network on five kinds of clothing; at the gateways there are ten. Its layers stay as
they are, a frozen backbone, and only a new last layer is trained and sent.

Each gateway has a plan of 50 MB a month: 30 for what it sends, 20 for what it gets, which is the same for
all. Its battery has 5 kJ a day for learning. The model is wanted tomorrow. There is nothing to tune: the
price policy finds out who computes when, and what is worth sending. No month takes more than the plan, and a
day takes its share. Budgets of the run alone, without a clock, would be "985 kB" and "657 kB".
"""

from __future__ import annotations

import sys

import torch
from torch import Tensor, nn

import flexfl
from flexfl.data.datasets import load_pairs
from flexfl.units import convert, show

GATEWAYS, KINDS, WIDTH = 12, 10, 256
A_DAY = 24 * 60  # an iteration every minute
PLAN = 50e6  # bytes a month
MONTH = convert("1 month", "day")


def trained_elsewhere(images: Tensor, labels: Tensor, steps: int = 60) -> nn.Sequential:
    """Return a network as its maker has trained it, in one place."""
    network = nn.Sequential(nn.Flatten(), nn.Linear(784, WIDTH), nn.ReLU(), nn.Linear(WIDTH, KINDS))
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-3)
    for step in range(steps):
        batch = torch.arange(64 * step, 64 * (step + 1)) % len(images)
        loss = nn.functional.cross_entropy(network(images[batch]), labels[batch])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return network


def share_right(network: nn.Module, images: Tensor, labels: Tensor) -> float:
    with torch.no_grad():
        return float((network(images).argmax(1) == labels).float().mean())


def train(days: float) -> flexfl.Result:
    """Train for so many days within the plan and the battery."""
    torch.manual_seed(1)
    samples, test = load_pairs("fashion-mini")
    known = samples[1] < KINDS // 2
    network = trained_elsewhere(samples[0][known], samples[1][known])
    print(f"accuracy as delivered: {share_right(network, *test):.2f}")
    backbone = network[:-1].requires_grad_(False)  # neither trained nor sent
    return flexfl.simulate(
        model=nn.Sequential(backbone, nn.Linear(WIDTH, KINDS)),
        data=flexfl.Federated.split(
            samples, test, clients=GATEWAYS, partition={"kind": "dirichlet", "alpha": 0.5}
        ),
        costs={
            "compute": {"kind": "energy", "power": "4 W", "seconds": "2 s"},
            "uplink": "bytes",  # with what IP, TCP and TLS add
            "downlink": "bytes",
        },
        budget={"compute": "5 kJ / day", "uplink": "30 MB / month", "downlink": "20 MB / month"},
        clock={"iteration": "1 min"},
        control={"policy": "price"},
        train={"iterations": round(A_DAY * days), "learning_rate": 0.02, "evaluate_every": 120},
        engine={"threads": 1},
    )


def report(result: flexfl.Result, days: float) -> None:
    """Print what each gateway has spent of its plan and battery."""
    print(f"accuracy after {show(days * 86400, 'second')}: {result.summary['test_accuracy']:.2f}")
    sent, energy = result.run.totals["uplink_cost"], result.run.totals["compute_spent"]
    got = float(result.run.iterations["downlink_cost"].sum())
    print("gateway      sent       got   a month at this pace   battery")
    for gateway in range(GATEWAYS):
        up, joules = float(sent[gateway]), float(energy[gateway])
        print(
            f"{gateway + 1:7} {show(up, 'byte'):>9} {show(got, 'byte'):>9}"
            f" {show((up + got) * MONTH / days, 'byte'):>22} {show(joules, 'joule'):>9}"
        )
    used = (sent + got) * MONTH / days / PLAN
    print(f"closest to its plan: gateway {used.argmax() + 1} with {used.max():.1%} of {show(PLAN, 'byte')}")


def main(days: float = 1.0) -> None:
    report(train(days), days)


if __name__ == "__main__":
    main(*map(float, sys.argv[1:2]))
