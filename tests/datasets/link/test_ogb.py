"""OGB's link data in small files of its format, compared with `ogb`'s reader and evaluators."""

import builtins
import pickle
import zipfile

import numpy as np
import pytest
import torch
from helpers.link_formats import NODES, SPLITS, accept_small_files, ogb_content, write_ogb

from graphzoo.datasets import DataError, load_link_graph
from graphzoo.datasets.link.pairs import pair_keys
from graphzoo.datasets.node.unpickle import read_torch_file

METRICS = {"ddi": "hits@20", "collab": "hits@50", "ppa": "hits@100", "citation2": "mrr"}


@pytest.fixture
def small(monkeypatch):
    accept_small_files(monkeypatch)
    monkeypatch.setenv("GRAPHZOO_OFFLINE", "1")


def folder(root, kind):
    return root / "ogb" / f"ogbl_{kind}"


@pytest.mark.parametrize("form", ["legacy", "archive", "tensors", "legacy tensors"])
@pytest.mark.parametrize("kind", SPLITS)
def test_content(tmp_path, small, kind, form):
    content = ogb_content(kind)
    write_ogb(folder(tmp_path, kind), kind, legacy="legacy" in form, tensors="tensors" in form)
    graph = load_link_graph(f"ogbl-{kind}", root=tmp_path)
    assert (graph.metric, graph.protocol, graph.num_nodes) == (METRICS[kind], "ogb", NODES)
    assert graph.is_directed == (kind == "citation2")
    assert graph.valid_edges_at_test == (kind == "collab")
    if kind == "ddi":
        assert graph.x is None
    else:
        np.testing.assert_array_equal(graph.x.numpy(), content["raw/node-feat"].astype(np.float32))
    for split in ("train", "valid", "test"):
        held = content[f"split/{SPLITS[kind]}/{split}"]
        if kind == "citation2":
            links = np.stack([held["source_node"], held["target_node"]], axis=1)
        else:
            links = held["edge"]
        np.testing.assert_array_equal(graph.positive(split).numpy(), links)
        if split == "train":
            continue
        negative = getattr(graph, split).negative.numpy()
        if kind == "citation2":
            np.testing.assert_array_equal(negative[..., 1], held["target_node_neg"])
            assert (negative[..., 0] == held["source_node"][:, None]).all()
        else:
            np.testing.assert_array_equal(negative, held["edge_neg"])


@pytest.mark.parametrize("kind", SPLITS)
def test_edges_are_those_of_ogbs_reader(tmp_path, small, kind, capsys):
    from ogb.io.read_graph_raw import read_csv_graph_raw

    write_ogb(folder(tmp_path, kind), kind)
    graph = load_link_graph(f"ogbl-{kind}", root=tmp_path)
    theirs = read_csv_graph_raw(str(folder(tmp_path, kind) / "raw"), add_inverse_edge=kind != "citation2")[0]
    edges = {tuple(edge) for edge in theirs["edge_index"].T.tolist()}
    assert {tuple(edge) for edge in graph.edge_index("train").t().tolist()} == edges
    assert theirs["num_nodes"] == graph.num_nodes
    if kind != "ddi":
        np.testing.assert_array_equal(theirs["node_feat"].astype(np.float32), graph.x.numpy())
    valid = {tuple(link) for link in graph.valid.positive.tolist()}
    if kind == "collab":
        edges |= valid | {(v, u) for u, v in valid}
    assert {tuple(edge) for edge in graph.edge_index("test").t().tolist()} == edges


@pytest.mark.parametrize("kind", SPLITS)
def test_ogbs_evaluators_accept_the_pairs(tmp_path, small, kind):
    from ogb.linkproppred import Evaluator

    write_ogb(folder(tmp_path, kind), kind)
    graph = load_link_graph(f"ogbl-{kind}", root=tmp_path)
    evaluator = Evaluator(f"ogbl-{kind}")
    assert evaluator.eval_metric == graph.metric
    scores = torch.rand(NODES, NODES, generator=torch.Generator().manual_seed(0))
    positive = scores[tuple(graph.test.positive.t())]
    negative = scores[tuple(graph.test.negative.unbind(-1))]
    figures = evaluator.eval({"y_pred_pos": positive, "y_pred_neg": negative})
    if kind == "citation2":
        # some random targets are the cited paper
        ranks = 1 + (negative > positive[:, None]).sum(1) + (negative == positive[:, None]).sum(1) / 2
        torch.testing.assert_close(figures["mrr_list"], 1 / ranks)
    else:
        k = int(graph.metric.split("@")[1])
        expected = (
            1.0 if len(negative) < k else float((positive > negative.sort().values[-k]).double().mean())
        )
        assert figures[graph.metric] == pytest.approx(expected)


def test_repeated_collaborations_are_kept_once_and_may_be_in_other_splits(tmp_path, small, caplog):
    content = ogb_content("collab")
    train, valid, test = (content[f"split/time/{split}"] for split in ("train", "valid", "test"))
    links = train["edge"].copy()
    # links of another year: three in the same direction, one reversed; and a loop
    train["edge"] = np.concatenate([links, links[:3], links[5:6, ::-1], [[4, 4]]])
    valid["edge"][0] = links[0]
    test["edge"][0] = valid["edge"][1]
    write_ogb(folder(tmp_path, "collab"), "collab", content)
    caplog.set_level("INFO")
    graph = load_link_graph("ogbl-collab", root=tmp_path)
    assert "weights and years of the links are not used" in caplog.text
    assert "4 of 65 training links are repeats" in caplog.text
    assert "1 training links of a node with itself are left out" in caplog.text
    np.testing.assert_array_equal(graph.train.numpy(), links)
    np.testing.assert_array_equal(graph.test.positive.numpy(), test["edge"])
    seen = torch.unique(pair_keys(graph.edge_index("test").t(), NODES, is_directed=False))
    late = np.concatenate([links, valid["edge"]])
    assert seen.tolist() == sorted({int(min(u, v) * NODES + max(u, v)) for u, v in late})


def test_an_evaluated_link_among_the_training_links_is_refused(tmp_path, small):
    content = ogb_content("ddi")
    content["split/target/test"]["edge"][0] = content["split/target/train"]["edge"][3, ::-1]
    write_ogb(folder(tmp_path, "ddi"), "ddi", content)
    with pytest.raises(DataError, match="1 links of test are also in train"):
        load_link_graph("ogbl-ddi", root=tmp_path)


def test_loading_asks_nothing_and_does_not_unpickle(tmp_path, small, monkeypatch):
    """`ogb` waits for an answer at a prompt and loads files with `weights_only=False`."""
    write_ogb(folder(tmp_path, "ddi"), "ddi")
    monkeypatch.setattr(builtins, "input", lambda *arguments: pytest.fail("asked"))
    monkeypatch.setattr(torch, "load", lambda *arguments, **options: pytest.fail("torch.load"))
    assert load_link_graph("ogbl-ddi", root=tmp_path).num_nodes == NODES


class Hostile:
    """Creates a file when it is unpickled without restrictions."""

    def __init__(self, trace):
        self.trace = trace

    def __reduce__(self):
        return (open, (str(self.trace), "w"))


@pytest.mark.fault("a split file of OGB holds code", "refused; no code runs")
@pytest.mark.parametrize("legacy", [True, False])
@pytest.mark.parametrize("with_tensor", [True, False])
def test_a_hostile_split_is_refused(tmp_path, small, legacy, with_tensor):
    write_ogb(folder(tmp_path, "ddi"), "ddi")
    path = folder(tmp_path, "ddi") / "split" / "target" / "train.pt"
    held = {"edge": torch.zeros(3, 2)} if with_tensor else {}
    torch.save({**held, "more": Hostile(tmp_path / "trace")}, path, _use_new_zipfile_serialization=not legacy)
    with pytest.raises(DataError, match="train.pt: not a readable data file"):
        load_link_graph("ogbl-ddi", root=tmp_path)
    assert not (tmp_path / "trace").exists()


def test_files_that_are_not_of_torch_save_are_refused(tmp_path):
    path = tmp_path / "file.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("other", b"")
    with pytest.raises(DataError, match="not a readable file of torch.save"):
        read_torch_file(path)
    path.write_bytes(pickle.dumps({"edge": 1}))
    with pytest.raises(DataError, match="not a file of torch.save"):
        read_torch_file(path)
    torch.save({"edge": np.arange(50)}, path, _use_new_zipfile_serialization=False)
    data = path.read_bytes()
    for keep in (0, 3, len(data) // 2):
        path.write_bytes(data[:keep])
        with pytest.raises(DataError, match=r"file.pt: not a"):
            read_torch_file(path)
    torch.save({"edge": np.arange(50)}, path)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(DataError, match=r"file.pt: not a"):
        read_torch_file(path)


@pytest.mark.parametrize(
    ("kind", "part", "change", "message"),
    [
        ("ddi", "test", {"edge_neg": None}, "test.pt: no edge_neg; the file has edge"),
        ("ddi", "train", {"edge": np.arange(4)}, r"edge is \[4\], expected \[n, 2\]"),
        ("ddi", "valid", {"edge_neg": np.arange(4)}, r"edge_neg is \[4\]"),
        ("ddi", "train", {"edge": np.zeros((3, 2))}, "edge has float64 instead of node numbers"),
        ("citation2", "train", {"source_node": np.arange(3)}, "differ in length"),
        ("citation2", "test", {"target_node_neg": np.arange(3)}, r"target_node_neg is \[3\]"),
    ],
)
def test_wrong_splits_are_refused(tmp_path, small, kind, part, change, message):
    content = ogb_content(kind)
    held = content[f"split/{SPLITS[kind]}/{part}"]
    held.update(change)
    for key in [key for key, value in held.items() if value is None]:
        del held[key]
    write_ogb(folder(tmp_path, kind), kind, content)
    with pytest.raises(DataError, match=message):
        load_link_graph(f"ogbl-{kind}", root=tmp_path)


def test_wrong_features_are_refused(tmp_path, small):
    content = ogb_content("ppa")
    content["raw/node-feat"] = content["raw/node-feat"][:-1]
    write_ogb(folder(tmp_path, "ppa"), "ppa", content)
    with pytest.raises(DataError, match=r"node-feat.csv.gz: 29 rows, expected 30"):
        load_link_graph("ogbl-ppa", root=tmp_path)


def test_another_size_is_refused(tmp_path, monkeypatch):
    from graphzoo.datasets.link import table

    monkeypatch.setenv("GRAPHZOO_OFFLINE", "1")
    monkeypatch.setattr(table.LinkSource, "facts", lambda source, file: (None, 0))
    write_ogb(folder(tmp_path, "ddi"), "ddi")
    with pytest.raises(DataError, match="not ogbl-ddi: training links 60, not 1,067,911"):
        load_link_graph("ogbl-ddi", root=tmp_path)


def test_published_negatives_of_ogb_graphs(tmp_path, small):
    """HeaRT's negatives of ogbl-ddi are not available here, so files of their form are made."""
    write_ogb(folder(tmp_path, "ddi"), "ddi")
    graph = load_link_graph("ogbl-ddi", root=tmp_path)
    target = tmp_path / "linkpred" / "heart" / "ogbl-ddi"
    target.mkdir(parents=True)
    for split in ("valid", "test"):
        own = graph.positive(split)[:, None].repeat(1, 4, 1)
        own[:, :2, 1] = (own[:, :2, 0] + torch.arange(1, 3)) % NODES
        own[:, 2:, 0] = (own[:, 2:, 1] + torch.arange(1, 3)) % NODES
        np.save(target / f"heart_{split}_samples.npy", own.numpy())
    heart = load_link_graph("ogbl-ddi", protocol="heart", root=tmp_path)
    assert heart.test.negative.shape == (15, 4, 2)
    assert (heart.metric, heart.protocol) == ("mrr", "heart") and heart.fingerprint != graph.fingerprint
    assert torch.equal(heart.train, graph.train)
