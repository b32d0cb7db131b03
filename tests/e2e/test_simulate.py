"""flexfl.simulate as a person uses it in Python."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from torch import nn

import flexfl
from flexfl.control import Full, Online, Rule, VirtualQueue
from flexfl.costs import Affine, ConstantMessage, Linear, MeasuredCompute
from flexfl.errors import CostError, NonFiniteError, RunDirectoryError
from flexfl.evaluate import Evaluator
from flexfl.models.flat import FlatModel
from flexfl.report import write_report
from flexfl.report.groups import group_runs
from flexfl.results.export import export_run
from flexfl.results.store import MetricStore
from flexfl.spec import load_spec

RNG = np.random.default_rng(5)
TRAIN = {"iterations": 12, "batch_size": 8, "learning_rate": 0.1, "evaluate_every": 5}


def pairs(sizes, features=6, classes=3):
    return [(RNG.normal(size=(n, features)), RNG.integers(0, classes, n)) for n in sizes]


DATA = flexfl.Federated.of_clients(pairs([20, 20, 20]), test=pairs([10])[0])


def network(*layers):
    return nn.Sequential(*(layers or (nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))))


def with_nothing():
    module = network()
    module.register_parameter("nothing", nn.Parameter(torch.empty(0)))
    return module


def dropping(share):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return network(nn.Linear(6, 8), nn.Dropout(share), nn.Linear(8, 3))


def simulate(model=None, data=DATA, **more):
    more = {"train": TRAIN, "engine": {"dtype": "float64"}, "budget": {"compute": 0.3, "uplink": 0.1}} | more
    return flexfl.simulate(model=network() if model is None else model, data=data, **more)


class Centred(nn.Module):
    """Subtracts the mean over the batch, perhaps in training only."""

    def __init__(self, in_training_only=False):
        super().__init__()
        torch.manual_seed(3)
        self.layer, self.in_training_only = nn.Linear(6, 3), in_training_only

    def forward(self, x):
        outputs = self.layer(x)
        apart = self.in_training_only and not self.training
        return outputs if apart else outputs - outputs.mean(dim=0)


@pytest.mark.parametrize("module", [Centred(), Centred(in_training_only=True)])
@pytest.mark.parametrize("sizes", [[20, 20, 20], [4, 20, 20]])
def test_clients_are_never_mixed(module, sizes):
    result = simulate(module, flexfl.Federated.of_clients(pairs(sizes)))
    assert result.summary["gradients"] == "vmap"


def test_modes_and_gradients_of_the_module_are_left_as_they_were():
    module = network(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 3))
    module[1].eval()
    module[2].eval()
    result = simulate(module)
    assert [part.training for part in result.model] == [True, False, False, True]
    for each in (module, result.model):
        assert all(p.requires_grad for p in each.parameters())
        assert not any(part._forward_hooks for part in each.modules())
    # Its own, not a view of all parameters.
    assert result.model[0].bias.untyped_storage().nbytes() == 8 * result.model[0].bias.element_size()


def test_dropout_draws_from_the_runs_own_streams():
    def run(noise):
        torch.manual_seed(noise)
        before = torch.get_rng_state()
        params = simulate(dropping(0.5)).params
        assert torch.equal(torch.get_rng_state(), before)
        return params

    first, second = run(1), run(2)
    assert np.array_equal(first, second)
    assert not np.allclose(first, simulate(dropping(0.0)).params)


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 3)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x):
        self.calls += 1
        return self.layer(x) + self.calls


def test_random_numbers_of_a_models_own_leave_the_generator_alone():
    class Noisy(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 3)

        def forward(self, x):
            return self.layer(nn.functional.dropout(x, 0.5, self.training))

    module, before = Noisy(), torch.get_rng_state()
    assert simulate(module).summary["gradients"] == "vmap"
    assert torch.equal(torch.get_rng_state(), before)


def test_a_buffer_that_changes_in_training_is_refused():
    with pytest.raises(flexfl.InputError, match=r"model\.calls may not change"):
        simulate(Counting())


class Following(nn.Module):
    """Follows the mean of what goes in; the buffer is replaced, not written to."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 3)
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, x):
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        return self.layer(x - self.mean)


def test_a_buffer_that_is_replaced_in_training_is_refused():
    with pytest.raises(flexfl.InputError, match=r"model\.mean may not change"):
        simulate(Following())


class Broken:
    """A cost that is unsound in one iteration."""

    def __init__(self, value, at=3):
        self.value, self.iteration = value, at

    def at(self, moment):
        alpha = self.value if moment.iteration == self.iteration else 0.5
        return Linear(np.full(moment.shape, alpha))


@pytest.mark.parametrize("value", [math.nan, -math.inf, -1.0])
def test_an_unsound_cost_stops_the_run(value):
    with pytest.raises(CostError, match=r"costs\.compute must be finite and ≥ 0.*client 0 in iteration 3"):
        simulate(costs={"compute": Broken(value)})


def test_a_cost_model_of_the_wrong_shape_is_refused_before_any_work(tmp_path):
    class Short:
        def at(self, moment):
            return Affine(np.zeros(2), np.ones(2))

    with pytest.raises(flexfl.InputError, match=r"costs\.uplink must give a cost for each of the 3 clients"):
        simulate(costs={"uplink": Short()}, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


class Priced:
    """A cost model of one function."""

    def __init__(self, cost):
        self.cost = cost

    def at(self, moment):
        return self.cost


def by_place(k):
    out = np.zeros(3)
    out[np.asarray(k) > 0] = 0.1
    return out


@pytest.mark.parametrize(
    ("knob", "cost"),
    [
        ("downlink", lambda k: 0.0 if k == 0 else 0.1),  # fails for several candidates
        ("uplink", by_place),
        ("uplink", lambda k: None),
        ("compute", lambda q: "dear"),
    ],
)
def test_a_cost_that_the_search_cannot_use_is_refused_before_any_work(knob, cost, tmp_path):
    with pytest.raises(flexfl.InputError, match=rf"costs\.{knob} must give"):
        simulate(costs={knob: Priced(cost)}, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


NUMBERS = flexfl.Federated.of_clients([(RNG.normal(size=(9, 6)), RNG.normal(size=9)) for _ in range(3)])


COLUMN = flexfl.Federated.of_clients([(np.ones((9, 6)), np.ones((9, 1), int))])


@pytest.mark.parametrize(
    ("model", "data", "loss", "reason"),
    [
        (network(nn.Linear(6, 1)), NUMBERS, None, "must have outputs of the labels' shape"),
        (network(nn.Linear(6, 2)), DATA, None, "must return one output for each of the 3 classes"),
        (
            network(),
            flexfl.Federated.of_clients([(np.ones((9, 6)), np.ones((9, 1), int))]),
            None,
            "loss must accept",
        ),
        (network(), DATA, lambda out, y: out.sum(dim=1), "loss must return the mean loss of a minibatch"),
        (network(nn.Linear(6, 1)), DATA, lambda out, y: out[y].mean() / 0 + out.nope, "loss must accept"),
        (network(), DATA, lambda out, y: (out.argmax(1) != y).double().mean(), "loss must be differentiable"),
        (network(nn.LazyLinear(3)), DATA, None, r"model\.0\.weight must have a shape"),
        (with_nothing(), DATA, None, r"model\.nothing must hold at least one number"),
    ],
)
def test_outputs_labels_and_loss_must_fit(model, data, loss, reason):
    with pytest.raises(flexfl.InputError, match=reason):
        simulate(model, data, loss=loss)


def test_a_loss_of_ones_own_frees_the_outputs():
    binary = flexfl.Federated.of_clients(pairs([20, 20], classes=2))
    loss = lambda out, y: nn.functional.binary_cross_entropy_with_logits(out[:, 0], y.to(out.dtype))  # noqa: E731
    summary = simulate(network(nn.Linear(6, 1)), binary, loss=loss).summary
    assert summary["train_loss"] > 0
    assert summary["train_accuracy"] is None  # one logit: its largest is always the first
    flat = lambda out, y: nn.functional.binary_cross_entropy_with_logits(out, y.to(out.dtype))  # noqa: E731
    assert simulate(network(nn.Linear(6, 1), nn.Flatten(0)), binary, loss=flat).summary["train_loss"] > 0


def test_rules_of_ones_own():
    class Sometimes(Rule):
        """Sends its largest component in every third iteration."""

        def decide(self, cost, choices, moment):
            return choices.at_most(1 if moment.iteration % 3 == 2 else 0)

    class Thrifty(Full):
        def send_rule(self, scope):
            return Sometimes() if scope.knob == "uplink" else super().send_rule(scope)

    run = simulate(control={"policy": Thrifty()}).run
    assert run.iterations["senders"].tolist() == [0, 0, 3] * 4
    assert run.spec["control"]["policy"].endswith("Thrifty")
    with pytest.raises(flexfl.InputError, match="was a Python object"):
        simulate(control=run.spec["control"])


def test_a_policy_that_is_used_again_starts_anew():
    policy = Online(tradeoff=0.01)
    spent = []
    for _ in range(2):
        torch.manual_seed(0)
        spent.append(simulate(control={"policy": policy}).summary["average_cost"]["uplink"]["spent"])
    assert spent[0] == spent[1]


class OfAnotherSize(Full):
    """Its rule has a queue for four clients, or for all together, whoever asks."""

    def __init__(self, budget):
        self.budget = budget

    def send_rule(self, scope):
        class Queued(Rule):
            queue = VirtualQueue(self.budget)
            pressure = queue.pressure

            def decide(self, cost, choices, moment):
                return choices.everything()

        return Queued()


@pytest.mark.parametrize("budget", [np.full(4, 0.01), 0.01])
def test_a_queue_of_another_size_is_refused_before_any_work(budget, tmp_path):
    with pytest.raises(flexfl.InputError, match=r"must have a queue of shape \(3,\)"):
        simulate(control={"policy": OfAnotherSize(budget)}, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_sections_for_data_and_model():
    short = {"iterations": 2, "evaluate_every": 1}
    found = flexfl.simulate("quickstart", data={"clients": 10}, model={"options": {"hidden": 4}}, train=short)
    assert found.run.spec["data"]["clients"] == 10
    assert found.run.spec["data"]["name"] == "fashion-mini"
    assert found.params.shape == (784 * 4 + 4 + 4 * 10 + 10,)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"model": "cnn"}, "model"),
        ({"model": nn.Linear}, "model"),
        ({"data": pairs([5, 5])}, "data"),
        ({"spec": {"train": {}}}, "spec"),
        ({"costs": None}, "costs"),
        ({"control": "online"}, "control"),
    ],
)
def test_things_of_another_kind_are_refused(given, field):
    with pytest.raises(flexfl.InputError) as caught:
        flexfl.simulate(**given)
    assert [fault.field for fault in caught.value.faults] == [field]


def test_networks_of_one_name_are_told_apart_in_a_report(tmp_path):
    for hidden in (4, 9):
        module = network(nn.Linear(6, hidden), nn.Linear(hidden, 3))
        simulate(module, out=tmp_path / str(hidden))
    groups = group_runs([flexfl.Run(tmp_path / name) for name in ("4", "9")])
    assert len({group.label for group in groups}) == 2
    assert all("network.0=" in group.label for group in groups)


def test_a_run_tells_who_held_what(tmp_path):
    x, y = RNG.normal(size=(60, 6)), np.arange(60) % 3
    data = flexfl.Federated.split((x, y), clients=3, partition={"kind": "quantity", "sizes": [1, 2, 3]})
    for out in (None, tmp_path / "run"):  # also of a run whose folder is gone
        partition = simulate(data=data, out=out).run.partition
        assert partition.sizes.tolist() == [10, 20, 30]
        assert np.bincount(partition.held[:, 1], weights=partition.held[:, 2]).tolist() == [20, 20, 20]
    regression = simulate(network(nn.Linear(6, 1), nn.Flatten(0)), NUMBERS).run.partition
    assert (regression.classes, regression.sizes.tolist()) == (None, [9, 9, 9])


def test_a_partition_by_table_is_stored_and_resumed(tmp_path):
    def run(alpha, iterations):
        partition = f"data.partition={{kind = 'dirichlet', alpha = {alpha}}}"
        settings = ["data.clients=5", partition, f"train.iterations={iterations}"]
        return flexfl.simulate(load_spec("quickstart", settings), out=tmp_path / "run", resume=True)

    assert run(1.0, 2).run.spec["data"]["partition"]["alpha"] == 1.0
    assert run(1.0, 3).summary["iterations"] == 3
    with pytest.raises(RunDirectoryError, match=r"data\.partition\.alpha is 1\.0 there, got 0\.5"):
        run(0.5, 4)


def test_sections_go_over_a_spec():
    result = flexfl.simulate(
        "quickstart",
        data=DATA,
        model=network(),
        train={"iterations": 3},
        budget={"compute": {"shared": [{"clients": range(2), "limit": np.float32(0.5)}], "others": 0.2}},
    )
    assert result.run.spec["train"]["iterations"] == 3
    assert result.run.spec["train"]["learning_rate"] == 0.1
    assert result.run.spec["budget"]["uplink"] == 0.01


def test_resume_goes_on_with_an_equal_cost_object_and_refuses_another_network(tmp_path):
    class Courier:
        def at(self, moment):
            return lambda k: 0.01 * np.ceil(np.asarray(k) / 7)

    def run(iterations, frozen_seed=0):
        torch.manual_seed(frozen_seed)
        first = nn.Linear(6, 6).requires_grad_(False)
        return simulate(
            nn.Sequential(first, *network()),
            costs={"uplink": Courier()},
            train=TRAIN | {"iterations": iterations},
            out=tmp_path / "run",
            resume=True,
        )

    run(6)
    assert run(12).summary["iterations"] == 12
    with pytest.raises(RunDirectoryError, match="its model is"):
        run(14, frozen_seed=9)


def test_a_refused_resume_changes_nothing(tmp_path):
    out = tmp_path / "run"
    simulate(out=out)
    (checkpoint,) = out.glob("checkpoint-*")
    checkpoint.write_bytes(checkpoint.read_bytes()[:-1] + b"\1")
    before = {path.name: path.read_bytes() for path in out.iterdir() if "sqlite" not in path.name}
    with pytest.raises(RunDirectoryError, match="corrupt or from another run"):
        simulate(out=out, resume=True, train=TRAIN | {"iterations": 20})
    after = {path.name: path.read_bytes() for path in out.iterdir() if "sqlite" not in path.name}
    assert before == after


def test_files_of_others_are_never_touched(tmp_path):
    (tmp_path / "film.partial").write_text("mine")
    with pytest.raises(RunDirectoryError, match="not empty and holds no run"):
        simulate(out=tmp_path)
    assert (tmp_path / "film.partial").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["film.partial"]


def test_diverging_names_client_and_iteration_and_keeps_the_checkpoint(tmp_path):
    out = tmp_path / "run"
    train = TRAIN | {"iterations": 400, "learning_rate": 1e4}
    settings = {"train": train, "engine": {"checkpoint_every": 1}}
    with pytest.raises(
        NonFiniteError, match=r"client \d+ became NaN or infinite in iteration \d+.*stays"
    ) as caught:
        simulate(network(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)), out=out, **settings)
    store = MetricStore(out / "metrics.sqlite")
    assert store.checkpoint()[0] == caught.value.iteration
    store.close()


def test_resume_without_a_directory_is_refused():
    with pytest.raises(flexfl.InputError, match="give out="):
        simulate(resume=True)


def test_the_summary_is_json_whatever_was_measured(tmp_path):
    out = tmp_path / "run"
    simulate(network(nn.Linear(6, 1), nn.Flatten(0)), NUMBERS, out=out)
    summary = json.loads((out / "summary.json").read_text(), parse_constant=pytest.fail)
    assert summary["test_accuracy"] is None


def seeded_network():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return network()


def test_kernels_of_torch_and_residuals_in_a_file_train_the_same(tmp_path):
    usual = simulate(seeded_network())
    for kind in ({"kernels": "torch"}, {"residuals": "file"}):
        other = simulate(seeded_network(), engine={"dtype": "float64"} | kind, out=tmp_path / str(kind))
        np.testing.assert_allclose(other.params, usual.params, rtol=0, atol=1e-10)
        again = simulate(
            seeded_network(),
            engine={"dtype": "float64"} | kind,
            train=TRAIN | {"iterations": 20},
            out=tmp_path / str(kind),
            resume=True,
        )
        assert again.summary["iterations"] == 20
    longer = simulate(seeded_network(), train=TRAIN | {"iterations": 20})
    np.testing.assert_array_equal(again.params, longer.params)


def test_a_device_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(
        flexfl.InputError, match=r"engine.device must be a device that torch finds here.*'cuda'"
    ):
        simulate(engine={"device": "cuda"}, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_evaluation_in_any_layout_and_chunk_is_the_plain_one(monkeypatch):
    images = torch.from_numpy(RNG.normal(size=(30, 2, 6, 6)))
    classes = torch.from_numpy(RNG.integers(0, 3, 30))
    data = flexfl.Federated.split((images, classes), (images[:7], classes[:7]), clients=2)
    module = nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 3)).double()
    outputs = module(images).detach()
    for loss in (nn.functional.cross_entropy, nn.CrossEntropyLoss()):
        for limit in (2**24, 3000):
            monkeypatch.setattr("flexfl.evaluate._LAYER_BYTES", limit)
            found = Evaluator(FlatModel(module, torch.float64), loss, data)()
            assert found["train_loss"] == pytest.approx(float(loss(outputs, classes)))
            assert found["test_loss"] == pytest.approx(float(loss(outputs[:7], classes[:7])))
            right = outputs.argmax(dim=1) == classes
            assert found["train_accuracy"] == pytest.approx(float(right.double().mean()))
            assert found["test_accuracy"] == pytest.approx(float(right[:7].double().mean()))
    assert module.training


class ByView(nn.Module):
    """Flattens by `view`, which takes no channels last."""

    def __init__(self):
        super().__init__()
        self.conv, self.last = nn.Conv2d(2, 3, 3), nn.Linear(48, 3)

    def forward(self, x):
        return self.last(self.conv(x).view(x.size(0), -1))


def test_a_network_that_flattens_by_view():
    images, classes = RNG.normal(size=(30, 2, 6, 6)), RNG.integers(0, 3, 30)
    data = flexfl.Federated.split((images, classes), (images[:7], classes[:7]), clients=2)
    assert simulate(ByView(), data).summary["test_accuracy"] is not None


def test_a_module_is_given_back_after_a_refusal(tmp_path):
    (tmp_path / "note.txt").write_text("of another")
    module = network(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    with pytest.raises(RunDirectoryError):
        simulate(module, out=tmp_path)
    assert all(p.requires_grad for p in module.parameters())
    assert not any(part._forward_hooks for part in module.modules())
    simulate(module)


def test_a_full_disk_is_told_before_any_work(tmp_path, monkeypatch):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    with pytest.raises(flexfl.InputError, match=r"engine.residuals needs 0.0 GB .*No space left"):
        simulate(engine={"residuals": "file"}, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


# What would look right and is not --------------------------------------------------------------------


def test_seconds_cannot_be_measured_in_a_simulation(tmp_path):
    with pytest.raises(flexfl.InputError, match=r"costs\.compute cannot be measured in a simulation"):
        simulate(costs={"compute": MeasuredCompute()}, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_list_for_the_server_is_refused_before_any_work(tmp_path):
    costs = {"downlink": ConstantMessage(per_message=np.array([9.0, 1.0, 1.0]))}
    with pytest.raises(flexfl.InputError, match="there is one server"):
        simulate(costs=costs, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_settings_beside_an_object_are_refused():
    with pytest.raises(flexfl.InputError, match=r"control\.tradeoff cannot be set beside an object"):
        simulate(control={"policy": Online(), "tradeoff": 5.0})


def test_a_loss_that_cannot_be_batched_takes_another_path():
    def masked(outputs, labels):
        return nn.functional.cross_entropy(outputs[labels > 0], labels[labels > 0])

    assert simulate(loss=masked).summary["gradients"] == "loop"


class Seen(flexfl.Observer):
    def __init__(self):
        self.checkpoints, self.path = [], "unset"

    def begin(self, run):
        self.path = run.path

    def checkpoint(self, progress, state):
        self.checkpoints.append(progress.iteration)


def test_observers_are_called_once_for_each_checkpoint_and_know_where_files_last(tmp_path):
    seen, elsewhere = Seen(), Seen()
    simulate(observers=[seen], engine={"dtype": "float64", "checkpoint_every": 6})
    simulate(observers=[elsewhere], out=tmp_path / "run")
    assert (seen.checkpoints, seen.path, elsewhere.path) == ([6, 12], None, tmp_path / "run")


def test_a_tracker_may_join_when_a_run_is_resumed(tmp_path):
    simulate(dropping(0.0), out=tmp_path / "run")
    more = TRAIN | {"iterations": 14}
    simulate(dropping(0.0), out=tmp_path / "run", resume=True, train=more, track={"table": {"kind": "csv"}})
    assert (tmp_path / "run/metrics.csv").read_text().splitlines()[-1].startswith("14,")


def test_a_memory_of_any_type_is_kept(tmp_path):
    class Odd(ConstantMessage):
        def state(self):
            return {"a": np.uint64(2**63), "b": np.float16(0.5), "c": 7, "d": np.int16([1, 2])}

        def restore(self, state):
            assert state["a"] == 2**63
            assert state["d"].tolist() == [1, 2]

    simulate(dropping(0.0), costs={"uplink": Odd()}, out=tmp_path / "run")
    more = TRAIN | {"iterations": 14}
    simulate(dropping(0.0), costs={"uplink": Odd()}, out=tmp_path / "run", resume=True, train=more)


class Stopping(flexfl.Observer):
    """Fails in the middle, as a machine does."""

    def __init__(self, at):
        self.at = at

    def iteration(self, progress, record):
        if progress.iteration == self.at:
            raise KeyboardInterrupt


@pytest.mark.parametrize("stop", [3, 8])
def test_what_each_client_spent_is_known_to_the_bit_after_a_resume(tmp_path, stop):
    settings = {"engine": {"dtype": "float64", "checkpoint_every": 5}, "budget": {"uplink": [0.1, 0.05, 0.2]}}
    whole = simulate(dropping(0.0), out=tmp_path / "whole", record={"clients": True}, **settings)
    with pytest.raises(KeyboardInterrupt):
        simulate(dropping(0.0), out=tmp_path / "run", observers=[Stopping(stop)], **settings)
    resumed = simulate(dropping(0.0), out=tmp_path / "run", resume=True, **settings)
    assert not len(resumed.run.clients["iteration"])  # and yet each client's sums are known
    for name, total in whole.run.totals.items():
        np.testing.assert_array_equal(resumed.run.totals[name], total)
        np.testing.assert_allclose(total, whole.run.clients[name].sum(axis=0))
    shares = whole.run.clients["uplink_cost"].mean(axis=0) / settings["budget"]["uplink"]
    worst = resumed.summary["average_cost"]["uplink"]["worst"]["spent"]
    assert worst["who"] == f"client {shares.argmax()}"
    assert worst["spent"] / worst["budget"] == pytest.approx(shares.max())
    assert resumed.summary["average_cost"] == whole.summary["average_cost"]


class Squared:
    """λ(q) = q²: certain computing costs more than its share."""

    def at(self, moment):
        return lambda q: np.asarray(q, dtype=float) ** 2


def test_what_is_charged_keeps_to_the_budget_where_what_is_spent_does_not():
    settings = {"train": TRAIN | {"iterations": 400, "evaluate_every": 200}, "budget": {"compute": 0.25}}
    own = simulate(costs={"compute": Squared()}, **settings).summary["average_cost"]["compute"]
    assert own["charged"] == pytest.approx(0.25, rel=0.05)
    assert own["spent"] > 1.5 * own["budget"]
    assert not own["agree"]
    linear = simulate(**settings).summary["average_cost"]["compute"]
    assert linear["agree"]


class Halving:
    """A schedule of one's own."""

    def factor(self, t, T):
        return 0.5 ** (t / T)


def test_schedules_the_averaged_model_and_what_is_recorded_of_them(tmp_path):
    class Crash(flexfl.Observer):
        def iteration(self, progress, record):
            if progress.iteration == 7:
                raise OSError("gone")

    train = TRAIN | {"schedule": Halving(), "average": True}
    engine = {"dtype": "float64", "checkpoint_every": 4}
    more = {"control": {"policy": "price"}, "model": network(), "engine": engine}
    with pytest.raises(OSError, match="gone"):
        simulate(train=train, out=tmp_path / "run", observers=[Crash()], **more)
    resumed = simulate(train=train, out=tmp_path / "run", resume=True, **more)
    result = simulate(train=train, **more)
    assert np.array_equal(resumed.params, result.params)
    assert np.array_equal(resumed.average, result.average)
    np.testing.assert_allclose(result.run.iterations["learning_rate"], 0.1 * 0.5 ** (np.arange(12) / 12))
    assert result.summary["learning_rate"] == pytest.approx(0.1 * 0.5 ** (11 / 12))
    plain = simulate(train=train | {"average": False}, **more)
    assert np.array_equal(plain.params, result.params)  # it changes nothing else
    assert plain.average is plain.averaged_model is plain.summary["average_test_accuracy"] is None

    module = result.averaged_model
    assert np.array_equal(torch.cat([p.reshape(-1) for p in module.parameters()]).detach(), result.average)
    with torch.no_grad():
        right = (module(DATA.test_x.double()).argmax(dim=1) == DATA.test_y).double().mean()
    assert result.summary["average_test_accuracy"] == pytest.approx(float(right))
    assert not np.array_equal(result.average, result.params)
    evaluations = resumed.run.evaluations
    assert np.isfinite(evaluations["average_test_loss"]).all()
    assert evaluations["average_test_loss"][0] == evaluations["test_loss"][0]  # x̄ = x before the first

    [written, *_] = export_run(tmp_path / "run", tmp_path / "tables", "csv")
    assert "average_test_accuracy" in written.read_text().splitlines()[0].split(",")
    page = write_report([tmp_path / "run"], tmp_path / "report").read_text(encoding="utf-8")
    assert "Dashed line: averaged model." in page
    assert "<small>averaged " in page
    with pytest.raises(RunDirectoryError, match="schedule"):
        simulate(train=train | {"schedule": "wsd"}, out=tmp_path / "run", resume=True, **more)


def test_a_schedule_that_cannot_be_is_refused_before_the_start():
    class Zero:
        def factor(self, t, T):
            return 1.0 - t / (T - 1)

    with pytest.raises(flexfl.InputError, match=r"must give a finite factor > 0, got 0\.0 in iteration 11"):
        simulate(train=TRAIN | {"schedule": Zero()})
    with pytest.raises(flexfl.InputError, match="must be a Schedule, got 'the class Zero'"):
        simulate(train=TRAIN | {"schedule": Zero})
