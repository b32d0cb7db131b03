"""Data as people have them: a torch Dataset, a HuggingFace dataset, a loader that pads, a column of users.

    python examples/own_data.py

Every function returns a `Federated`, which `flexfl.simulate(data=…)` takes. Nothing is downloaded.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import flexfl

VISITS = 240


class Visits(Dataset[Any]):
    """Visits to a shop: readings, what was bought, and by whom; any map-style dataset would do."""

    def __init__(self, *, ragged: bool = False) -> None:
        draw = torch.Generator().manual_seed(0)
        self.readings = torch.randn(VISITS, 6, generator=draw)
        self.bought = (self.readings[:, 0] > 0).long() + (self.readings[:, 1] > 0).long()
        self.ragged = ragged

    def __len__(self) -> int:
        return VISITS

    def __getitem__(self, n: int) -> dict[str, Any]:
        kept = 2 + n % 5 if self.ragged else 6
        return {"readings": self.readings[n, :kept], "bought": self.bought[n], "customer": f"c-{n % 8}"}


def by_customer() -> flexfl.Federated:
    """Each customer is a client; the model is called with one tensor, the loss with outputs and labels."""
    partition = {"kind": "by-column", "column": "customer"}
    return flexfl.Federated.split(Visits(), features="readings", label="bought", partition=partition)


def from_huggingface() -> flexfl.Federated:
    """The same from a `datasets.Dataset`, by the names of its columns (pip install '.[hf]')."""
    import datasets

    visits = Visits()
    columns = {"readings": visits.readings.tolist(), "bought": visits.bought.tolist()}
    table = datasets.Dataset.from_dict(columns)
    return flexfl.Federated.split(table, clients=8, features="readings", label="bought")


def padded(visits: list[dict[str, Any]]) -> dict[str, Tensor]:
    """Pad readings to the longest, and mark what is padding."""
    rows = [visit["readings"] for visit in visits]
    readings = nn.utils.rnn.pad_sequence(rows, batch_first=True)
    readings = nn.functional.pad(readings, (0, 6 - readings.shape[1]))
    lengths = torch.tensor([len(row) for row in rows])
    known = (torch.arange(6) < lengths[:, None]).float()
    return {"readings": readings, "known": known, "labels": torch.stack([v["bought"] for v in visits])}


def from_a_loader() -> flexfl.Federated:
    """Samples of different lengths, padded by the loader's collate function; the model takes keywords."""
    loader = DataLoader(Visits(ragged=True), batch_size=16, collate_fn=padded)
    return flexfl.Federated.split(loader, clients=8, partition="iid")


class Masked(nn.Module):
    """Takes keywords and returns its loss, as the models of HuggingFace do."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 3))

    def forward(self, readings: Tensor, known: Tensor, labels: Tensor) -> dict[str, Tensor]:
        logits = self.net(torch.cat([readings, known], dim=1))
        return {"logits": logits, "loss": nn.functional.cross_entropy(logits, labels)}


def share_right(outputs: dict[str, Tensor], batch: dict[str, Tensor]) -> Tensor:
    return (outputs["logits"].argmax(1) == batch["labels"]).float().mean()


def main() -> None:
    torch.manual_seed(0)
    settings: dict[str, Any] = {
        "train": {"iterations": 60, "batch_size": 16, "learning_rate": 0.3},
        "budget": {"uplink": 0.3},
        "engine": {"threads": 1},
    }
    for name, data in {"by customer": by_customer(), "from HuggingFace": from_huggingface()}.items():
        model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))
        result = flexfl.simulate(model=model, data=data, **settings)
        print(f"{name}: {data.clients} clients, accuracy {result.summary['train_accuracy']:.2f}")
    data = from_a_loader()
    result = flexfl.simulate(model=Masked(), data=data, accuracy=share_right, **settings)
    print(f"from a loader: {data.clients} clients, accuracy {result.summary['train_accuracy']:.2f}")


if __name__ == "__main__":
    main()
