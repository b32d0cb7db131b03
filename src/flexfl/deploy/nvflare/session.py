"""The admin's side: submit a job, read its status, stop it."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flexfl.deploy.nvflare.controller import SETTINGS
from flexfl.deploy.nvflare.kits import USER, require
from flexfl.deploy.plan import live_file
from flexfl.errors import FlexFLError
from flexfl.results.observer import Live

GONE = "FINISHED:GONE"
_FOREVER = 1e9


class Session:
    """An admin's connection to a running server."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def submit(self, name: str, settings: dict[str, Any], sites: list[str], least: int = 0) -> str:
        """Submit a job and return its ID.

        Args:
            name: Name of the job.
            settings: The plan, as `Plan.settings` returns it.
            sites: The sites to run it on.
            least: How many of them must be connected for it to start; 0 for all. Those that are not
                connected when it starts do not participate.
        """
        with tempfile.TemporaryDirectory() as folder:
            job = Path(folder, name)
            _write_job(job, settings, sites, least or len(sites))
            return str(self._session.submit_job(str(job)))

    def status(self, job: str) -> str:
        """Return NVFlare's status: SUBMITTED, DISPATCHED, RUNNING, FINISHED:COMPLETED, FINISHED:ABORTED…

        Or GONE: NVFlare believes that the job runs, but its process does not exist. This lasts a
        second or two when a job ends, and forever if the server was killed.
        """
        return self._job_status(self._session.get_job_meta(job), self._running())

    def jobs(self) -> list[dict[str, Any]]:
        """Return all jobs that the server knows, newest first: `job_id`, `name`, `status` as above…"""
        running = self._running()
        found = self._session.list_jobs(detailed=True, reverse=True)
        return [job | {"status": self._job_status(job, running)} for job in found]

    def live(self, name: str) -> Live | None:
        """Return the status of the run of this name; None if the server has none."""
        from nvflare.fuel.flare_api.api_spec import InternalError

        try:
            return Live.parse(self._session.cat_target("server", file=str(live_file(Path("flexfl"), name))))
        except (InternalError, RuntimeError):
            return None

    def clients(self) -> list[str]:
        """Return the names of the connected clients."""
        return sorted(client.name for client in self._session.get_connected_client_list())

    def abort(self, job: str) -> None:
        """End a job; the conductor is notified within some seconds."""
        self._session.abort_job(job)

    def refuse(self, client: str) -> None:
        """Log a client out and refuse it from now on; `admit` reverses this."""
        self._session.disable_client(client)

    def admit(self, client: str) -> None:
        """Accept a refused client again."""
        self._session.enable_client(client)

    def _running(self) -> set[str]:
        return {each.job_id for each in self._session.get_system_info().job_info}

    @staticmethod
    def _job_status(job: dict[str, Any], running: set[str]) -> str:
        status = str(job["status"])
        return GONE if status == "RUNNING" and job["job_id"] not in running else status


@contextlib.contextmanager
def session(kit: Path, seconds: float = 5.0) -> Iterator[Session]:
    """Log in with the admin's kit; `seconds` is the timeout.

    Raises:
        FlexFLError: The server does not answer, or reports an error.
    """
    from nvflare.fuel.flare_api.flare_api import new_secure_session

    from flexfl.deploy.nvflare.compact import register

    register()
    logging.getLogger("nvflare").addHandler(logging.NullHandler())  # errors come as exceptions
    require(kit, "admin")
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # it prints a greeting
            opened = new_secure_session(USER, str(kit), timeout=seconds)
    except Exception as error:  # a dozen types without a common base
        raise FlexFLError(f"the server of {kit} does not answer ({error}); is it running?") from error
    try:
        yield Session(opened)
    except Exception as error:
        if type(error).__module__.startswith("nvflare."):
            raise FlexFLError(f"the server reports: {error or type(error).__name__}") from error
        raise
    finally:
        with contextlib.suppress(Exception):  # the server may be gone
            opened.close()


def running(admin: Session) -> list[dict[str, Any]]:
    """Return the jobs that have not ended, newest first."""
    return [job for job in admin.jobs() if not str(job["status"]).startswith("FINISHED")]


def wait_for_clients(admin: Session, names: list[str], seconds: float) -> list[str]:
    """Wait up to `seconds` until all of `names` are connected; return those that are, in order."""
    end = time.monotonic() + seconds
    while not set(names) <= (connected := set(admin.clients())) and time.monotonic() < end:
        time.sleep(0.2)
    return [name for name in names if name in connected]


def _write_job(job: Path, settings: dict[str, Any], sites: list[str], least: int) -> None:
    package = "flexfl.deploy.nvflare"
    config = job / "app" / "config"
    config.mkdir(parents=True)
    meta = {
        "name": job.name,
        "resource_spec": {},
        "min_clients": least,
        "deploy_map": {"app": ["server", *sites]},
    }
    server = {
        "format_version": 2,
        "server": {"task_request_interval": 1.0},
        "workflows": [
            {"id": "conductor", "path": f"{package}.controller.Conductor", "args": {"sites": sites}},
        ],
        "components": [],
        "task_data_filters": [],
        "task_result_filters": [],
        "dead_client_grace_period": _FOREVER,  # a lost site may return: never end the job for it
    }
    client = {
        "format_version": 2,
        "default_task_fetch_interval": 2.0,  # unused: see SiteExecutor
        "job_heartbeat_interval": _FOREVER,  # the server asks in every iteration
        "executors": [{"tasks": ["*"], "executor": {"path": f"{package}.executor.SiteExecutor", "args": {}}}],
        "components": [],
        "task_data_filters": [],
        "task_result_filters": [],
    }
    (job / "meta.json").write_text(json.dumps(meta))
    (config / "config_fed_server.json").write_text(json.dumps(server))
    (config / "config_fed_client.json").write_text(json.dumps(client))
    (config / SETTINGS).write_text(json.dumps(settings))
