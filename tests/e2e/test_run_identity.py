"""A run is resumed by itself only, and only its own seeds stand in one group."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from flexfl import Federated, Run, simulate
from flexfl.control import Full, Online
from flexfl.costs import ConstantMessage
from flexfl.errors import RunDirectoryError
from flexfl.report.groups import group_runs
from small import small_data


class OwnPolicy:
    """Full, with a parameter that no repr shows."""

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def compute_rule(self, scope: Any) -> Any:
        return Full().compute_rule(scope)

    def send_rule(self, scope: Any) -> Any:
        return Full().send_rule(scope)


@dataclass(frozen=True)
class OwnCost:
    price: float = 1.0

    def at(self, moment: Any) -> Any:
        return ConstantMessage(whole_model=self.price).at(moment)


def net(*middle: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 4), *middle, nn.Linear(4, 3))


def one_hot_error(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return functional.mse_loss(outputs, functional.one_hot(labels, 3).to(outputs.dtype))


def split(alpha: float, seed: int = 1) -> Federated:
    data = small_data()
    partition = {"kind": "dirichlet", "alpha": alpha}
    return Federated.split((data.train_x, data.train_y), clients=6, partition=partition, seed=seed)


def moved() -> Federated:
    data = small_data()
    return Federated(data.train_x, data.train_y, data.test_x, data.test_y, data.parts[::-1])


PAIRS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "a loss": ({}, {"loss": one_hot_error}, "loss"),
    "a layer": ({"model": net(nn.ReLU())}, {"model": net(nn.Tanh())}, r"network\.1"),
    "dropout": ({"model": net(nn.Dropout(0.1))}, {"model": net(nn.Dropout(0.9))}, r"network\.1"),
    "a policy": (
        {"control": {"policy": OwnPolicy(0.1)}},
        {"control": {"policy": OwnPolicy(0.5)}},
        r"policy\.rate is '0\.1' there, got '0\.5'",
    ),
    "a shipped policy": (
        {"control": {"policy": Online(tradeoff=0.1)}},
        {"control": {"policy": Online(tradeoff=0.5)}},
        r"policy\.tradeoff",
    ),
    "a cost": (
        {"costs": {"uplink": OwnCost(1.0)}},
        {"costs": {"uplink": OwnCost(2.0)}},
        r"costs\.uplink\.price",
    ),
    "a split": ({"data": split(0.3)}, {"data": split(100.0)}, "data"),
    "parts": ({"data": small_data()}, {"data": moved()}, "data"),
}


def run(out: Path, resume: bool = False, seed: int = 1, **given: Any) -> Run:
    settings: dict[str, Any] = {"data": small_data(), "model": net(nn.ReLU()), **given}
    return simulate(
        out=out, resume=resume, train={"iterations": 4 if resume else 3, "seed": seed}, **settings
    ).run


@pytest.mark.parametrize(("one", "other", "differs"), PAIRS.values(), ids=PAIRS)
def test_another_run_is_neither_resumed_nor_merged(
    one: Any, other: Any, differs: str, tmp_path: Path
) -> None:
    first = run(tmp_path / "first", **one)
    with pytest.raises(RunDirectoryError, match=differs):
        run(tmp_path / "first", resume=True, **other)
    second = run(tmp_path / "second", seed=2, **other)
    groups = group_runs([first, second])
    assert len(groups) == 2
    assert groups[0].label != groups[1].label
    assert len(group_runs([first, run(tmp_path / "third", seed=2, **one)])) == 1
    assert len(run(tmp_path / "first", resume=True, **one).iterations["iteration"]) == 4


def test_seeds_of_a_split_are_one_group(tmp_path: Path) -> None:
    runs = [run(tmp_path / str(seed), data=split(0.3, seed), seed=seed) for seed in (1, 2)]
    (group,) = group_runs(runs)
    assert len(group.runs) == 2


def test_another_start_with_the_same_seed_is_no_second_seed(tmp_path: Path) -> None:
    runs = []
    for number in (1, 2):
        torch.manual_seed(number)
        runs.append(run(tmp_path / str(number), model=nn.Linear(5, 3)))
    groups = group_runs(runs)
    assert len(groups) == 2
    assert all("model.start=" in group.label for group in groups)


def test_another_column_is_another_split(tmp_path: Path) -> None:
    data, runs = small_data(), []
    for seed, users in ((1, np.arange(90) % 6), (2, np.arange(90) // 15)):
        split = Federated.split(
            (data.train_x, data.train_y),
            partition={"kind": "by-column", "column": "user"},
            columns={"user": users},
        )
        runs.append(run(tmp_path / str(seed), data=split, seed=seed))
    assert len(group_runs(runs)) == 2


def test_seeds_with_other_threads_are_one_group(tmp_path: Path) -> None:
    runs = [run(tmp_path / str(n), seed=n, engine={"threads": n}) for n in (1, 2)]
    assert len(group_runs(runs)) == 1


def test_a_label_says_what_differs(tmp_path: Path) -> None:
    runs = [run(tmp_path / str(rate), control={"policy": OwnPolicy(rate)}, budget={}) for rate in (0.1, 0.5)]
    assert [group.label for group in group_runs(runs)] == ["policy.rate=0.1", "policy.rate=0.5"]


def test_code_of_ones_own_by_its_name(tmp_path: Path) -> None:
    """A class that a spec names may change between two processes."""
    script = (
        "from flexfl import simulate; from pathlib import Path; from small import small_data; import sys; "
        "simulate(data=small_data(), model={'name': 'own_code:net'}, train={'iterations': 3}, "
        "costs={'uplink': {'kind': 'own_code:Cost'}}, out='run', resume=Path('run').exists())"
    )
    source = (
        "import torch; from flexfl.costs import ConstantMessage\n"
        "def net():\n    return torch.nn.Linear(5, 3)\n"
        "class Cost:\n    def at(self, moment):\n        return ConstantMessage(whole_model={}).at(moment)\n"
    )
    paths = f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(Path(__file__).parents[1])!r}]; "
    for price, works in ((1.0, True), (1.0, True), (2.0, False)):
        (tmp_path / "own_code.py").write_text(source.format(price))
        done = subprocess.run(
            [sys.executable, "-B", "-c", paths + script], cwd=tmp_path, capture_output=True, text=True
        )
        assert (done.returncode == 0) is works, done.stderr
    assert "costs.uplink.__code__" in done.stderr


def test_a_network_is_trained_as_a_copy() -> None:
    network = net(nn.ReLU())
    before = [parameter.detach().clone() for parameter in network.parameters()]
    results = [simulate(data=small_data(), model=network, train={"iterations": 20}) for _ in range(2)]
    assert all(map(torch.equal, before, network.parameters()))
    assert np.array_equal(results[0].params, results[1].params)
    first = [result.run.evaluations["train_loss"][0] for result in results]
    assert first[0] == first[1]
    trained = torch.cat([p.detach().reshape(-1) for p in results[0].model.parameters()])
    assert np.array_equal(trained.numpy(), results[0].params)
    assert not torch.equal(before[0], next(iter(results[0].model.parameters())))


def test_a_run_goes_on_with_fewer_cores(tmp_path: Path) -> None:
    """With the threads that it was begun with, however many; with others if asked to, and noted."""
    out = tmp_path / "run"
    settings: dict[str, Any] = {"data": small_data(), "model": net(nn.ReLU()), "out": out}
    simulate(train={"iterations": 3}, engine={"threads": 64}, **settings)
    found = simulate(train={"iterations": 4}, resume=True, **settings)
    assert found.run.spec["engine"]["threads"] == 64
    assert found.summary["notes"] == []
    found = simulate(train={"iterations": 5}, resume=True, engine={"threads": 1}, **settings)
    assert found.run.spec["engine"]["threads"] == 1
    assert found.summary["notes"] == ["resumed with 1 threads instead of 64: sums may round differently"]
    assert Run(out).notes == found.summary["notes"]
