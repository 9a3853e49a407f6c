"""Heuristics as regression targets, as in App. C.1 of the PENCIL paper."""

import math

import numpy as np
import pytest
import torch
from helpers.graphs import all_pairs, random_graph

from graphzoo.heuristics import (
    HeuristicTargets,
    adamic_adar,
    common_neighbors,
    diameter,
    katz,
    pagerank,
    resource_allocation,
    shortest_path,
)
from graphzoo.heuristics.targets import _reference

NAMES = ("cn", "aa", "ra", "katz", "spd", "pagerank")
OVERLAPS = {"cn": common_neighbors, "aa": adamic_adar, "ra": resource_allocation}


@pytest.fixture(scope="module")
def graph():
    adjacency, _ = random_graph(num_nodes=90, num_edges=320)
    edge_index = torch.from_numpy(np.stack(adjacency.nonzero()).astype(np.int64))
    return adjacency, edge_index, all_pairs(90)


@pytest.mark.parametrize("name", OVERLAPS)
def test_overlaps_are_scaled_to_0_and_1(name, graph):
    adjacency, edge_index, pairs = graph
    targets = HeuristicTargets(edge_index, 90, name)
    logs = np.log(1 + OVERLAPS[name](adjacency, pairs))
    ceiling = np.percentile(np.log(1 + OVERLAPS[name](adjacency, _reference(adjacency))), 99.99)
    assert (logs > ceiling).any(), "no pair is clipped, so clipping is not tested"
    expected = np.minimum(logs / ceiling, 1)
    found = targets(torch.from_numpy(pairs))
    assert found.dtype == torch.float32 and found.min() == 0 and found.max() == 1
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["katz", "pagerank"])
def test_global_scores_are_standardised_and_clipped_above(name, graph):
    adjacency, edge_index, pairs = graph
    targets = HeuristicTargets(edge_index, 90, name, hide_link=False)

    def logs(which):
        scores = katz(adjacency, which, beta=0.005) if name == "katz" else pagerank(adjacency, which)
        return np.log(scores + 1e-20)

    known = logs(_reference(adjacency))
    standard = (known - known.mean()) / known.std()
    ceiling = np.percentile(standard, 99)
    expected = np.minimum((logs(pairs) - known.mean()) / known.std(), ceiling)
    np.testing.assert_allclose(targets(torch.from_numpy(pairs)).numpy(), expected, rtol=1e-5, atol=1e-6)
    reference = targets(torch.from_numpy(_reference(adjacency)))
    assert abs(reference.mean()) < 0.05 and abs(reference.std() - 1) < 0.05
    if name == "katz":
        # A pair without any walk has log(1e-20), far below all others.
        unconnected = targets(torch.tensor([[0, 89]]))
        assert unconnected < reference.mean() and unconnected == reference.min()


def test_paths_are_logarithms_with_a_penalty(graph):
    adjacency, edge_index, pairs = graph
    targets = HeuristicTargets(edge_index, 90, "spd", hide_link=False)
    distance = shortest_path(adjacency, pairs)
    longest = distance[np.isfinite(distance)].max()
    assert longest == diameter(adjacency)
    expected = np.where(np.isfinite(distance), np.log1p(distance), math.log(1 + 1.5 * longest))
    np.testing.assert_allclose(targets(torch.from_numpy(pairs)).numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_hiding_the_link_changes_katz_and_paths_only(name, graph):
    adjacency, edge_index, _ = graph
    links = edge_index.t()[:50]
    hidden = HeuristicTargets(edge_index, 90, name)
    shown = HeuristicTargets(edge_index, 90, name, hide_link=False)
    differs = bool((hidden.scores(links.numpy()) != shown.scores(links.numpy())).any())
    assert differs == (name in ("katz", "spd"))
    # Except with PageRank, a hidden link is scored as in the graph without it.
    u, v = links[7].tolist()
    without = edge_index[:, ~((edge_index == u).any(0) & (edge_index == v).any(0))]
    if name != "pagerank":
        other = HeuristicTargets(without, 90, name)
        found = hidden.scores(links[7:8].numpy())
        if np.isfinite(shortest_path(other.adjacency, [[u, v]])).all():
            np.testing.assert_allclose(found, other.scores(links[7:8].numpy()), rtol=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_targets_depend_on_the_graph_alone(name, graph):
    _, edge_index, pairs = graph
    pairs = torch.from_numpy(pairs)
    first = HeuristicTargets(edge_index, 90, name)
    torch.manual_seed(5)
    half = edge_index[:, edge_index[0] < edge_index[1]]
    order = torch.randperm(half.shape[1])
    again = HeuristicTargets(half[:, order], 90, name)
    assert torch.equal(first(pairs), again(pairs))
    assert (first.location, first.scale, first.ceiling) == (again.location, again.scale, again.ceiling)
    backwards = first(pairs.flip(1))
    torch.testing.assert_close(backwards, first(pairs), rtol=1e-6, atol=1e-6)


def test_the_reference_has_every_link_and_as_many_other_pairs(graph):
    adjacency, edge_index, _ = graph
    pairs = _reference(adjacency)
    linked = np.asarray(adjacency[pairs[:, 0], pairs[:, 1]]) > 0
    count = edge_index.shape[1] // 2
    assert linked[:count].all() and not linked[count:].any() and len(pairs) == 2 * count
    assert len({tuple(sorted(pair)) for pair in pairs[:count].tolist()}) == count


def test_wrong_settings_are_refused():
    edge = torch.tensor([[0], [1]])
    with pytest.raises(ValueError, match="name must be one of cn, aa, ra, katz, spd, pagerank, got 'ppr'"):
        HeuristicTargets(edge, 3, "ppr")
    with pytest.raises(ValueError, match="need a graph with edges"):
        HeuristicTargets(edge[:, :0], 3, "cn")


def test_a_graph_without_common_neighbours_has_targets():
    edge = torch.tensor([[0, 2], [1, 3]])
    found = HeuristicTargets(edge, 5, "cn")(torch.tensor([[0, 1], [0, 2]]))
    assert found.tolist() == [0, 0]
