"""What a run borrows from its process: threads, signals, and passes that were compiled before."""

from __future__ import annotations

import hashlib
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

import numba
import torch
from threadpoolctl import threadpool_limits


def default_threads() -> int:
    """Return as many threads as torch has, and not more than numba was started with."""
    return min(torch.get_num_threads(), int(numba.config.NUMBA_NUM_THREADS))


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Torch and numba with that number of threads, given back afterwards.

    SciPy's BLAS, which numba's threads call, has none of its own. Torch's sums may depend on the number of
    threads, which may exceed that of the cores; numba's do not, and it has no more than it was started with.
    """
    before = torch.get_num_threads(), numba.get_num_threads()
    torch.set_num_threads(count)
    numba.set_num_threads(min(count, int(numba.config.NUMBA_NUM_THREADS)))
    try:
        with threadpool_limits(limits=1, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(before[0])
        numba.set_num_threads(before[1])


@contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """Ctrl-C and SIGTERM end the run after the iteration under way; a second Ctrl-C at once."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def forget_stale(*modules: str, sources: tuple[str, ...]) -> None:
    """Delete compiled passes of these modules of this folder if any of the sources has changed since.

    Numba keeps a pass on disk until its own file changes: one with a pass of another file built into it would
    go on as that was. A folder that cannot be written to stays as it is.
    """
    folder = Path(__file__).parent
    kept = folder / "__pycache__"
    digest = hashlib.sha256(b"".join((folder / f"{name}.py").read_bytes() for name in sources)).hexdigest()
    note = kept / f"{sources[0]}.digest"
    with suppress(OSError):
        if note.exists() and note.read_text() == digest:
            return
        for module in modules:
            for path in kept.glob(f"{module}.*.nb?"):
                path.unlink(missing_ok=True)
        kept.mkdir(exist_ok=True)
        note.write_text(digest)
