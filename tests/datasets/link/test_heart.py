"""HeaRT's hard negatives: scores and choice compared with plain Python, their properties, the cache."""

import logging
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.link_graphs import make_link_graph
from helpers.warm_python import python
from hypothesis import given, settings
from hypothesis import strategies as st

from graphzoo.datasets import DataError, LinkGraph, LinkSplit, load_link_graph
from graphzoo.datasets.link import heart
from graphzoo.datasets.link.heart import hard_negatives
from graphzoo.datasets.link.heart_kernels import personalized_pagerank, resource_allocation
from graphzoo.datasets.link.pairs import in_keys, pair_keys


def to_csr(pairs, num_nodes):
    return heart._csr(torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2), num_nodes)


def neighbour_sets(pairs, num_nodes):
    found = [set() for _ in range(num_nodes)]
    for u, v in pairs:
        found[u].add(v)
        found[v].add(u)
    return found


@st.composite
def edges(draw):
    num_nodes = draw(st.integers(2, 12))
    pairs = draw(st.sets(st.tuples(st.integers(0, num_nodes - 1), st.integers(0, num_nodes - 1))))
    pairs = {(u, v) for u, v in pairs if u != v}
    return num_nodes, sorted(pairs | {(v, u) for u, v in pairs})


@given(edges())
@settings(max_examples=50)
def test_resource_allocation_equals_its_definition(graph):
    num_nodes, pairs = graph
    neighbours = neighbour_sets(pairs, num_nodes)
    for u in range(num_nodes):
        found = resource_allocation(u, *to_csr(pairs, num_nodes))
        expected = [
            sum(1 / len(neighbours[w]) for w in neighbours[u] & neighbours[x]) for x in range(num_nodes)
        ]
        np.testing.assert_allclose(found, expected, rtol=1e-12)


@given(edges(), st.sampled_from([1e-3, 1e-5, 1e-7]))
@settings(max_examples=50)
def test_pagerank_equals_the_solution_of_the_linear_system(graph, tolerance):
    num_nodes, pairs = graph
    walk = np.zeros((num_nodes, num_nodes))
    for u, v in pairs:
        walk[u, v] = 1
    degree = walk.sum(1)
    # a walk stays at a node without out-edges
    walk[degree == 0, degree == 0] = 1
    walk[np.diag_indices(num_nodes)] = np.where(degree == 0, 1, 0)
    walk /= walk.sum(1, keepdims=True)
    exact = 0.15 * np.linalg.inv(np.eye(num_nodes) - 0.85 * walk)
    for u in range(num_nodes):
        found = personalized_pagerank(u, *to_csr(pairs, num_nodes), 0.15, tolerance)
        # the residual is missing: at most the tolerance for each end of an edge
        missing = exact[u] - found
        assert (missing >= -1e-12).all() and missing.sum() <= tolerance * len(pairs) + 1e-12


def hash_order(seed, node, partner, other):
    """splitmix64 in Python integers."""
    mask = (1 << 64) - 1
    state = 0
    for part in (seed, node, partner, other):
        state = ((state + 0x9E3779B97F4A7C15) & mask) ^ (part * 0xBF58476D1CE4E5B9 & mask)
        state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & mask
        state = (state ^ state >> 27) * 0x94D049BB133111EB & mask
        state ^= state >> 31
    return state >> 33


def choose(graph, split, node, partner, k, tolerance, seed):
    """The recipe in plain Python: the k candidates with the smallest rank under any score."""
    n = graph.num_nodes
    messages = neighbour_sets(graph.edge_index(split).t().tolist(), n)
    known = graph.train.tolist() + (graph.valid.positive.tolist() if split == "test" else [])
    candidates = [x for x in range(n) if x not in (node, partner) and x not in neighbour_sets(known, n)[node]]
    csr = to_csr(graph.edge_index(split).t().tolist(), n)
    scores = [
        [sum(1 / len(messages[w]) for w in sorted(messages[node] & messages[x])) for x in range(n)],
        personalized_pagerank(node, *csr, 0.15, tolerance),
    ]
    if graph.x is not None:
        x = graph.x.double().numpy()
        norm = np.sqrt((x * x).sum(1))
        unit = x / np.where(norm > 0, norm, 1)[:, None]
        # rounded as in the package, so that ties are ties
        scores.append([np.float32(sum(unit[node] * unit[other])) for other in range(n)])

    def order(x):
        rank = min(1 + sum(score[other] > score[x] for other in candidates) for score in scores)
        return rank, hash_order(seed, node, partner, x)

    return sorted(candidates, key=order)[:k]


@pytest.mark.parametrize("features", [True, False])
@pytest.mark.parametrize("valid_edges_at_test", [True, False])
@pytest.mark.parametrize("k", [5, 12])
def test_choice_equals_the_recipe(own_cache, features, valid_edges_at_test, k):
    graph = make_link_graph(features=features, valid_edges_at_test=valid_edges_at_test)
    if features:
        # random features have no ties, which the order of additions could break
        x = torch.randn(graph.num_nodes, 6, generator=torch.Generator().manual_seed(3))
        graph = make_link_graph(x=x, valid_edges_at_test=valid_edges_at_test)
    valid, test = hard_negatives(graph, num_negatives=2 * k, ppr_tolerance=1e-4, seed=7)
    for split, made in (("valid", valid), ("test", test)):
        assert torch.equal(made.positive, getattr(graph, split).positive)
        assert made.negative.shape == (len(made.positive), 2 * k, 2)
        for row, (u, v) in enumerate(made.positive.tolist()[:8]):
            ours = made.negative[row].tolist()
            assert ours[:k] == [[u, x] for x in choose(graph, split, u, v, k, 1e-4, 7)]
            assert ours[k:] == [[x, v] for x in choose(graph, split, v, u, k, 1e-4, 7)]


def check_properties(graph, splits, k):
    train = pair_keys(graph.train, graph.num_nodes, is_directed=False).sort().values
    valid = pair_keys(graph.valid.positive, graph.num_nodes, is_directed=False).sort().values
    for name, split in zip(("valid", "test"), splits, strict=True):
        assert bool((split.negative[:, :k, 0] == split.positive[:, :1]).all())
        assert bool((split.negative[:, k:, 1] == split.positive[:, 1:]).all())
        assert not bool((split.negative[..., 0] == split.negative[..., 1]).any())
        keys = pair_keys(split.negative, graph.num_nodes, is_directed=False)
        assert not bool(
            (keys == pair_keys(split.positive, graph.num_nodes, is_directed=False)[:, None]).any()
        )
        assert not bool(in_keys(keys, train).any())
        if name == "test":
            assert not bool(in_keys(keys, valid).any())
        for half in (keys[:, :k], keys[:, k:]):
            assert bool((half.sort(dim=1).values.diff(dim=1) > 0).all())


@given(st.integers(0, 50), st.integers(1, 20), st.booleans())
@settings(max_examples=25)
def test_properties_of_the_negatives(seed, k, features):
    graph = make_link_graph(seed=seed, features=features)
    made = heart._make(graph, 2 * k, 1e-4, seed)
    check_properties(graph, made, k)


def test_nodes_without_a_score_are_drawn_at_random():
    """Two paths of three nodes and twenty isolated nodes: no candidate has a score."""
    train = torch.tensor([[0, 1], [1, 2], [3, 4], [4, 5]])
    graph = LinkGraph(
        "paths",
        26,
        train,
        LinkSplit(torch.tensor([[0, 2]]), torch.tensor([[0, 3]])),
        LinkSplit(torch.tensor([[3, 5]]), torch.tensor([[0, 4]])),
    )
    made = [heart._make(graph, 20, 1e-4, seed)[0].negative[0] for seed in range(2)]
    # candidates of 0 are all nodes except 0, 2 and its neighbour 1
    assert set(made[0][:10, 1].tolist()) <= set(range(3, 26))
    assert set(made[0][:10, 1].tolist()) != set(made[1][:10, 1].tolist())
    drawn = torch.cat([heart._make(graph, 20, 1e-4, seed)[0].negative[0, :10, 1] for seed in range(200)])
    count = drawn.bincount(minlength=26)[3:].double()
    assert bool((count - 2000 / 23).abs().max() < 4.5 * (2000 / 23) ** 0.5)


def test_bits_do_not_depend_on_threads_and_blocks(monkeypatch):
    graph = make_link_graph()
    first = heart._make(graph, 20, 1e-6, 42)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        monkeypatch.setattr(heart, "_BLOCK_VALUES", 2 * graph.num_nodes)
        second = heart._make(graph, 20, 1e-6, 42)
    finally:
        torch.set_num_threads(threads)
    for one, other in zip(first, second, strict=True):
        assert torch.equal(one.negative, other.negative)


def files(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file() and ".lock" not in path.name)


def test_negatives_are_computed_once_per_key(own_cache, monkeypatch, caplog):
    graph = make_link_graph()
    caplog.set_level(logging.WARNING)
    made = hard_negatives(graph, num_negatives=10)
    assert "computing 10 negatives for each of" in caplog.text
    (path,) = files(own_cache)
    monkeypatch.setattr(heart, "_make", lambda *arguments: pytest.fail("made again"))
    for one, other in zip(made, hard_negatives(graph, num_negatives=10), strict=True):
        assert torch.equal(one.negative, other.negative) and torch.equal(one.positive, other.positive)
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(own_cache.parent))
    hard_negatives(graph, num_negatives=12)
    hard_negatives(graph, num_negatives=10, seed=1)
    hard_negatives(graph, num_negatives=10, ppr_tolerance=1e-4)
    hard_negatives(make_link_graph(seed=1), num_negatives=10)
    assert len(files(own_cache)) == 5

    # a damaged entry is computed again and replaced
    data = path.read_bytes()
    place = data.index(b"test.npy") + 300
    for damage in (data[: len(data) // 2], b"", data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]):
        path.write_bytes(damage)
        caplog.clear()
        again = hard_negatives(graph, num_negatives=10)
        assert torch.equal(again[1].negative, made[1].negative) and path.read_bytes() == data
        assert "hard negatives are computed again" in caplog.text


def test_an_entry_of_other_content_is_computed_again(own_cache):
    graph = make_link_graph()
    made = hard_negatives(graph, num_negatives=10)
    (path,) = files(own_cache)
    with np.load(path) as file:
        arrays = dict(file)
    arrays["test"] = arrays["test"][::-1]
    np.savez(path, **arrays)
    assert torch.equal(hard_negatives(graph, num_negatives=10)[1].negative, made[1].negative)


def test_an_interrupted_computation_leaves_no_file(own_cache, monkeypatch):
    def stop(*arguments, **keywords):
        raise KeyboardInterrupt

    monkeypatch.setattr(heart, "_pairs", stop)
    with pytest.raises(KeyboardInterrupt):
        hard_negatives(make_link_graph(), num_negatives=10)
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(own_cache.parent))
    monkeypatch.setattr(np, "savez", stop)
    with pytest.raises(KeyboardInterrupt):
        hard_negatives(make_link_graph(), num_negatives=10)
    assert files(own_cache) == []


def test_a_cache_that_cannot_be_written_gives_a_warning(own_cache, caplog):
    own_cache.parent.mkdir(parents=True, exist_ok=True)
    own_cache.write_text("a file where the folder should be")
    valid, _ = hard_negatives(make_link_graph(), num_negatives=10)
    assert valid.negative.shape[1] == 10 and "no cache of hard negatives" in caplog.text


def test_concurrent_processes_compute_once():
    code = (
        "import logging, sys\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "from helpers.link_graphs import make_link_graph\n"
        "from graphzoo.datasets.link.heart import hard_negatives\n"
        "logging.basicConfig(stream=sys.stdout)\n"
        "print(int(hard_negatives(make_link_graph(), num_negatives=20)[1].negative.sum()))\n"
    )
    tests = str(Path(__file__).resolve().parents[2])
    runs = [
        subprocess.Popen([python(), "-c", code, tests], stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    said = [run.communicate(timeout=300)[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0]
    assert sum("computing 20 negatives" in text for text in said) == 1
    assert said[0].splitlines()[-1] == said[1].splitlines()[-1]


def test_impossible_negatives_are_refused():
    graph = make_link_graph()
    with pytest.raises(DataError, match="for undirected graphs only"):
        hard_negatives(make_link_graph(is_directed=True), num_negatives=10)
    with pytest.raises(DataError, match="39 nodes that are not its neighbours, but 40 are needed"):
        hard_negatives(graph, num_negatives=80)
    for wrong in (0, 7, -2):
        with pytest.raises(ValueError, match="even number"):
            hard_negatives(graph, num_negatives=wrong)


def test_real_citeseer(real_data, own_cache, monkeypatch):
    """Negatives of our recipe overlap with the published ones, but are not the same."""
    monkeypatch.setenv("GRAPHZOO_OFFLINE", "1")
    ours = load_link_graph("citeseer-link", protocol="heart-ours", root=real_data)
    published = load_link_graph("citeseer-link", protocol="heart", root=real_data)
    assert ours.metric == "mrr" and ours.protocol == "heart-ours"
    check_properties(ours, (ours.valid, ours.test), 250)
    assert ours.test.negative.shape == published.test.negative.shape
    found = [
        in_keys(*(pair_keys(pairs, 3_327, is_directed=False).sort().values for pairs in (made, known)))
        for made, known in zip(ours.test.negative, published.test.negative, strict=True)
    ]
    share = torch.stack(found).double().mean()
    # 250 random nodes of 3,327 would share 7.5 %; about 40 of 250 have distinct ranks, the rest are ties
    assert 0.15 < share < 0.3
