"""Splits of nodes: names, fingerprints, and random splits that depend on an index."""

import itertools
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphzoo.datasets import DataError, NodeGraph, NodeSplit, per_class_split, random_split, redrawn_split
from graphzoo.datasets.node.splits import draw_split
from graphzoo.errors import UsageError

PARTS = ("train", "valid", "test")


def sizes(split):
    return [split.nodes(part).numel() for part in PARTS]


@given(st.integers(8, 300), st.integers(0, 10**6), st.lists(st.integers(1, 9), min_size=3, max_size=3))
def test_random_split_is_a_partition_of_the_labelled_nodes(num_nodes, index, weights):
    y = torch.arange(num_nodes) % 3 - (torch.arange(num_nodes) % 5 == 0).long() * 3
    labelled = (y >= 0).nonzero().squeeze(1)
    fractions = [weight / sum(weights) for weight in weights]
    expected = [int(share * labelled.numel() + 1e-9) for share in fractions[:2]]
    expected.append(labelled.numel() - sum(expected))
    y = y.clamp(min=-1)
    if min(expected) == 0:
        with pytest.raises(ValueError, match="too few"):
            random_split(y, fractions=fractions, index=index)
        return
    split = random_split(y, fractions=fractions, index=index)
    assert sizes(split) == expected
    assert torch.equal(torch.cat([split.nodes(part) for part in PARTS]).sort().values, labelled)


def test_sizes_are_those_of_the_papers():
    # NodeFormer on Cora (1354/677/677), LINKX on Deezer (14,140/7,070/7,071)
    assert sizes(random_split(torch.zeros(2708, dtype=torch.int64))) == [1354, 677, 677]
    assert sizes(random_split(torch.zeros(28_281, dtype=torch.int64))) == [14_140, 7_070, 7_071]
    assert sizes(random_split(torch.zeros(100, dtype=torch.int64), fractions=(0.29, 0.58, 0.13))) == [
        29,
        58,
        13,
    ]


def test_draws_depend_on_the_index_alone():
    y = torch.zeros(1000, dtype=torch.int64)
    state = torch.get_rng_state()
    draws = [random_split(y, index=index) for index in range(20)]
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(123)
    for index, split in enumerate(draws):
        assert random_split(y, index=index).fingerprint == split.fingerprint
    assert len({split.fingerprint for split in draws}) == 20
    # each node is a training node in about half of the 20 draws, with binomial counts
    counts = torch.stack([torch.bincount(split.train, minlength=1000) for split in draws]).sum(0).double()
    assert abs(counts.mean() - 10) < 1e-9
    assert 3 < counts.var() < 7


def test_known_draw():
    """The draws of kept results must never change."""
    split = random_split(torch.zeros(12, dtype=torch.int64), index=3)
    assert [split.nodes(part).tolist() for part in PARTS] == [[2, 3, 4, 7, 9, 11], [0, 1, 10], [5, 6, 8]]
    assert split.fingerprint.startswith("5e6138453e458010")


def test_nodes_with_several_labels_need_one_known_label():
    y = torch.full((40, 2), float("nan"))
    y[:8, 1] = 1.0
    split = random_split(y)
    assert sorted(itertools.chain(*(split.nodes(part).tolist() for part in PARTS))) == list(range(8))
    with pytest.raises(ValueError, match="several labels"):
        per_class_split(y)


def test_per_class_split():
    y = torch.arange(2000) % 4
    y[::7] = -1
    split = per_class_split(y, index=5)
    assert split.name == "random-20-per-class" and split.index == 5
    assert y[split.train].bincount().tolist() == [20] * 4
    assert sizes(split) == [80, 500, 1000]
    assert (y[torch.cat([split.train, split.valid, split.test])] >= 0).all()
    assert per_class_split(y, index=5).fingerprint == split.fingerprint != per_class_split(y).fingerprint
    assert per_class_split(y, per_class=3, num_valid=7, num_test=9).name == "random-3-per-class"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"per_class": 600}, "class 0 has only 500 nodes"),
        ({"num_test": 5000}, "5000 test nodes are needed"),
        ({"num_valid": 0}, "at least 1"),
        ({"index": -1}, "at least 0"),
    ],
)
def test_impossible_per_class_splits_are_refused(arguments, problem):
    with pytest.raises(ValueError, match=problem):
        per_class_split(torch.arange(2000) % 4, **arguments)


def test_redrawn_split():
    """Training and validation nodes are drawn anew, with the same number per class; test nodes stay."""
    y = torch.arange(90) % 3
    fixed = NodeSplit("public", 0, torch.arange(10), torch.arange(10, 60), torch.arange(60, 80))
    draws = [redrawn_split(y, fixed, index=index) for index in range(4)]
    for index, split in enumerate(draws):
        assert (split.name, split.index) == ("public-redrawn", index)
        assert y[split.train].bincount().tolist() == [4, 3, 3] and sizes(split) == [10, 50, 20]
        assert torch.cat([split.train, split.valid]).sort().values.tolist() == list(range(60))
        assert split.test.equal(fixed.test)
    assert len({split.fingerprint for split in draws}) == 4
    assert redrawn_split(y, fixed, index=3).fingerprint == draws[3].fingerprint
    assert all(split.train.max() >= 10 for split in draws), "validation nodes are drawn, too"
    labels = torch.zeros(90, 2)
    assert sizes(redrawn_split(labels, fixed)) == [10, 50, 20], "with several labels, only sizes are kept"
    with pytest.raises(ValueError, match="at least 0"):
        redrawn_split(y, fixed, index=-1)


def test_redrawn_split_of_a_graph():
    x, edge_index, y = torch.zeros(9, 1), torch.zeros(2, 0, dtype=torch.int64), torch.arange(9) % 2
    fixed = NodeSplit("public", 0, torch.arange(2), torch.arange(2, 6), torch.arange(6, 9))
    graph = NodeGraph(
        "own", x, edge_index, y, class_names=("a", "b"), splits={"public": (fixed,)}, default_split="public"
    )
    split = graph.split("public-redrawn", 2)
    assert split.fingerprint == redrawn_split(graph, fixed, index=2).fingerprint
    assert graph.num_splits("public-redrawn") is None
    with pytest.raises(ValueError, match="Did you mean: public-redrawn"):
        graph.split("public-redrwn")
    several = replace(graph, splits={"public": (fixed, replace(fixed, index=1))})
    with pytest.raises(UsageError, match="there are 2 splits 'public'.*\n.*--splits 0-1"):
        several.split("public-redrawn")
    with pytest.raises(ValueError, match="unknown split 'public-redrwn'") as refused:
        several.split("public-redrwn")
    assert "public-redrawn" not in str(refused.value), "it is not possible here, so it is not suggested"


@pytest.mark.parametrize("fractions", [(0.5, 0.5), (0.5, 0.5, 0.5), (1.0, 0.5, -0.5), (0.5, 0.25, 0.2)])
def test_wrong_fractions_are_refused(fractions):
    with pytest.raises(ValueError, match="sum 1"):
        random_split(torch.zeros(100, dtype=torch.int64), fractions=fractions)


def test_a_split_without_labels_is_refused():
    with pytest.raises(ValueError, match="0 labelled nodes"):
        random_split(torch.full((100,), -1))


def test_split_sorts_and_hashes_its_nodes():
    one = NodeSplit("a", 0, torch.tensor([3, 1]), torch.tensor([2]), torch.tensor([0]))
    other = NodeSplit("b", 4, torch.tensor([1, 3]), torch.tensor([2]), torch.tensor([0]))
    moved = NodeSplit("a", 0, torch.tensor([1]), torch.tensor([2, 3]), torch.tensor([0]))
    assert one.train.tolist() == [1, 3] and one.train.dtype == torch.int64
    assert one.fingerprint == other.fingerprint != moved.fingerprint
    assert "'a', 0, 2/1/1 nodes" in repr(one)
    with pytest.raises(ValueError, match="train, valid, test"):
        one.nodes("val")


def test_a_node_in_two_parts():
    with pytest.raises(DataError, match=r"node 3 occurs in train and test \(1 such nodes\)"):
        NodeSplit("a", 0, torch.tensor([1, 3]), torch.tensor([2]), torch.tensor([3]))


@pytest.mark.parametrize(
    ("name", "here"), [("random-60-30-20", ", but their sum is 110"), ("random-0-50-50", "")]
)
def test_wrong_fractions_in_a_name_are_refused_with_the_option(name, here):
    with pytest.raises(UsageError, match=rf"--data.split {name}: .* with sum 100{here}$"):
        draw_split(torch.zeros(100, dtype=torch.int64), name, 0)
