"""Several seeds, as people write them."""

from __future__ import annotations

import re
from typing import Any

from flexfl.errors import Fault, InputError

_MOST = 10_000


def seeds_of(given: Any, field: str) -> tuple[int, ...]:
    """Return the seeds in "1-5" or "1,2,7", or in a list, each once and in order; none from an empty text."""
    parts = given.split(",") if isinstance(given, str) else given if isinstance(given, list) else [given]
    numbers: list[int] = []
    for part in parts:
        text = part.strip() if isinstance(part, str) else str(part) if type(part) is int else "?"
        if not text:
            continue
        found = re.fullmatch(r"(\d+)(?:-(\d+))?", text)
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
        if last < first or last - first >= _MOST:
            rule = f"must list whole numbers or ranges of them, up to {_MOST}"
            raise InputError([Fault(field, rule, part, "for example 1-5 or 1,2,7")], "the command")
        numbers += range(first, last + 1)
    return tuple(dict.fromkeys(numbers))
