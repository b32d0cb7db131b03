"""The server's part of a run, from the first greeting to the last evaluation, over any `Link`."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import torch

from flexfl.deploy.conductor import Conductor
from flexfl.deploy.jobs import ServerJob
from flexfl.deploy.link import Link, count_link
from flexfl.deploy.pace import pace_of
from flexfl.deploy.plan import STATE_FILE, Plan, live_file, run_id, server_job
from flexfl.deploy.protocol import Server, SqliteStore
from flexfl.deploy.record import Record
from flexfl.errors import RunDirectoryError, in_words
from flexfl.identity import objects_of
from flexfl.registry import is_import_path
from flexfl.results.directory import RunDirectory
from flexfl.results.observer import Live, Observer
from flexfl.results.run import SPEC_FILE, SUMMARY_FILE
from flexfl.streams import Entities

log = logging.getLogger("flexfl.deploy")


def conduct(
    settings: Mapping[str, Any], link: Link, folder: Path, observers: Sequence[Observer] = ()
) -> None:
    """Run a plan over a link.

    Args:
        settings: a `Plan`, as its `settings()` returns it.
        link: reaches the clients.
        folder: the run directory is made in there, by the name of the run.
        observers: notified besides the trackers of the spec; see `deploy.record`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    live = live_file(folder, settings["name"])
    try:
        plan = Plan.of(settings)
        torch.set_num_threads(plan.threads or torch.get_num_threads())
        job = server_job(plan)
        if job.evaluate_test is None:
            log.info("the server has no test samples: no test accuracy")
        with ExitStack() as stack:
            server, record = _open(job, link, folder, stack, observers)
            pace = pace_of(job.setup.budgets, job.setup.costs, list(job.roster))
            _train(Conductor(job, link, server, record, live, pace=pace))
    except Exception as error:  # publish the failure, then re-raise
        Live.failed(in_words(error)).write(live)
        raise


def _train(conductor: Conductor) -> None:
    conductor.gather()
    conductor.record.begin()
    server, job = conductor.server, conductor.job
    while not conductor.link.stopped and server.iteration < job.iterations:
        if server.downlink.seconds >= job.setup.duration:
            break
        conductor.run_iteration()
    conductor.finish()


def _open(
    job: ServerJob, link: Link, folder: Path, stack: ExitStack, observers: Sequence[Observer]
) -> tuple[Server, Record]:
    """Return server and record, new or as they were left; the stack closes their files."""
    path, model = folder / job.name, job.model
    begun = (path / STATE_FILE).exists()
    if job.resume and not begun:
        raise RunDirectoryError(f"there is no run {job.name} to resume; submit it without --resume")
    identity = {"roster": ", ".join(job.roster), "model": model.fingerprint()}
    # Without the server's state, a directory is of a start that was cut short.
    resume = job.resume or ((path / SPEC_FILE).exists() and not begun and not (path / SUMMARY_FILE).exists())
    own_network = is_import_path(job.spec["model"]["name"])
    objects = objects_of({**job.setup.parts(), "network": model.module}, ["network"] if own_network else [])
    opened = RunDirectory(path, job.spec_toml, identity, resume=resume, objects=objects)
    directory = stack.enter_context(opened)
    store = stack.enter_context(closing(SqliteStore(path / STATE_FILE)))
    run = directory.store.meta("run")
    if run is None:
        run = run_id(job.name)
        directory.store.set_meta("run", run)
    shared = job.setup.shared_queues(len(job.roster))
    downlink = job.setup.sender("downlink", Entities.the_server(), model.dim, shared.joint)
    count_link(downlink, lambda: _mean_down(link, len(job.roster)))
    params = model.params.numpy().copy()
    more: dict[str, Any] = {"latest": job.latest, "shared": shared, "rate": job.rate, "average": job.average}
    server = Server(run, job.roster, store, params, downlink, **more)
    if server.iteration > job.iterations:
        rule = f"must be at least the {server.iteration} that {job.name} has done"
        raise RunDirectoryError(f"train.iterations {rule}, got {job.iterations}; ask for more")
    return server, Record(job, directory, server, observers)


def _mean_down(link: Link, clients: int) -> float | None:
    """Return the bytes on the link to a client, on average; None if they are not counted."""
    found = link.traffic()
    return None if found is None else found[1] / clients
