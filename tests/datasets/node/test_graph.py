"""`NodeGraph`: refusals, fingerprint, file."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphzoo.datasets import DataError, NodeGraph, NodeSplit
from graphzoo.datasets.node.build import tidy_edges
from graphzoo.datasets.node.feature_arrays import csr_tensor, pack_features
from graphzoo.system.units import counted
from graphzoo.types import GraphSpec


def graph_of(**changes):
    values = {
        "name": "toy",
        "x": torch.tensor([[1.0, 0], [0, 2], [3, 3], [0, 0]]),
        "edge_index": torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]),
        "y": torch.tensor([0, 1, 0, -1]),
        "class_names": ("a", "b"),
        "splits": {
            "public": (NodeSplit("public", 0, torch.tensor([0]), torch.tensor([1]), torch.tensor([2])),)
        },
    }
    return NodeGraph(**(values | changes))


def sparse(dense):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return dense.to_sparse_csr()


def test_counts_and_spec():
    graph = graph_of()
    assert graph.spec == GraphSpec(num_nodes=4, in_channels=2, num_classes=2)
    assert (graph.num_nodes, graph.num_edges, graph.num_classes, graph.is_multi_label) == (4, 4, 2, False)
    assert "4 nodes, 4 edges, 2 features, 2 classes" in repr(graph)
    many = graph_of(y=torch.tensor([[0, 1.0]] * 4), splits={})
    assert many.spec == GraphSpec(num_nodes=4, in_channels=2, num_classes=2, is_multi_label=True)
    unknown = graph_of(y=torch.full((4,), -1), class_names=(), splits={})
    assert unknown.spec.num_classes == 0


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"x": torch.zeros(4, 2, dtype=torch.float64)}, "float32"),
        ({"x": torch.zeros(4)}, r"\[N, F\]"),
        ({"edge_index": torch.zeros(3, 2, dtype=torch.int64)}, r"\[2, E\]"),
        ({"edge_index": torch.zeros(2, 2)}, "int64"),
        ({"edge_index": torch.tensor([[0], [4]])}, "node 4, but there are 4 nodes"),
        ({"edge_index": torch.tensor([[0], [-1]])}, "node -1"),
        ({"y": torch.zeros(3, dtype=torch.int64)}, "y must be"),
        ({"y": torch.zeros(4)}, "y must be"),
        ({"y": torch.tensor([0, 1, 2, 0])}, "3 classes or labels, but class_names has 2"),
        ({"y": torch.zeros(4, 3), "splits": {}}, "3 classes or labels, but class_names has 2"),
        ({"node_names": ("a", "b")}, "2 node names for 4 nodes"),
        ({"node_names": ("a", "b", "c", "b")}, "nodes 1 and 3 are both called 'b'\nGive each"),
        ({"metric": "f1"}, "accuracy, roc_auc"),
        (
            {"splits": {"s": (NodeSplit("s", 0, torch.tensor([9]), torch.tensor([1]), torch.tensor([2])),)}},
            "has node 9",
        ),
        (
            {"splits": {"s": (NodeSplit("s", 0, torch.tensor([3]), torch.tensor([1]), torch.tensor([2])),)}},
            "node 3 of train has no label",
        ),
    ],
)
def test_wrong_parts_are_refused(changes, problem):
    with pytest.raises(DataError, match=problem):
        graph_of(**changes)


def test_splits_by_name():
    graph = graph_of()
    assert graph.split() is graph.split("public", 0)
    assert graph_of(splits={}, y=torch.arange(4) % 2).split().name == "random-50-25-25"
    assert graph_of(default_split="random-10-10-80", y=torch.arange(4) % 2, splits={}).default_split.endswith(
        "80"
    )
    large = graph_of(
        x=torch.zeros(100, 2), y=torch.arange(100) % 2, default_split="random-10-10-80", splits={}
    )
    assert large.split(index=7).test.numel() == 80
    assert large.split("random-2.5-2.5-95").test.numel() == 96
    with pytest.raises(ValueError, match="indices 0..0, got 1"):
        graph.split("public", 1)
    with pytest.raises(ValueError, match="Did you mean: public"):
        graph.split("publik")
    with pytest.raises(ValueError, match="random-50-25-25"):
        graph.split("zzz")
    with pytest.raises(ValueError, match="with sum 100"):
        large.split("random-50-50-25")


def test_the_fingerprint_covers_content_and_not_splits_or_the_name():
    graph = graph_of()
    for same in ({"name": "other"}, {"splits": {}}, {"metric": "roc_auc"}):
        assert replace(graph, fingerprint="", **same).fingerprint == graph.fingerprint
    others = [
        {"x": graph.x + 1},
        {"x": sparse(graph.x)},
        {"edge_index": graph.edge_index[:, :2]},
        {"y": torch.tensor([0, 1, 1, -1])},
        {"class_names": ("a", "c")},
        {"node_names": ("0", "1", "2", "3")},
    ]
    found = {replace(graph, fingerprint="", **change).fingerprint for change in others}
    assert len(found) == len(others) and graph.fingerprint not in found


def test_known_fingerprints():
    """Checkpoints of earlier versions compare theirs with these."""
    assert graph_of().fingerprint.startswith("d250fc3ebe5f38ea")
    many = graph_of(
        x=sparse(graph_of().x), y=torch.tensor([[0, 1.0]] * 4), splits={}, node_names=("a", "b", "c", "é")
    )
    assert many.fingerprint.startswith("a2be1f2116f4d96d")


def test_only_mostly_empty_features_are_stored_as_a_list():
    assert pack_features(torch.ones(3, 2))[1]["layout"] == "dense"
    assert pack_features(torch.zeros(3, 0))[1]["layout"] == "dense"
    assert pack_features(torch.eye(20))[1]["layout"] == "listed"


@pytest.mark.parametrize("kind", ["dense", "thin", "csr", "multi", "named", "bare"])
def test_file_round_trip(tmp_path, kind):
    x = torch.zeros(50, 40)
    x[3, 7], x[49, 39], x[0, 0] = 1.5, -2.0, -0.0
    graph = {
        "dense": graph_of(),
        "thin": graph_of(x=x, y=torch.arange(50) % 2),
        "csr": graph_of(x=sparse(x), y=torch.arange(50) % 2),
        "multi": graph_of(y=torch.tensor([[0, 1], [1, float("nan")], [0, 0], [1, 1]]), metric="roc_auc"),
        "named": graph_of(
            node_names=("ä", "b\nc", "", "d,e"), class_names=("ü", "\t"), feature_names=("ß", "b")
        ),
        "bare": graph_of(
            edge_index=torch.empty(2, 0, dtype=torch.int64), y=torch.full((4,), -1), class_names=(), splits={}
        ),
    }[kind]
    path = tmp_path / "deep" / "graph.npz"
    graph.save(path)
    found = NodeGraph.load(path)
    assert found.fingerprint == graph.fingerprint
    assert found.x.layout == graph.x.layout and torch.equal(found.x.to_dense(), graph.x.to_dense())
    assert torch.equal(found.edge_index, graph.edge_index)
    assert torch.equal(found.y.nan_to_num(-7), graph.y.nan_to_num(-7))
    for field in ("name", "class_names", "node_names", "feature_names", "metric", "default_split"):
        assert getattr(found, field) == getattr(graph, field)
    assert {name: [split.fingerprint for split in group] for name, group in found.splits.items()} == {
        name: [split.fingerprint for split in group] for name, group in graph.splits.items()
    }
    assert [entry.name for entry in path.parent.iterdir()] == ["graph.npz"]
    if kind == "thin":
        # 2,000 features, three of which are not zero
        assert path.stat().st_size < 8_000


def test_every_flipped_byte_is_detected_or_harmless(tmp_path):
    path = tmp_path / "graph.npz"
    graph = graph_of()
    graph.save(path)
    data = path.read_bytes()
    refused = 0
    for position in range(0, len(data), 7):
        path.write_bytes(data[:position] + bytes([data[position] ^ 0x20]) + data[position + 1 :])
        try:
            found = NodeGraph.load(path)
        except DataError as error:
            refused += 1
            assert str(path) in str(error)
        else:
            assert found.fingerprint == graph.fingerprint
    assert refused > len(data) // 7 / 2


def test_content_with_another_fingerprint_is_refused(tmp_path):
    path = tmp_path / "graph.npz"
    graph_of().save(path)
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    np.savez(path, **(arrays | {"y": 1 - np.abs(arrays["y"])}))
    with pytest.raises(DataError, match="does not match its fingerprint"):
        NodeGraph.load(path)
    meta = arrays["meta"].tobytes().replace(b'"format": 1', b'"format": 9')
    np.savez(path, **(arrays | {"meta": np.frombuffer(meta, dtype=np.uint8)}))
    with pytest.raises(DataError, match="format 9, this version reads 1"):
        NodeGraph.load(path)


@pytest.mark.parametrize("keep", [0, 1, 100, -1])
def test_a_truncated_file_is_refused(tmp_path, keep):
    path = tmp_path / "graph.npz"
    graph_of().save(path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(DataError, match="write it again"):
        NodeGraph.load(path)


def test_missing_and_other_files_are_refused(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        NodeGraph.load(tmp_path / "none.npz")
    np.savez(tmp_path / "other.npz", a=np.zeros(3))
    with pytest.raises(DataError, match="not a readable graph file"):
        NodeGraph.load(tmp_path / "other.npz")


def test_a_failed_write_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "graph.npz"
    graph_of().save(path)
    before = path.read_bytes()

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="No space"):
        graph_of(name="other").save(path)
    assert path.read_bytes() == before and len(list(tmp_path.iterdir())) == 1


@given(st.data())
def test_tidy_edges_is_the_set_of_edges(data):
    num_nodes = data.draw(st.integers(1, 9))
    node = st.integers(0, num_nodes - 1)
    edges = data.draw(st.lists(st.tuples(node, node), max_size=30))
    edge_index = torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).t()
    kept = {edge for edge in edges if edge[0] != edge[1]}
    one_way, notices = tidy_edges(edge_index, num_nodes, undirected=False)
    assert [tuple(edge) for edge in one_way.t().tolist()] == sorted(kept)
    both, _ = tidy_edges(edge_index, num_nodes)
    assert [tuple(edge) for edge in both.t().tolist()] == sorted(kept | {(v, u) for u, v in kept})
    loops = sum(u == v for u, v in edges)
    repeated = len(edges) - loops - len(kept)
    expected = [f"{counted(loops, 'self-loop')} dropped"] * bool(loops)
    expected += [f"{counted(repeated, 'repeated edge')} dropped"] * bool(repeated)
    assert notices == expected


def test_tidy_edges_names_the_edge():
    with pytest.raises(DataError, match=r"edge 1 is \(3, 5\), but there are 5 nodes \(0..4\); 2 such edges"):
        tidy_edges(torch.tensor([[0, 3, -1], [1, 5, 2]]), 5)


def test_csr_tensor_is_checked_and_gives_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = csr_tensor(torch.tensor([0, 1, 1]), torch.tensor([2]), torch.tensor([1.0]), (2, 3))
    assert found.to_dense().tolist() == [[0, 0, 1], [0, 0, 0]]
    with pytest.raises(RuntimeError):
        csr_tensor(torch.tensor([0, 1, 1]), torch.tensor([3]), torch.tensor([1.0]), (2, 3))
