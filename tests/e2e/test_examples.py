"""Each example, the ways a person may use it: Python, a spec, a sweep, a deployment, kill and resume."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from examples import gateways, own_data
from examples.own_compressor import OneMagnitude
from examples.own_cost import TwoStateChannel
from examples.own_local import Proximal
from examples.own_observer import SpendingLog
from examples.own_policy import SavingUp
from safetensors.numpy import load_file

import flexfl
from deploy.in_memory import deploy, final_params
from e2e.test_kill import VICTIM
from flexfl.experiments.sweep import load_sweep
from flexfl.spec import load_spec

ROOT = Path(__file__).parents[2]
SMALL = [
    "data.clients=4",
    "data.partition=iid",
    "model.options.hidden=4",
    "train.iterations=30",
    "train.evaluate_every=10",
    "engine.checkpoint_every=7",
    "engine.dtype=float64",
    "engine.threads=1",
    "record.clients=true",
    "budget.uplink=0.05",
    "deploy.deadline=5.0",
]
AS_SETTING = {
    "cost": [
        "costs.uplink.kind=examples.own_cost:TwoStateChannel",
        "costs.uplink.factors=[1.0, 2.0, 0.5]",
        "costs.uplink.worse=[2.0, 3.0, 4.0, 5.0]",
    ],
    "policy": ["control.policy=examples.own_policy:SavingUp", "control.least=0.02"],
    "compressor": [
        "compress.uplink.kind=examples.own_compressor:OneMagnitude",
        "compress.uplink.step=50",
        "compress.downlink.kind=examples.own_compressor:OneMagnitude",
    ],
    "local work": ["train.local.kind=examples.own_local:Proximal", "train.local.steps=2"],
    "observer": ["track.log.kind=examples.own_observer:SpendingLog", "track.log.warn_at=1.0"],
}
AS_OBJECT = {
    "cost": lambda: {
        "costs": {"uplink": TwoStateChannel(factors=[1.0, 2.0, 0.5], worse=np.array([2.0, 3.0, 4.0, 5.0]))}
    },
    "policy": lambda: {"control": {"policy": SavingUp(0.02)}},
    "compressor": lambda: {"compress": {"uplink": OneMagnitude(50), "downlink": OneMagnitude()}},
    "local work": lambda: {"train": {"local": Proximal(steps=2)}},
    "observer": lambda: {"observers": [SpendingLog(warn_at=1.0)]},
}
EXAMPLES = pytest.mark.parametrize("name", AS_SETTING)


@pytest.fixture(autouse=True)
def where_examples_lie(monkeypatch):
    monkeypatch.chdir(ROOT)


def spec_of(name):
    return load_spec("quickstart", SMALL + AS_SETTING[name])


@EXAMPLES
def test_as_an_object_and_from_a_spec(name, tmp_path):
    named = flexfl.simulate(spec_of(name), out=tmp_path / "named")
    passed = flexfl.simulate(load_spec("quickstart", SMALL), out=tmp_path / "passed", **AS_OBJECT[name]())
    assert np.array_equal(named.params, passed.params)
    plain = flexfl.simulate(load_spec("quickstart", SMALL))
    assert np.array_equal(named.params, plain.params) == (name == "observer")  # which only looks on
    if name == "observer":
        for run in ("named", "passed"):
            lines = (tmp_path / run / "spending.log").read_text().splitlines()
            assert lines[0] == "begun at iteration 0 of 30"
            assert lines[-1] == "finished after 30 iterations, 30 of them seen here"
            assert len(lines) == 6


@EXAMPLES
def test_in_a_sweep(name, tmp_path):
    lines = [f"set.{line.replace('=', ' = ', 1)}" for line in SMALL + AS_SETTING[name]]
    quoted = [_quoted(line) for line in lines]
    file = tmp_path / "sweep.toml"
    file.write_text("\n".join(['base = "quickstart"', "seeds = [1, 2]", *quoted]) + "\n")
    cells = load_sweep(file).cells(tmp_path)
    assert [cell.spec for cell in cells] == [
        load_spec("quickstart", [*SMALL, *AS_SETTING[name], f"train.seed={seed}"]) for seed in (1, 2)
    ]
    params = [flexfl.simulate(cell.spec, out=cell.out).params for cell in cells]
    assert not np.array_equal(*params)


def _quoted(line):
    key, _, value = line.partition(" = ")
    plain = value[0].isdigit() or value[0] == "[" or value in ("true", "false")
    return line if plain else f'{key} = "{value}"'


@EXAMPLES
def test_between_machines_as_in_a_simulation(name, tmp_path):
    spec = spec_of(name)
    for n in range(4):
        site = tmp_path / f"site-{n + 1}"
        site.mkdir()
        (site / "site.toml").write_text('modules = ["examples"]\n')
    ours = deploy(tmp_path, spec)
    simulated = flexfl.simulate(spec, out=tmp_path / "simulated")
    np.testing.assert_allclose(final_params(ours), simulated.params, rtol=0, atol=1e-10)
    found = flexfl.Run(ours)
    for column in ("computed", "uplink_components", "uplink_bytes"):
        assert np.array_equal(found.clients[column], simulated.run.clients[column]), column
    for column in ("uplink_cost", "uplink_queue", "compute_prob"):
        np.testing.assert_allclose(found.clients[column], simulated.run.clients[column], rtol=1e-8)
    if name == "observer":
        assert (ours / "spending.log").read_text().splitlines()[-1].startswith("finished after 30")


@EXAMPLES
def test_killed_and_resumed_to_the_last_bit(name, tmp_path):
    settings = SMALL + AS_SETTING[name]
    out = tmp_path / "run"
    command = [sys.executable, "-c", VICTIM, str(out), "17", "0.0", *settings]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    resumed = flexfl.simulate(spec_of(name), out=out, resume=True)
    whole = flexfl.simulate(spec_of(name), out=tmp_path / "whole")
    assert np.array_equal(resumed.params, whole.params)
    states = [load_file(next(folder.glob("checkpoint-*"))) for folder in (out, tmp_path / "whole")]
    for key in states[0].keys() - {"seconds"}:
        assert np.array_equal(states[0][key], states[1][key]), key
    for column, values in whole.run.clients.items():
        np.testing.assert_array_equal(resumed.run.clients[column], values, err_msg=column)


def test_data_as_people_have_them(capsys):
    own_data.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["by customer", "from HuggingFace", "from a loader"]
    for line in lines:
        assert "8 clients" in line
        assert float(line.split()[-1]) > 0.6


def test_gateways_keep_to_their_plan_and_battery(capsys):
    days, month = 0.1, 365.25 / 12
    result = gateways.train(days)
    gateways.report(result, days)
    printed = capsys.readouterr().out
    delivered, after = map(float, re.findall(r"accuracy .*: ([\d.]+)", printed))
    assert after > delivered + 0.1
    spent = {
        "battery": result.run.totals["compute_spent"] / (5e3 * days),
        "uplink": result.run.totals["uplink_cost"] / (30e6 * days / month),
        "downlink": result.run.iterations["downlink_cost"].sum() / (20e6 * days / month),
    }
    for name, share in spent.items():  # a month's plan is the limit; a tenth of a day is its share of it
        assert np.all(share < 1.1), name
        assert np.all(share > 0.9), name
    months = re.findall(r"^ +\d+ .*?([\d.]+) MB +[\d.]+ J$", printed, re.MULTILINE)
    used = 30 * spent["uplink"] + 20 * spent["downlink"]
    np.testing.assert_allclose([float(month) for month in months], used, atol=0.051)
