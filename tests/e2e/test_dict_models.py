"""Models whose inputs are dicts and whose outputs are not one tensor; frozen parameters and buffers."""

from __future__ import annotations

from dataclasses import dataclass

import datasets as hf
import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

import flexfl
from flexfl.data.minibatches import Minibatches
from flexfl.deploy.learner import Learner
from flexfl.errors import RunDirectoryError
from flexfl.models.build import returned_loss
from flexfl.models.flat import FlatModel
from flexfl.prepare import prepare
from flexfl.sim.gradients import MixedGradientsError, Recheck, Vmapped, choose
from flexfl.sim.gradients.pieces import Dense
from flexfl.sim.gradients.trial import Trial
from flexfl.streams import Streams

RNG = np.random.default_rng(8)
IDS = torch.from_numpy(RNG.integers(1, 12, (60, 6)))
MASK = torch.from_numpy((np.arange(6) < RNG.integers(2, 7, (60, 1))).astype(np.int64))
LABELS = (IDS * MASK).sum(1) % 3
BATCH = {"input_ids": IDS, "attention_mask": MASK, "labels": LABELS}
TRAIN = {"iterations": 12, "batch_size": 8, "learning_rate": 0.2, "evaluate_every": 6}


@dataclass
class Output:
    """As HuggingFace's ModelOutput: attributes."""

    logits: Tensor
    loss: Tensor | None = None


class Classifier(nn.Module):
    """Attention over tokens on a frozen embedding, called by keywords as HuggingFace's models are."""

    def __init__(self, returns=Output):
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(4)
            self.embed = nn.Embedding(12, 8).requires_grad_(False)
            self.query = nn.Linear(8, 1)
            self.head = nn.Linear(8, 3)
        self.returns = returns
        self.register_buffer("scale", torch.tensor(8.0))

    def forward(self, input_ids, attention_mask=None, labels=None):
        hidden = self.embed(input_ids)
        scores = self.query(hidden)[..., 0] / self.scale.sqrt()
        if attention_mask is not None:
            scores = scores.masked_fill(attention_mask == 0, -1e9)
        logits = self.head((scores.softmax(1)[..., None] * hidden).sum(1))
        return self.returns(logits=logits, loss=None if labels is None else cross_entropy(logits, labels))


def simulate(model=None, data=None, **more):
    more = {"train": TRAIN, "engine": {"dtype": "float64"}, "budget": {"compute": 0.6, "uplink": 0.2}} | more
    data = flexfl.Federated.split(BATCH, BATCH, clients=3) if data is None else data
    return flexfl.simulate(model=Classifier() if model is None else model, data=data, **more)


def right(outputs, batch):
    return (outputs.logits.argmax(1) == batch["labels"]).double().mean()


class Tensors(Classifier):
    """The same network, with positional tensors in and one tensor out."""

    def forward(self, input_ids, attention_mask=None):
        return super().forward(input_ids, attention_mask).logits


def own_loss(outputs, batch):
    return cross_entropy(outputs.logits, batch["labels"])


def test_every_way_to_say_it_trains_the_same():
    """The model's own loss, a loss of the batch, a label, positional inputs; object or dict as output."""
    expected = simulate(accuracy=right)
    assert expected.summary["gradients"] == "vmap"
    features = ["input_ids", "attention_mask"]
    labelled = flexfl.Federated.split(BATCH, BATCH, clients=3, features=features, label="labels")
    positional = flexfl.Federated.split(((IDS, MASK), LABELS), clients=3)
    triples = flexfl.Federated.split(TensorDataset(IDS, MASK, LABELS), clients=3)
    hub = flexfl.Federated.split(hf.Dataset.from_dict({k: v.tolist() for k, v in BATCH.items()}), clients=3)
    for found in (
        simulate(Classifier(dict)),
        simulate(loss=own_loss),
        simulate(Tensors(), labelled),
        simulate(Tensors(), positional),
        simulate(Tensors(), triples),
        simulate(data=hub),
        simulate(engine={"dtype": "float64", "gradients": "loop"}),
    ):
        np.testing.assert_allclose(found.params, expected.params, rtol=0, atol=1e-12)
        losses = (r.run.evaluations["train_loss"] for r in (found, expected))
        np.testing.assert_allclose(*losses, rtol=1e-9)
    accuracies = simulate(Tensors(), labelled).run.evaluations
    for name in ("train_accuracy", "test_accuracy"):
        np.testing.assert_allclose(accuracies[name], expected.run.evaluations[name], rtol=1e-12)


def test_it_learns_and_is_evaluated_by_the_users_functions():
    data = flexfl.Federated.split(BATCH, BATCH, clients=3)
    result = simulate(data=data, accuracy=right, train=TRAIN | {"iterations": 60})
    first, *_, last = result.run.evaluations["train_loss"]
    assert last < first
    module = result.model.eval()
    with torch.no_grad():
        outputs = module(**BATCH)
    assert last == pytest.approx(float(outputs.loss), rel=1e-9)
    assert result.summary["test_accuracy"] == pytest.approx(float(right(outputs, BATCH)))
    without = simulate(data=data)
    assert without.summary["test_accuracy"] is None
    assert np.isfinite(without.run.evaluations["test_loss"]).all()


def test_resume_goes_on_to_the_last_bit_and_knows_its_data(tmp_path):
    whole = simulate(out=tmp_path / "whole")
    simulate(out=tmp_path / "run", train=TRAIN | {"iterations": 5})
    resumed = simulate(out=tmp_path / "run", resume=True)
    assert np.array_equal(resumed.params, whole.params)
    other = BATCH | {"attention_mask": torch.ones_like(MASK)}
    with pytest.raises(RunDirectoryError, match="its data is"):
        simulate(
            data=flexfl.Federated.split(other, BATCH, clients=3),
            out=tmp_path / "run",
            resume=True,
            train=TRAIN | {"iterations": 14},
        )


def test_paths_are_compared_with_the_loop_during_the_run(monkeypatch):
    compared = []
    original = Recheck.compare
    monkeypatch.setattr("flexfl.sim.engine.RECHECK_RATE", 1.0)
    monkeypatch.setattr(Recheck, "compare", lambda *args: (compared.append(args[1]), original(*args)))
    simulate()
    assert sum(probe is not None for probe in compared) >= 10
    original_call = Vmapped.__call__

    def mixed(self, x, y):  # everyone gets the gradients of the next
        pieces, loss = original_call(self, x, y)
        return {name: Dense(piece.grads.roll(1, 0)) for name, piece in pieces.items()}, loss

    monkeypatch.setattr(Trial, "why_not", lambda self, kind, tolerance=0.0: None)
    monkeypatch.setattr(Vmapped, "__call__", mixed)
    with pytest.raises(MixedGradientsError):
        simulate()


def test_an_iteration_is_that_of_plain_autograd():
    """Everyone computes and sends everything: x moves by the mean of the clients' gradients."""
    data = flexfl.Federated.split(BATCH, clients=3)
    result = simulate(data=data, train=TRAIN | {"iterations": 1}, budget={})
    model = FlatModel(Classifier(), torch.float64)
    batches = Minibatches(data.parts, TRAIN["batch_size"], Streams(1))
    for n in range(3):
        samples = batches.peek(n, 0)
        (model.module(**{key: column[samples] for key, column in BATCH.items()}).loss / 3).backward()
    named = dict(model.module.named_parameters())
    gradient = torch.cat([named[name].grad.reshape(-1) for name in model.names])
    expected = model.params - TRAIN["learning_rate"] * gradient
    np.testing.assert_allclose(result.params, expected.numpy(), rtol=0, atol=1e-12)


def test_a_deployed_client_computes_what_a_simulated_one_does():
    data = flexfl.Federated.of_clients([BATCH])
    model = FlatModel(Classifier(), torch.float64)
    learner = Learner(data, model, returned_loss, place=0, clients=1, batch_size=8, streams=Streams(1))
    x = model.params.numpy().copy()
    gradient, loss = learner.gradient(x, 0, 0)
    simulated = simulate(data=data, train=TRAIN | {"iterations": 1}, budget={})
    np.testing.assert_allclose(x - TRAIN["learning_rate"] * gradient, simulated.params, rtol=0, atol=1e-12)
    evaluated = learner.evaluate(x)
    assert evaluated["samples"] == 60
    assert evaluated["train_loss"] == pytest.approx(simulated.run.evaluations["train_loss"][0])
    assert np.isfinite(loss)


# What does not fit is said before any work -------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "pattern"),
    [
        ({"data": {"input_ids": IDS}}, r"loss must accept .*hold.* no loss.*give loss=lambda outputs, batch"),
        ({"data": BATCH | {"user": LABELS}}, r"model must accept .*unexpected keyword.*'user'.*features="),
        ({"data": BATCH | {"input_ids": IDS * 1.0}}, r"model must accept samples of the data"),
        ({"data": ({"input_ids": IDS}, {"a": LABELS, "b": LABELS})}, r"loss is needed for labels of several"),
        ({"data": ({"input_ids": IDS}, LABELS)}, r"model must return one tensor .*'Output'.*give loss="),
        ({"loss": lambda outputs, batch: outputs.loss[None]}, r"loss must return the mean loss"),
        ({"accuracy": lambda outputs, batch: 7}, r"accuracy must return the share .*, got 7"),
        ({"accuracy": lambda outputs, batch: outputs.gone}, r"accuracy must accept .*'gone'"),
        ({"engine": {"gradients": "one-pass"}}, r"engine.gradients must be a path .*not one tensor"),
    ],
)
def test_what_does_not_fit_is_refused(change, pattern, tmp_path):
    if "data" in change:
        change = change | {"data": flexfl.Federated.split(change["data"], clients=3)}
    with pytest.raises(flexfl.InputError, match=pattern):
        simulate(out=tmp_path / "run", **change)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("column", ["input_ids", "labels"])
def test_an_index_out_of_range_is_found_wherever_it_is(column, tmp_path):
    for value in (12, -7):
        wrong = BATCH[column].clone()
        wrong[41] = value
        for train, test, where in (
            ({column: wrong}, {}, "must"),
            ({}, {column: wrong}, r"\(test data\) must"),
        ):
            data = flexfl.Federated.split(BATCH | train, BATCH | test, clients=3)
            with pytest.raises(flexfl.InputError, match=rf"(model|loss) {where} accept"):
                simulate(data=data, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_crop_flip_needs_images():
    with pytest.raises(flexfl.InputError, match=r"data.augment crop-flip needs images"):
        prepare(Classifier(), flexfl.Federated.split(BATCH, clients=3), augment="crop-flip")


# Frozen parameters and buffers -------------------------------------------------------------------------


def backbone():
    torch.manual_seed(2)
    body = nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.BatchNorm1d(64), nn.Linear(64, 5))
    for part in body[:3]:
        part.requires_grad_(False)
    body[2].running_mean.uniform_(-1, 1)
    body[2].eval()
    return body


def test_only_what_requires_a_gradient_is_trained_and_sent():
    x, y = RNG.normal(size=(60, 6)), RNG.integers(0, 5, 60)
    before = backbone().double().state_dict()
    data = flexfl.Federated.split((x, y), clients=3)
    result = simulate(backbone(), data, budget={}, record={"clients": True})
    after = result.model.state_dict()
    moved = [name for name, tensor in before.items() if not torch.equal(tensor, after[name])]
    assert moved == ["3.weight", "3.bias"]
    assert result.params.shape == (64 * 5 + 5,)
    most = 8 * (64 * 5 + 5) + 100  # float64, and what an envelope takes
    assert 0 < result.run.clients["uplink_bytes"].max() <= most
    assert [p.requires_grad for p in result.model.parameters()] == [False] * 4 + [True] * 2


class Averaging(Classifier):
    def forward(self, input_ids, attention_mask=None, labels=None):
        self.scale += 1
        return super().forward(input_ids, attention_mask, labels)


@pytest.mark.parametrize("path", ["auto", "loop", "vmap"])
def test_a_buffer_that_changes_is_refused_on_every_path(path):
    with pytest.raises(flexfl.InputError, match=r"model\.scale may not change"):
        simulate(Averaging(), engine={"dtype": "float64", "gradients": path})


def test_chunks_are_bounded_by_what_a_pass_keeps(monkeypatch):
    """A frozen network with few trained weights: gradients are small, activations are not."""
    model = FlatModel(Classifier(), torch.float64)
    x = {key: torch.stack([column[:8], column[8:16]]) for key, column in BATCH.items()}
    path = choose(model, returned_loss, x, x)
    assert isinstance(path, Vmapped)
    kept = path.saved_per_sample(x, x)
    assert kept >= 6 * 8  # the embedding of each token, at least
    assert path.saved_per_sample(*[{key: column[:, :4] for key, column in x.items()}] * 2) <= kept + 1
    expected = simulate().params
    chunks = []
    original = Vmapped.__call__

    def counted(self, x, y):
        chunks.append(len(x["labels"]))
        return original(self, x, y)

    monkeypatch.setattr(Vmapped, "__call__", counted)
    monkeypatch.setattr("flexfl.sim.gradients.chunks.VMAP_BYTES", 8 * 8 * kept)
    found = simulate().params
    assert set(chunks[1:]) == {1}  # the first is the trial
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
