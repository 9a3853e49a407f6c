"""The table of link data; if GRAPHZOO_DATA is set, the real data and published figures of heuristics."""

import pickle
import re
import warnings
from collections import Counter

import numpy as np
import pytest
import torch
from scipy import sparse

from graphzoo.datasets import (
    DataError,
    DownloadError,
    find_link_source,
    list_link_graphs,
    list_node_graphs,
    load_link_graph,
    load_node_graph,
)
from graphzoo.datasets.link import load, table
from graphzoo.datasets.link.fixed import read_heart
from graphzoo.datasets.link.pairs import in_keys, pair_keys

PLANETOID = ("cora-link", "citeseer-link", "pubmed-link")
OGB = ("ogbl-ddi", "ogbl-collab", "ogbl-ppa", "ogbl-citation2")
# name: nodes, features, links; negatives of validation and test
REAL = {
    ("citeseer-link", "original"): (3_327, 3_703, (3_870, 227, 455), ((227, 2), (455, 2))),
    ("citeseer-link", "heart"): (3_327, 3_703, (3_870, 227, 455), ((227, 500, 2), (455, 500, 2))),
    ("citeseer-link", "vgae"): (3_327, 3_703, (3_870, 227, 455), ((227, 2), (455, 2))),
    ("pubmed-link", "original"): (19_717, 500, (37_676, 2_216, 4_432), ((2_216, 2), (4_432, 2))),
    ("pubmed-link", "vgae"): (19_717, 500, (37_676, 2_216, 4_432), ((2_216, 2), (4_432, 2))),
    ("cora-link", "ours"): (2_708, 1_433, (4_488, 263, 527), ((263, 2), (527, 2))),
    ("cora-link", "vgae"): (2_708, 1_433, (4_488, 263, 527), ((263, 2), (527, 2))),
    ("cora-link", "nbfnet"): (2_708, 1_433, (4_512, 271, 542), ((271, 2), (542, 2))),
    ("citeseer-link", "nbfnet"): (3_327, 3_703, (3_878, 230, 460), ((230, 2), (460, 2))),
    ("pubmed-link", "nbfnet"): (19_717, 500, (37_678, 2_216, 4_433), ((2_216, 2), (4_433, 2))),
    ("ogbl-ddi", "ogb"): (4_267, 0, (1_067_911, 133_489, 133_489), ((101_882, 2), (95_599, 2))),
}
METRICS = {"ogb": "hits@20", "vgae": "auroc", "nbfnet": "auroc"}


@pytest.fixture
def offline(monkeypatch):
    monkeypatch.setenv("GRAPHZOO_OFFLINE", "1")


def test_the_table_has_the_documented_names():
    assert list_link_graphs() == [*PLANETOID, *OGB]
    assert not set(list_link_graphs()) & set(list_node_graphs())
    assert [find_link_source(name).metric for name in OGB] == ["hits@20", "hits@50", "hits@100", "mrr"]
    assert [name for name in list_link_graphs() if find_link_source(name).valid_edges_at_test] == [
        "ogbl-collab"
    ]
    assert [name for name in list_link_graphs() if find_link_source(name).is_directed] == ["ogbl-citation2"]


@pytest.mark.parametrize("name", list_link_graphs())
def test_rows_are_complete(name):
    source = find_link_source(name)
    assert source.citation and source.licence
    assert min(source.counts.nodes, source.counts.train, source.counts.valid, source.counts.test) > 0
    for row in (source, source.heart):
        for file in row.files:
            sha256, num_bytes = row.facts(file)
            assert sha256 is None or (re.fullmatch("[0-9a-f]{64}", sha256) and num_bytes > 0)
            # a file without a hash must not be fetched from a mirror
            assert sha256 or not file.urls
            # every address is permanent
            assert all(re.search(r"/[0-9a-f]{40}/", url) for url in file.urls)
            assert file.urls or row.archive or row.note


def test_every_row_has_a_preset_that_agrees():
    from graphzoo.catalog.presets import find_preset

    for name in list_link_graphs():
        source, header = find_link_source(name), find_preset("data", name).header
        assert header["task"] == "link-prediction"
        counts = source.counts
        sizes = f"{counts.train:,}/{counts.valid:,}/{counts.test:,} links"
        features = f"{counts.features:,} features" if counts.features else "no features"
        assert header["size"] == f"{counts.nodes:,} nodes, {sizes}, {features}"
        if len(source.protocols) > 1:
            assert header["title"].endswith("protocols " + ", ".join(source.protocols))


def test_spellings_of_names_and_protocols_and_suggestions():
    assert find_link_source("OGBL_DDI").name == "ogbl-ddi"
    assert find_link_source("cora-link").protocol("HeaRT_ours") == "heart-ours"
    assert [find_link_source(name).protocol("original") for name in OGB] == ["ogb"] * 4
    assert find_link_source("citeseer-link").protocol("original") == "original"
    for call, message in (
        (lambda: find_link_source("citeser-link"), "Did you mean: citeseer-link"),
        (lambda: find_link_source("zzz"), "or links with the path of your own files"),
        (lambda: load_link_graph("citeseer-link", protocol="harte"), "Did you mean: heart"),
        (lambda: load_link_graph("ogbl-ppa", protocol="heart"), "it has ogb"),
        (
            lambda: load_link_graph("citeseer-link", split_index=1),
            "protocol original has one fixed split, got 1",
        ),
        (lambda: load_link_graph("citeseer-link", protocol="heart-ours", split_index=1), "one fixed split"),
        (lambda: load_link_graph("cora-link", split_index=-1), "0 or above, got -1"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.parametrize(("name", "protocol"), REAL)
def test_real_graph(name, protocol, real_data, offline):
    """Loading verifies hashes; published data must give no warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graph = load_link_graph(name, protocol=protocol, root=real_data)
    nodes, features, links, negatives = REAL[name, protocol]
    assert (graph.num_nodes, 0 if graph.x is None else graph.x.size(1)) == (nodes, features)
    assert tuple(len(graph.positive(split)) for split in ("train", "valid", "test")) == links
    assert (tuple(graph.valid.negative.shape), tuple(graph.test.negative.shape)) == negatives
    assert graph.metric == METRICS.get(protocol, "mrr") and graph.protocol == protocol
    for split in ("train", "valid", "test"):
        edge_index = graph.edge_index(split)
        assert edge_index.size(1) == 2 * links[0]
        seen = pair_keys(edge_index.t(), nodes, is_directed=False).unique()
        judged = pair_keys(torch.cat([graph.valid.positive, graph.test.positive]), nodes, is_directed=False)
        assert bool(in_keys(judged, seen).any()) == graph.may_recur == (protocol == "nbfnet")
    # no negative is a training link or pairs a node with itself
    train = pair_keys(graph.train, nodes, is_directed=False).sort().values
    every = torch.cat([graph.positive(split) for split in ("train", "valid", "test")])
    known = pair_keys(every, nodes, is_directed=False).sort().values
    for split in (graph.valid, graph.test):
        keys = pair_keys(split.negative, nodes, is_directed=False)
        assert not bool((split.negative[..., 0] == split.negative[..., 1]).any())
        assert not bool(in_keys(keys, train).any())
        if protocol == "heart":
            # other evaluated links may be among them, but never the positive itself
            own = pair_keys(split.positive, nodes, is_directed=False)
            assert not bool((keys == own[:, None]).any())
        else:
            assert not bool(in_keys(keys, known).any())
    again = load_link_graph(name, protocol=protocol, root=real_data)
    assert again.fingerprint == graph.fingerprint


@pytest.mark.parametrize("name", ["citeseer", "pubmed"])
def test_splits_are_the_graph_of_planetoid(name, real_data, offline):
    graph = load_link_graph(f"{name}-link", root=real_data)
    nodes = load_node_graph(name, root=real_data)
    links = torch.cat([graph.positive(split) for split in ("train", "valid", "test")])
    assert torch.equal(
        pair_keys(torch.cat([links, links.flip(1)]), graph.num_nodes, is_directed=True).sort().values,
        pair_keys(nodes.edge_index.t(), graph.num_nodes, is_directed=True).sort().values,
    )
    assert torch.equal(graph.x, nodes.x)


def test_protocols_share_links_and_features(real_data, offline):
    original, heart = (
        load_link_graph("citeseer-link", protocol=p, root=real_data) for p in ("original", "heart")
    )
    ours, vgae, other = (
        load_link_graph("citeseer-link", protocol=p, split_index=i, root=real_data)
        for p, i in (("ours", 0), ("vgae", 0), ("ours", 1))
    )
    for split in ("train", "valid", "test"):
        assert torch.equal(original.positive(split), heart.positive(split))
        assert torch.equal(ours.positive(split), vgae.positive(split))
        assert not torch.equal(ours.positive(split), other.positive(split))
    assert torch.equal(ours.test.negative, vgae.test.negative)
    assert len({graph.fingerprint for graph in (original, heart, ours, vgae, other)}) == 5


def test_mutual_citations_are_split_as_two_links(real_data, offline):
    # how often a neighbour is named, by the standard library's pickle instead of the reader under test
    with (real_data / "planetoid" / "Cora" / "raw" / "ind.cora.graph").open("rb") as file:
        neighbours = pickle.load(file, encoding="latin1")
    listed = Counter((u, v) for u, row in neighbours.items() for v in row if u < v)
    graph, other = (
        load_link_graph("cora-link", protocol="nbfnet", split_index=index, root=real_data) for index in (0, 1)
    )
    train, valid, test = (
        Counter(map(tuple, graph.positive(split).tolist())) for split in ("train", "valid", "test")
    )
    assert set(train.values()) == {1}
    rest = listed - valid - test
    assert set(rest) == set(train)
    assert (valid + test).total() + rest.total() == listed.total() == 5_429
    twice = {pair for pair, count in listed.items() if count == 2}
    assert len(twice) == 151
    assert set(test) & set(train) <= twice
    assert len(set(test) & set(train)) == 31
    assert graph.may_recur
    assert not torch.equal(graph.test.positive, other.test.positive)
    negatives = torch.cat([graph.valid.negative, graph.test.negative]).tolist()
    assert not {(min(pair), max(pair)) for pair in negatives} & set(listed)


def test_citations_that_are_not_the_graph_are_refused(real_data, offline, monkeypatch):
    read = load.read_citations
    for change in (lambda links: links[1:], lambda links: torch.cat([links, links])):
        monkeypatch.setattr(load, "read_citations", lambda files, change=change: change(read(files)))
        with pytest.raises(DataError, match="citations of citeseer are not the edges of its graph; delete"):
            load_link_graph("citeseer-link", protocol="nbfnet", root=real_data)


def heuristic_scores(name, graph, pairs):
    """Common neighbours, Adamic-Adar or resource allocation on the training graph, by definition."""
    edge_index = graph.edge_index("test").numpy()
    ones = np.ones(edge_index.shape[1])
    adjacency = sparse.csr_array((ones, tuple(edge_index)), shape=(graph.num_nodes,) * 2)
    degree = adjacency.sum(axis=1)
    with np.errstate(divide="ignore"):
        weight = {"cn": np.ones_like(degree), "aa": 1 / np.log(degree), "ra": 1 / degree}[name]
    weight[~np.isfinite(weight)] = 0
    between = adjacency @ sparse.diags_array(weight) @ adjacency
    flat = pairs.reshape(-1, 2).numpy()
    return np.asarray(between[flat[:, 0], flat[:, 1]]).reshape(tuple(pairs.shape[:-1]))


def mean_reciprocal_rank(positive, negative):
    rows = np.broadcast_to(negative, (len(positive), negative.shape[-1]))
    higher = (rows > positive[:, None]).sum(1)
    level = (rows == positive[:, None]).sum(1)
    return float(np.mean(1 / (1 + higher + level / 2)))


@pytest.mark.parametrize(
    ("name", "protocol", "figures"),
    [
        ("citeseer-link", "original", {"cn": 28.34, "aa": 29.37, "ra": 27.61}),
        ("citeseer-link", "heart", {"cn": 8.42, "aa": 10.82, "ra": 10.84}),
        ("pubmed-link", "original", {"cn": 14.02, "aa": 16.66, "ra": 15.63}),
        # nobody has published these: they say when the recipe of the negatives changes
        ("citeseer-link", "heart-ours", {"cn": 7.49, "aa": 9.89, "ra": 9.86}),
    ],
)
def test_heuristics_have_the_published_mrr(name, protocol, figures, real_data, offline):
    graph = load_link_graph(name, protocol=protocol, root=real_data)
    for heuristic, expected in figures.items():
        scores = [
            heuristic_scores(heuristic, graph, part) for part in (graph.test.positive, graph.test.negative)
        ]
        assert round(100 * mean_reciprocal_rank(*scores), 2) == expected


def test_ddi_has_names_and_no_link_twice(real_data, offline):
    graph = load_link_graph("ogbl-ddi", root=real_data)
    assert graph.node_names[:2] == ("DB00001", "DB00002") and len(set(graph.node_names)) == 4_267
    assert graph.x is None and not graph.is_directed


@pytest.mark.parametrize(
    ("name", "protocol", "file"),
    [
        ("pubmed-link", "heart", "linkpred/heart/pubmed/heart_valid_samples.npy"),
        ("cora-link", "original", "linkpred/heart/cora/train_pos.txt"),
        ("ogbl-ddi", "heart", "linkpred/heart/ogbl-ddi/heart_valid_samples.npy"),
    ],
)
def test_data_without_an_address_is_refused_with_its_source_and_alternatives(name, protocol, file, real_data):
    with pytest.raises(DownloadError) as caught:
        load_link_graph(name, protocol=protocol, root=real_data, download=False)
    message = str(caught.value)
    assert f"put it at: {real_data}/{file}" in message
    assert "HeaRT-Data/dataset.tar.gz" in message and "--data.protocol" in message
    assert len(message.splitlines()) <= 6


def copy_planetoid(real_data, root, name, folder):
    (root / "planetoid").mkdir(parents=True, exist_ok=True)
    (root / "planetoid" / folder).symlink_to(real_data / "planetoid" / folder)
    target = root / "linkpred" / "heart" / name
    target.mkdir(parents=True)
    return target


def write_pairs(path, pairs):
    path.write_text("".join(f"{u}\t{v}\n" for u, v in pairs.tolist()))


def test_negatives_of_another_split_are_named_by_their_row(tmp_path):
    positive, path = torch.tensor([[0, 1], [2, 3], [4, 5]]), tmp_path / "heart.npy"
    negative = np.array([[[0, 5], [4, 1]], [[2, 5], [0, 3]], [[4, 1], [0, 5]]])
    np.save(path, negative)
    assert read_heart(path, positive).negative.tolist() == negative.tolist()
    negative[1, 1] = 3, 0  # the end is at the other position
    np.save(path, negative)
    with pytest.raises(DataError, match=r"row 1 has a pair without an end of link \(2, 3\)"):
        read_heart(path, positive)


def test_cora_files_put_by_hand(real_data, tmp_path, offline):
    """The published split of Cora is not available here, so files of its form are made from the graph."""
    folder = copy_planetoid(real_data, tmp_path, "cora", "Cora")
    ours = load_link_graph("cora-link", root=real_data)
    write_pairs(folder / "train_pos.txt", torch.cat([ours.train, torch.tensor([[7, 7]])]))
    for split in ("valid", "test"):
        part = getattr(ours, split)
        write_pairs(folder / f"{split}_pos.txt", part.positive)
        write_pairs(folder / f"{split}_neg.txt", part.negative)
        own = part.positive[:, None].repeat(1, 500, 1)
        own[:, :250, 1] = (own[:, :250, 0] + torch.arange(1, 251)) % 2708
        own[:, 250:, 0] = (own[:, 250:, 1] + torch.arange(1, 251)) % 2708
        np.save(folder / f"heart_{split}_samples.npy", own.numpy())
    original = load_link_graph("cora-link", protocol="original", root=tmp_path)
    assert torch.equal(original.train, ours.train) and torch.equal(original.test.negative, ours.test.negative)
    heart = load_link_graph("cora-link", protocol="heart", root=tmp_path)
    assert heart.test.negative.shape == (527, 500, 2) and heart.metric == "mrr"

    np.save(folder / "heart_test_samples.npy", heart.test.negative.numpy()[::-1])
    with pytest.raises(DataError, match="without an end of link .*another split"):
        load_link_graph("cora-link", protocol="heart", root=tmp_path)
    np.save(folder / "heart_test_samples.npy", heart.test.negative.numpy()[:-1])
    with pytest.raises(DataError, match=r"expected an array \[527, K, 2\]"):
        load_link_graph("cora-link", protocol="heart", root=tmp_path)
    (folder / "heart_test_samples.npy").write_bytes(b"\x93NUMPY\x01\x00")
    with pytest.raises(DataError, match="not a readable .npy file"):
        load_link_graph("cora-link", protocol="heart", root=tmp_path)

    moved = ours.train.clone()
    moved[0] = ours.test.negative[0]
    write_pairs(folder / "train_pos.txt", moved)
    with pytest.raises(DataError, match="not a split of cora-link: 5,278 links, 5,277 of them among"):
        load_link_graph("cora-link", protocol="original", root=tmp_path)
    (folder / "train_pos.txt").write_text("1\t2\n3\n")
    with pytest.raises(DataError, match=r"train_pos.txt: not pairs of node numbers"):
        load_link_graph("cora-link", protocol="original", root=tmp_path)


def test_other_content_is_refused(real_data, tmp_path, offline):
    folder = copy_planetoid(real_data, tmp_path, "citeseer", "CiteSeer")
    for file in (real_data / "linkpred" / "heart" / "citeseer").iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    assert load_link_graph("citeseer-link", root=tmp_path).num_nodes == 3_327
    lines = (folder / "test_neg.txt").read_text().splitlines()
    (folder / "test_neg.txt").write_text("\n".join(lines[::-1]) + "\n")
    with pytest.raises(DataError, match=r"test_neg.txt: content differs from citeseer-link"):
        load_link_graph("citeseer-link", root=tmp_path)


def test_counts_are_checked(real_data, offline, monkeypatch):
    source = find_link_source("cora-link")
    other = table.replace(source, counts=table.replace(source.counts, features=9, valid=262))
    monkeypatch.setattr(load, "find_link_source", lambda name: other)
    with pytest.raises(DataError) as caught:
        load_link_graph("cora-link", root=real_data)
    assert "features 1,433, not 9; validation links 263, not 262" in str(caught.value)
