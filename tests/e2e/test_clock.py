"""Whole runs with a clock: from a spec to the summary, the terminal and a report; stopped and resumed."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import flexfl
from flexfl.cli.main import app
from flexfl.errors import InputError
from flexfl.results import Run

SMALL = {"data": {"clients": 6, "partition": "iid"}, "engine": {"threads": 1}}
CLOCK = {"compute": {"kind": "uniform", "high": 3.0}, "uplink": "100 kbit/s", "deadline": "2 s"}


class Outage:
    """A link of 10 kbit/s that fails: one client has no connection in odd iterations."""

    unit = "second"

    def at(self, moment):
        down = (moment.entities.numbers == 2) & (moment.iteration % 2 == 1)
        return lambda k: np.where(down & (np.asarray(k) > 0), np.inf, 0.01 * np.asarray(k))


class Broken:
    unit = "second"

    def at(self, moment):
        return lambda k: np.zeros(99)


def run(out, iterations, **more):
    train = {"iterations": iterations, "evaluate_every": 10} | more.pop("train", {})
    control = {"policy": "online", "tradeoff": 0.02, "initial_queue": 1.0}
    sections = {"control": control} | more
    return flexfl.simulate("quickstart", out=out, train=train, **SMALL, **sections)


def test_a_resumed_run_is_the_run_that_was_not_stopped(tmp_path):
    whole = run(tmp_path / "whole", 24, clock=CLOCK)
    run(tmp_path / "parts", 11, clock=CLOCK)
    parts = run(tmp_path / "parts", 24, clock=CLOCK, resume=True)
    for name, column in whole.run.iterations.items():
        assert np.array_equal(column, parts.run.iterations[name], equal_nan=True), name
    assert np.array_equal(whole.params, parts.params)
    assert parts.summary["clock"] == whole.run.iterations["clock"][-1]


def test_a_run_with_another_clock_is_another_run(tmp_path):
    run(tmp_path / "run", 2, clock=CLOCK)
    with pytest.raises(flexfl.FlexFLError, match=r"clock\.deadline is 2\.0 there, got 3\.0"):
        run(tmp_path / "run", 4, clock=CLOCK | {"deadline": "3 s"}, resume=True)


def test_a_run_ends_after_its_duration_and_may_go_on(tmp_path):
    ended = run(tmp_path / "run", 500, clock={"iteration": "1 min"}, train={"duration": "12 min"})
    assert (ended.summary["iterations"], ended.summary["clock"]) == (12, 720.0)
    assert ended.summary["iterations_per_hour"] == 60.0
    longer = run(
        tmp_path / "run", 500, clock={"iteration": "1 min"}, train={"duration": "0.25 hours"}, resume=True
    )
    assert longer.summary["iterations"] == 15


def test_times_may_be_objects_and_clients_may_be_away(tmp_path):
    result = run(tmp_path / "run", 8, clock={"uplink": Outage()}, record={"clients": True},
                 control={"policy": "top-k", "send_ratio": 0.001})  # fmt: skip
    sent = result.run.clients["uplink_components"]
    assert (sent[1::2, 2] == 0).all()
    assert (sent[0::2] > 0).all()
    took = np.diff(result.run.iterations["clock"], prepend=0.0)
    assert took == pytest.approx(0.05 + 0.01 * sent.max(axis=1))


def test_a_time_of_ones_own_that_fails_is_found_before_the_start(tmp_path):
    with pytest.raises(
        InputError, match=r"clock\.compute must give a time for each of the 6 clients.*Broken"
    ):
        run(tmp_path / "run", 8, clock={"compute": Broken()})
    assert not (tmp_path / "run").exists()


def test_the_command_line_shows_the_clock(tmp_path):
    out = str(tmp_path / "run")
    settings = ["train.iterations=40", "data.clients=6", "data.partition=iid", "clock.iteration=90 s"]
    words = ["run", "quickstart", "--out", out, *(word for one in settings for word in ("--set", one))]
    ended = CliRunner().invoke(app, words)
    assert ended.exit_code == 0, ended.output
    assert "clock          1 h (40 iterations an hour)" in ended.output
    assert "iteration 20/40  clock 30 min" in ended.output
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["clock"] == 3600.0
    drawn = CliRunner().invoke(app, ["report", out, "--x", "seconds"])
    assert drawn.exit_code == 0, drawn.output
    assert "time of the run (minutes)" in (tmp_path / "run" / "report" / "report.html").read_text()
    assert Run(out).horizon == 40
