"""Every heuristic, compared with networkx and with values computed by hand, also in little memory."""

import math

import networkx as nx
import numpy as np
import pytest
from helpers.graphs import HEURISTICS, all_pairs, random_graph
from scipy import sparse

import graphzoo.heuristics as heuristics
from graphzoo.errors import UsageError
from graphzoo.heuristics import (
    adamic_adar,
    adjacency_matrix,
    common_neighbors,
    diameter,
    katz,
    katz_index,
    pagerank,
    personalized_pagerank,
    resource_allocation,
    shortest_path,
)

# 0 - 1, 0 - 2, 1 - 3, 2 - 3, 3 - 4, 5 - 6, 7: a square with a tail, an edge, an isolated node.
SQUARE = [[0, 0, 1, 2, 3, 5], [1, 2, 3, 3, 4, 6]]


@pytest.fixture
def square():
    return adjacency_matrix(SQUARE, 8)


def katz_by_inverse(adjacency, beta):
    dense = adjacency.toarray()
    return np.linalg.inv(np.eye(len(dense)) - beta * dense) - np.eye(len(dense))


def test_the_matrix_has_no_loops_and_no_repeated_edges():
    found = adjacency_matrix([[0, 0, 1, 2], [1, 1, 0, 2]], 3).toarray()
    np.testing.assert_array_equal(found, [[0, 1, 0], [1, 0, 0], [0, 0, 0]])
    directed = adjacency_matrix([[0, 0, 2], [1, 1, 1]], 3, symmetric=False).toarray()
    np.testing.assert_array_equal(directed, [[0, 1, 0], [0, 0, 0], [0, 1, 0]])


def test_edges_are_whole_numbers():
    with pytest.raises(ValueError, match="edge_index must be whole numbers, got float64"):
        adjacency_matrix([[0.5], [1.7]], 3)


def test_overlaps_by_hand(square):
    pairs = [[0, 3], [3, 0], [1, 2], [2, 4], [0, 1], [0, 4], [5, 7], [5, 5]]
    np.testing.assert_array_equal(common_neighbors(square, pairs), [2, 2, 2, 1, 0, 0, 0, 1])
    third, half = 1 / math.log(3), 1 / math.log(2)
    aa = [2 * half, 2 * half, half + third, third, 0, 0, 0, 0]
    np.testing.assert_allclose(adamic_adar(square, pairs), aa, rtol=1e-14)
    ra = [1, 1, 1 / 2 + 1 / 3, 1 / 3, 0, 0, 0, 1]
    np.testing.assert_allclose(resource_allocation(square, pairs), ra, rtol=1e-14)


def test_paths_by_hand(square):
    pairs = [[0, 4], [4, 0], [1, 2], [3, 4], [5, 6], [5, 0], [7, 7], [7, 1]]
    found = shortest_path(square, pairs)
    np.testing.assert_array_equal(found, [3, 3, 2, 1, 1, math.inf, 0, math.inf])
    np.testing.assert_array_equal(shortest_path(square, pairs, unreachable=-1)[[5, 7]], [-1, -1])
    # Without 0 - 1 the path goes around the square; nodes 4 and 6 have one link each.
    hidden = shortest_path(square, [[0, 1], [1, 0], [3, 4], [6, 5], [0, 4]], hide_link=True)
    np.testing.assert_array_equal(hidden, [3, 3, math.inf, math.inf, 3])
    assert diameter(square) == 3 and diameter(adjacency_matrix([[], []], 4)) == 0


def test_katz_by_hand():
    # Between the ends of an edge there is one walk of every odd length.
    edge = adjacency_matrix([[0], [1]], 2)
    beta = 0.3
    np.testing.assert_allclose(katz(edge, [[0, 1]], beta=beta), [beta / (1 - beta**2)], rtol=1e-9)
    np.testing.assert_allclose(katz(edge, [[0, 0]], beta=beta), [beta**2 / (1 - beta**2)], rtol=1e-9)
    np.testing.assert_allclose(katz(edge, [[0, 1]], beta=beta, max_length=4), [beta + beta**3], rtol=1e-15)
    assert katz(edge, [[0, 1]], hide_link=True) == 0


@pytest.mark.parametrize("seed", range(3))
def test_overlaps_agree_with_networkx(seed):
    adjacency, graph = random_graph(num_edges=260, seed=seed)
    pairs = all_pairs(adjacency.shape[0])
    known = [tuple(pair) for pair in pairs.tolist()]
    assert common_neighbors(adjacency, pairs).max() >= 2
    cn = [len(list(nx.common_neighbors(graph, *pair))) for pair in known]
    np.testing.assert_array_equal(common_neighbors(adjacency, pairs), cn)
    aa = [score for *_, score in nx.adamic_adar_index(graph, known)]
    np.testing.assert_allclose(adamic_adar(adjacency, pairs), aa, rtol=1e-13)
    ra = [score for *_, score in nx.resource_allocation_index(graph, known)]
    np.testing.assert_allclose(resource_allocation(adjacency, pairs), ra, rtol=1e-13)


def test_directed_overlaps_use_common_successors_and_their_in_degrees():
    adjacency, graph = random_graph(num_edges=400, directed=True)
    pairs = all_pairs(adjacency.shape[0])
    shared = [set(graph.successors(u)) & set(graph.successors(v)) for u, v in pairs.tolist()]
    np.testing.assert_array_equal(common_neighbors(adjacency, pairs), [len(nodes) for nodes in shared])
    aa = [sum(1 / math.log(graph.in_degree(w)) for w in nodes) for nodes in shared]
    np.testing.assert_allclose(adamic_adar(adjacency, pairs), aa, rtol=1e-13)
    ra = [sum(1 / graph.in_degree(w) for w in nodes) for nodes in shared]
    np.testing.assert_allclose(resource_allocation(adjacency, pairs), ra, rtol=1e-13)
    assert max(aa) > 0


@pytest.mark.parametrize("directed", [False, True])
def test_paths_agree_with_networkx(directed):
    adjacency, graph = random_graph(directed=directed)
    pairs = all_pairs(adjacency.shape[0])
    lengths = dict(nx.all_pairs_shortest_path_length(graph))
    expected = [lengths[u].get(v, math.inf) for u, v in pairs.tolist()]
    np.testing.assert_array_equal(shortest_path(adjacency, pairs), expected)
    longest = max(length for row in lengths.values() for length in row.values())
    assert diameter(adjacency) == longest > 4


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("beta", [0.005, 0.1])
def test_katz_is_the_matrix_inverse(directed, beta):
    adjacency, _ = random_graph(directed=directed)
    pairs = all_pairs(adjacency.shape[0])
    expected = katz_by_inverse(adjacency, beta)[*pairs.T]
    np.testing.assert_allclose(katz(adjacency, pairs, beta=beta), expected, rtol=1e-8, atol=1e-15)


@pytest.mark.parametrize("directed", [False, True])
def test_walks_are_summed_only_for_pairs_that_have_one(directed):
    """Else the sum of a pair without a walk, such as the ends of a bridge, ends only when terms underflow."""
    tree = nx.random_labeled_tree(20, seed=0)
    graph = nx.DiGraph(tree.edges()) if directed else nx.compose(tree, nx.cycle_graph([0, 20, 21, 22]))
    edges = np.array(graph.edges()).T
    adjacency = adjacency_matrix(edges, 24, symmetric=not directed)
    graph.add_nodes_from(range(24))
    u, v = all_pairs(24).T
    hidden = np.array([graph.has_edge(a, b) for a, b in zip(u, v, strict=True)])
    joined = katz_index._are_joined(adjacency, u, v, hidden, 1 << 20)
    for a, b, is_hidden, found in zip(u.tolist(), v.tolist(), hidden, joined, strict=True):
        left = graph.copy()
        if is_hidden:
            left.remove_edges_from([(a, b), (b, a)])
        assert found == nx.has_path(left, a, b)


def test_katz_agrees_with_networkx():
    # networkx gives the sum over all nodes, and adds 1 for the walk of length 0.
    adjacency, graph = random_graph()
    beta, num_nodes = 0.05, adjacency.shape[0]
    pairs = np.stack(np.meshgrid(np.arange(num_nodes), np.arange(num_nodes)), -1).reshape(-1, 2)
    sums = katz(adjacency, pairs, beta=beta).reshape(num_nodes, num_nodes).sum(axis=1)
    centrality = nx.katz_centrality_numpy(graph, alpha=beta, normalized=False)
    np.testing.assert_allclose(sums + 1, [centrality[node] for node in range(num_nodes)], rtol=1e-9)


def test_katz_keeps_the_precision_of_distant_pairs():
    # One walk of 30 steps joins the ends of a path of 30 edges; walks longer than 32 steps hardly count.
    path = adjacency_matrix([range(30), range(1, 31)], 31)
    beta = 0.005
    ends = katz(path, [[0, 30], [30, 0]], beta=beta)
    walks = np.linalg.matrix_power(path.toarray().astype(object), 32)[0, 30]
    expected = beta**30 + walks * beta**32
    np.testing.assert_allclose(ends, expected, rtol=1e-6)
    assert 0 < ends[0] < 1e-68


def test_katz_of_distant_pairs_whose_squared_score_underflows():
    path = adjacency_matrix([range(110), range(1, 111)], 111)
    for distance in (70, 80, 100):
        # The shortest walk and those with one step back; more steps back change less than 1e-5.
        expected = 0.005**distance * (1 + (distance + 2) * 0.005**2)
        np.testing.assert_allclose(katz(path, [[5, 5 + distance]], beta=0.005), expected, rtol=1e-5)


@pytest.mark.parametrize("heuristic", [katz, shortest_path])
@pytest.mark.parametrize("directed", [False, True])
def test_hiding_a_link_is_deleting_it(heuristic, directed):
    adjacency, graph = random_graph(directed=directed)
    edges = np.array(graph.edges)[:40]
    pairs = np.concatenate([edges, edges[:5, ::-1], all_pairs(adjacency.shape[0])[:60]])
    expected = []
    for u, v in pairs.tolist():
        without = adjacency.tolil(copy=True)
        without[u, v] = without[v, u] = 0
        without = without.tocsr()
        without.eliminate_zeros()
        expected.append(heuristic(without, [[u, v]])[0])
    found = heuristic(adjacency, pairs, hide_link=True)
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    shown = heuristic(adjacency, pairs)
    assert (shown != found)[:40].all()
    linked = np.array([graph.has_edge(u, v) or graph.has_edge(v, u) for u, v in pairs.tolist()])
    np.testing.assert_allclose(shown[~linked], found[~linked], rtol=1e-9)


@pytest.mark.parametrize("directed", [False, True])
def test_pagerank_agrees_with_networkx(directed):
    adjacency, graph = random_graph(directed=directed)
    pairs = all_pairs(adjacency.shape[0])
    p = nx.pagerank(graph, alpha=0.85, tol=1e-15, max_iter=1000)
    expected = [p[u] * p[v] for u, v in pairs.tolist()]
    np.testing.assert_allclose(pagerank(adjacency, pairs), expected, rtol=1e-9)


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("alpha", [0.0, 0.5, 0.85])
def test_personalized_pagerank_agrees_with_networkx(directed, alpha):
    adjacency, graph = random_graph(directed=directed)
    num_nodes = adjacency.shape[0]
    pairs = all_pairs(num_nodes)
    walk = np.zeros((num_nodes, num_nodes))
    for source in range(num_nodes):
        found = nx.pagerank(graph, alpha=alpha, personalization={source: 1}, tol=1e-15, max_iter=2000)
        walk[source] = [found[node] for node in range(num_nodes)]
    u, v = pairs.T
    # networkx starts its iteration at all nodes, and a trace remains at nodes that cannot be reached.
    one_way = personalized_pagerank(adjacency, pairs, alpha=alpha, symmetric=False)
    np.testing.assert_allclose(one_way, walk[u, v], rtol=1e-7, atol=1e-13)
    both = personalized_pagerank(adjacency, pairs, alpha=alpha)
    np.testing.assert_allclose(both, walk[u, v] + walk[v, u], rtol=1e-7, atol=1e-13)
    joined = np.isfinite(shortest_path(adjacency, pairs))
    assert (one_way[~joined] == 0).all() and ((one_way[joined] > 0).all() or alpha == 0)


@pytest.mark.parametrize("name", HEURISTICS)
@pytest.mark.parametrize("directed", [False, True])
def test_results_do_not_depend_on_memory_or_batches(name, directed):
    adjacency, _ = random_graph(num_nodes=150, num_edges=500, directed=directed)
    pairs = all_pairs(150)[:3000]
    expected = HEURISTICS[name](adjacency, pairs)
    if name != "pagerank":
        one_by_one = HEURISTICS[name](adjacency, pairs, max_bytes=1)
        np.testing.assert_allclose(one_by_one, expected, rtol=1e-13)
    # A batch chooses the end of its pairs to start from, which may change scores within the stated error.
    parts = [HEURISTICS[name](adjacency, part) for part in np.array_split(pairs, 7)]
    np.testing.assert_allclose(np.concatenate(parts), expected, rtol=2e-9)
    assert HEURISTICS[name](adjacency, pairs[:0]).shape == (0,)
    assert expected.dtype == np.float64 and expected.shape == (3000,)


def peak_of(call):
    """Peak of the memory of Python and NumPy during a call, in bytes."""
    import tracemalloc

    tracemalloc.start()
    call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_links_are_looked_up_in_parts():
    generator = np.random.default_rng(0)
    adjacency = adjacency_matrix(generator.integers(0, 300, (2, 20_000)), 300)
    u, v = generator.integers(0, 300, (2, 20_000))
    limit = 2**20
    peak = peak_of(lambda: shortest_path(adjacency, np.stack([u, v], 1), hide_link=True, max_bytes=limit))
    # the neighbours of all pairs at once would take 32 bytes each
    assert peak < 20 * limit < 32 * adjacency.nnz / 300 * 2 * len(u), peak


@pytest.mark.parametrize("name", [name for name in HEURISTICS if name != "pagerank"])
def test_the_working_memory_is_bounded(name):
    generator = np.random.default_rng(0)
    adjacency = adjacency_matrix(generator.integers(0, 3000, (2, 30_000)), 3000)
    pairs = generator.integers(0, 3000, (4000, 2))
    limit = 2**21
    peak = peak_of(lambda: HEURISTICS[name](adjacency, pairs, max_bytes=limit))
    # The rest is for copies of the matrix and of the pairs. 3000 columns of 3000 nodes would take 70 MB.
    assert peak < 2.5 * limit + 60 * adjacency.nnz + 100 * len(pairs), peak


def test_katz_refuses_a_divergent_series():
    # A clique of 40 nodes: the norm of its matrix is 39.
    u, v = np.triu_indices(40, 1)
    clique = adjacency_matrix([u, v], 40)
    with pytest.raises(UsageError, match=r"does not converge.*39[\s\S]*0\.02[\s\S]*max_length 3"):
        katz(clique, [[0, 1]], beta=1 / 38.9)
    expected = katz_by_inverse(clique, 1 / 39.1)[0, 1]
    np.testing.assert_allclose(katz(clique, [[0, 1]], beta=1 / 39.1), [expected], rtol=1e-8)
    # One walk of one step, 38 of two, 39 * 1 + 38 * 38 of three.
    short = katz(clique, [[0, 1]], beta=0.1, max_length=3)
    np.testing.assert_allclose(short, [0.1 + 38 * 0.01 + (39 + 38 * 38) * 0.001], rtol=1e-13)


def test_katz_of_directed_links_is_refused_if_it_may_diverge():
    """Walks in a directed star have at most one step. The series is finite, but the norm does not show it."""
    star = adjacency_matrix([[0] * 50_000, range(1, 50_001)], 50_001, symmetric=False)
    with pytest.raises(UsageError, match=r"may not converge[\s\S]*max_length 3"):
        katz(star, [[0, 1]])
    np.testing.assert_array_equal(katz(star, [[0, 1]], max_length=3), [0.005])


@pytest.mark.parametrize("name", HEURISTICS)
def test_wrong_pairs_are_refused(name, square):
    with pytest.raises(ValueError, match=r"\[B, 2\], got \[2, 3\]"):
        HEURISTICS[name](square, [[0, 1, 2], [1, 2, 3]])
    with pytest.raises(ValueError, match=r"nodes 0\.\.8, but the graph has nodes 0\.\.7"):
        HEURISTICS[name](square, [[0, 8]])


@pytest.mark.parametrize("name", HEURISTICS)
def test_matrices_of_other_classes_or_shapes_are_refused(name, square):
    with pytest.raises(ValueError, match=r"square scipy.sparse.csr_array, got csr_matrix of shape \[8, 8\]"):
        HEURISTICS[name](sparse.csr_matrix(square), [[0, 1]])
    for other in (square[:7], sparse.csr_array(np.ones(8)), np.eye(8)):
        with pytest.raises(ValueError, match=r"square scipy.sparse.csr_array, got \w+ of shape \["):
            HEURISTICS[name](other, [[0, 1]])
        with pytest.raises(ValueError, match=r"square scipy.sparse.csr_array, got \w+ of shape \["):
            heuristics.diameter(other)


def test_wrong_settings_are_refused(square):
    for call, words in (
        (lambda: katz(square, [[0, 1]], beta=0), "beta must be above 0"),
        (lambda: katz(square, [[0, 1]], max_length=0), "max_length must be at least 1"),
        (lambda: pagerank(square, [[0, 1]], alpha=1), "alpha must be at least 0 and below 1"),
        (lambda: personalized_pagerank(square, [[0, 1]], alpha=-0.1), "alpha must be at least 0"),
        (lambda: adjacency_matrix([[0], [3]], 3), "nodes 0..3, but the graph has nodes 0..2"),
        (lambda: adjacency_matrix([[0, 1]], 3), r"edge_index must be \[2, E\]"),
    ):
        with pytest.raises(ValueError, match=words):
            call()


def test_every_public_name_is_listed_and_loads():
    assert set(dir(heuristics)) == set(heuristics.__all__)
    for name in heuristics.__all__:
        assert getattr(heuristics, name).__name__ == name


def test_pagerank_ends_with_alpha_near_one():
    graph = nx.gnp_random_graph(200, 0.05, seed=1)
    edges = np.array(graph.edges()).T
    adjacency = adjacency_matrix(edges, 200)
    degree = np.array([d for _, d in graph.degree()])
    # Without restarts, a walk is at each node with a probability proportional to the degree.
    product = (degree[0] / degree.sum()) * (degree[1] / degree.sum())
    assert pagerank(adjacency, [[0, 1]], alpha=0.9999)[0] == pytest.approx(product, rel=0.01)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 0.85, 0.99])
@pytest.mark.parametrize("leaves", [300, 10_000])
def test_pagerank_ends_at_a_hub_whose_rounding_oscillates(leaves, alpha):
    star = adjacency_matrix(np.stack([np.zeros(leaves, int), np.arange(1, leaves + 1)]), leaves + 1)
    # Hub h and leaf l solve h = alpha leaves l + c, l = alpha h / leaves + c; c = (1 - alpha) / (leaves + 1).
    restart = (1 - alpha) / (leaves + 1)
    hub = restart * (1 + alpha * leaves) / (1 - alpha**2)
    leaf = alpha * hub / leaves + restart
    np.testing.assert_allclose(pagerank(star, [[0, 1]], alpha=alpha), [hub * leaf], rtol=1e-9)


@pytest.mark.parametrize("name", HEURISTICS)
def test_fractional_node_numbers_are_refused(name, square):
    with pytest.raises(ValueError, match="pairs must be whole numbers, got float64"):
        HEURISTICS[name](square, [[0.9, 1.2]])
