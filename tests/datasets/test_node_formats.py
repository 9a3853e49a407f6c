"""Readers on small files of each format, compared with the values that were written."""

import gzip
import logging
import pickle

import numpy as np
import pytest
import torch
from helpers import node_formats
from sklearn.feature_extraction.text import TfidfVectorizer

from graphzoo.datasets import DataError, load_node_graph
from graphzoo.datasets.files import cache as cache_module
from graphzoo.datasets.node import ogb as ogb_module
from graphzoo.datasets.node.points import NEWSGROUPS


@pytest.fixture(autouse=True)
def small(monkeypatch):
    node_formats.accept_small_files(monkeypatch)
    monkeypatch.setenv("GRAPHZOO_OFFLINE", "1")


def both_ways(edges):
    return {tuple(edge) for edge in np.concatenate([edges, edges[::-1]], axis=1).T.tolist()}


def pairs(graph):
    return {tuple(edge) for edge in graph.edge_index.t().tolist()}


@pytest.mark.parametrize(("name", "kind"), [("ogbn-arxiv", "arxiv"), ("amazon2m", "products")])
def test_ogb_with_features(name, kind, tmp_path):
    tables = node_formats.write_ogb(tmp_path / "ogb" / f"ogbn_{kind}", kind)
    graph = load_node_graph(name, root=tmp_path)
    assert pairs(graph) == both_ways(tables["raw/edge"].T)
    np.testing.assert_array_equal(graph.x.numpy(), tables["raw/node-feat"].astype(np.float32))
    assert graph.y.tolist() == tables["raw/node-label"][:, 0].tolist()
    assert graph.class_names == ("0", "1", "2")
    if kind == "arxiv":
        split = graph.split()
        assert split.name == "ogb"
        for part in ("train", "valid", "test"):
            assert split.nodes(part).tolist() == sorted(tables[f"split/time/{part}"][:, 0].tolist())
    else:
        # Amazon2M is ogbn-products under random splits
        assert graph.splits == {} and graph.split().name == "random-50-25-25"


def test_features_of_ogb_proteins_are_means_over_edges(tmp_path):
    tables = node_formats.write_ogb(tmp_path / "ogb" / "ogbn_proteins", "proteins")
    graph = load_node_graph("ogbn-proteins", root=tmp_path)
    edges, weights = tables["raw/edge"], tables["raw/edge-feat"]
    expected = np.stack([weights[(edges == node).any(1)].mean(0) for node in range(40)])
    np.testing.assert_allclose(graph.x.numpy(), expected, rtol=1e-6)
    assert graph.is_multi_label and graph.spec.is_multi_label and graph.num_classes == 4
    assert graph.y.tolist() == tables["raw/node-label"].tolist()
    assert graph.metric == "roc_auc"


def test_ogb_names_of_classes(tmp_path, caplog):
    folder = tmp_path / "ogb" / "ogbn_arxiv"
    node_formats.write_ogb(folder, "arxiv")
    path = folder / "mapping" / "labelidx2arxivcategeory.csv.gz"
    path.parent.mkdir()
    path.write_bytes(
        gzip.compress(b"label idx,arxiv category\n0,arxiv cs na\n1,arxiv cs mm\n2,arxiv cs lo\n")
    )
    named = load_node_graph("ogbn-arxiv", root=tmp_path)
    assert named.class_names == ("arxiv cs na", "arxiv cs mm", "arxiv cs lo")
    path.write_bytes(gzip.compress(b"label idx,arxiv category\n0,arxiv cs na\n"))
    with caplog.at_level(logging.WARNING):
        assert load_node_graph("ogbn-arxiv", root=tmp_path).class_names == ("0", "1", "2")
    assert "1 different names for 3 classes" in caplog.text


@pytest.mark.parametrize(
    ("file", "content", "problem"),
    [
        ("raw/edge", b"0,1\n1,2\n", "2 rows, expected 40"),
        ("raw/node-feat", b"1,2\n3,x\n", "not a readable table"),
        ("raw/node-feat", b"1,2\n3\n", "not a readable table"),
        ("raw/node-label", b"1\n" * 39, "39 rows, expected 40"),
        ("split/time/train", b"0\nnan\n", "1 values are missing"),
        ("split/time/train", b"0\n40\n", "has node 40"),
        ("split/time/train", b"0\n0\n", "node 0 occurs in train and train"),
        ("raw/edge", b"0,40\n" * 40, "but there are 40 nodes"),
    ],
)
def test_wrong_ogb_files_are_refused(tmp_path, file, content, problem):
    folder = tmp_path / "ogb" / "ogbn_arxiv"
    node_formats.write_ogb(folder, "arxiv")
    (folder / f"{file}.csv.gz").write_bytes(gzip.compress(content))
    with pytest.raises(DataError, match=problem):
        load_node_graph("ogbn-arxiv", root=tmp_path)


@pytest.mark.parametrize(("keep", "rest"), [(0, b""), (10, b""), (60, b""), (10, b"\x07" + bytes(100))])
def test_a_damaged_table_is_refused(tmp_path, keep, rest):
    """With 7 begins a block of a kind that gzip does not have."""
    folder = tmp_path / "ogb" / "ogbn_arxiv"
    node_formats.write_ogb(folder, "arxiv")
    path = folder / "raw" / "node-feat.csv.gz"
    path.write_bytes(path.read_bytes()[:keep] + rest)
    with pytest.raises(DataError, match="node-feat.csv.gz: not a readable table"):
        load_node_graph("ogbn-arxiv", root=tmp_path)


def test_ogb_data_are_loaded_without_prompt_and_pickle(tmp_path, monkeypatch):
    node_formats.write_ogb(tmp_path / "ogb" / "ogbn_arxiv", "arxiv")

    def forbidden(*args, **kwargs):
        raise AssertionError("called")

    monkeypatch.setattr("builtins.input", forbidden)
    monkeypatch.setattr(torch, "load", forbidden)
    monkeypatch.setattr(pickle, "load", forbidden)
    assert load_node_graph("ogbn-arxiv", root=tmp_path).num_nodes == 40


def test_pokec(tmp_path):
    node_formats.write_pokec(tmp_path / "pokec")
    graph = load_node_graph("pokec", root=tmp_path)
    assert pairs(graph) == both_ways(node_formats.ring(40))
    assert graph.y.tolist() == [-1] * 4 + [0, 1] * 18
    assert torch.equal(graph.x, torch.eye(40, 5))
    split = graph.split()
    assert split.name == "random-10-10-80"
    # only the 36 labelled nodes
    assert [split.nodes(part).numel() for part in ("train", "valid", "test")] == [3, 3, 30]
    (tmp_path / "pokec" / "pokec.mat").write_bytes(b"MATLAB 5.0 MAT-file" + b"\0" * 200)
    with pytest.raises(DataError, match="pokec.mat: not a readable MATLAB file"):
        load_node_graph("pokec", root=tmp_path)


def test_newsgroups_have_the_ten_groups_of_nodeformer(tmp_path):
    node_formats.write_newsgroups(tmp_path / "20news")
    graph = load_node_graph("20news", root=tmp_path)
    assert graph.num_nodes == 80 and graph.class_names == NEWSGROUPS
    assert graph.y.bincount().tolist() == [8] * 10
    assert graph.node_names[0] == "train/alt.atheism/7"
    # sorted as numbers, not as text
    assert [name.rpartition("/")[2] for name in graph.node_names[:4]] == ["7", "17", "27", "37"]
    assert graph.node_names[40] == "test/alt.atheism/7"
    texts = []
    for name in graph.node_names:
        _, group, number = name.split("/")
        word = group.replace(".", "")
        texts.append(f"From: someone\n\nthe weather {word} {word} caf\xe9 {int(number) // 10 * 'sunny '}")
    expected = TfidfVectorizer(stop_words="english", min_df=0.05, smooth_idf=False).fit_transform(texts)
    np.testing.assert_allclose(graph.x.numpy(), expected.toarray(), atol=1e-6)


def test_newsgroups_without_a_graph_and_with_more_neighbours(tmp_path):
    node_formats.write_newsgroups(tmp_path / "20news")
    sizes = [load_node_graph("20news", root=tmp_path, num_neighbors=k).num_edges for k in (0, 1, None, 5, 10)]
    # one neighbour is the node itself
    assert sizes[:2] == [0, 0]
    assert 80 * 4 <= sizes[2] == sizes[3] <= 80 * 8 and sizes[4] > sizes[3]


def test_damaged_newsgroups_are_refused(tmp_path):
    node_formats.write_newsgroups(tmp_path / "20news")
    path = tmp_path / "20news" / "20news-bydate.tar.gz"
    data = path.read_bytes()
    for place in range(100, len(data) - 8, len(data) // 8):
        path.write_bytes(data[:place] + bytes(20) + data[place + 20 :])
        with pytest.raises(DataError, match="20news-bydate.tar.gz: not a readable archive"):
            load_node_graph("20news", root=tmp_path)


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_mini_imagenet_pickle(tmp_path, protocol):
    node_formats.write_mini_imagenet(tmp_path / "mini-imagenet", protocol)
    content = node_formats.mini_imagenet()
    graph = load_node_graph("mini-imagenet", root=tmp_path)
    x = torch.cat([content[f"x_{part}"] for part in ("train", "val", "test")])
    assert torch.equal(graph.x, x)
    assert graph.class_names == ("64", "65", "66") and graph.y.tolist() == [0, 1, 2] * 10


def test_mini_imagenet_npz_and_a_pickle_that_is_refused(tmp_path):
    folder = tmp_path / "mini-imagenet"
    folder.mkdir()
    x = np.arange(24, dtype=np.float32).reshape(12, 2)
    np.savez(folder / "mini_imagenet.npz", x=x, y=np.arange(12) % 2)
    graph = load_node_graph("mini-imagenet", root=tmp_path)
    assert graph.x.tolist() == x.tolist()
    # on a line, the two nearest points are the two next to it
    assert {2, 4} <= {target for source, target in pairs(graph) if source == 3}
    np.savez(folder / "mini_imagenet.npz", x=x)
    with pytest.raises(DataError, match="mini_imagenet.npz: not an .npz file with x and y"):
        load_node_graph("mini-imagenet", root=tmp_path)

    class Hostile:
        def __reduce__(self):
            return print, ("run",)

    (folder / "mini_imagenet.pkl").write_bytes(pickle.dumps({"x_train": Hostile()}))
    with pytest.raises(DataError, match=r"it asks for builtins.print, which is not data"):
        load_node_graph("mini-imagenet", root=tmp_path)
    (folder / "mini_imagenet.pkl").write_bytes(pickle.dumps({"x_train": np.zeros(3)}))
    with pytest.raises(DataError, match="expected x_train"):
        load_node_graph("mini-imagenet", root=tmp_path)


def test_a_missing_mini_imagenet_is_refused_with_its_source(tmp_path):
    with pytest.raises(DataError) as caught:
        load_node_graph("mini-imagenet", root=tmp_path)
    message = str(caught.value)
    assert "qitianwu/NodeFormer" in message and len(message.splitlines()) <= 6
    assert f"{tmp_path}/mini-imagenet/mini_imagenet.pkl (or .npz)" in message


def test_a_parsed_graph_is_cached(tmp_path, own_cache, monkeypatch):
    monkeypatch.setattr(cache_module, "_MIN_BYTES", 0)
    node_formats.write_ogb(tmp_path / "ogb" / "ogbn_arxiv", "arxiv")
    first = load_node_graph("ogbn-arxiv", root=tmp_path)
    (entry,) = (own_cache / "parsed").glob("*.npz")

    def no_parsing(*args):
        raise AssertionError("parsed again")

    with monkeypatch.context() as patch:
        patch.setattr(ogb_module, "read_ogb", no_parsing)
        again = load_node_graph("ogbn-arxiv", root=tmp_path)
    assert again.fingerprint == first.fingerprint
    assert again.split().fingerprint == first.split().fingerprint and again.metric == first.metric
    # a damaged entry is replaced; other files have another entry
    entry.write_bytes(entry.read_bytes()[:-40])
    with pytest.warns(UserWarning, match="cached data rebuilt"):
        assert load_node_graph("ogbn-arxiv", root=tmp_path).fingerprint == first.fingerprint
    node_formats.write_ogb(tmp_path / "ogb" / "ogbn_arxiv", "arxiv", num_nodes=44)
    assert load_node_graph("ogbn-arxiv", root=tmp_path).num_nodes == 44
    assert len(list((own_cache / "parsed").glob("*.npz"))) == 2


def test_files_that_cannot_be_parsed_are_not_cached(tmp_path, own_cache, monkeypatch):
    monkeypatch.setattr(cache_module, "_MIN_BYTES", 0)
    folder = tmp_path / "ogb" / "ogbn_arxiv"
    node_formats.write_ogb(folder, "arxiv")
    path = folder / "raw" / "node-feat.csv.gz"
    whole = path.read_bytes()
    path.write_bytes(whole[:60])
    with pytest.raises(DataError):
        load_node_graph("ogbn-arxiv", root=tmp_path)
    assert not list((own_cache / "parsed").glob("*.npz"))
    path.write_bytes(whole)
    assert load_node_graph("ogbn-arxiv", root=tmp_path).num_nodes == 40
