"""Starts a site's job process, again and again: whatever was killed comes back and rejoins the running job.

Named in the site's local/resources.json instead of NVFlare's own launcher, with which a killed job
process fails the whole job, and a client that was started again takes no part in it any more.
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
    """Remembers on the disk which job the site is in, until the job has ended here."""

    def launch_job(self, job_meta: dict[str, Any], fl_ctx: FLContext) -> JobHandleSpec:
        root = Path(fl_ctx.get_prop(FLContextKey.WORKSPACE_ROOT))
        job = job_meta[JobConstants.JOB_ID]
        start = super().launch_job
        mark = _marks(root) / job
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()
        outcome = root / job / FLMetaKey.PROCESS_RC_FILE
        return RestartingHandle(lambda: start(job_meta, fl_ctx), [mark, outcome], self.logger.warning)

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        super().handle_event(event_type, fl_ctx)
        if event_type == EventType.SYSTEM_START:  # the client has registered
            threading.Thread(target=self._rejoin, args=(fl_ctx,), daemon=True, name="rejoin").start()

    def _rejoin(self, fl_ctx: FLContext) -> None:
        """Start what ran here when the client was killed.

        The server has nothing to say about it: a job process that connects from the right cell is in.
        If the job is over, the answer to the client's next heartbeat ends the process again.
        """
        root = Path(fl_ctx.get_prop(FLContextKey.WORKSPACE_ROOT))
        for mark in sorted(_marks(root).glob("*")):
            try:
                meta = json.loads((root / mark.name / "meta.json").read_text())
                told = fl_ctx.get_engine().start_app(mark.name, meta)
                self.logger.info(f"rejoining job {mark.name}: {told}")
            except Exception as error:  # whatever it is, the client must go on and take other jobs
                self.logger.error(f"cannot rejoin job {mark.name}: {error}")
                mark.unlink(missing_ok=True)


class RestartingHandle(JobHandleSpec):  # type: ignore[misc]
    """One job process after the other, which NVFlare takes for one that lives until the job ends.

    It never reports a failure: that would end the job for all the others, too.
    """

    def __init__(
        self, start: Callable[[], JobHandleSpec], leftovers: list[Path], tell: Callable[[str], None]
    ) -> None:
        self._start, self._leftovers, self._tell = start, leftovers, tell
        self._stop = threading.Event()
        self._process = start()

    def terminate(self) -> None:
        self._stop.set()
        self._process.terminate()

    def poll(self) -> Any:
        alive = self._process.poll() == JobReturnCode.UNKNOWN
        return JobReturnCode.UNKNOWN if alive else JobReturnCode.SUCCESS

    def wait(self) -> None:
        """Until the job has ended: by itself, by force, or because its process does not stay alive."""
        deaths = 0
        while True:
            born = time.monotonic()
            self._process.wait()
            if self._stop.is_set() or self._process.poll() == JobReturnCode.SUCCESS:
                break
            deaths = deaths + 1 if time.monotonic() - born < _QUICK else 1
            if deaths >= _MOST_QUICK_DEATHS:
                self._tell(f"the job process died {deaths} times in a row: this site leaves the job")
                break
            self._tell("the job process died; starting it again")
            if self._stop.wait(_PAUSE):
                break
            self._process = self._start()
            if self._stop.is_set():  # asked for just now: the one that it ended was the last one
                self._process.terminate()
        for path in self._leftovers:
            path.unlink(missing_ok=True)


def _marks(root: Path) -> Path:
    return root / "flexfl" / "jobs"
