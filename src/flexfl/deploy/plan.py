"""A run as it is submitted, and where the server keeps it; needs no torch."""

from __future__ import annotations

import re
import secrets
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flexfl.errors import Fault, InputError
from flexfl.spec.load import to_toml
from flexfl.spec.own import for_network
from flexfl.spec.schema import Spec, parse

STATE_FILE = "server.sqlite"
RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""It names files; the server adds `run_id`'s digits to what a person has chosen."""


@dataclass(frozen=True)
class Plan:
    """A run as it is submitted.

    name     of the run; its directory on the server is called so
    spec     the settings, with as many clients as the roster
    roster   the clients and their weights; the order gives each its place
    resume   go on with the run of that name
    present  of the roster, those whom the start waits for; by default all
    threads  of the server; by default as many as torch takes
    """

    name: str
    spec: Spec
    roster: dict[str, float]
    resume: bool = False
    present: list[str] | None = None
    threads: int | None = None

    def settings(self) -> dict[str, Any]:
        """As JSON has it."""
        return vars(self) | {"spec": to_toml(self.spec)}

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Plan:
        spec = parse(tomllib.loads(settings["spec"]), where="the spec")
        plan = cls(**{**settings, "spec": spec})
        for_network(spec)
        if not RUN_NAME.fullmatch(run_id(plan.name)):
            rule = "must be letters, digits, ., - and _, and begin with a letter or digit"
            raise InputError([Fault("--name", rule, plan.name, "choose another")], "the command")
        if spec.data.clients != len(plan.roster):
            rule = f"must be the {len(plan.roster)} of the roster"
            raise InputError([Fault("data.clients", rule, spec.data.clients, "adjust it")])
        return plan


def run_id(name: str) -> str:
    """Another one every time: a site never takes one run for another of the same name."""
    return f"{name}-{secrets.token_hex(4)}"


def live_file(folder: Path, name: str) -> Path:
    """Where the server tells how a run goes."""
    return folder / f"{name}.live.json"
