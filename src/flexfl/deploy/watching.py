"""Look on at a run in another process until it has ended."""

from __future__ import annotations

import time
from collections.abc import Callable

from flexfl.errors import FlexFLError
from flexfl.results.progress import Live

OnLive = Callable[[Live], None]


def watch(
    look: Callable[[], Live | None],
    runs: Callable[[], bool],
    *,
    before: Live | None = None,
    on_live: OnLive = lambda live: None,
    every: float = 0.2,
) -> Live:
    """What the run tells at its end.

    look    what it tells now
    runs    whether it is still there: one that has ended without a word is an error
    before  what an earlier part of it told, which may still be there to read
    every   seconds between two looks; `runs` is asked less often, since it may take a while
    """
    looks = 0
    while True:
        looks += 1
        over = looks % _LOOKS == 0 and not runs()
        live = look()
        if live is not None and (live != before or over):
            on_live(live)
            if live.ended:
                return live
        if over:
            raise FlexFLError("the run has ended without a word; see log.txt in the server's kit")
        time.sleep(every)


_LOOKS = 10
