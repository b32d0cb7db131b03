"""A command that is stopped in the middle."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

FLEXFL = str(Path(sys.executable).with_name("flexfl"))


def stopped_once(
    begun: Path, arguments: list[str], *, cwd: Path, stop: Callable[[subprocess.Popen[str]], None]
) -> tuple[int, str]:
    """Runs `flexfl` until that file is there, then stops it: its exit status and what it said of errors.

    It leads a process group of its own, as in a terminal.
    """
    with subprocess.Popen(
        [FLEXFL, *arguments],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        while not begun.exists() and process.poll() is None:
            time.sleep(0.02)
        assert process.poll() is None, "it ended before it could be stopped"
        stop(process)
        _, error = process.communicate(timeout=120)
    return process.returncode, error
