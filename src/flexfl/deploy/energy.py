"""Joules that a machine has counted: processors by RAPL, NVIDIA's GPUs by NVML.

RAPL counts all that a processor package does, other programs included, in microjoules that begin again at 0
after `max_energy_range_uj`, an hour or so under load. Linux offers it in files that only root may read by
default.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from flexfl.errors import Fault, InputError
from flexfl.extras import needed_for

log = logging.getLogger("flexfl.deploy")

POWERCAP = Path("/sys/class/powercap")
_PACKAGE = re.compile(r"intel-rapl:\d+")  # AMD's processors, too; parts of a package have another number
_FIELD = "costs.compute.count"


class Joules:
    """Joules counted since the first reading; they never fall.

    A counter that wraps goes on. While one cannot be read, or was set back without having wrapped, what the
    machine has used is estimated from the mean power before, and that is logged once.

    Args:
        read: returns the joules of each counter; raises OSError if they cannot be read.
        ranges: the joules after which each counter begins again; infinite for one that never does.
        clock: seconds.
    """

    def __init__(
        self,
        read: Callable[[], Sequence[float]],
        ranges: Sequence[float],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read, self._ranges, self._clock = read, ranges, clock
        self._last: Sequence[float] | None = list(read())
        self._then = clock()
        self._total = self._counted = self._seconds = 0.0
        self._warned = False

    def __call__(self) -> float:
        """Return the joules so far."""
        now = self._clock()
        elapsed, self._then = max(0.0, now - self._then), now
        found = self._difference()
        if found is None:
            if not self._warned:
                log.warning("joules cannot be counted any more: they are estimated from the power before")
            self._warned = True
            found = self._counted / self._seconds * elapsed if self._seconds else 0.0
        else:
            self._counted, self._seconds = self._counted + found, self._seconds + elapsed
        self._total += found
        return self._total

    def _difference(self) -> float | None:
        """Return the joules since the last reading; None if they are not known."""
        try:
            new = list(self._read())
        except OSError:
            self._last = None  # what comes after a gap is not added: it was estimated
            return None
        old, self._last = self._last, new
        if old is None:
            return None
        steps = [after - before for after, before in zip(new, old, strict=True)]
        if any(step < 0 and 2 * -step < most for step, most in zip(steps, self._ranges, strict=True)):
            return None  # set back: a counter that has wrapped falls by nearly its range
        return sum(step if step >= 0 else step + most for step, most in zip(steps, self._ranges, strict=True))


def rapl(root: Path | None = None, clock: Callable[[], float] = time.monotonic) -> Joules:
    """Return the joules of this machine's processors.

    Raises:
        InputError: they are not counted here, or may not be read.
    """
    root = POWERCAP if root is None else root
    packages = sorted(path for path in root.glob("intel-rapl:*") if _PACKAGE.fullmatch(path.name))
    if not packages:
        remedy = 'this machine or virtual machine has no RAPL: count = "seconds", or joules by a model'
        raise InputError([Fault(_FIELD, f"needs counters of energy in {root}", "rapl", remedy)])

    def read() -> list[float]:
        return [1e-6 * _number(path / "energy_uj") for path in packages]

    try:
        ranges = [1e-6 * _number(path / "max_energy_range_uj") for path in packages]
        return Joules(read, ranges, clock)
    except PermissionError as error:
        files = f"{root}/intel-rapl:*/energy_uj"
        remedy = f"let the client's user read {files}, for example: sudo chmod a+r {files}"
        raise InputError([Fault(_FIELD, "needs to read counters of energy", "rapl", remedy)]) from error
    except OSError as error:
        remedy = f'{error}; use count = "seconds"'
        raise InputError([Fault(_FIELD, "needs counters that can be read", "rapl", remedy)]) from error


def _number(path: Path) -> float:
    """Return the number in a file; raise OSError if there is none from 0 on."""
    text = path.read_text(encoding="ascii", errors="replace").strip()
    if not text.isascii() or not text.isdecimal():
        raise OSError(f"{path} holds no number from 0 on: {text[:20]!r}")
    return float(text)


def nvml() -> Joules:
    """Return the joules of this machine's NVIDIA GPUs.

    Raises:
        MissingPackageError: nvidia-ml-py is not installed.
        InputError: there is no GPU that counts them.
    """
    with needed_for('costs.compute.count = "nvml"'):
        import pynvml

    try:
        pynvml.nvmlInit()
        gpus = [pynvml.nvmlDeviceGetHandleByIndex(place) for place in range(pynvml.nvmlDeviceGetCount())]
        if not gpus:
            raise OSError("there is no GPU")

        def read() -> list[float]:
            try:
                return [1e-3 * pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu) for gpu in gpus]
            except pynvml.NVMLError as error:
                raise OSError(str(error)) from error

        return Joules(read, [float("inf")] * len(gpus))
    except (OSError, pynvml.NVMLError) as error:
        remedy = f'{error}; use count = "seconds" or "rapl"'
        raise InputError(
            [Fault(_FIELD, "needs a GPU of NVIDIA that counts joules", "nvml", remedy)]
        ) from error


def stopwatch(cost: object) -> Callable[[], float]:
    """Return what a cost of computing is measured with: seconds, or joules where it counts these.

    Raises:
        InputError: this machine cannot count that.
    """
    match getattr(cost, "count", "seconds"):
        case "rapl":
            return rapl()
        case "nvml":
            return nvml()
        case _:
            return lambda: time.perf_counter()
