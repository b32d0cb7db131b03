"""Torch's global random generator, which modules such as dropout draw from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def own_generator() -> Iterator[None]:
    """Restore the state of torch's global generator at the end, so that the context may seed it."""
    before = torch.default_generator.get_state()
    try:
        yield
    finally:
        torch.default_generator.set_state(before)


def seed_generator(seed: int, device: torch.device) -> None:
    """Seed torch's generators of the CPU and of `device`.

    `torch.manual_seed` is slower: it also queues a call, with a stack trace, for each absent device.
    """
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)
    elif device.type == "mps":
        torch.mps.manual_seed(seed)
