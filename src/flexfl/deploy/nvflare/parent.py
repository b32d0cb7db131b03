"""Ending a job process together with the process that started it."""

from __future__ import annotations

import os
import threading
import time


def die_with_parent() -> None:
    """Exit as soon as the parent process has ended.

    A restarted parent starts another job process, which needs the files that this one has open.
    NVFlare itself takes some seconds to end it.
    """
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.2)
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="parent").start()
