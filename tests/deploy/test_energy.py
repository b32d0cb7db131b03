"""Joules that the machine counts, read from files as Linux offers them."""

from __future__ import annotations

import importlib.util
import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexfl.costs import MeasuredCompute
from flexfl.deploy import energy
from flexfl.deploy.energy import Joules, rapl, stopwatch
from flexfl.errors import InputError
from flexfl.extras import MissingPackageError

RANGE = 262_143_328_850  # microjoules, of a common processor


class Machine:
    """A tree like /sys/class/powercap: two packages, a part of one, and a clock."""

    def __init__(self, root: Path) -> None:
        self.root, self.now = root, 0.0
        for name in ("intel-rapl:0", "intel-rapl:1", "intel-rapl:0:0", "intel-rapl"):
            (root / name).mkdir()
            (root / name / "max_energy_range_uj").write_text(f"{RANGE}\n")
            self.set(name, 7_000_000)

    def set(self, name: str, microjoules: int | str) -> None:
        (self.root / name / "energy_uj").write_text(f"{microjoules}\n")

    def clock(self) -> float:
        return self.now


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_joules_of_all_packages_add_up_and_parts_are_not_counted_twice(machine: Machine) -> None:
    joules = rapl(machine.root, machine.clock)
    assert joules() == 0.0
    machine.set("intel-rapl:0", 9_000_000)
    machine.set("intel-rapl:1", 7_500_000)
    machine.set("intel-rapl:0:0", 99_000_000)
    assert joules() == pytest.approx(2.5)
    assert joules() == pytest.approx(2.5)


def test_a_counter_that_wraps_goes_on(machine: Machine) -> None:
    machine.set("intel-rapl:0", RANGE - 1_000_000)
    joules = rapl(machine.root, machine.clock)
    machine.set("intel-rapl:0", 500_000)
    assert joules() == pytest.approx(1.5)


@pytest.mark.parametrize("fault", ["gone", "empty", "-5", "many", "set back"])
def test_a_counter_that_fails_in_the_middle_is_estimated(
    machine: Machine, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    joules = rapl(machine.root, machine.clock)
    machine.now = 10.0
    machine.set("intel-rapl:0", 7_000_000 + 200_000_000)  # 20 W
    assert joules() == pytest.approx(200.0)
    path = machine.root / "intel-rapl:0" / "energy_uj"
    if fault == "gone":
        path.unlink()
    else:
        path.write_text({"empty": "", "set back": "5000000"}.get(fault, fault))
    with caplog.at_level(logging.WARNING):
        machine.now = 13.0
        assert joules() == pytest.approx(260.0)
        if fault != "set back":
            machine.now = 14.0
            assert joules() == pytest.approx(280.0)
    assert len(caplog.records) == 1
    machine.set("intel-rapl:0", 900_000_000)  # it is back: counted from here on
    machine.now = 15.0
    found = joules()
    machine.now = 16.0
    machine.set("intel-rapl:0", 903_000_000)
    assert joules() == pytest.approx(found + 3.0)


@given(
    st.lists(
        st.tuples(st.none() | st.lists(st.floats(0, 99.9), min_size=2, max_size=2), st.floats(-5, 50)),
        max_size=30,
    )
)
def test_joules_never_fall_whatever_counters_and_clock_do(
    readings: list[tuple[list[float] | None, float]],
) -> None:
    now, values = 0.0, [[1.0, 1.0], *(values for values, _ in readings)]

    def read() -> list[float]:
        if (found := values.pop(0)) is None:
            raise OSError("gone")
        return found

    joules, before = Joules(read, [100.0, float("inf")], lambda: now), 0.0
    for _, elapsed in readings:
        now += elapsed  # a clock that is set back, too
        found = joules()
        assert found >= before
        before = found


def test_a_machine_without_counters_says_so_before_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(energy, "POWERCAP", tmp_path)
    with pytest.raises(InputError, match=r"costs\.compute\.count needs counters .* got 'rapl'; .*seconds"):
        stopwatch(MeasuredCompute(count="rapl"))
    (tmp_path / "intel-rapl:0").mkdir()
    (tmp_path / "intel-rapl:0" / "max_energy_range_uj").write_text("many")
    with pytest.raises(InputError, match="holds no number"):
        rapl(tmp_path)


def test_a_counter_that_may_not_be_read_says_how_to_allow_it(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, **options: str) -> str:  # root, as which tests may run, reads every file
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_text", refuse)
    with pytest.raises(InputError, match="chmod a\\+r"):
        rapl(machine.root)


def test_seconds_need_no_counter() -> None:
    watch = stopwatch(MeasuredCompute())
    assert 0.0 <= -(watch() - watch()) < 60.0
    assert MeasuredCompute().unit == "second"
    assert MeasuredCompute(count="rapl").unit == "joule"


def test_gpus_need_an_extra() -> None:
    cost = MeasuredCompute(count="nvml")
    wanted = MissingPackageError if importlib.util.find_spec("pynvml") is None else InputError
    with pytest.raises(wanted, match="nvml"):
        stopwatch(cost)
