"""From a spec, submitted by a person or sent by the server, to the jobs of a run.

The only module of `flexfl.deploy` that knows specs. Submitting needs no torch: jobs import it when built.
"""

from __future__ import annotations

import re
import secrets
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from flexfl.clock import WallClock
from flexfl.control.feasible import budget_notes
from flexfl.deploy.protocol.greeting import Hello
from flexfl.deploy.protocol.messages import ProtocolError
from flexfl.deploy.settings import SITE_FILE, SiteSettings
from flexfl.errors import Fault, FlexFLError, InputError
from flexfl.learning_rate import LearningRate
from flexfl.spec.build import (
    budget_terms,
    build_setup,
    build_trackers,
    check_budgets,
    check_setup,
    packages,
    paths_of_costs,
)
from flexfl.spec.load import to_toml
from flexfl.spec.schema import Spec, parse
from flexfl.streams import Streams

if TYPE_CHECKING:
    from flexfl.data.federated import Federated
    from flexfl.deploy.jobs import ClientJob, ServerJob
    from flexfl.deploy.learner import Learner
    from flexfl.evaluate import Evaluator
    from flexfl.models.flat import FlatModel

STATE_FILE = "server.sqlite"
RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""A valid run ID, which is used in file names: the user's name with the digits of `run_id`."""


@dataclass(frozen=True)
class Plan:
    """A submitted run.

    Attributes:
        name: Name of the run, and of its directory on the server.
        spec: The spec, with as many clients as the roster.
        roster: The clients and their weights; the order gives each its index.
        resume: Continue the run of that name.
        present: The clients of the roster that the start waits for; by default all.
        threads: Threads of the server; by default torch's choice.
    """

    name: str
    spec: Spec
    roster: dict[str, float]
    resume: bool = False
    present: list[str] | None = None
    threads: int | None = None

    def settings(self) -> dict[str, Any]:
        """Return the plan as a JSON-compatible dictionary."""
        return vars(self) | {"spec": to_toml(self.spec)}

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Plan:
        """Return the plan in `settings`, which `settings()` has returned.

        Raises:
            InputError: The plan is not valid for a deployment.
        """
        spec = parse(tomllib.loads(settings["spec"]), where="the spec")
        plan = cls(**{**settings, "spec": spec})
        if not RUN_NAME.fullmatch(run_id(plan.name)):
            rule = "must be letters, digits, ., - and _, and begin with a letter or digit"
            raise InputError([Fault("--name", rule, plan.name, "choose another")], "the command")
        if spec.data.clients != len(plan.roster):
            rule = f"must be the {len(plan.roster)} of the roster"
            raise InputError([Fault("data.clients", rule, spec.data.clients, "adjust it")])
        return plan

    @classmethod
    def local(cls, name: str, spec: Spec, *, resume: bool = False) -> Plan:
        """Return the plan of a run on this machine: clients site-1, site-2, … with the spec's weights.

        Raises:
            InputError: The spec is not valid for a deployment.
        """
        names = [f"site-{n + 1}" for n in range(spec.data.clients)]
        return cls(name, spec, dict(zip(names, _weights(spec), strict=True)), resume=resume, threads=1)

    @property
    def packages(self) -> list[str]:
        """The packages whose functions the run calls."""
        return list(packages(self.spec).values())


def run_id(name: str) -> str:
    """Return a unique ID, so that a site never confuses two runs of the same name."""
    return f"{name}-{secrets.token_hex(4)}"


def live_file(folder: Path, name: str) -> Path:
    """Return the path of a run's status file on the server."""
    return folder / f"{name}.live.json"


# Jobs ----------------------------------------------------------------------------------------------


def server_job(plan: Plan) -> ServerJob:
    """Return the server's part of a run, with all its objects built.

    Raises:
        InputError: lists what is wrong with the spec.
    """
    import torch

    from flexfl.deploy.jobs import ServerJob
    from flexfl.models.build import build_model
    from flexfl.models.flat import FlatModel

    spec, clients = plan.spec, plan.spec.data.clients
    module = build_model(spec.model.name, spec.model.options, Streams(spec.train.seed))
    model = FlatModel(module, getattr(torch, spec.engine.dtype))
    setup = build_setup(spec, clock=WallClock())
    check_setup(setup, clients, model.dim)
    check_budgets(setup, clients, model.dim)
    return ServerJob(
        name=plan.name,
        roster=plan.roster,
        resume=plan.resume,
        present=plan.present or list(plan.roster),
        spec_toml=to_toml(spec),
        spec=spec.plain(),
        setup=setup,
        model=model,
        rate=LearningRate(spec.train.learning_rate, setup.factor),
        average=spec.train.average,
        evaluate_test=_test_evaluator(spec, model),
        iterations=spec.train.iterations,
        evaluate_every=spec.train.evaluate_every,
        deadline=spec.deploy.deadline,
        wait=spec.deploy.wait,
        latest=spec.deploy.latest,
        by_client=spec.record.clients,
        **budget_terms(spec, setup),
        notes=[
            *spec.notes(),
            *setup.unused_budgets(clients, model.dim),
            *budget_notes(setup, clients, model.dim),
        ],
        observers=build_trackers(spec),
    )


def client_job(hello: Hello, settings: SiteSettings) -> ClientJob:
    """Return a client's part of the run that the server has described, with all its objects built.

    Args:
        hello: comes from elsewhere: nothing of it is trusted.
        settings: what the owner of the site allows.

    Raises:
        InputError: lists what is wrong with the spec, or not allowed here.
        ProtocolError: the run has another name or number of clients than it may.
    """
    if not RUN_NAME.fullmatch(hello.run):
        raise ProtocolError(f"a run may not be called {hello.run[:100]!r}")
    spec = parse(_toml(hello.spec), where="the run's spec")
    if not hello.place < hello.clients == spec.data.clients:
        got = f"{hello.place} of {hello.clients}"
        raise ProtocolError(f"a run with {spec.data.clients} clients has no client {got}")
    _refuse_other_packages(spec, settings)
    if spec.data.path is not None and settings.data is None and not settings.paths:
        rule, remedy = "names a file of this site", f"name it as data in {SITE_FILE}, or set paths = true"
        raise InputError([Fault("data.path", rule, spec.data.path, remedy)], "the run's spec")
    if (paths := paths_of_costs(spec)) and not settings.paths:
        rule, remedy = "names a file of this site", f"set paths = true in {SITE_FILE} to allow it"
        faults = [Fault(field, rule, path, remedy) for field, path in paths.items()]
        raise InputError(faults, "the run's spec")
    from flexfl.deploy.jobs import ClientJob

    setup = replace(build_setup(spec, clock=WallClock()), importance=hello.importance)
    return ClientJob(
        run=hello.run,
        place=hello.place,
        clients=hello.clients,
        setup=setup,
        learner=build_learner(spec, hello.place, Path(settings.data) if settings.data else None),
        rate=LearningRate(spec.train.learning_rate, setup.factor),
        average=spec.train.average,
        dtype=spec.engine.dtype,
        ledger=spec.deploy.ledger,
    )


def build_learner(spec: Spec, place: int, data_file: Path | None = None) -> Learner:
    """Return the network and samples of one client.

    Args:
        spec: of the run.
        place: which of the clients it is, from 0.
        data_file: its own samples, instead of its part of the spec's dataset.
    """
    import torch

    from flexfl.data.augment import crop_flip
    from flexfl.data.datasets import load_own
    from flexfl.deploy.learner import Learner
    from flexfl.models.build import build_model
    from flexfl.prepare import prepare

    streams = Streams(spec.train.seed)
    data = load_own(spec.data.name, data_file) if data_file else _part(spec, place)
    module = build_model(spec.model.name, spec.model.options, streams)
    dtype, augment = getattr(torch, spec.engine.dtype), spec.data.augment
    model, loss = prepare(module, data, dtype=dtype, device=spec.engine.device, augment=augment)
    return Learner(
        data,
        model,
        loss,
        place=place,
        clients=spec.data.clients,
        batch_size=spec.train.batch_size,
        streams=streams,
        augment=crop_flip if augment == "crop-flip" else None,
    )


def _toml(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError([Fault("spec", "must be TOML", str(error))], "the run's spec") from error


def _refuse_other_packages(spec: Spec, settings: SiteSettings) -> None:
    """Refuse a spec that makes a site call code that its owner does not allow; the server runs trackers."""
    rule = f"must be of a package that {SITE_FILE} names"
    faults = [
        Fault(setting, rule, package, f'add modules = ["{package}"] there')
        for setting, package in packages(spec).items()
        if package not in settings.modules and not setting.startswith("track.")
    ]
    if faults:
        raise InputError(faults, "the run's spec")


def _whole_data(spec: Spec) -> Federated:
    from flexfl.data.datasets import load_federated

    data = spec.data
    return load_federated(
        data.name, data.path, clients=data.clients, partition=data.partition, seed=spec.train.seed
    )


def _part(spec: Spec, place: int) -> Federated:
    """Return that client's part of the spec's dataset, and no more of it."""
    import torch

    from flexfl.data.federated import Federated

    whole = _whole_data(spec)
    mine = torch.from_numpy(whole.parts[place])
    return Federated(whole.train_x[mine], whole.train_y[mine], None, None, (np.arange(len(mine)),))


def _weights(spec: Spec) -> list[float]:
    """Return the weights w, (N,), that a simulation of the spec uses."""
    if spec.data.weights == "equal":
        return [1 / spec.data.clients] * spec.data.clients
    return [float(weight) for weight in _whole_data(spec).weights(spec.data.weights)]


def _test_evaluator(spec: Spec, model: FlatModel) -> Evaluator | None:
    """Return an evaluator on the test samples of the spec's dataset, if the server has them."""
    from flexfl.data.datasets import load_pairs
    from flexfl.data.federated import Federated
    from flexfl.evaluate import Evaluator, default_loss
    from flexfl.models.build import check_model

    with suppress(FlexFLError):
        x, y = load_pairs(spec.data.name, spec.data.path)[1]
        data = Federated(x, y, None, None, (np.arange(len(x)),))
        loss, sample = default_loss(data), x[:2].to(model.params.dtype)
        if not check_model(model.module, sample, y[:2], data.classes, loss, plain_loss=True):
            return Evaluator(model, loss, data)
    return None
