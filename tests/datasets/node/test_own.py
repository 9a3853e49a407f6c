"""Own graphs of nodes in PyG or .npz files."""

import os
import shutil
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from torch_geometric.data import Data

from graphzoo.datasets import (
    DataError,
    GraphzooDataWarning,
    node_graph_from_data,
    node_graph_from_files,
)
from graphzoo.datasets.files import cache as cache_module
from graphzoo.datasets.node import own as own_module
from graphzoo.datasets.node.arrays import checked_features

N = 12


def parts(**changes):
    draw = torch.Generator().manual_seed(0)
    nodes = torch.arange(N)
    values = {
        "x": torch.randn(N, 3, generator=draw),
        "edge_index": torch.stack([nodes, (nodes + 1) % N]),
        "y": nodes % 3,
        "train_mask": nodes < 6,
        "val_mask": (nodes >= 6) & (nodes < 9),
        "test_mask": nodes >= 9,
    }
    return {name: value for name, value in (values | changes).items() if value is not None}


def save(path, content):
    if path.suffix == ".npz":
        np.savez(path, **{name: np.asarray(value) for name, value in content.items()})
    else:
        torch.save(content, path)
    return path


@pytest.fixture(params=["graph.pt", "graph.npz"])
def path(request, tmp_path):
    return tmp_path / request.param


def refusal(path, **arguments):
    with pytest.raises(DataError) as caught:
        node_graph_from_files(path, **arguments)
    message = str(caught.value)
    assert str(path) in message and len(message.splitlines()) <= 6
    return message


def test_every_form_gives_the_same_graph(tmp_path):
    data = Data(**parts())
    forms = [
        save(tmp_path / "object.pt", data),
        save(tmp_path / "dict.pt", data.to_dict()),
        save(tmp_path / "dataset.pt", (data.to_dict(), None, Data)),
        save(tmp_path / "arrays.npz", data.to_dict()),
        save(
            tmp_path / "benchmark.npz",
            {
                "node_features": data.x,
                "node_labels": data.y,
                "edges": data.edge_index.t(),
                "train_masks": data.train_mask[None],
                "val_masks": data.val_mask[None],
                "test_masks": data.test_mask[None],
            },
        ),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graphs = [node_graph_from_files(form) for form in forms]
    assert [graph.name for graph in graphs] == ["object", "dict", "dataset", "arrays", "benchmark"]
    for graph in graphs:
        assert torch.equal(graph.x, data.x) and torch.equal(graph.y, data.y)
        # an edge listed once is stored in both directions
        assert graph.num_edges == 2 * N and graph.fingerprint == graphs[0].fingerprint
        assert graph.class_names == ("0", "1", "2") and graph.node_names == ()
        split = graph.split()
        assert split.name == "given" and split.fingerprint == graphs[0].split().fingerprint
        assert split.valid.tolist() == [6, 7, 8]
    graphs[0].save(tmp_path / "saved.npz")
    assert node_graph_from_files(tmp_path / "saved.npz").fingerprint == graphs[0].fingerprint


def test_loading_does_not_change_torchs_safe_globals(tmp_path):
    path = save(tmp_path / "object.pt", Data(**parts()))
    before = list(torch.serialization.get_safe_globals())
    assert Data in before
    node_graph_from_files(path)
    assert set(torch.serialization.get_safe_globals()) == set(before)


def test_directed_edges_are_kept(path):
    graph = node_graph_from_files(save(path, parts()), directed=True)
    assert torch.equal(graph.edge_index, parts()["edge_index"])


def test_several_splits(path):
    nodes = torch.arange(N)
    masks = {name: torch.stack([mask, mask.roll(3)], 1) for name, mask in parts().items() if "mask" in name}
    graph = node_graph_from_files(save(path, parts(**masks)))
    assert len(graph.splits["given"]) == 2
    assert graph.split(index=1).train.tolist() == nodes[3:9].tolist()


def test_without_masks_a_split_is_drawn(path):
    graph = node_graph_from_files(save(path, parts(train_mask=None, val_mask=None, test_mask=None)))
    assert graph.splits == {} and graph.split().name == "random-50-25-25"


def test_unknown_labels(path):
    y = torch.tensor([0, 1, -1] * 4)
    content = parts(y=y, train_mask=None, val_mask=None, test_mask=None)
    assert node_graph_from_files(save(path, content)).y.tolist() == y.tolist()
    floats = torch.where(y < 0, torch.nan, y.double())
    assert node_graph_from_files(save(path, content | {"y": floats})).y.tolist() == y.tolist()
    assert node_graph_from_files(save(path, content | {"y": y[:, None]})).y.tolist() == y.tolist()


def test_several_labels_per_node(path):
    y = torch.tensor([[0, 1, torch.nan], [1, 1, 0]] * 6)
    graph = node_graph_from_files(save(path, parts(y=y)))
    assert graph.is_multi_label and graph.num_classes == 3
    assert torch.equal(graph.y.isnan(), y.isnan())
    whole = torch.tensor([[0, 1], [1, 0]] * 6)
    assert node_graph_from_files(save(path, parts(y=whole))).y.dtype == torch.float32


def test_names_in_npz(tmp_path):
    content = parts(class_names=np.array(["a", "b", "c"]), node_names=np.array([f"n{i}" for i in range(N)]))
    graph = node_graph_from_files(save(tmp_path / "named.npz", content))
    assert graph.class_names == ("a", "b", "c") and graph.node_names[3] == "n3"
    words = parts(y=np.array(["dog", "cat", ""] * 4), train_mask=None, val_mask=None, test_mask=None)
    graph = node_graph_from_files(save(tmp_path / "words.npz", words))
    assert graph.class_names == ("cat", "dog") and graph.y.tolist() == [1, 0, -1] * 4
    graph = node_graph_from_files(tmp_path / "words.npz", class_names=("dog", "cow", "cat"))
    assert graph.y.tolist() == [0, 2, -1] * 4
    assert "y[1] is 'cat'" in refusal(tmp_path / "words.npz", class_names=("dog",))


def test_names_in_bytes_are_decoded(tmp_path):
    content = parts(
        class_names=np.array([b"u", b"v", b"w"]), node_names=np.array([f"n{i}".encode() for i in range(N)])
    )
    graph = node_graph_from_files(save(tmp_path / "bytes.npz", content))
    assert graph.class_names == ("u", "v", "w") and graph.node_names[3] == "n3"
    bare = node_graph_from_data(parts(), class_names=np.array([b"u", b"v", b"w"]))
    assert bare.class_names == graph.class_names
    words = save(tmp_path / "words.npz", parts(y=np.array(["v", "u", "w"] * 4)))
    assert node_graph_from_files(words, class_names=[b"u", b"v", b"w"]).class_names == graph.class_names
    (tmp_path / "nodes.csv").write_text("name,a,label\nx,1,v\ny,2,u\nz,3,w\n")
    (tmp_path / "edges.csv").write_text("source,target\nx,y\n")
    tables = node_graph_from_files(tmp_path, require_labels=False, class_names=[b"u", b"v", b"w"])
    assert tables.class_names == graph.class_names and tables.y.tolist() == [1, 0, 2]
    latin = parts(class_names=np.array([b"u", b"v", b"\xe9"]))
    assert r"the name b'\xe9' is not UTF-8; give" in refusal(save(tmp_path / "latin.npz", latin))


def test_labels_in_bytes_are_decoded():
    for y in (np.array([b"u", b"v", b"w"] * 4), np.array([b"u", "v", b"w"] * 4, dtype=object)):
        graph = node_graph_from_data(parts(y=y), class_names=[b"u", b"v", b"w"])
        assert graph.class_names == ("u", "v", "w") and graph.y[2] == 2


def test_masks_may_have_another_number_for_true():
    masks = {name: value.to(torch.uint8) * 255 for name, value in parts().items() if name.endswith("mask")}
    expected, found = (node_graph_from_data(parts(**changes)).split() for changes in ({}, masks))
    assert all(torch.equal(expected.nodes(part), found.nodes(part)) for part in ("train", "valid", "test"))


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float64, torch.int32, torch.bool])
def test_features_of_any_type_become_float32(tmp_path, kind):
    x = torch.arange(2 * N).reshape(N, 2).to(kind)
    graph = node_graph_from_files(save(tmp_path / "graph.pt", parts(x=x)))
    assert graph.x.dtype == torch.float32 and torch.equal(graph.x, x.float())


def test_values_that_become_equal_give_a_warning():
    x = torch.stack([1_700_000_000 + torch.arange(N), torch.arange(N)], dim=1)
    for values in (x, x.double()):
        with pytest.warns(GraphzooDataWarning, match="feature '0': different values become equal"):
            node_graph_from_data(parts(x=values))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        node_graph_from_data(parts(x=x - x.min(0).values))  # the remedy
        node_graph_from_data(parts(x=x.float()))  # the caller has rounded


def test_sparse_features(tmp_path):
    x = torch.zeros(N, 4)
    x[1, 2] = 5
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for sparse in (x.to_sparse_csr(), x.to_sparse_coo()):
            graph = node_graph_from_files(save(tmp_path / "graph.pt", parts(x=sparse)))
            assert graph.x.layout == torch.sparse_csr and torch.equal(graph.x.to_dense(), x)


def test_sparse_features_give_no_warning_of_torch():
    torch.set_warn_always(True)  # else torch says it once, perhaps in another test
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert checked_features(torch.eye(3).to_sparse(), "d").layout is torch.sparse_csr
    finally:
        torch.set_warn_always(False)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"x": None}, "no x; it has edge_index"),
        ({"edge_index": None}, "no edge_index"),
        ({"x": torch.zeros(N)}, "shape [nodes, features]"),
        ({"x": torch.zeros(N, 0)}, "shape [nodes, features]"),
        (
            {"x": torch.zeros(N, 2).index_put((torch.tensor(3), torch.tensor(1)), torch.tensor(torch.nan))},
            "x[3, 1] is nan",
        ),
        ({"x": torch.full((N, 1), 1e300, dtype=torch.float64)}, "x[0, 0] is 1e+300 (12 such values)"),
        (
            {"edge_index": torch.tensor([[0, 12], [1, 3]])},
            "edge 1 is (12, 3), but there are 12 nodes (0..11)",
        ),
        ({"edge_index": torch.tensor([[0], [-1]])}, "edge 0 is (0, -1)"),
        ({"edge_index": torch.zeros(5, 2, dtype=torch.int64)}, "transpose it"),
        ({"edge_index": torch.zeros(2, 5)}, "whole numbers of shape [2, edges]"),
        ({"y": torch.zeros(3)}, "y must be [12]"),
        ({"y": torch.arange(N) - 2}, "y[0] is -2"),
        ({"y": torch.arange(N) / 2}, "y[1] is 0.5"),
        ({"y": torch.tensor([0, 1, torch.inf] * 4)}, "y[2] is inf; number the classes 0, 1, 2, ..."),
        (
            {"y": torch.tensor([0, 1, 2.0**63] * 4, dtype=torch.float64)},
            "y[2] is 9.223372036854776e+18; number the classes",
        ),
        (
            {"y": torch.arange(N) + 10**12},
            "y[11] is 1000000000011: 1,000,000,000,012 classes for 12",
        ),
        ({"y": torch.full((N, 2), 0.5)}, "y[0, 0] is 0.5"),
        ({"y": torch.ones(N, dtype=torch.int64)}, "every labelled node is of class '1'"),
        ({"y": torch.tensor([[0.0, 1.0]] * N)}, "no label has both values 0 and 1"),
        ({"y": None, "train_mask": None, "val_mask": None, "test_mask": None}, "no node has a label"),
        (
            {"y": torch.full((N,), -1), "train_mask": None, "val_mask": None, "test_mask": None},
            "no node has a label",
        ),
        ({"y": torch.tensor([-1, 0, 1] * 4)}, "node 0 of train has no label (2 such nodes)"),
        ({"val_mask": None}, "train_mask without val_mask"),
        (
            {"train_mask": torch.tensor([0, 1, 2] * 4)},
            "train_mask must be true or false for each node, got 1, 2\n  make a mask of each part",
        ),
        ({"test_mask": torch.arange(N) >= 7}, "node 7 occurs in valid and test (2 such nodes)"),
        ({"test_mask": torch.zeros(N, dtype=torch.bool)}, "split 0 has no test nodes"),
        (
            {"test_mask": torch.zeros(5, dtype=torch.bool)},
            "test_mask must be true or false for each of the 12",
        ),
        (
            {"test_mask": torch.zeros(N, 2, dtype=torch.bool)},
            "train_mask, val_mask, test_mask have 1, 1, 2 splits",
        ),
    ],
)
def test_wrong_content_is_refused(path, changes, problem):
    assert problem in refusal(save(path, parts(**changes)))


@pytest.mark.parametrize("huge", [2**63, 2**64 - 1])
def test_labels_that_int64_cannot_hold_are_refused(huge):
    with pytest.raises(DataError, match=rf"y\[2\] is {huge}; number the classes 0, 1, 2, \.\.\."):
        node_graph_from_data(parts(y=np.array([0, 1, huge] * 4, dtype=np.uint64)))


def test_a_graph_to_predict_on_needs_no_labels(path):
    bare = parts(y=None, train_mask=None, val_mask=None, test_mask=None)
    graph = node_graph_from_files(save(path, bare), require_labels=False)
    assert graph.num_classes == 0 and graph.y.tolist() == [-1] * N and graph.spec.in_channels == 3
    graph = node_graph_from_files(path, require_labels=False, class_names=("a", "b"))
    assert graph.class_names == ("a", "b")
    one = parts(y=torch.ones(N, dtype=torch.int64), test_mask=torch.zeros(N, dtype=torch.bool))
    assert node_graph_from_files(save(path, one), require_labels=False).split().test.numel() == 0
    assert "y has class 1, but there are 1 class names" in refusal(
        path, require_labels=False, class_names=("a",)
    )


def test_dropped_edges_give_a_warning(path):
    edges = torch.tensor([[0, 0, 1, 2], [1, 1, 1, 0]])
    with pytest.warns(GraphzooDataWarning) as caught:
        graph = node_graph_from_files(save(path, parts(edge_index=edges)))
    assert [str(warning.message) for warning in caught] == [
        f"{path}: 1 self-loop dropped",
        f"{path}: 1 repeated edge dropped",
    ]
    assert graph.edge_index.tolist() == [[0, 0, 1, 2], [1, 2, 0, 0]]
    # the warning names the caller's line
    assert caught[0].filename == __file__


class Hostile:
    def __reduce__(self):
        return os.system, ("touch run",)


@pytest.mark.fault(
    "an own .pt file holds code", "refused; no code runs; the message says how to save plain tensors"
)
@pytest.mark.parametrize("place", ["entry", "whole", "attribute"])
def test_code_in_a_file_is_refused_with_a_remedy(tmp_path, monkeypatch, place):
    monkeypatch.chdir(tmp_path)
    data = Data(**parts())
    data.note = Hostile()
    content = {"entry": parts(note=Hostile()), "whole": Hostile(), "attribute": data}[place]
    message = refusal(save(tmp_path / "hostile.pt", content))
    assert "would run code" in message and "system" in message and "to_dict()" in message
    assert [entry.name for entry in tmp_path.iterdir() if entry.name != "cache"] == ["hostile.pt"]


@pytest.mark.fault("an own .npz file holds Python objects", "refused; the message says how to save strings")
def test_object_arrays_are_refused(tmp_path):
    path = tmp_path / "objects.npz"
    np.savez(path, **{**parts(), "y": np.array(["a", None] * 6, dtype=object)})
    assert "y has Python objects" in refusal(path) and "y.astype(str)" in refusal(path)


@pytest.mark.parametrize("content", [torch.zeros(3), [1, 2], {}])
def test_other_objects_are_refused(tmp_path, content):
    assert (
        "expected a PyG Data object" in (message := refusal(save(tmp_path / "a.pt", content)))
        or "no x" in message
    )


@pytest.mark.fault("an own .pt or .npz file is truncated", "refused by name")
@pytest.mark.parametrize("keep", [0, 10, 200, -5])
def test_truncated_files(path, keep):
    save(path, parts())
    path.write_bytes(path.read_bytes()[:keep])
    assert "not a readable" in refusal(path)


@pytest.mark.fault(
    "a small .npz or .pt file unpacks to gigabytes",
    "refused with both sizes before it is unpacked",
)
def test_an_archive_that_would_fill_the_memory(tmp_path):
    packed = tmp_path / "graph.npz"
    np.savez_compressed(packed, x=np.zeros((1 << 18, 100), np.float32), edge_index=np.zeros((2, 1)))
    assert "bytes unpack to 104," in refusal(packed)
    shutil.copy(packed, tmp_path / "graph.pt")
    assert "fill the memory" in refusal(tmp_path / "graph.pt")


def test_no_message_suggests_to_allow_pickle(tmp_path):
    path = tmp_path / "any.npz"
    path.write_bytes(bytes(range(7, 200)))
    message = refusal(path)
    assert "not a readable .npz file" in message and "numpy.savez" in message and "pickle" not in message


def test_wrong_paths_are_refused(tmp_path):
    for bad in (tmp_path / "none.pt", [tmp_path / "a.pt", tmp_path / "b.pt"]):
        with pytest.raises(DataError, match="no such file or folder"):
            node_graph_from_files(bad)
    one, other = save(tmp_path / "a.pt", parts()), save(tmp_path / "b.npz", parts())
    (tmp_path / "x.txt").write_text("")
    for bad in ([one, other], [], [tmp_path / "x.txt"], tmp_path / "x.txt"):
        with pytest.raises(DataError, match="expected a PyG Data file"):
            node_graph_from_files(bad)


def test_the_second_load_reads_the_cache(tmp_path, own_cache, monkeypatch):
    monkeypatch.setattr(cache_module, "_MIN_BYTES", 0)
    path = save(tmp_path / "graph.pt", parts(edge_index=torch.tensor([[0, 0], [1, 0]])))
    with pytest.warns(GraphzooDataWarning, match="1 self-loop"):
        first = node_graph_from_files(path)

    def no_parsing(*args):
        raise AssertionError("parsed again")

    with monkeypatch.context() as patch:
        patch.setattr(own_module, "graph_parts", no_parsing)
        with pytest.warns(GraphzooDataWarning, match="1 self-loop"):
            assert node_graph_from_files(str(path)).fingerprint == first.fingerprint
    node_graph_from_files(path, directed=True)
    assert len(list((own_cache / "parsed").glob("*.npz"))) == 2


def test_an_ignored_split_gives_a_warning(path):
    one_hot = torch.eye(3)[torch.arange(N) % 3]
    with pytest.warns(GraphzooDataWarning) as caught:
        graph = node_graph_from_files(save(path, parts(y=one_hot, train_idx=torch.arange(4))))
    told = [str(warning.message) for warning in caught]
    assert told[0].startswith(f"{path}: train_idx ignored; give the split as train_mask, val_mask, test_mask")
    assert "y has one 1 in every row" in told[1] and "y.argmax(1)" in told[1] and len(told) == 2
    assert graph.y.shape == (N, 3)


def test_other_ignored_parts_give_a_warning(path):
    more = {"edge_weight": torch.ones(N), "edge_time": torch.arange(N), "year": torch.arange(N)}
    with pytest.warns(GraphzooDataWarning) as caught:
        node_graph_from_files(save(path, parts(**more)))
    assert [str(warning.message) for warning in caught] == [
        f"{path}: edge_weight ignored: weights and types of edges are not used",
        f"{path}: edge_time, year ignored",
    ]


def test_class_numbers_without_nodes_give_a_warning(path):
    """A label of -1 that is stored in a byte becomes 255."""
    y = np.arange(N) % 3
    y[0] = -1
    no_masks = {"train_mask": None, "val_mask": None, "test_mask": None}
    with pytest.warns(
        GraphzooDataWarning, match=r"4 of the classes 0\.\.255 \(-1 means unknown, 255 does not"
    ):
        node_graph_from_files(save(path, parts(y=torch.from_numpy(y.astype(np.uint8)), **no_masks)))
    named = {"class_names": [f"c{i}" for i in range(6)]}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        node_graph_from_data(parts(y=torch.from_numpy(y), **no_masks))
        few = torch.from_numpy(y * 2).clamp(-1)
        node_graph_from_data(parts(y=few, **no_masks, **named))
        node_graph_from_data(parts(y=few, **no_masks), class_names=named["class_names"])
        node_graph_from_data(parts(y=few, **no_masks), require_labels=False)
        node_graph_from_data(parts(y=torch.from_numpy(y).bfloat16().requires_grad_(), **no_masks))


@pytest.mark.parametrize("missing", [None, float("nan"), pd.NA])
def test_labels_in_arrays_of_objects(missing):
    words = np.array([*"ab" * 5, "b", missing], dtype=object)
    given = {"train_mask": None, "val_mask": None, "test_mask": None}
    graph = node_graph_from_data(parts(y=words, **given))
    assert graph.class_names == ("a", "b") and graph.y.tolist() == [*[0, 1] * 5, 1, -1]
    numbers = np.array([0, 1, 2] * 3 + [0, 1, missing], dtype=object)
    graph = node_graph_from_data(parts(y=numbers, **given))
    assert graph.class_names == ("0", "1", "2") and graph.y.tolist() == [*[0, 1, 2] * 3, 0, 1, -1]
    with pytest.raises(DataError, match="y must be .* got object"):
        node_graph_from_data(parts(y=np.array([object()] * N), **given))


@pytest.mark.parametrize("form", ["csr", "coo", "csc"])
def test_features_in_scipy_matrices(form):
    x = (np.arange(3 * N).reshape(N, 3) % 4).astype(np.int8)
    graph = node_graph_from_data(parts(x=scipy.sparse.csr_matrix(x).asformat(form)))
    assert graph.x.layout is torch.sparse_csr and graph.x.to_dense().tolist() == x.tolist()


def test_one_test_mask_for_several_splits(path):
    """WikiCS has such masks."""
    mask = torch.stack([torch.arange(N) % 2 == 0, torch.arange(N) % 4 == 0], 1)
    test = torch.arange(N) == 3
    changed = parts(train_mask=mask, val_mask=~mask & ~test[:, None], test_mask=test)
    graph = node_graph_from_files(save(path, changed))
    assert [split.test.tolist() for split in graph.splits["given"]] == [[3], [3]]


def test_dropped_edges_of_a_table_are_reported_with_its_name(tmp_path):
    (tmp_path / "nodes.csv").write_text(
        "name,x,label\n" + "".join(f"n{i},{i},{'ab'[i % 2]}\n" for i in range(40))
    )
    (tmp_path / "edges.csv").write_text("source,target\nn0,n1\nn2,n2\n")
    with pytest.warns(GraphzooDataWarning) as caught:
        node_graph_from_files(tmp_path)
    assert [str(warning.message) for warning in caught] == [f"{tmp_path / 'edges.csv'}: 1 self-loop dropped"]


def test_a_graph_keeps_its_features_when_the_callers_array_changes():
    x = torch.randn(6, 3)
    edges = torch.tensor([[0, 1], [1, 2]])
    dense = node_graph_from_data(Data(x=x, edge_index=edges, y=torch.arange(6) % 2))
    sparse = node_graph_from_data(Data(x=x.to_sparse_csr(), edge_index=edges, y=torch.arange(6) % 2))
    before = dense.x.clone(), sparse.x.to_dense()
    kept = x.to_sparse_csr()
    x.mul_(100)
    assert torch.equal(dense.x, before[0]) and torch.equal(sparse.x.to_dense(), before[1])
    graph = node_graph_from_data(Data(x=kept, edge_index=edges, y=torch.arange(6) % 2))
    kept.values().mul_(0)
    assert torch.equal(graph.x.to_dense(), before[0])


def test_repeated_class_names_are_refused():
    data = {"x": np.eye(3, dtype=np.float32), "edge_index": np.array([[0], [1]]), "y": np.array([0, 1, 2])}
    with pytest.raises(DataError, match="class_names has 'a' twice"):
        node_graph_from_data({**data, "class_names": np.array(["a", "a", "b"])})
