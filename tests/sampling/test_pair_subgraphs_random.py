"""The sampler's choices, cuts and orders of nodes have the distributions of the definition."""

import random
from collections import Counter
from itertools import combinations, permutations

import numpy as np
import pytest
import torch
from helpers.pair_graphs import as_networkx, literal_sample, random_graph
from scipy.stats import chi2_contingency, chisquare

from graphzoo.sampling import PairSubgraphSampler, hash_integers

pytestmark = pytest.mark.usefixtures("compiled_sampler")

# With other seeds, a correct sampler fails in one of 10,000 tests.
LEAST_P = 1e-4


def draw(sampler, pair, count, **seeds):
    """Nodes of the same pair with `count` seeds, as lists."""
    pairs = torch.tensor([pair]).expand(count, 2).contiguous()
    samples = sampler.sample(pairs, **{"seed": torch.arange(count), **seeds})
    return [samples.nodes(row).tolist() for row in range(count)]


def p_of_uniform(outcomes, choices):
    """p-value of "every choice is equally likely"; other outcomes are an error."""
    counts = Counter(outcomes)
    assert set(counts) <= set(choices)
    return chisquare([counts[choice] for choice in choices]).pvalue


def p_of_equal(first, second):
    """p-value of "both samples have one distribution"; rare outcomes are counted together."""
    counts = [Counter(first), Counter(second)]
    common = [key for key in counts[0] | counts[1] if counts[0][key] + counts[1][key] >= 20]
    table = np.array([[*(c[key] for key in common), 0] for c in counts])
    table[:, -1] = len(first) - table.sum(1)
    assert len(common) > 3
    return chi2_contingency(table[:, table.sum(0) > 0]).pvalue


def star(num_leaves):
    """Node 0 with leaves 2, 3, ...; node 1 is alone."""
    leaves = torch.arange(2, 2 + num_leaves)
    return torch.stack([torch.zeros_like(leaves), leaves])


def test_neighbours_are_drawn_uniformly_without_replacement():
    sampler = PairSubgraphSampler(star(6), 8, depth=1, num_neighbors=3)
    sets = [tuple(sorted(nodes[2:])) for nodes in draw(sampler, [0, 1], 8000)]
    assert p_of_uniform(sets, list(combinations(range(2, 8), 3))) > LEAST_P


def test_a_hidden_neighbour_does_not_bias_the_others():
    """The link to node 5 lies in the middle of node 0's row."""
    sampler = PairSubgraphSampler(star(7), 9, depth=1, num_neighbors=2)
    sets = [tuple(sorted(nodes[2:])) for nodes in draw(sampler, [0, 5], 8000)]
    assert p_of_uniform(sets, list(combinations([2, 3, 4, 6, 7, 8], 2))) > LEAST_P


def test_a_row_is_not_read_beyond_its_end():
    """Node 0 is not linked to 6, but the next row begins with 6."""
    edge_index = torch.tensor([[0, 0, 0, 0, 1], [2, 3, 4, 5, 6]])
    sampler = PairSubgraphSampler(edge_index, 7, depth=1, num_neighbors=2)
    sets = [tuple(sorted(nodes[2:])) for nodes in draw(sampler, [0, 6], 6000)]
    assert p_of_uniform(sets, [(1, *two) for two in combinations(range(2, 6), 2)]) > LEAST_P


def test_endpoints_draw_independently():
    """Both endpoints draw two of the same four neighbours; every pair of draws is equally likely."""
    edge_index = torch.tensor([[0, 0, 0, 0, 1, 1, 1, 1], [2, 3, 4, 5] * 2])
    sampler = PairSubgraphSampler(edge_index, 6, depth=1, num_neighbors=2)
    sizes = Counter(len(nodes) - 2 for nodes in draw(sampler, [0, 1], 9000))
    # C(4,2)^2 = 36 cases: 6 with two nodes in common, 24 with one, 6 with none
    assert chisquare([sizes[2], sizes[3], sizes[4]], [1500, 6000, 1500]).pvalue > LEAST_P


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize(
    ("pair", "settings"),
    [
        ([0, 1], {"depth": 2, "num_neighbors": 2, "max_nodes": None}),
        ([3, 2], {"depth": 2, "num_neighbors": 1, "max_nodes": None}),
        ([0, 5], {"depth": 3, "num_neighbors": 1, "max_nodes": None}),
        ([0, 1], {"depth": 2, "num_neighbors": 2, "max_nodes": 4}),
    ],
)
def test_samples_have_the_distribution_of_the_reference(pair, settings, directed):
    count = 6000
    edge_index = random_graph(9, 26, seed=1)
    graph, rng = as_networkx(edge_index, 9), random.Random(0)
    limit = settings["max_nodes"] or 9
    expected = [
        literal_sample(graph, *pair, **{**settings, "max_nodes": limit}, rng=rng) for _ in range(count)
    ]
    found = draw(PairSubgraphSampler(edge_index, 9, **settings, directed=directed), pair, count)
    for view in (lambda nodes: tuple(sorted(nodes)), lambda nodes: tuple(nodes[:4]), len):
        if len(set(map(view, expected))) > 3:
            assert p_of_equal(list(map(view, found)), list(map(view, expected))) > LEAST_P


def test_the_comparison_detects_a_wrong_sampler():
    """The comparison above can detect a sampler that takes one neighbour too few."""
    graph, rng = as_networkx(random_graph(9, 26, seed=1), 9), random.Random(0)
    first, second = (
        [tuple(sorted(literal_sample(graph, 0, 1, depth=2, num_neighbors=n, max_nodes=9, rng=rng)))
         for _ in range(6000)]
        for n in (2, 1)
    )  # fmt: skip
    assert p_of_equal(first, second) < 1e-9


def test_every_order_is_equally_likely():
    sampler = PairSubgraphSampler(star(4), 6, depth=1, num_neighbors=4)
    orders = [tuple(nodes[2:]) for nodes in draw(sampler, [0, 1], 9600)]
    assert p_of_uniform(orders, list(permutations(range(2, 6)))) > LEAST_P


def test_the_cut_and_its_order_are_uniform():
    sampler = PairSubgraphSampler(star(5), 7, depth=1, num_neighbors=5, max_nodes=5)
    found = draw(sampler, [0, 1], 12_000)
    assert all(nodes[:2] == [0, 1] and len(nodes) == 5 for nodes in found)
    assert p_of_uniform([tuple(nodes[2:]) for nodes in found], list(permutations(range(2, 7), 3))) > LEAST_P


def test_order_seeds_change_only_the_order():
    count = 4800
    sampler = PairSubgraphSampler(random_graph(30, 90), 30, depth=2, num_neighbors=2, max_nodes=6)
    found = draw(sampler, [3, 4], count, seed=7, order_seed=torch.arange(count))
    assert len({tuple(sorted(nodes)) for nodes in found}) == 1 and len(found[0]) == 6
    orders = [tuple(nodes[2:]) for nodes in found]
    assert p_of_uniform(orders, list(permutations(sorted(orders[0])))) > LEAST_P


def test_the_default_order_seed_is_the_seed():
    sampler = PairSubgraphSampler(random_graph(30, 90), 30, depth=2, num_neighbors=3)
    assert draw(sampler, [3, 4], 5) == draw(sampler, [3, 4], 5, order_seed=torch.arange(5))


def test_the_order_is_independent_of_the_choice():
    """The same random numbers must not decide both the drawn nodes and their order."""
    sampler = PairSubgraphSampler(star(4), 6, depth=1, num_neighbors=2)
    found = [tuple(nodes[2:]) for nodes in draw(sampler, [0, 1], 6000)]
    assert p_of_uniform(found, list(permutations(range(2, 6), 2))) > LEAST_P


def test_both_directions_have_the_same_nodes_in_other_orders():
    sampler = PairSubgraphSampler(random_graph(40, 160), 40, depth=2, num_neighbors=3, max_nodes=12)
    there, back = draw(sampler, [3, 8], 200), draw(sampler, [8, 3], 200)
    assert all(a[:2] == b[1::-1] == [3, 8] and set(a) == set(b) for a, b in zip(there, back, strict=True))
    assert sum(a[2:] == b[2:] for a, b in zip(there, back, strict=True)) < 3


def test_pairs_draw_independently():
    """Two pairs with a common endpoint choose its neighbours independently."""
    edge_index = torch.cat([star(4), torch.tensor([[0], [6]])], 1)
    sampler = PairSubgraphSampler(edge_index, 8, depth=1, num_neighbors=1)
    chosen = [[nodes[2] for nodes in draw(sampler, [0, v], 8000)] for v in (1, 7)]
    table = Counter(zip(*chosen, strict=True))
    assert p_of_uniform(table.elements(), [(a, b) for a in range(2, 7) for b in range(2, 7)]) > LEAST_P


def test_the_global_random_state_is_neither_used_nor_changed():
    sampler = PairSubgraphSampler(random_graph(30, 90), 30, depth=2, num_neighbors=2)
    pairs = torch.tensor([[3, 4], [5, 6]])
    states = random.getstate(), np.random.get_state()[1].copy(), torch.get_rng_state()
    first = sampler(pairs, seed=1).nodes
    assert random.getstate() == states[0] and (np.random.get_state()[1] == states[1]).all()
    assert torch.equal(torch.get_rng_state(), states[2])
    torch.manual_seed(99)
    assert torch.equal(sampler(pairs, seed=1).nodes, first)


@pytest.mark.parametrize("seed", [0, 7, -5, 2**62 + 11, -(2**63)])
def test_the_kernels_hash_is_hash_integers(seed):
    """With another hash, subgraphs would differ from those of earlier versions."""
    from graphzoo.sampling.pair_subgraphs.kernels import _hash

    expected = hash_integers(0x7061697273, seed, torch.tensor([3]), torch.tensor([2**40]))
    assert np.uint64(_hash(0x7061697273, seed, 3, 2**40)).astype(np.int64) == int(expected)


def test_a_seed_for_every_pair():
    sampler = PairSubgraphSampler(random_graph(30, 90), 30, depth=2, num_neighbors=2)
    pairs = torch.tensor([[3, 4], [5, 6], [3, 4]])
    seeds = hash_integers(5, torch.arange(3))
    found = sampler.sample(pairs, seed=seeds)
    for row in range(3):
        alone = sampler.sample(pairs[row : row + 1], seed=int(seeds[row]))
        assert alone.nodes(0).tolist() == found.nodes(row).tolist()
    assert found.nodes(0).tolist() != found.nodes(2).tolist()
