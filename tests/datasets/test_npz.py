"""Own data in `.npz` files: arrays, and graphs that graphzoo has saved."""

import numpy as np
import pytest
import torch

from graphzoo.datamodules import KGDataModule, LinkDataModule
from graphzoo.datasets import (
    DataError,
    GraphzooDataWarning,
    LinkGraph,
    from_files,
    link_graph_from_edges,
    link_graph_from_files,
    split_triples,
)

NODES = torch.arange(30)
EDGES = torch.cat([torch.stack([NODES, (NODES + step) % 30]) for step in (1, 2)], dim=1)


def test_links_in_a_file_and_in_memory_have_the_same_split(tmp_path):
    x = torch.randn(30, 3)
    np.savez(tmp_path / "mine.npz", edge_index=EDGES.numpy(), x=x.numpy())
    for index in (0, 1):
        found = link_graph_from_files(tmp_path / "mine.npz", split_index=index)
        wanted = link_graph_from_edges(EDGES, x, split_index=index)
        assert found.fingerprint == wanted.fingerprint and found.name == "mine"
    module = LinkDataModule(path=str(tmp_path / "mine.npz"), directed=True)
    module.setup()
    assert module.graph.is_directed


def test_links_may_have_names_and_isolated_nodes(tmp_path):
    names = np.array([f"n{number}" for number in range(32)])
    np.savez(tmp_path / "named.npz", edge_index=EDGES.numpy(), node_names=names)
    assert link_graph_from_files(tmp_path / "named.npz").node_names[31] == "n31"
    for count in (np.array(40), np.array([40]), np.array([[40.0]])):
        np.savez(tmp_path / "counted.npz", edge_index=EDGES.numpy(), num_nodes=count)
        assert link_graph_from_files(tmp_path / "counted.npz").num_nodes == 40


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.ones((3, 2))}, "no edge_index; it has x"),
        ({"edge_index": EDGES.numpy().T}, r"edge_index must be .* \[2, edges\].*transpose it"),
        ({"edge_index": EDGES.numpy(), "x": np.ones((3, 2))}, "there are 3"),
        (
            {"edge_index": EDGES.numpy(), "num_nodes": np.array([30, 30])},
            r"one whole number, got int64 \[2\]",
        ),
        ({"edge_index": EDGES.numpy(), "num_nodes": np.array([30.5])}, "one whole number, got 30.5"),
        ({"edge_index": EDGES.numpy(), "num_nodes": np.array("thirty")}, "one whole number, got thirty"),
        (
            {"edge_index": EDGES.numpy(), "node_names": np.array([*"aabb", *map(str, range(26))])},
            r"several nodes are called 'a' \(2 such names\); give each a name of its own",
        ),
    ],
)
def test_wrong_links_are_refused_with_their_file(tmp_path, arrays, message):
    np.savez(tmp_path / "mine.npz", **arrays)
    with pytest.raises(DataError, match=message) as error:
        link_graph_from_files(tmp_path / "mine.npz")
    assert str(tmp_path / "mine.npz") in str(error.value)


def test_a_saved_graph_of_links_keeps_its_split(tmp_path):
    graph = link_graph_from_edges(EDGES, split_index=5)
    graph.save(tmp_path / "kept.npz")
    found = link_graph_from_files(tmp_path / "kept.npz")
    assert isinstance(found, LinkGraph) and found.fingerprint == graph.fingerprint


def test_a_saved_knowledge_graph_is_read_as_own_triples(tmp_path):
    facts = [(f"a{i}", relation, f"b{i}") for i in range(12) for relation in ("r", "s", "t")]
    graph = split_triples(facts, name="mine")
    graph.save(tmp_path / "kept.npz")
    assert from_files(tmp_path / "kept.npz")[0].fingerprint == graph.fingerprint
    module = KGDataModule(path=str(tmp_path / "kept.npz"))
    module.setup()
    assert module.fingerprint == graph.fingerprint and module.title == "mine"


def test_dropped_links_give_a_warning(tmp_path):
    np.savez(tmp_path / "loops.npz", edge_index=torch.cat([EDGES, torch.zeros(2, 1).long()], 1).numpy())
    with pytest.warns(GraphzooDataWarning, match="1 self-link dropped"):
        link_graph_from_files(tmp_path / "loops.npz")
