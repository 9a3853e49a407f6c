"""Error messages for wrong values."""

import numpy as np
import pytest

from graphzoo import encoders
from graphzoo.datamodules import KGDataModule, LinkDataModule, NodeDataModule
from graphzoo.errors import UsageError, check_range, check_whole
from graphzoo.types import GraphSpec


@pytest.mark.parametrize("value", [0, -1, 0.0, float("nan"), float("-inf")])
def test_numbers_out_of_range(value):
    with pytest.raises(UsageError, match="^lr must be above 0, got"):
        check_range(above=0, lr=value)


@pytest.mark.parametrize("value", ["8", (8,), [8], 8j, b"8", {}], ids=str)
def test_values_that_are_not_numbers_are_refused(value):
    with pytest.raises(UsageError, match=f"^width must be a number, at least 1, got {type(value).__name__}"):
        check_range(at_least=1, width=value)


def test_bounds_are_checked_and_none_is_accepted():
    check_range(at_least=1, at_most=3, a=1, b=3, c=None)
    check_range(above=0, below=1, a=0.5)
    with pytest.raises(UsageError, match="b must be above 0 and below 1, got 1$"):
        check_range(above=0, below=1, a=0.5, b=1)


@pytest.mark.parametrize("value", [2.5, 2.0, True])
def test_counts_that_are_not_integers_are_refused(value):
    with pytest.raises(UsageError, match="batch_size must be a whole number of at least 1, got "):
        check_whole(at_least=1, batch_size=value)


def test_numpy_integers_and_none_are_accepted_and_large_counts_refused():
    check_whole(at_least=1, at_most=3, a=np.int64(3), b=None)
    with pytest.raises(UsageError, match="b must be at least 1 and at most 3, got 4"):
        check_whole(at_least=1, at_most=3, a=1, b=4)


@pytest.mark.parametrize(
    "make",
    [
        lambda: KGDataModule("umls", batch_size=2.5),
        lambda: LinkDataModule("cora-link", num_negatives=1.5),
        lambda: NodeDataModule("cora", split_index=0.5),
        lambda: encoders.NodeFormer(GraphSpec(4, 3, 2), hidden_channels=32, num_layers=2.5),
        lambda: encoders.KnowFormer(GraphSpec(4, num_relations=2), num_heads=4.0),
    ],
)
def test_constructors_check_counts(make):
    with pytest.raises(UsageError, match="must be a whole number"):
        make()
