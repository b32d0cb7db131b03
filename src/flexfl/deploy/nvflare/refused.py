"""Clients that an admin has refused while a job runs.

NVFlare logs such a client out, but still accepts messages of its job process: their token was signed
by the server, and only a client's main process is checked.
"""

from __future__ import annotations

import json
from pathlib import Path


class Refused:
    """The names of refused clients; NVFlare's file is read again whenever it has changed."""

    def __init__(self, server: Path) -> None:
        self._path = server / "disabled_clients.json"  # ClientManager writes it, always as a new file
        self._seen: tuple[int, int] | None = None
        self._names: frozenset[str] = frozenset()

    def __contains__(self, name: str) -> bool:
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return False
        if (now := (found.st_mtime_ns, found.st_ino)) != self._seen:
            self._names = frozenset(json.loads(self._path.read_text())["disabled_clients"])
            self._seen = now
        return name in self._names
