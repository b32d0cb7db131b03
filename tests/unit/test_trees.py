"""Trees of tensors: what one function does to a tensor, it does to each in a tree, in a fixed order."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from flexfl.trees import (
    arguments,
    call,
    converted,
    copies,
    gathered,
    in_words,
    joined,
    leaves,
    rows,
    shapes,
    size,
)


def tree() -> dict:
    return {"ids": torch.arange(6).view(3, 2), "more": (torch.arange(3.0), {"deep": torch.ones(3, 4)})}


def test_a_bare_tensor_is_a_tree() -> None:
    bare = torch.arange(6.0).view(3, 2)
    assert [name for name, _ in leaves(bare)] == [""]
    assert (size(bare), shapes(bare)) == (3, {"": (2,)})
    assert torch.equal(rows(bare, slice(1, 3)), bare[1:])
    assert arguments(bare) == ((bare,), {})


def test_names_sizes_and_shapes() -> None:
    assert [name for name, _ in leaves(tree())] == ["ids", "more.0", "more.1.deep"]
    assert size(tree()) == 3
    assert shapes(tree()) == {"ids": (2,), "more.0": (), "more.1.deep": (4,)}
    assert in_words(tree()) == "ids (3, 2) of int64, more.0 (3,) of float32, more.1.deep (3, 4) of float32"


def test_rows_and_joining_are_inverse() -> None:
    whole, parts = tree(), [rows(tree(), slice(0, 1)), rows(tree(), slice(1, 3))]
    for (name, one), (other_name, other) in zip(leaves(joined(parts)), leaves(whole), strict=True):
        assert name == other_name
        assert torch.equal(one, other)


def test_minibatches_of_several_clients() -> None:
    found = gathered(tree(), torch.tensor([2, 0, 1, 1]), (2, 2))
    assert found["ids"].tolist() == [[[4, 5], [0, 1]], [[2, 3], [2, 3]]]
    assert found["more"][1]["deep"].shape == (2, 2, 4)


def test_only_real_numbers_change_their_type() -> None:
    found = converted(tree(), "cpu", torch.float64)
    assert found["ids"].dtype == torch.int64
    assert found["more"][0].dtype == torch.float64


def test_copies_share_no_memory() -> None:
    whole = tree()
    copies(whole)["ids"].zero_()
    assert whole["ids"].sum() == 15


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (torch.ones(2), ((1,), ())),
        ((torch.ones(2), torch.ones(3)), ((2,), ())),
        ({"ids": torch.ones(2), "mask": torch.ones(3)}, ((0,), ("ids", "mask"))),
    ],
)
def test_how_a_model_is_called(x: object, expected: object) -> None:
    def model(*given: Tensor, **named: Tensor) -> tuple[tuple[int], tuple[str, ...]]:
        return (len(given),), tuple(named)

    assert call(model, x) == expected
