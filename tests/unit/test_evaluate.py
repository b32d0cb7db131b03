"""Loss and accuracy over a whole dataset, whatever the network is made of."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from flexfl.data.federated import Federated
from flexfl.evaluate import Evaluator
from flexfl.models.flat import FlatModel


class Upright(nn.Module):
    """Takes images by rows only."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(len(x), -1)


NETWORKS = {
    "ReLU, pool": lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
    "pool, ReLU": lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten()),
    "two pools": lambda: nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.Sequential(nn.ReLU(), nn.MaxPool2d(2)), nn.MaxPool2d((1, 2)), nn.Flatten()
    ),
    "a pool first": lambda: nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(3, 4, 2), nn.Dropout(), nn.Flatten()),
    "a pool of another kind": lambda: nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(3, stride=1), nn.Flatten()
    ),
    "by rows": lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2), Upright()),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("body", NETWORKS.values(), ids=NETWORKS)
def test_evaluation_is_that_of_the_module(body: Any, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x, y = torch.randn(50, 3, 9, 8).numpy(), torch.randint(5, (50,)).numpy()
    data = Federated.split((x, y), (x[:20], y[:20]), clients=2)
    parts = body()
    module = nn.Sequential(parts, nn.Linear(parts(torch.zeros(2, 3, 9, 8)).shape[1], 5))
    found = Evaluator(FlatModel(module, dtype), functional.cross_entropy, data)()
    with torch.no_grad():
        outputs = module.eval()(data.train_x.to(dtype))
    assert found["train_loss"] == pytest.approx(functional.cross_entropy(outputs, data.train_y).item())
    assert found["train_accuracy"] == (outputs.argmax(1) == data.train_y).double().mean().item()


@pytest.mark.parametrize("which", range(4))
def test_whoever_watches_a_part_sees_an_evaluation(which: int) -> None:
    body = NETWORKS["ReLU, pool"]()
    module = nn.Sequential(body, nn.Linear(36, 5))
    x, y = torch.randn(50, 3, 9, 8).numpy(), torch.randint(5, (50,)).numpy()
    data = Federated.split((x, y), (x[:20], y[:20]), clients=2)
    seen: list[torch.Size] = []
    evaluate = Evaluator(FlatModel(module, torch.float64), functional.cross_entropy, data)
    body[which].register_forward_hook(lambda part, inputs, output: seen.append(output.shape))
    evaluate()
    assert any(shape[0] == 50 for shape in seen)
