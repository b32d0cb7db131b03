"""The admin's side: submit a job, see how it goes, stop it."""

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
from flexfl.deploy.nvflare.kits import USER
from flexfl.deploy.plan import live_file
from flexfl.errors import FlexFLError
from flexfl.results.progress import Live

GONE = "FINISHED:GONE"
_FOREVER = 1e9


class Session:
    """What an admin can ask of a running server."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def submit(self, name: str, settings: dict[str, Any], sites: list[str], least: int = 0) -> str:
        """Run a job on the server and these sites; gives its id.

        least  how many of them must be there for it to start; 0 for all. Those that are not there
               when it starts take no part in it.
        """
        with tempfile.TemporaryDirectory() as folder:
            job = Path(folder, name)
            _write_job(job, settings, sites, least or len(sites))
            return str(self._session.submit_job(str(job)))

    def status(self, job: str) -> str:
        """As NVFlare calls it: SUBMITTED, DISPATCHED, RUNNING, FINISHED:COMPLETED, FINISHED:ABORTED…

        Or GONE: NVFlare believes that it runs, but its process is not there. That is so for a second
        or two when a job ends, and for ever if the server was killed.
        """
        return self._seen(self._session.get_job_meta(job), self._running())

    def jobs(self) -> list[dict[str, Any]]:
        """All jobs that the server knows, newest first: `job_id`, `name`, `status` as above…"""
        running = self._running()
        found = self._session.list_jobs(detailed=True, reverse=True)
        return [each | {"status": self._seen(each, running)} for each in found]

    def live(self, name: str) -> Live | None:
        """How the run of this name goes; None where the server tells nothing."""
        from nvflare.fuel.flare_api.api_spec import InternalError

        try:
            return Live.parse(self._session.cat_target("server", file=str(live_file(Path("flexfl"), name))))
        except (InternalError, RuntimeError):
            return None

    def clients(self) -> list[str]:
        """The names of those that are connected."""
        return sorted(client.name for client in self._session.get_connected_client_list())

    def abort(self, job: str) -> None:
        """End a job; the conductor learns of it within some seconds."""
        self._session.abort_job(job)

    def refuse(self, client: str) -> None:
        """Log this client out and don't let it in again; `admit` takes it back."""
        self._session.disable_client(client)

    def admit(self, client: str) -> None:
        self._session.enable_client(client)

    def _running(self) -> set[str]:
        return {each.job_id for each in self._session.get_system_info().job_info}

    @staticmethod
    def _seen(job: dict[str, Any], running: set[str]) -> str:
        status = str(job["status"])
        return GONE if status == "RUNNING" and job["job_id"] not in running else status


@contextlib.contextmanager
def session(kit: Path, seconds: float = 5.0) -> Iterator[Session]:
    """Log in with the admin's kit."""
    from nvflare.fuel.flare_api.flare_api import new_secure_session

    logging.getLogger("nvflare").addHandler(logging.NullHandler())  # what matters comes as an exception
    if not (kit / "startup" / "fed_admin.json").exists():
        raise FlexFLError(f"{kit} is no kit of an admin; `provision` makes one")
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # it greets
            opened = new_secure_session(USER, str(kit), timeout=seconds)
    except Exception as error:  # a dozen kinds, without a common one
        raise FlexFLError(f"the server of {kit} does not answer ({error}); is it running?") from error
    try:
        yield Session(opened)
    except Exception as error:
        if type(error).__module__.startswith("nvflare."):
            raise FlexFLError(f"the server says: {error or type(error).__name__}") from error
        raise
    finally:
        with contextlib.suppress(Exception):  # of a server that is gone
            opened.close()


def running(admin: Session) -> list[dict[str, Any]]:
    """Jobs that have not ended, newest first."""
    return [job for job in admin.jobs() if not str(job["status"]).startswith("FINISHED")]


def wait_for_clients(admin: Session, names: list[str], seconds: float) -> list[str]:
    """Until all of `names` are connected, or so long; gives those who are, in their order."""
    end = time.monotonic() + seconds
    while not set(names) <= (there := set(admin.clients())) and time.monotonic() < end:
        time.sleep(0.2)
    return [name for name in names if name in there]


def _write_job(job: Path, settings: dict[str, Any], sites: list[str], least: int) -> None:
    own = "flexfl.deploy.nvflare"
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
            {"id": "conductor", "path": f"{own}.controller.Conductor", "args": {"sites": sites}},
        ],
        "components": [],
        "task_data_filters": [],
        "task_result_filters": [],
        "dead_client_grace_period": _FOREVER,  # a site that is gone may come back: never a reason to end
    }
    client = {
        "format_version": 2,
        "default_task_fetch_interval": 2.0,  # there are none
        "executors": [{"tasks": ["*"], "executor": {"path": f"{own}.executor.SiteExecutor", "args": {}}}],
        "components": [],
        "task_data_filters": [],
        "task_result_filters": [],
    }
    (job / "meta.json").write_text(json.dumps(meta))
    (config / "config_fed_server.json").write_text(json.dumps(server))
    (config / "config_fed_client.json").write_text(json.dumps(client))
    (config / SETTINGS).write_text(json.dumps(settings))
