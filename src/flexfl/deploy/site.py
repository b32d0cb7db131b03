"""A client as a process: whatever arrives, it finds the run that is meant, works, and answers.

A site's folder outlives processes: it holds `site.toml`, which its owner writes, and a file of durable
state for each run.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import torch

from flexfl.deploy.learner import Learner
from flexfl.deploy.plan import RUN_NAME
from flexfl.deploy.protocol import Ask, Client, Hello, ProtocolError, Ready, SqliteStore, Stranger, Work
from flexfl.deploy.protocol.store import InUseError
from flexfl.deploy.settings import SITE_FILE, SiteSettings
from flexfl.errors import Fault, InputError, NonFiniteError, in_words
from flexfl.spec.build import build_costs, build_policy
from flexfl.spec.own import own_settings, packages
from flexfl.spec.schema import Spec, parse
from flexfl.streams import Streams
from flexfl.wire.envelope import unseal

_LONGEST = 2000


class Site:
    """Client `name`; `answer` is called for one message after another."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self._folder = name, folder
        self._client: Client | None = None
        self._store: SqliteStore | None = None
        self._ready: Ready | None = None

    def answer(self, data: bytes) -> bytes | None:
        """What to reply; None for nothing. What does not belong here raises `FlexFLError`."""
        message = unseal(data)
        if message.kind == "hello":
            return self._take_part(Hello.of(message)).encode()
        ask = Ask.of(message)
        if self._client is None or self._client.run != ask.run:
            return Stranger(ask.run, self.name).encode()
        try:
            return self._client.reply(ask)
        except NonFiniteError as error:
            return Ready(ask.run, self.name, fault=str(error)).encode()

    def here(self) -> bytes:
        """What a process says that has just been started: the server need not find out by itself."""
        return Stranger("", self.name).encode()

    def close(self) -> None:
        if self._store is not None:
            self._store.close()
        self._client = self._store = self._ready = None

    def _take_part(self, hello: Hello) -> Ready:
        if self._ready is not None and self._ready.run == hello.run:
            return self._ready
        self.close()
        try:
            self._ready = self._open(hello)
        except Exception as error:  # of a user's model, too: the server is to know why, and by whom
            self.close()
            told, again = in_words(error)[:_LONGEST], isinstance(error, InUseError)
            return Ready(hello.run, self.name, fault=told, again=again)
        return self._ready

    def _open(self, hello: Hello) -> Ready:
        if not RUN_NAME.fullmatch(hello.run):
            raise ProtocolError(f"a run may not be called {hello.run[:100]!r}")
        settings = SiteSettings.read(self._folder)
        spec = parse(_toml(hello.spec), where="the run's spec")
        if not hello.place < hello.clients == spec.data.clients:
            told = f"{hello.place} of {hello.clients}"
            raise ProtocolError(f"a run with {spec.data.clients} clients has no client {told}")
        _refuse_strange_packages(spec, settings)
        if spec.data.path is not None and settings.data is None and not settings.paths:
            rule, remedy = "names a file of this site", f"name it as data in {SITE_FILE}, or set paths = true"
            raise InputError([Fault("data.path", rule, spec.data.path, remedy)], "the run's spec")
        spec = own_settings(spec, hello.place)
        torch.set_num_threads(settings.threads or torch.get_num_threads())
        learner = Learner(spec, hello.place, Path(settings.data) if settings.data else None)
        costs = build_costs(spec)
        work = Work(
            hello.place,
            hello.clients,
            build_policy(spec, costs, shape=()),
            {knob: costs[knob] for knob in ("compute", "uplink")},
            Streams(spec.train.seed),
            spec.train.learning_rate,
            learner.gradient,
            values_of(spec),
            learner.evaluate,
        )
        self._folder.mkdir(parents=True, exist_ok=True)
        self._store = SqliteStore(self._folder / f"{hello.run}.sqlite")
        dim, dtype = learner.model.dim, spec.engine.dtype
        self._client = Client(
            self.name, hello.run, self._store, work, dim=dim, dtype=dtype, ledger=spec.deploy.ledger
        )
        samples = len(learner.data.train_x)
        return Ready(hello.run, self.name, dim, learner.model.fingerprint(), samples)


def _toml(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError([Fault("spec", "must be TOML", str(error))], "the run's spec") from error


def values_of(spec: Spec) -> str:
    """How messages carry numbers."""
    return spec.engine.dtype if spec.deploy.values == "exact" else spec.deploy.values


def _refuse_strange_packages(spec: Spec, settings: SiteSettings) -> None:
    """A spec comes from elsewhere: it may make a site call only what its owner has named."""
    rule = f"must be of a package that {SITE_FILE} names"
    faults = [
        Fault(setting, rule, package, f'add modules = ["{package}"] there')
        for setting, package in packages(spec).items()
        if package not in settings.modules
    ]
    if faults:
        raise InputError(faults, "the run's spec")
