"""A site's part of a job: passes the server's requests to the site in order, and sends its answers."""

from __future__ import annotations

import os
import queue
import threading
import time
from pathlib import Path
from typing import Any

from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal
from nvflare.private.defs import AUTH_CLIENT_NAME_FOR_SJ

from flexfl.deploy.link import Meter
from flexfl.deploy.nvflare import channel
from flexfl.deploy.nvflare.parent import die_with_parent
from flexfl.deploy.nvflare.traffic import client_meter
from flexfl.errors import FlexFLError

_CHECK_SECONDS = 0.2


class SiteExecutor(Executor):  # type: ignore[misc]  # NVFlare has no types
    """The job's executor, named in its configuration; it handles messages, never NVFlare's tasks."""

    def __init__(self) -> None:
        super().__init__()
        self._asked: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._worker: threading.Thread | None = None
        self._meter: Meter | None = None

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        if event_type == EventType.START_RUN:
            die_with_parent()
            _stop_polling(fl_ctx.get_prop(FLContextKey.RUNNER))
            folder = Path(fl_ctx.get_prop(FLContextKey.WORKSPACE_ROOT), "flexfl")
            folder.mkdir(exist_ok=True)
            self._meter = client_meter(int(fl_ctx.get_prop(FLContextKey.ARGS).sp_target.rpartition(":")[2]))
            self._start(
                fl_ctx.get_engine().get_cell(), fl_ctx.get_identity_name(), fl_ctx.get_job_id(), folder
            )
        elif event_type == EventType.END_RUN and self._worker is not None:
            self._asked.put(None)
            self._worker.join(timeout=10)

    def execute(
        self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal
    ) -> Shareable:
        return make_reply(ReturnCode.TASK_UNSUPPORTED)

    def _start(self, cell: Any, name: str, job: str, folder: Path) -> None:
        self._worker = threading.Thread(
            target=self._work, args=(cell, name, f"server.{job}", folder), daemon=True, name="site"
        )
        self._worker.start()

    def _work(self, cell: Any, name: str, server: str, folder: Path) -> None:
        """Do all of the site's work in one thread; after an unexpected error, exit the process, which
        the launcher restarts."""
        try:
            self._answer_all(cell, name, server, folder)
        except Exception:
            self.logger.exception(f"{name} cannot continue")
            os._exit(1)

    def _answer_all(self, cell: Any, name: str, server: str, folder: Path) -> None:
        from flexfl.deploy.site import Site  # imports torch, which submitting does not need

        def on_message(sender: str, origin: str, data: bytes) -> None:
            if sender == AUTH_CLIENT_NAME_FOR_SJ and origin == server:
                self._asked.put(data)

        site = Site(name, folder, self._meter)
        channel.listen(cell, channel.ASK, on_message)
        channel.fire(cell, channel.ANSWER, server, site.here())
        while (data := self._asked.get()) is not None:
            try:
                answer = site.answer(data)
            except FlexFLError as error:
                self.logger.error(f"{name}: {error}")
                continue
            if answer is not None:
                channel.fire(cell, channel.ANSWER, server, answer)
        site.close()


def _stop_polling(runner: Any) -> None:
    """Let NVFlare's runner wait for the end of the run, instead of asking the server for tasks forever.

    There are no tasks. The end is announced by a message; if that is lost, the answer to the client's next
    heartbeat ends the process.
    """

    def wait(fl_ctx: FLContext) -> tuple[float, bool]:
        while not runner.run_abort_signal.triggered:
            time.sleep(_CHECK_SECONDS)
        return 0.0, False

    runner.fetch_and_run_one_task = wait
