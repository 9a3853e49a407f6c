"""Data modules made of graphs in memory."""

import warnings

import networkx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from helpers.link_graphs import make_link_graph
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.utils import from_networkx, to_networkx

from graphzoo.datamodules import KGDataModule, LinkDataModule, NodeDataModule
from graphzoo.datasets import (
    KnowledgeGraph,
    NodeGraph,
    from_files,
    from_triples,
    link_graph_from_edges,
    link_graph_from_files,
    load_knowledge_graph,
    node_graph_from_data,
)
from graphzoo.datasets.in_memory import given_data
from graphzoo.encoders import GALiT
from graphzoo.errors import DataError, GraphzooDataWarning, UsageError
from graphzoo.inference.graphs import load_graph
from graphzoo.inference.sources import load_link_source, load_node_source
from graphzoo.ops import RelationalGraph
from graphzoo.types import GraphSpec


def named_triples():
    graph, _ = load_knowledge_graph("umls")
    names = graph.entities, graph.relations, graph.entities
    return [tuple(part[i] for part, i in zip(names, row, strict=True)) for row in graph.train.tolist()]


def test_triples_in_a_table_and_in_a_file_have_the_same_split(tmp_path):
    rows = named_triples()
    (tmp_path / "mine.tsv").write_text("".join("\t".join(row) + "\n" for row in rows))
    from_file, _ = from_files(tmp_path / "mine.tsv")
    table = pd.DataFrame(rows, columns=["head", "relation", "tail"])
    data = KGDataModule.from_triples(table, name="mine", batch_size=32)
    data.prepare_data()
    data.setup()
    assert data.fingerprint == from_file.fingerprint and data.title == data.name == "mine"
    assert data.batch_size == 32 and data.triples("valid").shape[0] == round(len(rows) / 20)
    assert torch.equal(
        next(iter(data.train_dataloader())).head[:3], next(iter(data.train_dataloader())).head[:3]
    )


def test_given_splits_and_graphs_are_kept():
    rows = named_triples()
    data = KGDataModule.from_triples(rows[:-20], rows[-20:-10], rows[-10:])
    assert [data.triples(split).shape[0] for split in ("train", "valid", "test")] == [len(rows) - 20, 10, 10]
    graph = from_triples(rows[:-10], rows[-10:])
    assert KGDataModule.from_triples(graph).knowledge_graph is graph
    with pytest.raises(DataError, match="too few triples"):
        KGDataModule.from_triples([("a", "r", "b")])


def nodes(**others):
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(60, (2, 200), generator=generator)
    y = torch.arange(60) % 3
    return Data(x=torch.randn(60, 5, generator=generator), edge_index=edges, y=y, **others)


def test_contradicting_arguments_of_triples_are_refused():
    graph = KGDataModule.from_triples(named_triples()).knowledge_graph
    with pytest.raises(UsageError, match="leave valid and test out"):
        KGDataModule.from_triples(graph, test=named_triples()[:3])
    with pytest.raises(UsageError, match="a dict of triples has valid and test itself"):
        KGDataModule.from_triples({"train": named_triples()}, test=named_triples()[:3])
    with pytest.raises(UsageError, match="train and may have valid and test, not train, check"):
        load_graph({"train": named_triples(), "check": named_triples()[:3]}, None)
    with pytest.raises(UsageError, match="train and may have valid and test, not train, val, dev"):
        load_graph({"train": named_triples(), "val": named_triples()[:3], "dev": named_triples()[3:6]}, None)
    for name in ("val", "validation", "dev"):  # the names that files may have
        parts = {"train": named_triples()[3:], name: named_triples()[:3], "test": named_triples()[5:6]}
        assert len(KGDataModule.from_triples(parts).knowledge_graph.valid) == 3
    with pytest.raises(UsageError, match="path is for triples in files"):
        KGDataModule.from_triples(graph, path="somewhere")


def test_graphs_in_memory_with_one_name_are_not_compared(tmp_path):
    """A checkpoint can be tested on another graph, although its split is not in that graph."""
    from lightning import Trainer

    from graphzoo.encoders import GALiT
    from graphzoo.tasks import NodeClassification

    quiet = {"accelerator": "cpu", "logger": False, "enable_checkpointing": False, "max_steps": 1,
             "enable_progress_bar": False, "enable_model_summary": False}  # fmt: skip
    task = NodeClassification(lambda spec: GALiT(spec, hidden_channels=8))
    trainer = Trainer(**quiet)
    trainer.fit(task, NodeDataModule.from_data(nodes()))
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    other = nodes()
    other.x, other.y = other.x.flip(0), other.y.flip(0)
    fresh = NodeClassification(lambda spec: GALiT(spec, hidden_channels=8))
    found = Trainer(**quiet).test(
        fresh, NodeDataModule.from_data(other), ckpt_path=tmp_path / "a.ckpt", weights_only=True
    )
    assert 0 <= found[0]["test/acc"] <= 1, found


def test_a_data_object_with_labels_is_a_graph_of_nodes(recwarn):
    mask = torch.arange(60)
    data = NodeDataModule.from_data(
        nodes(train_mask=mask < 30, val_mask=(mask >= 30) & (mask < 45), test_mask=mask >= 45), name="mine",
        standardize_features=False,
    )  # fmt: skip
    data.prepare_data()
    data.setup()
    assert data.split.name == "given" and data.split.train.tolist() == list(range(30))
    assert torch.equal(data.graph.x, nodes().x) and data.graph.name == data.name == "mine"
    edges = {tuple(edge) for edge in nodes().edge_index.t().tolist() if edge[0] != edge[1]}
    assert {tuple(edge) for edge in data.graph.edge_index.t().tolist()} == edges | {(v, u) for u, v in edges}
    as_given = NodeDataModule.from_data(nodes(), directed=True)
    as_given.setup()
    assert {tuple(edge) for edge in as_given.graph.edge_index.t().tolist()} == edges
    assert NodeDataModule.from_data(as_given.graph)._load(None) is as_given.graph


def test_the_class_takes_the_arguments_of_its_class_method(capsys):
    import inspect

    from graphzoo.cli import main

    rows, links = named_triples(), make_link_graph().train.t()
    kg = KGDataModule(triples=rows[:-20], valid=rows[-20:-10], test=rows[-10:], batch_size=32)
    kg.setup()
    same = KGDataModule.from_triples(rows[:-20], rows[-20:-10], rows[-10:])
    assert kg.fingerprint == same.fingerprint and kg.batch_size == 32 and kg.in_memory
    of_nodes = NodeDataModule(data=nodes(), directed=True)
    assert of_nodes.in_memory and of_nodes._raw.num_nodes == 60
    of_links = LinkDataModule(edge_index=links, x=torch.randn(int(links.max()) + 1, 3), split_index=1)
    assert of_links._given.x.shape[1] == 3 and of_links.split_index == 1
    assert NodeDataModule(data=None, name="cora").is_named
    for cls in (
        KGDataModule,
        NodeDataModule,
        LinkDataModule,
    ):  # not an option of the command
        assert cls.kind.given not in inspect.signature(cls).parameters
        assert "name" in inspect.signature(cls).parameters
    command = ["fit", "--model=galit", "--data=cora"]
    assert main([*command, "--data.data=1"]) == 2 and "--data.data" in capsys.readouterr().err
    assert main([*command, "--print_config"]) == 0 and "    data:" not in capsys.readouterr().out


def test_a_sparse_adjacency_is_accepted_and_other_forms_are_refused():
    links = make_link_graph().train.t()
    count = int(links.max()) + 3  # two more nodes without a link
    adjacency = torch.sparse_coo_tensor(links.flip(0), torch.ones(links.shape[1]), (count, count))
    given = [LinkDataModule(edge_index=form) for form in (adjacency, adjacency.coalesce().to_sparse_csr())]
    for data in given:
        found = torch.cat([data._given.train, data._given.valid.positive, data._given.test.positive])
        assert data._given.num_nodes == count
        assert set(map(frozenset, found.tolist())) == set(map(frozenset, links.t().tolist()))
    for form, said in (
        (adjacency * 2, "adjacency has weights"),
        (torch.eye(5), r"a dense adjacency: give adjacency.nonzero\(\).t\(\)"),
        (links.t(), "transpose it"),
        (links.tolist(), "edges are a list"),
        (None, "edge_index=None is no graph"),
    ):
        with pytest.raises(UsageError, match=said):
            LinkDataModule(edge_index=form)


def test_triples_of_a_data_object():
    data = nodes(edge_type=torch.arange(200) % 4)
    module = NodeDataModule(data=nodes())
    module.setup()
    assert GraphSpec.from_data(nodes()) == module.spec
    assert GraphSpec.from_data(data).num_relations == 4
    data.y = torch.randint(2, (60, 5)).float()
    spec = GraphSpec.from_data(data)
    assert spec.is_multi_label and spec.num_classes == 5
    bare = GraphSpec.from_data(Data(edge_index=torch.tensor([[0], [1]]), num_nodes=4))
    assert bare == GraphSpec(num_nodes=4)
    data.y = torch.rand(60)
    with pytest.raises(UsageError, match=r"must be integers, got float32: convert them with .long\(\)"):
        GraphSpec.from_data(data)
    graph = RelationalGraph.from_data(data)
    same = RelationalGraph.from_triples(
        torch.stack([data.edge_index[0], data.edge_type, data.edge_index[1]], 1), 60, spec.num_relations
    )
    assert torch.equal(graph.edge_index, same.edge_index) and torch.equal(graph.edge_type, same.edge_type)
    assert graph.num_relations == 8 and RelationalGraph.from_data(nodes()).num_relations == 2
    assert RelationalGraph.from_data(data, num_relations=6).num_relations == 12
    with pytest.raises(ValueError, match="edge_index"):
        RelationalGraph.from_data(Data(edge_index=torch.tensor([[0], [7]]), num_nodes=4))


def test_other_objects_are_refused():
    with pytest.raises(DataError, match="no edge_index"):
        NodeDataModule.from_data(Data(x=torch.randn(3, 2), y=torch.tensor([0, 1, 0])))
    with pytest.raises(DataError, match="no node has a label"):
        NodeDataModule.from_data(Data(x=torch.randn(3, 2), edge_index=torch.tensor([[0], [1]])))
    with pytest.raises(DataError, match="expected a PyG Data object or a mapping, got list"):
        NodeDataModule.from_data([1, 2])
    with pytest.raises(DataError, match=r"expected edge_index \[2, E\] of int64, got \[7, 2\].*transpose"):
        link_graph_from_edges(torch.zeros(7, 2, dtype=torch.int64))
    with pytest.raises(DataError, match="links have nodes from 0 to 9, but there are 5"):
        link_graph_from_edges(torch.tensor([[0, 1], [2, 9]]), num_nodes=5)
    with pytest.raises(DataError, match="links have nodes from -1"):
        link_graph_from_edges(torch.tensor([[0, -1], [2, 3]]))
    with pytest.raises(DataError, match="0 links are too few"):
        link_graph_from_edges(torch.empty(2, 0, dtype=torch.int64))


@pytest.mark.parametrize("both", [False, True])
def test_links_in_one_direction_or_both_give_the_same(both, recwarn):
    links = make_link_graph().train.t()
    given = torch.cat([links, links.flip(0)], dim=1) if both else links
    data = LinkDataModule.from_edge_index(given, torch.randn(int(links.max()) + 1, 3), split_index=1)
    data.prepare_data()
    data.setup()
    once = link_graph_from_edges(links, num_nodes=int(links.max()) + 1, split_index=1)
    assert torch.equal(data.graph.train.sort(1).values, once.train.sort(1).values)
    assert data.graph.x.shape[1] == 3 and data.num_splits is None
    assert not [warning for warning in recwarn if "repeated" in str(warning.message)]
    directed = LinkDataModule.from_edge_index(links, directed=True)
    directed.setup()
    assert directed.graph.is_directed and directed.directed


def test_a_model_is_trained_on_triples_in_memory_and_queried(tmp_path):
    from lightning import Trainer

    import graphzoo
    from graphzoo.encoders import KnowFormer
    from graphzoo.tasks import KGCompletion

    data = KGDataModule.from_triples(named_triples(), name="mine", batch_size=64, max_valid_triples=20)
    task = KGCompletion(lambda spec: KnowFormer(spec, hidden_channels=8, num_layers=1, num_heads=2))
    trainer = Trainer(max_steps=2, accelerator="cpu", logger=False, enable_checkpointing=False,
                      enable_progress_bar=False, enable_model_summary=False)  # fmt: skip
    trainer.fit(task, data)
    trainer.save_checkpoint(tmp_path / "run" / "checkpoints" / "best.ckpt")
    data.save_artifacts(tmp_path / "run" / "graph")
    answers = graphzoo.load(tmp_path / "run").predict(head="virus", relation="isa", k=3)
    assert len(answers) == 3


def written(given, tmp_path):
    """The arrays that are written for data in memory."""
    given.write(tmp_path / "data.npz")
    with np.load(tmp_path / "data.npz") as arrays:
        return dict(arrays)


@pytest.mark.parametrize("name", ["p{}", "{}", "1{}"])
@pytest.mark.parametrize("form", [list, pd.DataFrame, networkx.Graph])
def test_links_in_memory_in_any_order_have_the_split_of_a_file(form, name, tmp_path):
    rows = [tuple(name.format(node) for node in pair) for pair in make_link_graph().train.tolist()]
    (tmp_path / "rows.csv").write_text("".join(f"{u},{v}\n" for u, v in rows))
    from_file = link_graph_from_files(tmp_path / "rows.csv")
    for given in (rows, [rows[i] for i in torch.randperm(len(rows)).tolist()]):
        given_data(form(given), "pair").write(tmp_path / "given.npz")
        graph = link_graph_from_files(tmp_path / "given.npz")
        assert graph.fingerprint == from_file.fingerprint and graph.node_names == from_file.node_names


def test_features_of_networkx_stay_with_their_nodes(tmp_path):
    graph = networkx.Graph((f"n{u}", f"n{v}") for u, v in make_link_graph().train.flip(0).tolist())
    for node, about in graph.nodes(data=True):
        about |= {"age": float(node[1:]), "label": "ab"[int(node[1:]) % 2]}
    given_data(graph, "pair").write(tmp_path / "links.npz")
    links = link_graph_from_files(tmp_path / "links.npz")
    assert [f"n{age:.0f}" for age in links.x[:, 0]] == list(links.node_names) == sorted(graph)
    given_data(graph, "node").write(tmp_path / "nodes.npz")
    labelled = NodeGraph.load(tmp_path / "nodes.npz")  # nodes of a table keep its order
    assert [f"n{age:.0f}" for age in labelled.x[:, 0]] == list(labelled.node_names) == list(graph)
    assert [labelled.class_names[y] for y in labelled.y] == [
        each["label"] for _, each in graph.nodes(data=True)
    ]


@pytest.mark.parametrize("missing", [None, float("nan")])
def test_a_missing_end_of_a_link_is_refused(missing):
    frame = pd.DataFrame({"source": [1, missing, 2], "target": [2, 3, 3]})
    with pytest.raises(UsageError, match="row 2: the source is missing"):
        given_data(frame, "pair")
    with pytest.raises(UsageError, match="row 2: the target is missing"):
        given_data([("a", "b"), ("b", missing)], "pair")


def test_two_nodes_of_networkx_with_one_name_are_refused():
    graph = networkx.path_graph(4)
    graph.add_edge(1, "1")
    with pytest.raises(UsageError, match="nodes 1 and '1' of the networkx graph have the same name '1'"):
        given_data(graph, "pair")


def labelled_path(**attributes):
    """A networkx graph of nine nodes with `label` and `age`, and the attributes of node 4."""
    graph = networkx.path_graph(9)
    for node in graph:
        graph.nodes[node].update(
            label="ab"[node % 2], age=float(node), split=("Train", "VALID", "test")[node % 3]
        )
    graph.nodes[4].update(attributes)
    return graph


@pytest.mark.parametrize("missing", [None, float("nan")])
def test_a_networkx_node_may_have_neither_label_nor_split(missing, tmp_path):
    given_data(labelled_path(label=missing, split=missing), "node").write(tmp_path / "data.npz")
    graph = NodeGraph.load(tmp_path / "data.npz")
    assert graph.class_names == ("a", "b") and graph.y.tolist() == [0, 1, 0, 1, -1, 1, 0, 1, 0]
    assert 4 not in torch.cat([graph.split().nodes(part) for part in ("train", "valid", "test")])


@pytest.mark.parametrize("label", [[0, 1], (0, 1), np.array([0, 1]), torch.tensor([0, 1]), {"a"}])
def test_a_networkx_node_has_one_class(label):
    with pytest.raises(UsageError, match=r"node 4 of the networkx graph: label is .*; give one class\nIf "):
        given_data(labelled_path(label=label), "node")


def test_networkx_nodes_of_pyg_have_lists_of_one_label(tmp_path):
    y = torch.arange(6)[:, None] % 2
    data = Data(x=torch.rand(6, 2), edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]), y=y)
    given_data(to_networkx(data, node_attrs=["x", "y"]), "node").write(tmp_path / "data.npz")
    graph = NodeGraph.load(tmp_path / "data.npz")
    assert graph.class_names == ("0", "1") and graph.y.tolist() == [0, 1, 0, 1, 0, 1]


def test_the_remedy_for_several_labels_of_networkx_nodes():
    graph = networkx.path_graph(6)
    for node in graph:
        graph.nodes[node].update(y=[node % 2, int(node < 3)], x=[float(node)])
    with pytest.raises(UsageError, match=r"y is \[0, 1\]; .*\n.*give torch_geometric.utils.from_networkx"):
        given_data(graph, "node")
    assert given_data(from_networkx(graph), "node").kind == "nodes"


def test_labels_of_networkx_become_names_as_those_of_other_data(tmp_path):
    graph = labelled_path()
    labels = [1, 1.0, np.int64(1), torch.tensor(2), 2.0, np.float32(2), None, 1, 2]
    networkx.set_node_attributes(graph, dict(enumerate(labels)), "label")
    networkx.set_node_attributes(graph, None, "split")
    given_data(graph, "node").write(tmp_path / "data.npz")
    read = NodeGraph.load(tmp_path / "data.npz")
    assert read.class_names == ("1", "2") and read.y.tolist() == [0, 0, 0, 1, 1, 1, -1, 0, 1]


@pytest.mark.parametrize("value", ["abc", ["a"], [1, [2, 3]], 1j])
def test_features_of_networkx_that_are_not_numbers_are_refused(value):
    with pytest.raises(
        UsageError, match=r"node 4 of the networkx graph: X is .*\nGive a number, or a list of numbers"
    ):
        graph = labelled_path()
        networkx.set_node_attributes(graph, {node: value if node == 4 else 1.0 for node in graph}, "X")
        given_data(graph, "node")


def test_an_unknown_split_of_a_networkx_node_is_refused(tmp_path):
    given_data(labelled_path(split=None), "node").write(tmp_path / "data.npz")
    split = NodeGraph.load(tmp_path / "data.npz").split()
    assert [part.tolist() for part in (split.train, split.valid, split.test)] == [
        [0, 3, 6],
        [1, 7],
        [2, 5, 8],
    ]
    with pytest.raises(
        UsageError, match="node 4 of the networkx graph: split is 'tst'; give train, valid, test"
    ):
        given_data(labelled_path(split="tst"), "node")


@pytest.mark.parametrize("value", [None, "old"])
def test_a_feature_that_a_networkx_node_lacks_is_refused(value):
    with pytest.raises(
        UsageError, match=f"node 4 of the networkx graph: age is {value!r}, but a number at most nodes"
    ):
        given_data(labelled_path(age=value, split=None), "node")


def test_attributes_of_networkx_nodes_that_are_not_numbers_give_a_warning(tmp_path):
    graph = labelled_path(city="Rome")
    networkx.set_node_attributes(graph, {node: np.float32(node) for node in graph}, "weight")
    with pytest.warns(GraphzooDataWarning, match="are not numbers are left out: city") as told:
        given = given_data(graph, "node")
    assert len(told) == 1 and written(given, tmp_path)["x"].shape == (9, 2)
    graph.add_node("last", **graph.nodes[0])
    for node in list(graph)[::2]:
        del graph.nodes[node]["weight"]
    with pytest.warns(GraphzooDataWarning, match="left out: weight, city"):  # a number at half of the nodes
        given_data(graph, "node")


def test_labels_of_networkx_are_found_in_upper_or_lower_case():
    graph = labelled_path(split="")
    for node in graph:
        graph.nodes[node]["Label"] = graph.nodes[node].pop("label")
    assert given_data(graph, "node").kind == "nodes"


def test_a_graph_without_labels_gives_a_warning_that_links_are_learned(recwarn):
    graph = networkx.relabel_nodes(networkx.path_graph(30), str)
    networkx.set_node_attributes(graph, {node: float(node) for node in graph}, "klass")
    data = Data(x=torch.ones(60, 1), edge_index=nodes().edge_index)
    assert given_data(graph, "pair").kind == given_data(data, "pair").kind == "links" and not recwarn
    for given, attributes in (
        (graph, "y or label.*its attributes are klass"),
        (data, "y.*its attributes are edge_index, x"),
    ):
        with pytest.warns(GraphzooDataWarning, match=rf"no labels \(attribute {attributes}"):
            assert given_data(given, "node").kind == "links"


@pytest.mark.parametrize("given", [[nodes()], [networkx.path_graph(3)] * 2])
def test_a_list_of_graphs_is_refused_in_two_lines(given):
    with pytest.raises(
        UsageError, match=r"a list of (1 Data|2 Graphs; graphzoo trains on one)\nGive one alone: data\[0\]"
    ):
        given_data(given, "node")


def test_links_with_a_further_column_are_not_triples(tmp_path):
    pairs = [(f"n{u}", f"n{v}") for u, v in make_link_graph().train.tolist()]
    table = pd.DataFrame(pairs, columns=["From", "To"])
    table.insert(1, "year", 1999)
    plain = written(given_data(pairs, "pair"), tmp_path)
    for encoder in ("pair", "node", "query", ""):
        with pytest.warns(GraphzooDataWarning, match="column year is ignored"):
            given = given_data(table, encoder)
        assert given.kind == "links" and np.array_equal(
            written(given, tmp_path)["edge_index"], plain["edge_index"]
        )
    with pytest.raises(UsageError, match="expected the columns source, target; got a, year, b"):
        given_data(table.set_axis(["a", "year", "b"], axis=1), "pair")
    triples = pd.DataFrame(named_triples(), columns=["source", "relation", "target"])
    assert given_data(triples, "query").kind == given_data(triples, "pair").kind == "kg"


def test_a_sparse_adjacency_in_a_data_object_is_converted_in_one_line():
    import torch_geometric

    data = nodes()
    wanted = {tuple(edge) for edge in data.edge_index.t().tolist()}
    data.adj_t = torch_geometric.utils.to_torch_csr_tensor(data.edge_index.flip(0), size=(60, 60))
    del data.edge_index
    with pytest.raises(UsageError, match="it holds adj_t, x, y\nConvert it: (.*)") as error:
        given_data(data, "node")
    exec(str(error.value).partition("Convert it: ")[2], {"data": data, "torch_geometric": torch_geometric})
    assert {tuple(edge) for edge in data.edge_index.t().tolist()} == wanted
    assert given_data(data, "node").kind == "nodes"


@pytest.mark.parametrize("encoder", ["query", ""])
@pytest.mark.parametrize("names", ["head type tail", "source edge target", "from label to"])
def test_words_between_two_ends_are_read_as_relations(encoder, names):
    rows = [(f"a{i}", f"r{i % 2}", f"a{i + 1}") for i in range(60)]
    table = pd.DataFrame(rows, columns=names.split())
    assert given_data(table, encoder).kind == "kg"
    for other in ("pair", "node"):  # cannot learn relations
        with pytest.warns(GraphzooDataWarning, match=f"column {names.split()[1]} is ignored"):
            assert given_data(table, other).kind == "links"


@pytest.mark.parametrize("given", [{"valid"}, {"test"}, set()])
def test_missing_splits_of_triples_are_drawn(given, tmp_path):
    rows = named_triples()
    parts = {"train": rows[:-20], "valid": rows[-20:-10], "test": rows[-10:]}
    data = {split: parts[split] for split in ("train", *given)}
    module = KGDataModule(triples=data)
    graph = module.knowledge_graph
    for split in ("valid", "test"):
        assert len(graph.split(split)) == (10 if split in given else round(0.05 * len(parts["train"])))
    assert module.num_splits is None and KGDataModule(triples=graph).num_splits == 1
    given_data(data, "query").write(tmp_path / "data.npz")
    assert KnowledgeGraph.load(tmp_path / "data.npz").fingerprint == graph.fingerprint
    other = given_data(data, "query", split_index=2)
    other.write(tmp_path / "other.npz")
    assert KGDataModule(path=str(tmp_path / "other.npz"), split_index=2).prepare_data() is None
    for wrong in (data | {"more": rows}, {"valid": rows}):
        with pytest.raises(UsageError, match=f"may have valid and test, not {', '.join(wrong)}"):
            KGDataModule(triples=wrong)


def test_a_wide_row_is_not_printed_in_full():
    with pytest.raises(DataError, match=r"got 300 values; is the table \[n, 3\]\?"):
        KGDataModule(triples=np.zeros((3, 300), dtype=int))


def test_features_of_networkx_may_be_named_x_in_upper_or_lower_case(tmp_path):
    graph = networkx.karate_club_graph()
    for node, each in graph.nodes(data=True):
        each |= {"X": [1.0, float(node)], "Y": node % 2}
    given_data(graph, "node").write(tmp_path / "data.npz")
    with np.load(tmp_path / "data.npz", allow_pickle=False) as arrays:
        assert arrays["x"].tolist() == [[1.0, float(node)] for node in graph]


def test_other_graph_classes_are_refused_with_their_conversion():
    with pytest.raises(DataError, match=r"got Graph\nGive torch_geometric.utils.from_networkx\(graph\)"):
        NodeDataModule(data=networkx.karate_club_graph())
    data = HeteroData()
    data["a"].x = torch.ones(3, 2)
    data["a", "to", "a"].edge_index = torch.tensor([[0], [1]])
    with pytest.raises(DataError, match=r"several kinds of nodes\nGive data.to_homogeneous\(\)"):
        NodeDataModule(data=data)


def test_data_objects_of_other_forms_are_refused():
    hetero = HeteroData()
    hetero["a"].x, hetero["a", "to", "a"].edge_index = torch.ones(3, 2), torch.tensor([[0], [1]])
    encoder = GALiT(2, 4, 2)
    for call in (GraphSpec.from_data, RelationalGraph.from_data, encoder):
        with pytest.raises(UsageError, match=r"several kinds of nodes\nGive data.to_homogeneous\(\)"):
            call(hetero)
    for data in (Data(), Data(x=torch.ones(5))):
        with pytest.raises(
            UsageError, match=r"features x \[N, F\], or num_nodes .*; it has (neither|x \[5\])"
        ):
            GraphSpec.from_data(data)
    edges = torch.tensor([[0], [1]])
    with pytest.raises(ValueError, match="edge_type must be int64 or int32, got torch.float32"):
        RelationalGraph.from_data(Data(edge_index=edges, edge_type=torch.ones(1), num_nodes=2))
    with pytest.raises(UsageError, match=r"built for features \[N, 2\], got None"):
        encoder(None, edges)


def test_triples_of_numbers_may_be_a_tensor(tmp_path):
    table = torch.tensor([[i % 7, i % 2, (i * 3) % 11] for i in range(60)])
    kept = []
    for name, data in (("tensor", table), ("array", table.numpy())):
        given_data(data, "query").write(tmp_path / f"{name}.npz")
        kept.append(from_files(tmp_path / f"{name}.npz")[0])
    assert kept[0].fingerprint == kept[1].fingerprint


@pytest.mark.parametrize("kind", ["parameter", "bfloat16", "array", "csr"])
def test_features_of_link_graphs_may_have_any_dtype(tmp_path, kind):
    x = torch.arange(160.0).view(40, 4).bfloat16().float()
    made = {
        "parameter": lambda: torch.nn.Parameter(x),
        "bfloat16": x.bfloat16,
        "array": x.numpy,
        "csr": x.to_sparse_csr,
    }[kind]()
    edges = torch.stack([torch.arange(39), torch.arange(1, 40)])
    given_data(Data(x=made, edge_index=edges, num_nodes=40), "pair").write(tmp_path / "links.npz")
    assert torch.equal(link_graph_from_files(tmp_path / "links.npz").x, x)


def test_an_ignored_split_of_a_data_object_gives_a_warning(recwarn):
    """The names are those of PyG's RandomLinkSplit; attributes of PyG's loaders give no warning."""
    edges = make_link_graph().train.t().contiguous()
    data = Data(edge_index=edges, num_nodes=60, edge_label=torch.ones(4), edge_label_index=edges[:, :4])
    data.n_id, data.batch_size = torch.arange(60), 4
    given_data(data, "pair")
    (said,) = [str(warning.message) for warning in recwarn]
    assert said.startswith("data: edge_label, edge_label_index ignored, because the split is drawn")


def test_a_sparse_adjacency_of_torch_or_scipy_gives_links():
    """Repeated entries are one link, as in an edge_index. Weights are ignored with a warning."""
    links = torch.stack([torch.arange(30), torch.arange(1, 31)]).repeat(1, 2)
    ones = torch.ones(links.shape[1])
    coo = torch.sparse_coo_tensor(links.flip(0), ones, (33, 33))
    matrix = scipy.sparse.coo_array((ones.numpy(), tuple(links.numpy())), shape=(33, 33))
    for form in (coo, matrix, scipy.sparse.csr_array((ones.numpy(), tuple(links.numpy())), shape=(33, 33))):
        given = given_data(form, "pair")
        assert given.kind == "links" and given.links["num_nodes"] == 33
        assert set(map(tuple, given.links["edge_index"].T.tolist())) == set(map(tuple, links.t().tolist()))
    with pytest.warns(GraphzooDataWarning, match="values of the adjacency are ignored as weights"):
        given_data(matrix * 0.5, "pair")
    weights = (torch.arange(60) % 30 > 0).float()
    with pytest.warns(GraphzooDataWarning, match="stored entries of 0 are not links"):
        given = given_data(torch.sparse_coo_tensor(links.flip(0), weights, (33, 33)), "pair")
    assert sorted(given.links["edge_index"][0].tolist()) == sorted([*range(1, 30)] * 2)
    half = given_data(coo.to(torch.bfloat16), "pair")
    assert half.links["edge_index"].shape == (2, 60)
    with pytest.raises(UsageError, match=r"give data.to_sparse\(2\)"):
        given_data(torch.eye(6).to_sparse(1), "pair")
    with pytest.raises(UsageError, match=r"sparse matrix of shape \[2, 3\]; an adjacency has as many rows"):
        given_data(scipy.sparse.csr_array(np.eye(2, 3)), "pair")


def test_several_graphs_and_kinds_are_refused():
    batch = Batch.from_data_list([nodes(), nodes()])
    links = Batch.from_data_list([Data(edge_index=nodes().edge_index, num_nodes=60)] * 2)
    for call in (
        lambda: given_data(batch, "node"),
        lambda: given_data(batch, "pair"),
        lambda: given_data(links, "node"),
        lambda: load_link_source(links),
        lambda: NodeDataModule.from_data(batch),
    ):
        with pytest.raises(DataError, match="a batch of 2 graphs; give one graph alone"):
            call()
    assert given_data(Batch.from_data_list([nodes()]), "node").kind == "nodes"
    for encoder, remedy in (("query", "Give its links as triples"), ("node", "kinds of nodes and links")):
        with pytest.raises(UsageError, match=remedy):
            given_data(HeteroData(), encoder)
    graph = networkx.MultiDiGraph()
    graph.add_edges_from([(f"a{i}", f"a{i + 1}", {"relation": "r"}) for i in range(40)])
    with pytest.warns(GraphzooDataWarning, match="attributes of edges are not used: relation"):
        given_data(graph, "pair")
    with pytest.raises(UsageError, match=r"an attribute 'relation', .*\n.*u, each\[\"relation\"\], v\)"):
        given_data(graph, "query")
    graph.add_edge("a0", "a9")
    with pytest.warns(GraphzooDataWarning, match="attributes of edges are not used: relation"):
        given_data(graph, "query")  # not all edges have it


@pytest.mark.fault(
    "a networkx graph has relations as keys of its edges",
    "a request for triples if the model learns relations, else a warning",
)
def test_relations_as_keys_of_networkx_edges_are_not_lost():
    graph = networkx.MultiDiGraph()
    graph.add_edges_from([(f"a{i}", f"a{i + 1}", ("near", "far")[i % 2]) for i in range(40)])
    with pytest.raises(UsageError, match="have keys, such as 'far',") as refused:
        given_data(graph, "query")
    assert "give triples: [(u, key, v) for u, v, key in graph.edges(keys=True)];" in str(refused.value)
    assert (
        given_data([(u, key, v) for u, v, key in graph.edges(keys=True)], "query", split_index=0).kind == "kg"
    )
    with pytest.warns(GraphzooDataWarning, match="keys of edges are not used"):
        given_data(graph, "pair")
    assert "else give networkx.DiGraph(graph)" in str(refused.value)
    counted = networkx.MultiDiGraph([(f"a{i}", f"a{i + 1}") for i in range(40)])  # keys are 0
    for key in (np.int64(1), ("a0", "a1", 2)):
        counted.add_edge("a0", "a1", key=key)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for other in (counted, networkx.DiGraph(graph)):
            given_data(other, "query")


def test_few_links_are_enough_for_prediction():
    """A split is drawn for training only."""
    chain = [[0, 1], [1, 2], [2, 3]]
    for few in ([("ann", "bob"), ("bob", "cy")], torch.tensor(chain[:2]), torch.tensor(chain).t()):
        assert load_link_source(few).train.tolist() == chain[: len(few[0])]
        with pytest.raises(DataError, match="too few to set aside"):
            given_data(few, "pair")
    for other, said in (
        (
            node_graph_from_data(nodes(), name="labelled"),
            "data= is a NodeGraph, but the model predicts links",
        ),
        ([("ann", "knows", "bob")], "data= has no pairs of nodes"),
        ([], "data= has no pairs of nodes"),
    ):
        with pytest.raises(UsageError, match=said):
            load_link_source(other)


def test_a_subclass_of_data_is_accepted():
    class Mine(Data):
        pass

    given = nodes()
    mine = Mine(x=given.x, edge_index=given.edge_index, y=given.y)
    assert given_data(mine, "node").kind == "nodes" and load_node_source(mine).num_nodes == 60
