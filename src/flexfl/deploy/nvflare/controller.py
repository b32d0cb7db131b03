"""The server's part of a job: runs the conductor with a link to the job's sites."""

from __future__ import annotations

import json
import queue
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.signal import Signal

from flexfl.deploy.nvflare import channel
from flexfl.deploy.nvflare.parent import die_with_parent
from flexfl.deploy.nvflare.refused import Refused
from flexfl.deploy.nvflare.traffic import Traffic

SETTINGS = "flexfl.json"  # in the job's configuration
_BACKLOG = 16  # unread messages per site; more are dropped. An honest site has one or two


class CellLink:
    """A link over the cell of the server's job process."""

    def __init__(
        self, cell: Any, job: str, sites: list[str], abort: Signal, *, traffic: Traffic, refused: Refused
    ) -> None:
        self._cell, self._abort = cell, abort
        self._traffic, self._refused = traffic, refused
        self._cells = {site: f"{site}.{job}" for site in sites}
        self._inbox: queue.SimpleQueue[tuple[str, bytes]] = queue.SimpleQueue()
        self._backlog: Counter[str] = Counter()
        channel.listen(cell, channel.ANSWER, self._on_message)

    def send(self, messages: Mapping[str, bytes]) -> None:
        for site, data in messages.items():
            if (cell := self._cells.get(site)) is not None:  # else not connected when the job started
                channel.fire(self._cell, channel.ASK, cell, data)

    def receive(self, seconds: float) -> list[tuple[str, bytes]]:
        received: list[tuple[str, bytes]] = []
        try:
            received.append(self._inbox.get(timeout=max(seconds, 1e-3)))
            while True:
                received.append(self._inbox.get_nowait())
        except queue.Empty:
            self._backlog.subtract(name for name, _ in received)
            return received

    @property
    def stopped(self) -> bool:
        return bool(self._abort.triggered)

    def traffic(self) -> tuple[int, int] | None:
        return self._traffic.sample()

    def _on_message(self, name: str, origin: str, data: bytes) -> None:
        """Queue a message if it comes from a site of this job, and from the site's process for this job."""
        accepted = self._cells.get(name) == origin and name not in self._refused
        if accepted and self._backlog[name] < _BACKLOG:
            self._backlog[name] += 1
            self._inbox.put((name, data))


class Conductor(Controller):  # type: ignore[misc]  # NVFlare has no types
    """The job's controller, named in its configuration; `sites` are those that may participate."""

    def __init__(self, sites: list[str]) -> None:
        super().__init__()
        self.sites = sites

    def start_controller(self, fl_ctx: FLContext) -> None:
        pass

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        from flexfl.deploy.conduct import conduct  # imports torch, which submitting does not need

        die_with_parent()
        settings = Path(fl_ctx.get_prop(FLContextKey.APP_ROOT), "config", SETTINGS)
        kit = Path(fl_ctx.get_prop(FLContextKey.WORKSPACE_ROOT))
        (kit / "flexfl").mkdir(exist_ok=True)
        link = CellLink(
            _cell(fl_ctx),
            fl_ctx.get_job_id(),
            self.sites,
            abort_signal,
            traffic=Traffic(int(fl_ctx.get_prop(FLContextKey.ARGS).port)),
            refused=Refused(kit),
        )
        conduct(json.loads(settings.read_text()), link, kit / "flexfl")

    def stop_controller(self, fl_ctx: FLContext) -> None:
        pass


def _cell(fl_ctx: FLContext) -> Any:
    """Return the cell of this job process; NVFlare creates it in another thread."""
    engine = fl_ctx.get_engine()
    while (cell := engine.get_cell()) is None:
        time.sleep(0.01)
    return cell
