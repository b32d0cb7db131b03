"""Following the status of a run in another process."""

from __future__ import annotations

import time
from collections.abc import Callable

from flexfl.errors import FlexFLError
from flexfl.results.observer import Live

OnLive = Callable[[Live], None]
_POLLS_PER_CHECK = 10


def watch(
    look: Callable[[], Live | None],
    runs: Callable[[], bool],
    *,
    before: Live | None = None,
    on_live: OnLive = lambda live: None,
    every: float = 0.2,
) -> Live:
    """Follow a run until it has ended, and return its last status.

    Args:
        look: Returns the current status, or None.
        runs: Returns whether the run is still there.
        before: The last status before the run was resumed, which `look` may still return.
        on_live: Called with every new status.
        every: Seconds between two calls of `look`; `runs` is called less often, since it can be slow.

    Raises:
        FlexFLError: The run is gone and its status does not say that it has ended.
    """
    polls = 0
    while True:
        polls += 1
        gone = polls % _POLLS_PER_CHECK == 0 and not runs()
        live = look()
        if live is not None and (live != before or gone):
            on_live(live)
            if live.ended:
                return live
        if gone:
            raise FlexFLError("the run has ended without a word; see log.txt in the server's kit")
        time.sleep(every)
