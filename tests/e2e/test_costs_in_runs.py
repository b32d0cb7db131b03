"""Costs that are read from files in whole runs: paths, faults before any work, identity, outages."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from flexfl import Run, simulate
from flexfl.costs import Bandwidth
from flexfl.deploy.plan import client_job
from flexfl.deploy.protocol import Hello
from flexfl.deploy.settings import SiteSettings
from flexfl.errors import InputError, RunDirectoryError
from flexfl.spec.build import build_setup, paths_of_costs
from flexfl.spec.load import load_spec, to_toml
from flexfl.spec.schema import parse
from small import small_data

TRACE = "0\t2.0\n1\t0.5\n2\t1.5\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs" / "link.tsv").write_text(TRACE)
    return tmp_path


def run(out: Path, costs: dict[str, Any], *, resume: bool = False, iterations: int = 8, **more: Any) -> Run:
    torch.manual_seed(0)
    settings: dict[str, Any] = {"budget": {"uplink": 0.3, "compute": 0.5}, **more}
    return simulate(
        data=small_data(),
        model=nn.Linear(5, 3),
        costs=costs,
        train={"iterations": 12 if resume else iterations},
        record={"clients": True},
        out=out,
        resume=resume,
        **settings,
    ).run


def test_a_path_is_relative_to_the_file_of_the_spec(folder, monkeypatch):
    inner = (
        '{ kind = "available", cost = { kind = "bandwidth", trace = { path = "link.tsv" } }, trace = [1] }'
    )
    text = f'[costs]\nuplink = {{ kind = "bandwidth", trace = "link.tsv" }}\ndownlink = {inner}\n'
    text += '[budget.bill]\nlimit = 1.0\nuplink = { kind = "bandwidth", trace = "link.tsv" }\n'
    (folder / "specs" / "spec.toml").write_text(text)
    monkeypatch.chdir(folder)
    spec = load_spec("specs/spec.toml")
    expected = str(folder / "specs" / "link.tsv")
    assert spec.costs.uplink["trace"]["path"] == expected
    assert paths_of_costs(spec) == {
        "costs.uplink.trace.path": expected,
        "costs.downlink.cost.trace.path": expected,
        "budget.bill.uplink.trace.path": expected,
    }
    assert parse(tomllib.loads(to_toml(spec))) == spec
    overridden = load_spec("specs/spec.toml", ["costs.uplink.trace.path=specs/link.tsv"])
    assert overridden.costs.uplink["trace"]["path"] == expected


def test_faults_of_all_files_are_listed_before_any_work(folder):
    (folder / "bad.tsv").write_text("0\t1\n1\t-4\n")
    costs = {
        "uplink": {"kind": "bandwidth", "trace": str(folder / "bad.tsv")},
        "downlink": {"kind": "bandwidth", "trace": str(folder / "none.tsv")},
    }
    with pytest.raises(InputError) as error:
        build_setup(parse({"costs": costs}))
    first, second = (str(fault) for fault in error.value.faults)
    assert first == (
        f"costs.uplink.trace.path must have values ≥ 0 ({folder / 'bad.tsv'}, line 2), got '-4'; "
        "correct that line, or leave it out"
    )
    assert second.startswith("costs.downlink.trace.path must name a file, a folder with files, or a pattern")


def test_lists_inside_are_for_the_clients_that_there_are():
    inside = {"kind": "gilbert-elliott", "cost": {"kind": "bytes", "bytes_per_component": [4.0, 5.0]}}
    rule = r"costs\.uplink\.cost\.bytes_per_component must have one number for each of the 100 clients, got 2"
    with pytest.raises(InputError, match=rule):
        parse({"costs": {"uplink": inside}})
    with pytest.raises(InputError, match=r"costs\.downlink\.cost\.bytes_per_component must be one number"):
        parse({"costs": {"downlink": inside}})
    classes = {"kind": "available", "trace": [1], "cost": {"kind": "device", "members": ["slow"]}}
    rule = r"costs\.compute\.cost\.members must have a class for each of the 100 clients, got 1"
    with pytest.raises(InputError, match=rule):
        build_setup(parse({"costs": {"compute": classes}}))


def test_a_spec_is_parsed_without_reading_what_it_names(folder):
    assert parse({"costs": {"uplink": {"kind": "bandwidth", "trace": "/no/such/file"}}})


def test_a_site_reads_a_file_only_if_its_owner_allows_it(folder):
    table = {"kind": "bandwidth", "trace": str(folder / "specs" / "link.tsv")}
    spec = parse({"data": {"clients": 2, "partition": "iid"}, "costs": {"uplink": table}})
    hello = Hello(run="one", place=0, clients=2, spec=to_toml(spec))
    with pytest.raises(
        InputError, match=r"costs\.uplink\.trace\.path names a file of this site.*paths = true"
    ):
        client_job(hello, SiteSettings())
    assert client_job(hello, SiteSettings(paths=True)).setup.costs["uplink"].contents


@pytest.mark.parametrize("as_object", [False, True])
def test_a_run_with_another_file_is_not_resumed(folder, as_object):
    path = folder / "specs" / "link.tsv"

    def costs() -> dict[str, Any]:
        rate = 1e4
        table = {"kind": "bandwidth", "rate": rate, "trace": str(path)}
        return {"uplink": Bandwidth(rate=rate, trace=str(path)) if as_object else table}

    run(folder / "run", costs())
    path.write_text(TRACE.replace("0.5", "0.6"))
    with pytest.raises(RunDirectoryError, match=r"costs\.uplink\.contents"):
        run(folder / "run", costs(), resume=True)
    path.write_text(TRACE)
    resumed = run(folder / "run", costs(), resume=True)
    whole = run(folder / "whole", costs(), iterations=12)
    for name in ("uplink_cost", "computed", "uplink_components"):
        assert np.array_equal(resumed.clients[name], whole.clients[name]), name
    assert resumed.clients["uplink_cost"].shape == (12, 6)
    assert resumed.clients["uplink_cost"].any()


@pytest.mark.parametrize(
    "policy",
    [{"policy": "online", "tradeoff": 10.0}, {"policy": "full"}, {"policy": "periodic", "send_every": 2}],
)
def test_those_who_are_away_send_nothing_whatever_the_policy(folder, policy):
    trace = {"values": [1, 0], "random_start": True}
    costs = {
        "compute": {"kind": "available", "trace": trace},
        "uplink": {"kind": "available", "trace": trace, "cost": {"kind": "constant", "whole_model": 0.1}},
    }
    found = run(folder / "run", costs, control=policy)
    computed, sent = found.clients["computed"], found.clients["uplink_components"]
    assert np.isfinite(found.clients["uplink_cost"]).all()
    assert computed.any()
    assert sent.any()
    for client in range(6):
        even, odd = (computed[half::2, client].any() or sent[half::2, client].any() for half in (0, 1))
        assert not (even and odd), "a client is there in every second iteration only"
