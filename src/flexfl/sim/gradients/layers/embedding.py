"""Embedding: a row of W for each index."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from flexfl.sim.gradients.pieces import Dense, Found


def embedding_supported(module: nn.Embedding) -> bool:
    """Plain look-ups; not those that change or rescale the table on the way."""
    return module.max_norm is None and not module.scale_grad_by_freq and not module.sparse


def embedding(module: nn.Embedding, x: Tensor, g: Tensor, clients: int) -> Found:
    """∂W[i] = Σ g over the places of each client that looked up i."""
    rows, width = module.num_embeddings, module.embedding_dim
    indices, g = x.reshape(clients, -1), g.reshape(clients, -1, width)
    if module.padding_idx is not None:
        g = g.masked_fill((indices == module.padding_idx)[..., None], 0)

    place = (indices + rows * torch.arange(clients, device=x.device)[:, None]).reshape(-1)
    sums = torch.zeros(clients * rows, width, dtype=g.dtype, device=g.device)
    sums.index_add_(0, place, g.reshape(-1, width))
    yield module.weight, Dense(sums.view(clients, rows, width))
