"""Any nn.Module as one flat vector x; and torch's own generator, which modules draw from."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn


class FlatModel:
    """The trainable parameters of a module as views of one vector, (D,).

    Writing to `params` changes the module; nothing is copied. Frozen parameters are not in the
    vector, and shared (tied) parameters are in it once.
    """

    def __init__(self, module: nn.Module, dtype: torch.dtype) -> None:
        self.module = module.to(dtype)
        trained = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        self.names = tuple(name for name, _ in trained)
        self.shapes = tuple(p.shape for _, p in trained)
        sizes = [p.numel() for _, p in trained]
        self.params = torch.cat([p.detach().reshape(-1) for _, p in trained])
        self.slices: tuple[slice, ...] = ()
        start = 0
        for (_, parameter), size in zip(trained, sizes, strict=True):
            place = slice(start, start + size)
            parameter.data = self.params[place].view(parameter.shape)
            self.slices += (place,)
            start += size

    @property
    def dim(self) -> int:
        """The number of parameters D."""
        return len(self.params)

    def fingerprint(self) -> str:
        """Return a digest of names, shapes and untrained tensors, which is checked when a run is resumed."""
        digest = hashlib.blake2b(
            str(list(zip(self.names, self.shapes, strict=True))).encode(), digest_size=16
        )
        fixed = {name: p for name, p in self.module.named_parameters() if name not in self.names}
        for name, tensor in {**fixed, **dict(self.module.named_buffers())}.items():
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()

    @contextmanager
    def holding(self, params: NDArray[Any]) -> Iterator[None]:
        """Let the module have other parameters, (D,), in the context."""
        before = self.params.clone()
        self.params.copy_(torch.from_numpy(params))
        try:
            yield
        finally:
            self.params.copy_(before)

    def copy_with(self, params: NDArray[Any]) -> nn.Module:
        """Return a copy of the module with these parameters, (D,)."""
        with self.holding(params):
            module = copy.deepcopy(self.module)
        for parameter in module.parameters():
            parameter.data = parameter.data.clone()
        return module

    def detached(self) -> nn.Module:
        """Return the module with copied parameters, which are no longer views of the vector."""
        for parameter in self.module.parameters():
            parameter.data = parameter.data.clone()
        return self.module

    def views(self) -> dict[str, Tensor]:
        """Return each parameter as a view of `params`."""
        return {
            name: self.params[place].view(shape)
            for name, place, shape in zip(self.names, self.slices, self.shapes, strict=True)
        }


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
