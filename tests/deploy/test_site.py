"""What a site takes from others, and what its owner decides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deploy.in_memory import small_spec
from flexfl.deploy.conduct import conduct
from flexfl.deploy.plan import Plan, client_job
from flexfl.deploy.project import read_project
from flexfl.deploy.protocol import Acknowledgement, Hello, Question, Ready, Restarted, SqliteStore
from flexfl.deploy.settings import SiteSettings
from flexfl.deploy.site import Site
from flexfl.errors import InputError
from flexfl.results.observer import Live, Progress
from flexfl.spec.load import to_toml
from flexfl.streams import Entities
from flexfl.wire import WireError
from flexfl.wire.envelope import unseal


def greeted(site: Site, spec: Any, run: str = "run-1", place: int = 0) -> Ready:
    answer = site.answer(Hello(run, to_toml(spec), place, spec.data.clients).encode())
    assert answer is not None
    return Ready.of(unseal(answer))


@pytest.fixture
def site(tmp_path: Path) -> Any:
    made = Site("north", tmp_path / "flexfl")
    yield made
    made.close()


def own_settings_file(site: Site, text: str) -> None:
    folder = site._folder
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "site.toml").write_text(text)


def test_a_greeting_is_answered_with_what_the_client_has(site: Site) -> None:
    ready = greeted(site, small_spec())
    assert (ready.client, ready.run, ready.dim, ready.fault) == ("north", "run-1", 39760, "")
    assert ready.samples > 0
    assert greeted(site, small_spec()) == ready


def test_own_data_is_used_and_stays(site: Site, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "own.npz", train_x=rng.integers(0, 255, (33, 28, 28)), train_y=np.arange(33) % 10)
    own_settings_file(site, f'data = "{tmp_path / "own.npz"}"\nthreads = 1')
    assert greeted(site, small_spec()).samples == 33


def test_a_question_about_an_unknown_run_gets_a_question_back(site: Site) -> None:
    question = Question("run-9", 0, 0, (), b"", Acknowledgement()).encode()
    answer = site.answer(question)
    assert answer is not None
    assert Restarted.of(unseal(answer)) == Restarted("run-9", "north")


def test_a_run_may_call_only_what_the_owner_allows(site: Site) -> None:
    spec = small_spec(model={"name": "os:getcwd"})
    assert "model.name must be of a package that site.toml names, got 'os'" in greeted(site, spec).fault
    costs = small_spec(costs={"uplink": {"kind": "os.path:join"}})
    assert 'modules = ["os"]' in greeted(site, costs).fault
    own_settings_file(site, 'modules = ["deploy"]')
    assert greeted(site, small_spec(model={"name": "deploy.networks:tiny"})).dim == 7850


@pytest.mark.parametrize("name", ["../escape", "", "a/b", "x" * 200, ".hidden", "nul\0"])
def test_a_run_may_not_be_called_like_a_path(site: Site, name: str, tmp_path: Path) -> None:
    assert "may not be called" in greeted(site, small_spec(), run=name).fault
    assert not list(tmp_path.rglob("*.sqlite"))


def test_a_state_that_another_process_has_open_is_worth_asking_again(site: Site) -> None:
    site._folder.mkdir(parents=True)
    other = SqliteStore(site._folder / "run-1.sqlite")
    ready = greeted(site, small_spec())
    assert ready.retry
    assert "in use by another process" in ready.fault
    other.close()
    assert not greeted(site, small_spec()).fault


def test_a_spec_that_is_none_is_answered_with_the_fault(site: Site) -> None:
    answer = site.answer(Hello("run-1", "train = 3", 0, 4).encode())
    assert answer is not None
    assert "train must be a table" in Ready.of(unseal(answer)).fault
    answer = site.answer(Hello("run-1", "not toml at all [", 0, 4).encode())
    assert answer is not None
    assert "must be TOML" in Ready.of(unseal(answer)).fault
    with pytest.raises(WireError):
        site.answer(b"noise")


def test_settings_of_a_site_are_checked(tmp_path: Path) -> None:
    assert SiteSettings.read(tmp_path) == SiteSettings()
    for text in ("threads = 0", "date = 'x'", "threads"):
        (tmp_path / "site.toml").write_text(text)
        with pytest.raises(InputError, match="must be TOML with data, threads, paths and modules"):
            SiteSettings.read(tmp_path)


def test_a_client_picks_its_own_of_what_is_given_for_each() -> None:
    spec = small_spec(
        budget={"compute": [0.1, 0.2, 0.3, 0.4]},
        control={"tradeoff": {"uplink": [1.0, 2.0, 3.0, 4.0]}, "initial_queue": 0.5},
        costs={"compute": {"kind": "uniform", "low": [0.0, 0.1, 0.2, 0.3]}},
    )
    job = client_job(Hello("run-1", to_toml(spec), 2, 4), SiteSettings())
    entity = Entities.one_client(job.place, job.clients)
    knob, uplink = job.setup.knob(entity, 10), job.setup.sender("uplink", entity, 10)
    assert float(knob.rule.queue.budget) == 0.3  # type: ignore[attr-defined]
    assert float(uplink.rule.tradeoff) == 3.0  # type: ignore[attr-defined]
    moment = job.setup.streams.moment("compute", 5, 10, entity)
    drawn = float(job.setup.costs["compute"].at(moment)(1.0))
    everyone = job.setup.streams.moment("compute", 5, 10, Entities.all_clients(4))
    assert drawn == job.setup.costs["compute"].at(everyone)(np.ones(4))[2] >= 0.2


def test_a_plan_has_as_many_clients_as_its_roster(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"data\.clients must be the 2 of the roster, got 4"):
        conduct(Plan("x", small_spec(), {"a": 0.5, "b": 0.5}).settings(), None, tmp_path)  # type: ignore[arg-type]


PROJECT = 'name = "clinics"\nserver = "fl.example.org"\nport = 8002\n'


def test_a_project_file(tmp_path: Path) -> None:
    path = tmp_path / "project.toml"
    path.write_text(PROJECT + 'clients = ["north", "south"]')
    project = read_project(path)
    assert (project.name, project.server, project.port) == ("clinics", "fl.example.org", 8002)
    assert project.clients == {"north": 0.5, "south": 0.5}
    path.write_text(PROJECT + "clients = {north = 3, south = 1}")
    assert read_project(path).clients == {"north": 0.75, "south": 0.25}
    assert read_project(path).heartbeat == 600.0
    for text, seconds in (('"90 s"', 90.0), ('"1.5 h"', 5400.0), ("30", 30.0)):
        path.write_text(f'{PROJECT}clients = ["north"]\nheartbeat = {text}')
        assert read_project(path).heartbeat == seconds


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("clients = []", "clients must list at least one name"),
        ('clients = ["a", "a"]', "must name each client once"),
        ('clients = ["../x"]', "must be letters, digits"),
        ('clients = ["server"]', "none of admin, authority, server"),
        ("clients = {north = 0}", r"clients\.north must be a weight > 0, got 0"),
        ('clients = ["a"]\nhost = 1', "host is not a key of a project"),
        ('clients = ["a"]\nheartbeat = 1', "heartbeat must be a time of at least 2 s, got 1"),
        ('clients = ["a"]\nheartbeat = "5 MB"', "heartbeat must be in second or a unit"),
        ('clients = ["a"]\nheartbeat = true', "heartbeat must be a time, got"),
    ],
)
def test_faults_in_a_project_file(text: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "project.toml"
    path.write_text(PROJECT + text)
    with pytest.raises(InputError, match=told):
        read_project(path)
    path.write_text('name = "x y"\nserver = ""\nport = 0\nclients = ["a"]')
    with pytest.raises(InputError, match="3 faults"):
        read_project(path)
    with pytest.raises(InputError, match="must be a TOML file with name, server, port, clients"):
        read_project(tmp_path / "absent.toml")


def test_what_is_told_live_comes_back(tmp_path: Path) -> None:
    progress = Progress(10, budgets={"compute": 1.0, "uplink": None, "downlink": None})
    live = Live.of(progress, state="training", present=["a"])
    live.write(tmp_path / "x.live.json")
    assert Live.read(tmp_path / "x.live.json") == live
    assert Live.read(tmp_path / "absent") is None
    assert Live.parse("{") is None
