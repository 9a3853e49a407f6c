"""`LinkGraph`: edges for messages, refusals, fingerprint, file."""

from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from helpers.link_graphs import make_link_graph
from hypothesis import given, settings
from hypothesis import strategies as st

from graphzoo.datasets import DataError, LinkGraph, LinkSplit
from graphzoo.datasets.link.pairs import distinct_links, in_keys, pair_keys
from graphzoo.datasets.node.feature_arrays import csr_tensor


def as_set(pairs):
    return {tuple(pair) for pair in pairs.tolist()}


@st.composite
def graphs(draw):
    """Random graphs with random splits; undirected ones list each link in a random direction."""
    num_nodes = draw(st.integers(4, 9))
    directed = draw(st.booleans())
    pairs = [(u, v) for u in range(num_nodes) for v in range(num_nodes) if (u != v if directed else u < v)]
    pairs = draw(st.permutations(pairs))
    if not directed:
        pairs = [pair if draw(st.booleans()) else pair[::-1] for pair in pairs]
    cuts = sorted(draw(st.lists(st.integers(1, len(pairs) - 1), min_size=3, max_size=3)))
    train, valid, test, others = (
        torch.tensor(pairs[low:high], dtype=torch.int64).reshape(-1, 2)
        for low, high in zip([0, *cuts], [*cuts, len(pairs)], strict=True)
    )
    return LinkGraph(
        "drawn",
        num_nodes,
        train,
        LinkSplit(valid, others),
        LinkSplit(test, others),
        is_directed=directed,
        valid_edges_at_test=draw(st.booleans()),
    )


@given(graphs())
@settings(max_examples=200)
def test_evaluated_links_are_not_among_the_edges(graph):
    train, valid, test = (as_set(graph.positive(split)) for split in ("train", "valid", "test"))
    back = {(v, u) for u, v in train}
    for split in ("train", "valid", "test"):
        edge_index = graph.edge_index(split)
        seen = as_set(edge_index.t())
        expected = train | (set() if graph.is_directed else back)
        if split == "test" and graph.valid_edges_at_test:
            expected |= valid | (set() if graph.is_directed else {(v, u) for u, v in valid})
            hidden = test
        else:
            hidden = valid | test
        assert seen == expected and len(seen) == edge_index.size(1)
        assert not seen & hidden
        if not graph.is_directed:
            assert not seen & {(v, u) for u, v in hidden}
        keys = edge_index[0] * graph.num_nodes + edge_index[1]
        assert bool((keys.diff() > 0).all())


@given(graphs(), st.sampled_from([("train", "valid"), ("train", "test"), ("valid", "test")]), st.booleans())
def test_an_evaluated_link_in_another_split_is_refused(graph, parts, reverse):
    one, other = parts
    link = graph.positive(one)[:1]
    if not link.numel() or not graph.train.numel():
        return
    shared = link.flip(1) if reverse else link
    split = getattr(graph, other)
    changed = LinkSplit(torch.cat([split.positive, shared]), split.negative)
    elsewhere = [as_set(graph.positive(name)) for name in ("train", "valid", "test") if name != other]
    if graph.is_directed and not any(as_set(shared) & links for links in elsewhere):
        # in a directed graph, the reverse of a link is another link
        assert reverse
        replace(graph, **{other: changed}, fingerprint="")
        return
    with pytest.raises(DataError, match="are also in"):
        replace(graph, **{other: changed}, fingerprint="")
    replace(graph, **{other: changed}, fingerprint="", may_recur=True)


def variants(graph):
    """Changes of one field of the graph, by name."""
    x = graph.x.clone()
    x[3, 0] += 1
    flipped = graph.train.clone()
    flipped[5] = flipped[5].flip(0)

    def judged(split, positive=False):
        parts = {"positive": split.positive.clone(), "negative": split.negative.clone()}
        key = "positive" if positive else "negative"
        parts[key][0] = parts[key][0].flip(-1)
        return LinkSplit(**parts)

    return {
        "num_nodes": {"num_nodes": graph.num_nodes + 1, "x": torch.cat([x, x[:1]])},
        "train": {"train": flipped},
        "order of train": {"train": graph.train.flip(0)},
        "valid links": {"valid": judged(graph.valid, positive=True)},
        "valid negatives": {"valid": judged(graph.valid)},
        "test links": {"test": judged(graph.test, positive=True)},
        "test negatives": {"test": judged(graph.test)},
        "pool as own": {
            "valid": LinkSplit(graph.valid.positive, graph.valid.negative.unsqueeze(1)),
        },
        "x": {"x": x},
        "no x": {"x": None},
        "is_directed": {"is_directed": True},
        "node_names": {"node_names": tuple(map(str, range(1, graph.num_nodes + 1)))},
        "metric": {"metric": "hits@20"},
        "protocol": {"protocol": "ogb"},
        "valid_edges_at_test": {"valid_edges_at_test": True},
        "may_recur": {"may_recur": True},
    }


def test_known_fingerprint():
    """Checkpoints of earlier versions compare theirs with this one."""
    pairs = torch.tensor([[0, 1], [1, 2], [2, 3], [0, 2], [0, 3], [3, 1]])
    valid, test = LinkSplit(pairs[2:3], pairs[4:5]), LinkSplit(pairs[3:4], pairs[5:])
    graph = LinkGraph("toy", 4, pairs[:2], valid, test, x=torch.eye(4), node_names=("a", "b", "c", "é"))
    assert graph.fingerprint.startswith("4039c1da5bd30f08")


def test_fingerprint_covers_everything_but_names():
    graph = make_link_graph()
    for names in ({"name": "other"}, {"feature_names": ("a", "b", "c", "d")}):
        assert replace(graph, fingerprint="", **names).fingerprint == graph.fingerprint
    prints = {
        what: replace(graph, fingerprint="", **change).fingerprint for what, change in variants(graph).items()
    }
    assert len({graph.fingerprint, *prints.values()}) == len(prints) + 1
    # a new field must be covered by the fingerprint, or be added here
    assert {field.name for field in fields(LinkGraph)} - {"name", "fingerprint", "feature_names"} == {
        *("num_nodes", "train", "valid", "test", "x", "is_directed", "node_names", "metric", "protocol"),
        *("valid_edges_at_test", "may_recur"),
    }


def sparse(x):
    rows, columns = x.nonzero(as_tuple=True)
    start = torch.cat([torch.zeros(1, dtype=torch.int64), rows.bincount(minlength=len(x)).cumsum(0)])
    return csr_tensor(start, columns, x[rows, columns], tuple(x.shape))


@pytest.mark.parametrize("own", [0, 3])
@pytest.mark.parametrize("features", ["dense", "sparse", "none"])
def test_a_saved_graph_loads_unchanged(tmp_path, own, features):
    graph = make_link_graph(
        own_negatives=own,
        features=features != "none",
        node_names=tuple(f"node {i}\n" for i in range(48)),
        metric="hits@50",
        valid_edges_at_test=True,
    )
    if features == "sparse":
        graph = replace(graph, x=sparse(graph.x), fingerprint="", feature_names=("a", "b", "c", "d"))
    graph.save(tmp_path / "graph.npz")
    back = LinkGraph.load(tmp_path / "graph.npz")
    assert back.fingerprint == graph.fingerprint
    for field in fields(LinkGraph):
        value, other = getattr(graph, field.name), getattr(back, field.name)
        if isinstance(value, LinkSplit):
            assert torch.equal(value.positive, other.positive) and other.positive.dtype == torch.int64
            assert torch.equal(value.negative, other.negative) and other.negative.dtype == torch.int64
        elif isinstance(value, torch.Tensor):
            assert value.layout == other.layout and value.dtype == other.dtype
            assert torch.equal(value.to_dense(), other.to_dense())
        else:
            assert value == other
    assert [path.name for path in tmp_path.iterdir()] == ["graph.npz"]


def test_damaged_and_other_files_are_refused(tmp_path):
    path = tmp_path / "graph.npz"
    with pytest.raises(DataError, match="no such file"):
        LinkGraph.load(path)
    make_link_graph().save(path)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(DataError, match="not a readable link graph file"):
        LinkGraph.load(path)
    position = data.index(b"train.npy") + 400
    path.write_bytes(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
    with pytest.raises(DataError, match="graph.npz"):
        LinkGraph.load(path)
    path.write_bytes(data)
    with np.load(path) as file:
        arrays = dict(file)
    arrays["test.negative"] = arrays["test.negative"][::-1]
    np.savez(path, **arrays)
    with pytest.raises(DataError, match="content does not match its fingerprint"):
        LinkGraph.load(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train": torch.zeros(0, 2, dtype=torch.int64)}, "at least one"),
        ({"train": torch.tensor([[0, 1, 2]])}, "int64 pairs"),
        ({"train": torch.tensor([[0.0, 1.0]])}, "int64 pairs"),
        ({"train": torch.tensor([[0, 48]])}, "has node 48, but there are 48 nodes"),
        ({"train": torch.tensor([[-1, 4]])}, "has node -1"),
        ({"train": torch.tensor([[4, 4]])}, "a link of a node with itself"),
        ({"train": torch.tensor([[0, 47], [47, 0]])}, "has a link twice"),
        ({"x": torch.zeros(47, 3)}, "features must be float32"),
        ({"x": torch.zeros(48, 3, dtype=torch.float64)}, "features must be float32"),
        ({"node_names": ("a",)}, "1 names for 48 nodes"),
        ({"metric": "accuracy"}, "metric must be one of mrr"),
    ],
)
def test_wrong_parts_are_refused(change, message):
    with pytest.raises(DataError, match=message):
        make_link_graph(**change)


def test_wrong_splits_are_refused():
    pairs = torch.tensor([[0, 1], [2, 3]])
    with pytest.raises(DataError, match="give K negatives of each link"):
        LinkSplit(pairs, torch.zeros(3, 4, 2, dtype=torch.int64))
    with pytest.raises(DataError, match="positives are pairs"):
        LinkSplit(pairs[0], pairs)
    with pytest.raises(ValueError, match="the splits are train, valid, test"):
        make_link_graph().edge_index("valdi")


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=30), st.booleans())
def test_distinct_links_agree_with_python(pairs, directed):
    links = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2)
    kept, repeats, loops = distinct_links(links, 7, is_directed=directed)
    seen, expected = set(), []
    for u, v in pairs:
        key = (u, v) if directed else frozenset((u, v))
        if u != v and key not in seen:
            expected.append((u, v))
            seen.add(key)
    assert [tuple(pair) for pair in kept.tolist()] == expected
    assert loops == sum(u == v for u, v in pairs)
    assert repeats == len(pairs) - loops - len(expected)


@given(st.lists(st.integers(0, 20)), st.sets(st.integers(0, 20)))
def test_membership_agrees_with_python(keys, known):
    found = in_keys(torch.tensor(keys, dtype=torch.int64), torch.tensor(sorted(known), dtype=torch.int64))
    assert found.tolist() == [key in known for key in keys]


def test_keys_are_one_per_link():
    pairs = torch.cartesian_prod(torch.arange(6), torch.arange(6))
    assert torch.unique(pair_keys(pairs, 6, is_directed=True)).numel() == 36
    keys = pair_keys(pairs, 6, is_directed=False)
    assert torch.unique(keys).numel() == 21 and torch.equal(
        keys, pair_keys(pairs.flip(1), 6, is_directed=False)
    )


@pytest.mark.parametrize("own", [False, True])
def test_negatives_of_a_node_with_itself_are_refused(own):
    """An encoder of pairs would fail on them, but only in the test after training."""
    links = torch.tensor([[0, 2], [1, 3]])
    negative = torch.tensor([[0, 4], [5, 5], [1, 6]])
    negative = negative.expand(2, 3, 2) if own else negative
    good = LinkSplit(links, torch.tensor([[0, 4]]))
    parts = 8, torch.tensor([[0, 1], [1, 2], [2, 3]]), good
    place = r"\[0, 1\]" if own else r"\[1\]"
    with pytest.raises(DataError, match=rf"mine: test: negative {place} pairs node 5 with itself"):
        LinkGraph("mine", *parts, LinkSplit(links + 2, negative))
    as_published = LinkGraph("mine", *parts, LinkSplit(links + 2, negative), protocol="heart")
    assert torch.equal(as_published.test.negative, negative)
