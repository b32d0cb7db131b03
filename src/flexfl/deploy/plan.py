"""A submitted run and its files on the server; needs no torch."""

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
"""A valid run ID, which is used in file names: the user's name with the digits of `run_id`."""


@dataclass(frozen=True)
class Plan:
    """A submitted run.

    Attributes:
        name: Name of the run, and of its directory on the server.
        spec: The spec, with as many clients as the roster.
        roster: The clients and their weights; the order gives each its index.
        resume: Continue the run of that name.
        present: The clients of the roster that the start waits for; by default all.
        threads: Threads of the server; by default torch's choice.
    """

    name: str
    spec: Spec
    roster: dict[str, float]
    resume: bool = False
    present: list[str] | None = None
    threads: int | None = None

    def settings(self) -> dict[str, Any]:
        """Return the plan as a JSON-compatible dictionary."""
        return vars(self) | {"spec": to_toml(self.spec)}

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Plan:
        """Return the plan in `settings`, which `settings()` has returned.

        Raises:
            InputError: The plan is not valid for a deployment.
        """
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
    """Return a unique ID, so that a site never confuses two runs of the same name."""
    return f"{name}-{secrets.token_hex(4)}"


def live_file(folder: Path, name: str) -> Path:
    """Return the path of a run's status file on the server."""
    return folder / f"{name}.live.json"
