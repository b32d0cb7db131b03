"""A launcher that restarts a site's job process, so that a killed process rejoins the running job.

It replaces NVFlare's launcher in the site's local/resources.json. With NVFlare's, a killed job process
fails the whole job, and a restarted client does not rejoin it.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey, FLMetaKey, JobConstants
from nvflare.apis.fl_context import FLContext
from nvflare.apis.job_launcher_spec import JobHandleSpec, JobReturnCode
from nvflare.app_common.job_launcher.client_process_launcher import ClientProcessJobLauncher

_PAUSE = 1.0
_QUICK = 30.0
_MOST_QUICK_DEATHS = 5


class RestartingLauncher(ClientProcessJobLauncher):  # type: ignore[misc]  # NVFlare has no types
    """A launcher that records on disk which job the site is in, until the job has ended there."""

    def launch_job(self, job_meta: dict[str, Any], fl_ctx: FLContext) -> JobHandleSpec:
        root = Path(fl_ctx.get_prop(FLContextKey.WORKSPACE_ROOT))
        job = job_meta[JobConstants.JOB_ID]
        start = super().launch_job
        marker = _markers(root) / job
        marker.parent.mkdir(parents=True, exist_ok=True)
        marker.touch()
        outcome = root / job / FLMetaKey.PROCESS_RC_FILE
        return RestartingHandle(lambda: start(job_meta, fl_ctx), [marker, outcome], self.logger.warning)

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        super().handle_event(event_type, fl_ctx)
        if event_type == EventType.SYSTEM_START:  # the client has registered
            threading.Thread(target=self._rejoin, args=(fl_ctx,), daemon=True, name="rejoin").start()

    def _rejoin(self, fl_ctx: FLContext) -> None:
        """Restart the jobs that ran when the client was killed.

        The server need not agree: it accepts any job process that connects from the right cell. If the
        job has ended, the answer to the client's next heartbeat ends the process again.
        """
        root = Path(fl_ctx.get_prop(FLContextKey.WORKSPACE_ROOT))
        for marker in sorted(_markers(root).glob("*")):
            try:
                meta = json.loads((root / marker.name / "meta.json").read_text())
                result = fl_ctx.get_engine().start_app(marker.name, meta)
                self.logger.info(f"rejoining job {marker.name}: {result}")
            except Exception as error:  # the client must keep running, to accept other jobs
                self.logger.error(f"cannot rejoin job {marker.name}: {error}")
                marker.unlink(missing_ok=True)


class RestartingHandle(JobHandleSpec):  # type: ignore[misc]
    """A sequence of job processes that looks to NVFlare like one process that runs until the job ends.

    It never reports a failure, since that would end the job for all other sites, too.

    Args:
        start: Starts a job process.
        leftovers: Files to delete when the job has ended.
        log: Called with a message when a process has died.
    """

    def __init__(
        self, start: Callable[[], JobHandleSpec], leftovers: list[Path], log: Callable[[str], None]
    ) -> None:
        self._start, self._leftovers, self._log = start, leftovers, log
        self._stop = threading.Event()
        self._process = start()

    def terminate(self) -> None:
        self._stop.set()
        self._process.terminate()

    def poll(self) -> Any:
        alive = self._process.poll() == JobReturnCode.UNKNOWN
        return JobReturnCode.UNKNOWN if alive else JobReturnCode.SUCCESS

    def wait(self) -> None:
        """Wait until the job has ended: normally, by `terminate`, or because its process keeps dying."""
        deaths = 0
        while True:
            start_time = time.monotonic()
            self._process.wait()
            if self._stop.is_set() or self._process.poll() == JobReturnCode.SUCCESS:
                break
            deaths = deaths + 1 if time.monotonic() - start_time < _QUICK else 1
            if deaths >= _MOST_QUICK_DEATHS:
                self._log(f"the job process died {deaths} times in a row: this site leaves the job")
                break
            self._log("the job process died; starting it again")
            if self._stop.wait(_PAUSE):
                break
            self._process = self._start()
            if self._stop.is_set():  # set meanwhile: `terminate` reached only the previous process
                self._process.terminate()
        for path in self._leftovers:
            path.unlink(missing_ok=True)


def _markers(root: Path) -> Path:
    return root / "flexfl" / "jobs"
