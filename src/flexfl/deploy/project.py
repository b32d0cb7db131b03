"""The project file of a federation: its clients, and the address of its server."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from flexfl.deploy.nvflare.kits import HEARTBEAT, RESERVED, Project
from flexfl.errors import Fault, InputError
from flexfl.parameters import is_number
from flexfl.spec.load import toml_fault
from flexfl.units import convert

PROJECT_FILE = "project.toml"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
_KEYS = ("name", "server", "port", "clients", "heartbeat")
_LEAST_HEARTBEAT = 2.0


def read_project(path: Path) -> Project:
    """Read a project from a TOML file:

        name = "clinics"
        server = "fl.example.org"
        port = 8002
        clients = ["north", "south"]      # or a table with weights: clients = {north = 2, south = 1}
        heartbeat = "10 min"              # how often a client that has nothing to send is heard of

    Raises:
        InputError: Lists all faults of the file.
    """
    try:
        text = path.read_text(encoding="utf-8")
        given = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError([toml_fault(text, error)], str(path)) from error
    except (OSError, ValueError) as error:
        rule = f"must be a TOML file with {', '.join(_KEYS)}"
        raise InputError([Fault("PROJECT", rule, str(path), str(error))], "the command") from error
    if faults := list(_faults(given)):
        raise InputError(faults, str(path))
    clients = given["clients"]
    weights = dict.fromkeys(clients, 1.0) if isinstance(clients, list) else clients
    total = sum(weights.values())
    shares = {name: weight / total for name, weight in weights.items()}
    return Project(
        name=given["name"],
        server=given["server"],
        port=given.get("port", 8002),
        clients=shares,
        heartbeat=_seconds(given.get("heartbeat", HEARTBEAT)),
    )


def _seconds(given: Any) -> float:
    """Return a time in seconds, given as a number of these or as a text such as "10 min".

    Raises:
        ValueError: it is neither; the message is a rule.
    """
    if not isinstance(given, str) and not is_number(given):
        raise ValueError("must be a time")
    return convert(given, "second") if isinstance(given, str) else float(given)


def _heartbeat_faults(given: Any) -> list[Fault]:
    rule = f"must be a time of at least {_LEAST_HEARTBEAT:g} s"
    try:
        seconds = _seconds(given)
    except ValueError as error:
        rule, seconds = str(error), 0.0
    if _LEAST_HEARTBEAT <= seconds < float("inf"):
        return []
    return [Fault("heartbeat", rule, given, 'for example "10 min"')]


def _faults(given: dict[str, Any]) -> list[Fault]:
    faults = [
        Fault(key, "is not a key of a project", given[key], f"known: {', '.join(_KEYS)}")
        for key in given
        if key not in _KEYS
    ]
    for key, pattern in (("name", _NAME), ("server", _HOST)):
        if not isinstance(given.get(key), str) or not pattern.fullmatch(given[key]):
            rule = "must be a host name" if key == "server" else "must be letters, digits, - and _"
            faults.append(Fault(key, rule, given.get(key), "add or correct it"))
    port = given.get("port", 8002)
    if type(port) is not int or not 0 < port < 65536:
        faults.append(Fault("port", "must be a port", port, "for example 8002"))
    faults += _heartbeat_faults(given.get("heartbeat", HEARTBEAT))
    return faults + _client_faults(given.get("clients"))


def _client_faults(clients: Any) -> list[Fault]:
    if not isinstance(clients, list | dict) or not clients:
        example = 'for example clients = ["north", "south"]'
        return [Fault("clients", "must list at least one name", clients, example)]
    faults = []
    for name in clients:
        if not isinstance(name, str) or not _NAME.fullmatch(name) or name in RESERVED:
            rule = f"must be letters, digits, - and _, and none of {', '.join(sorted(RESERVED))}"
            faults.append(Fault("clients", rule, name, "rename it"))
    if isinstance(clients, list) and len(set(map(str, clients))) < len(clients):
        faults.append(Fault("clients", "must name each client once", clients, "remove the second"))
    if isinstance(clients, dict):
        faults += [
            Fault(f"clients.{name}", "must be a weight > 0", weight, "for example its number of samples")
            for name, weight in clients.items()
            if not is_number(weight) or not 0 < weight < float("inf")
        ]
    return faults
