"""A client as a process: it finds the run that a message is about, takes part in it, and answers.

A site's folder outlives processes: it holds `site.toml`, which its owner writes, and a file of durable
state for each run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from flexfl.deploy.energy import stopwatch
from flexfl.deploy.link import Meter, count_link
from flexfl.deploy.plan import client_job
from flexfl.deploy.protocol import Client, Hello, Question, Ready, Restarted, SqliteStore, Trainer
from flexfl.deploy.protocol.store import InUseError
from flexfl.deploy.settings import SiteSettings
from flexfl.errors import CostError, DecisionError, NonFiniteError, ScheduleError, in_words
from flexfl.local import ClientWork
from flexfl.streams import Entities
from flexfl.trees import size
from flexfl.wire.envelope import unseal

_LONGEST_FAULT = 2000


class Site:
    """A client of any run.

    Args:
        name: of the client.
        folder: its settings and durable state.
        meter: counts the bytes that its link carries; None if the machine does not count them.
    """

    def __init__(self, name: str, folder: Path, meter: Meter | None = None) -> None:
        self.name, self._folder, self._meter = name, folder, meter
        self._client: Client | None = None
        self._store: SqliteStore | None = None
        self._ready: Ready | None = None

    def answer(self, data: bytes) -> bytes | None:
        """Return the reply to a message of the server; None for none.

        Raises:
            FlexFLError: the message does not belong here.
        """
        message = unseal(data)
        if message.kind == "hello":
            return self._greet(Hello.of(message)).encode()
        question = Question.of(message)
        if self._client is None or self._client.run != question.run:
            return Restarted(question.run, self.name).encode()
        try:
            return self._client.reply(question)
        except (NonFiniteError, CostError, DecisionError, ScheduleError) as error:
            return Ready(question.run, self.name, fault=str(error)[:_LONGEST_FAULT]).encode()

    def here(self) -> bytes:
        """Return the message of a process that was just started, so that the server greets it at once."""
        return Restarted("", self.name).encode()

    def close(self) -> None:
        """Leave the run; its state stays on the disk."""
        if self._store is not None:
            self._store.close()
        self._client = self._store = self._ready = None

    def _greet(self, hello: Hello) -> Ready:
        if self._ready is not None and self._ready.run == hello.run:
            return self._ready
        self.close()
        try:
            self._ready = self._open(hello)
        except Exception as error:  # of a user's model, too: report it to the server
            self.close()
            fault, retry = in_words(error)[:_LONGEST_FAULT], isinstance(error, InUseError)
            return Ready(hello.run, self.name, fault=fault, retry=retry)
        return self._ready

    def _open(self, hello: Hello) -> Ready:
        """Build this client's part of the run, and continue from its durable state."""
        settings = SiteSettings.read(self._folder)
        torch.set_num_threads(settings.threads or torch.get_num_threads())
        job = client_job(hello, settings)
        learner, entity = job.learner, Entities.one_client(job.place, job.clients)
        dim = learner.model.dim
        joint = job.setup.joint_queues(entity)
        compute, uplink = job.setup.knob(entity, dim, joint), job.setup.sender("uplink", entity, dim, joint)
        count_link(uplink, None if self._meter is None else self._meter.up)
        watch = stopwatch(compute.cost)
        trainer = Trainer(
            compute,
            uplink,
            job.rate.alone,
            learner.gradient,
            learner.evaluate,
            joint,
            job.setup.clock,
            watch,
            ClientWork(job.setup.local),
        )
        self._folder.mkdir(parents=True, exist_ok=True)
        self._store = SqliteStore(self._folder / f"{job.run}.sqlite")
        form: dict[str, Any] = {"dim": dim, "dtype": job.dtype, "average": job.average, "ledger": job.ledger}
        self._client = Client(self.name, job.run, self._store, trainer, **form)
        return Ready(job.run, self.name, dim, learner.model.fingerprint(), size(learner.data.train_x))
