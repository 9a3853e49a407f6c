"""The table of node data; if GRAPHZOO_DATA is set, all graphs there, compared with PyG and raw files."""

import gzip
import hashlib
import json
import re
import shutil
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from graphzoo.datasets import DataError, find_node_source, knn_graph, list_node_graphs, load_node_graph
from graphzoo.datasets.files import cache as cache_module
from graphzoo.datasets.node import load, readers
from graphzoo.datasets.node.unpickle import read_pickled_array

PLANETOID = {"cora": "Cora", "citeseer": "CiteSeer", "pubmed": "PubMed"}
# name: nodes, edges in both directions, features, classes; default split and its sizes; fixed splits
REAL = {
    "cora": (2708, 10_556, 1433, 7, "public", (140, 500, 1000), {"public": 1, "geom-gcn": 10}),
    "citeseer": (3327, 9_104, 3703, 6, "public", (120, 500, 1000), {"public": 1, "geom-gcn": 10}),
    "pubmed": (19_717, 88_648, 500, 3, "public", (60, 500, 1000), {"public": 1, "geom-gcn": 10}),
    "squirrel": (2223, 2 * 46_998, 2089, 5, "public", None, {"public": 10}),
    "chameleon": (890, 2 * 8_854, 2325, 5, "public", None, {"public": 10}),
    "actor": (7600, 53_318, 932, 5, "geom-gcn", (3648, 2432, 1520), {"geom-gcn": 10}),
    "deezer": (28_281, 2 * 92_752, 31_241, 2, "linkx", (14_140, 7_070, 7_071), {"linkx": 5}),
    "tolokers": (11_758, 1_038_000, 10, 2, "public", None, {"public": 10}),
}
METRICS = dict.fromkeys(("deezer", "tolokers", "ogbn-proteins"), "roc_auc")


def as_set(edge_index):
    return {tuple(edge) for edge in edge_index.t().tolist()}


def test_the_table_has_the_documented_names():
    assert list_node_graphs() == [
        *REAL,
        *("ogbn-arxiv", "ogbn-proteins", "pokec", "amazon2m", "digits", "20news", "mini-imagenet"),
    ]


@pytest.mark.parametrize("name", list_node_graphs())
def test_rows_are_complete(name):
    source = find_node_source(name)
    assert source.citation and source.licence and source.counts.nodes > 0
    assert source.metric == METRICS.get(name, "accuracy")
    for file in source.files:
        sha256, num_bytes = source.facts(file)
        if name in REAL or name == "20news":
            assert re.fullmatch("[0-9a-f]{64}", sha256) and num_bytes > 0
        else:
            assert sha256 is None
        assert all(url.startswith(("https://", "http://")) for url in file.urls)
        # a file without a hash must have at most one address, or be in an archive
        assert sha256 or source.archive or len(file.urls) <= 1


def test_spellings_of_names_and_suggestions():
    assert find_node_source("OGBN_Arxiv").name == "ogbn-arxiv"
    with pytest.raises(ValueError, match="citeseer"):
        find_node_source("citeser")
    with pytest.raises(ValueError, match="of your own"):
        find_node_source("zzz")


@pytest.mark.parametrize("name", REAL)
def test_real_graph(name, real_data, monkeypatch):
    """Loading verifies hashes; published data must give no warning."""
    monkeypatch.setenv("GRAPHZOO_OFFLINE", "1")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graph = load_node_graph(name, root=real_data)
    nodes, edges, features, classes, default, sizes, splits = REAL[name]
    assert (graph.num_nodes, graph.num_edges) == (nodes, edges)
    assert (graph.x.size(1), graph.num_classes) == (features, classes)
    assert graph.metric == METRICS.get(name, "accuracy")
    # sorted, distinct, symmetric, no loops
    source, target = graph.edge_index
    keys = source * nodes + target
    assert bool((keys.diff() > 0).all()) and not bool((source == target).any())
    assert torch.equal((target * nodes + source).sort().values, keys)
    assert bool((graph.y >= 0).all()) and graph.y.unique().tolist() == list(range(classes))
    assert {key: len(group) for key, group in graph.splits.items()} == splits
    assert graph.split().name == default
    for group in graph.splits.values():
        assert len({split.fingerprint for split in group}) == len(group)
    if sizes:
        for split in graph.splits[default]:
            assert tuple(split.nodes(part).numel() for part in ("train", "valid", "test")) == sizes
    again = load_node_graph(name, root=real_data)
    assert again.fingerprint == graph.fingerprint and again.splits.keys() == graph.splits.keys()


@pytest.mark.parametrize("name", PLANETOID)
def test_planetoid_equals_pygs(name, real_data, tmp_path):
    from torch_geometric.datasets import Planetoid

    folder = PLANETOID[name]
    shutil.copytree(real_data / "planetoid" / folder / "raw", tmp_path / folder / "raw")
    data = Planetoid(str(tmp_path), folder)[0]
    graph = load_node_graph(name, root=real_data)
    assert torch.equal(graph.x, data.x) and torch.equal(graph.y, data.y)
    assert as_set(graph.edge_index) == as_set(data.edge_index)
    split = graph.split("public")
    for part, mask in (("train", data.train_mask), ("valid", data.val_mask), ("test", data.test_mask)):
        assert torch.equal(split.nodes(part), mask.nonzero().squeeze(1))
    for index, split in enumerate(graph.splits["geom-gcn"]):
        file = real_data / "planetoid" / folder / "geom-gcn-splits" / f"{name}_split_0.6_0.2_{index}.npz"
        with np.load(file) as masks:
            assert torch.equal(split.train, torch.from_numpy(np.flatnonzero(masks["train_mask"])))
            assert torch.equal(split.valid, torch.from_numpy(np.flatnonzero(masks["val_mask"])))
        covered = sum(split.nodes(part).numel() for part in ("train", "valid", "test"))
        # the published masks of Cora, and two of CiteSeer, cover the largest component only
        part = {("citeseer", 4): 2120, ("citeseer", 5): 2120}.get((name, index), graph.num_nodes)
        assert covered == (2485 if name == "cora" else part)


def test_actor_equals_pygs(real_data, tmp_path):
    from torch_geometric.datasets import Actor
    from torch_geometric.utils import remove_self_loops, to_undirected

    shutil.copytree(real_data / "actor" / "raw", tmp_path / "raw")
    data = Actor(str(tmp_path))[0]
    graph = load_node_graph("actor", root=real_data)
    assert torch.equal(graph.x, data.x) and torch.equal(graph.y, data.y)
    assert as_set(graph.edge_index) == as_set(to_undirected(remove_self_loops(data.edge_index)[0]))
    for index, split in enumerate(graph.splits["geom-gcn"]):
        assert torch.equal(split.test, data.test_mask[:, index].nonzero().squeeze(1))


def test_tolokers_equals_pygs(real_data, tmp_path):
    from torch_geometric.datasets import HeterophilousGraphDataset

    shutil.copytree(real_data / "heterophilous" / "tolokers", tmp_path / "tolokers")
    data = HeterophilousGraphDataset(str(tmp_path), "Tolokers")[0]
    graph = load_node_graph("tolokers", root=real_data)
    assert torch.equal(graph.x, data.x) and torch.equal(graph.y, data.y)
    keys = (data.edge_index[0] * graph.num_nodes + data.edge_index[1]).sort().values
    assert torch.equal(graph.edge_index[0] * graph.num_nodes + graph.edge_index[1], keys)
    for index, split in enumerate(graph.splits["public"]):
        assert torch.equal(split.valid, data.val_mask[:, index].nonzero().squeeze(1))


@pytest.mark.parametrize("name", ["squirrel", "chameleon"])
def test_filtered_graphs_equal_their_files(name, real_data):
    folder = f"{name}_filtered"
    graph = load_node_graph(name, root=real_data)
    with np.load(real_data / "heterophilous" / folder / "raw" / f"{folder}.npz") as file:
        edges, features, masks = file["edges"], file["node_features"], file["test_masks"]
    assert as_set(graph.edge_index) == {*map(tuple, edges.tolist()), *map(tuple, edges[:, ::-1].tolist())}
    assert np.array_equal(graph.x.numpy(), features.astype(np.float32))
    for split, mask in zip(graph.splits["public"], masks, strict=True):
        assert split.test.tolist() == np.flatnonzero(mask).tolist()


def test_deezer_stays_sparse(real_data):
    graph = load_node_graph("deezer", root=real_data)
    raw = real_data / "deezer_europe" / "raw"
    assert graph.x.layout == torch.sparse_csr and graph.x.values().numel() == 958_475
    assert bool((graph.x.values() == 1).all())
    liked = json.loads(gzip.open(raw / "deezer_europe_features.json.gz").read())
    start, column = graph.x.crow_indices(), graph.x.col_indices()
    for node in (0, 1, 777, 28_280):
        assert column[start[node] : start[node + 1]].tolist() == sorted(liked[str(node)])
    assert graph.y.bincount().tolist() == [15_743, 12_538]
    for split, given in zip(
        graph.splits["linkx"], read_pickled_array(raw / "deezer-europe-splits.npy"), strict=True
    ):
        assert torch.equal(split.train, torch.as_tensor(given["train"]).sort().values)


def test_digits_need_no_data_root_and_no_network(tmp_path, monkeypatch):
    monkeypatch.setenv("GRAPHZOO_OFFLINE", "1")
    graph = load_node_graph("digits", root=tmp_path / "nothing")
    assert (graph.num_nodes, graph.x.size(1), graph.num_classes) == (1797, 64, 10)
    assert 0 <= float(graph.x.min()) and float(graph.x.max()) == 1
    # four neighbours besides the point, in both directions
    assert 1797 * 4 <= graph.num_edges <= 1797 * 8
    same = graph.y[graph.edge_index[0]] == graph.y[graph.edge_index[1]]
    assert float(same.float().mean()) > 0.95
    assert load_node_graph("digits", num_neighbors=0).num_edges == 0
    assert load_node_graph("digits", num_neighbors=10).num_edges > graph.num_edges
    cosine = load_node_graph("digits", neighbor_metric="cosine")
    assert as_set(cosine.edge_index) != as_set(graph.edge_index)
    expected = knn_graph(graph.x, 5, "cosine")
    assert as_set(cosine.edge_index) == {
        edge for edge in as_set(expected) | as_set(expected.flip(0)) if edge[0] != edge[1]
    }
    assert not (tmp_path / "nothing").exists()
    with pytest.raises(ValueError, match="neighbor_metric must be one of euclidean, cosine"):
        load_node_graph("digits", neighbor_metric="l1")
    with pytest.raises(ValueError, match="at least 0"):
        load_node_graph("digits", num_neighbors=-1)
    with pytest.raises(ValueError, match="1..1797"):
        load_node_graph("digits", num_neighbors=2000)


@pytest.mark.parametrize("settings", [{"num_neighbors": 5}, {"neighbor_metric": "cosine"}])
def test_settings_of_nearest_neighbours_are_refused_for_data_with_a_graph(tmp_path, settings):
    with pytest.raises(ValueError, match="cora has a graph of its own"):
        load_node_graph("cora", root=tmp_path, **settings)


def test_a_read_only_root_is_never_written_to(real_data, own_cache, monkeypatch):
    monkeypatch.setattr(cache_module, "_MIN_BYTES", 0)
    before = {path: path.stat().st_mtime_ns for path in Path(real_data).rglob("*") if "kg" not in path.parts}
    load_node_graph("chameleon", root=real_data)
    after = {path: path.stat().st_mtime_ns for path in Path(real_data).rglob("*") if "kg" not in path.parts}
    assert before == after
    assert len(list((own_cache / "parsed").glob("*.npz"))) == 1


@pytest.fixture
def copy_of_chameleon(real_data, tmp_path):
    folder = tmp_path / "root" / "heterophilous" / "chameleon_filtered" / "raw"
    shutil.copytree(real_data / "heterophilous" / "chameleon_filtered" / "raw", folder)
    # the copy of a read-only folder is read-only
    folder.chmod(0o755)
    (folder / "chameleon_filtered.npz").chmod(0o644)
    return folder / "chameleon_filtered.npz"


def test_a_changed_file_is_refused_before_it_is_parsed(copy_of_chameleon, tmp_path, monkeypatch, own_cache):
    monkeypatch.setattr(cache_module, "_MIN_BYTES", 0)
    data = bytearray(copy_of_chameleon.read_bytes())
    data[5000] ^= 1
    copy_of_chameleon.write_bytes(data)

    def no_parsing(*args):
        raise AssertionError("parsed")

    monkeypatch.setattr(readers, "read_masked", no_parsing)
    with pytest.raises(DataError) as caught:
        load_node_graph("chameleon", root=tmp_path / "root")
    message = str(caught.value)
    assert str(copy_of_chameleon) in message and "content differs from chameleon" in message
    assert hashlib.sha256(data).hexdigest()[:16] in message and "delete it" in message
    assert not list((own_cache / "parsed").glob("*.npz"))


@pytest.mark.parametrize(
    "change", [{"nodes": 891}, {"edges": 5}, {"features": 7}, {"classes": 6}, {"listed": 1}]
)
def test_counts_are_checked(copy_of_chameleon, tmp_path, monkeypatch, change):
    source = find_node_source("chameleon")
    monkeypatch.setattr(
        load, "find_node_source", lambda name: replace(source, counts=replace(source.counts, **change))
    )
    with pytest.raises(DataError, match=rf"not chameleon: .* not {next(iter(change.values()))}"):
        load_node_graph("chameleon", root=tmp_path / "root")
