"""Memory that outlives a process: what checkpoints and a client's disk hold.

Anything with a memory (a queue, a cost model, a rule, a compressor) has two methods:

    state()          → its memory as named arrays
    restore(state)   → continue from such a memory

What has no memory has neither method.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeGuard

import numpy as np
from numpy.typing import NDArray

State = dict[str, NDArray[Any]]
"""A memory: arrays by name."""


class Stateful(Protocol):
    """Something with a memory."""

    def state(self) -> State: ...
    def restore(self, state: Mapping[str, NDArray[Any]]) -> None: ...


def has_memory(part: object) -> TypeGuard[Stateful]:
    """Return whether something has a memory; much faster than `isinstance` with a protocol."""
    return callable(getattr(part, "state", None)) and callable(getattr(part, "restore", None))


def state_of(**parts: object) -> State:
    """Return the memory of all parts, each array named "part.name"; parts without a memory add nothing.

    >>> import numpy as np
    >>> class Counter:
    ...     def state(self): return {"count": np.array(3)}
    ...     def restore(self, state): pass
    >>> state_of(cost=Counter(), rule=None)
    {'cost.count': array(3)}
    """
    return {
        f"{name}.{key}": np.asarray(value)
        for name, part in parts.items()
        if has_memory(part)
        for key, value in part.state().items()
    }


def restore_all(state: Mapping[str, NDArray[Any]], **parts: object) -> None:
    """Give each part its share of a memory that `state_of` returned.

    A part that `begins_empty` has nothing to remember before it was first used.

    Raises:
        ValueError: the memory holds arrays of a part that has no memory, or lacks those of one that has.
    """
    for name, part in parts.items():
        share = below(state, name)
        if has_memory(part):
            begins = not share and getattr(part, "begins_empty", False)
            if (missing := part.state().keys() - share.keys()) and not begins:
                raise ValueError(f"{name}.{min(missing)} is missing")
            part.restore(share)
        elif share:
            raise ValueError(f"{name}.{min(share)} belongs to something that has no memory here")


def below(state: Mapping[str, NDArray[Any]], name: str) -> State:
    """Return the arrays named "name.…", without that prefix."""
    prefix = f"{name}."
    # Copies: what is restored may be changed in place, and a checkpoint is mapped read-only.
    return {
        key.removeprefix(prefix): np.array(value) for key, value in state.items() if key.startswith(prefix)
    }
