"""Trees of tensors: one tensor, or dicts and tuples of trees, with the samples along the first axis.

A model is called as `model(x)` with a tensor, `model(**x)` with a dict and `model(*x)` with a tuple.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

Tree = Any
"""A Tensor, a dict[str, Tree] or a tuple[Tree, ...]."""


def leaves(tree: Tree, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """Yield each tensor with its name, in a fixed order.

    >>> [name for name, _ in leaves({"ids": torch.zeros(2), "more": (torch.zeros(2), torch.zeros(2))})]
    ['ids', 'more.0', 'more.1']
    """
    if isinstance(tree, Tensor):
        yield name, tree
        return
    for key, part in tree.items() if isinstance(tree, dict) else enumerate(tree):
        yield from leaves(part, f"{name}.{key}" if name else str(key))


def mapped(function: Callable[[Tensor], Any], tree: Tree) -> Tree:
    """Return the tree with `function` applied to each tensor."""
    if isinstance(tree, Tensor):
        return function(tree)
    if isinstance(tree, dict):
        return {key: mapped(function, part) for key, part in tree.items()}
    return tuple(mapped(function, part) for part in tree)


def size(tree: Tree) -> int:
    """Return the length of the first axis."""
    return len(next(leaves(tree))[1])


def rows(tree: Tree, chosen: Any) -> Tree:
    """Return the chosen rows of each tensor: by a slice, an index or a tensor of indices."""
    return mapped(lambda tensor: tensor[chosen], tree)


def copies(tree: Tree) -> Tree:
    """Return the tree with each tensor copied."""
    return mapped(Tensor.clone, tree)


def gathered(tree: Tree, samples: Tensor, shape: tuple[int, ...]) -> Tree:
    """Return rows by index, (K,), with the first axis as `shape`."""
    return mapped(lambda tensor: tensor.index_select(0, samples).view(*shape, *tensor.shape[1:]), tree)


def converted(tree: Tree, device: torch.device | str | None, dtype: torch.dtype) -> Tree:
    """Return the tree on a device, with real numbers in `dtype`."""
    return mapped(lambda tensor: tensor.to(device, dtype if tensor.is_floating_point() else None), tree)


def joined(trees: list[Tree]) -> Tree:
    """Return trees of the same structure, one after the other along the first axis."""
    first = trees[0]
    if isinstance(first, Tensor):
        return torch.cat(trees)
    if isinstance(first, dict):
        return {key: joined([tree[key] for tree in trees]) for key in first}
    return tuple(joined(list(parts)) for parts in zip(*trees, strict=True))


def shapes(tree: Tree) -> dict[str, tuple[int, ...]]:
    """Return the shape of one sample, by the name of each tensor."""
    return {name: tuple(tensor.shape[1:]) for name, tensor in leaves(tree)}


def in_words(tree: Tree) -> str:
    """Return shapes and types, for messages.

    >>> in_words({"ids": torch.zeros(2, 3, dtype=torch.int64)})
    'ids (2, 3) of int64'
    """
    listed = (f"{name} {tuple(t.shape)} of {str(t.dtype).removeprefix('torch.')}" for name, t in leaves(tree))
    return ", ".join(text.strip() for text in listed)


def arguments(x: Tree) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return how a model is called with x: positional arguments and keywords."""
    if isinstance(x, dict):
        return (), x
    return (x if isinstance(x, tuple) else (x,)), {}


def call(model: Callable[..., Any], x: Tree) -> Any:
    """Return what a model returns for x."""
    given, named = arguments(x)
    return model(*given, **named)
