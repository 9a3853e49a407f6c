"""`RelationalGraph`: its checks and its orderings of edges."""

import copy
import pickle

import pytest
import torch
from helpers.spmm_cases import random_graph

from graphzoo.errors import UsageError
from graphzoo.ops import RelationalGraph
from graphzoo.ops.relational_spmm import pieces
from graphzoo.ops.relational_spmm.graph import graph_of

EDGES, TYPES = torch.tensor([[0, 1, 2], [1, 2, 0]]), torch.tensor([0, 1, 0])


@pytest.mark.parametrize("segment", ["target", "source", "relation"])
def test_orderings_hold_every_edge_once_and_in_its_segment(segment):
    graph = random_graph(11, 70, 4)
    ordering = graph.ordering(segment)
    position = ordering.position.long()
    assert sorted(position.tolist()) == list(range(70))
    columns = {"source": graph.edge_index[0], "target": graph.edge_index[1], "relation": graph.edge_type}
    counts = ordering.offsets.diff()
    of_edge = torch.repeat_interleave(torch.arange(counts.numel()), counts.long())
    by = columns.pop(segment)
    assert torch.equal(by[position], of_edge)
    first, second = columns.values()
    assert torch.equal(first[position].int(), ordering.first)
    assert torch.equal(second[position].int(), ordering.second)
    assert ordering.longest == int(counts.max())
    keys = list(zip(of_edge.tolist(), ordering.second.tolist(), ordering.first.tolist(), strict=True))
    assert keys == sorted(keys)


def test_ties_keep_the_order_given():
    graph = RelationalGraph(torch.zeros(2, 5, dtype=torch.int64), torch.zeros(5, dtype=torch.int64), 1, 1)
    assert graph.ordering("target").position.tolist() == [0, 1, 2, 3, 4]


def test_orderings_are_computed_once_and_only_on_demand():
    graph = random_graph(5, 9, 2)
    assert graph._orderings == {}
    ordering = graph.ordering("source")
    assert graph.ordering("source") is ordering
    assert list(graph._orderings) == ["source"]


def test_a_graph_whose_tensors_were_changed_is_refused_but_copies_are_not():
    graph = random_graph(5, 9, 2)
    graph.edge_index[0, 0] = (graph.edge_index[0, 0] + 1) % 5
    graph = RelationalGraph(graph.edge_index, graph.edge_type, 5, 2)  # made of tensors with a history
    for copied in (graph, copy.deepcopy(graph), pickle.loads(pickle.dumps(graph))):
        assert copied.ordering("target").longest > 0
    graph.edge_type[0] = 1 - graph.edge_type[0]
    with pytest.raises(UsageError, match="Make a new RelationalGraph"):
        graph.ordering("target")
    found = graph_of(graph.edge_index, graph.edge_type, 5, 2)
    assert found is not graph and found.ordering("target").longest > 0


def test_counts_and_device():
    graph = RelationalGraph(EDGES, TYPES, 3, 2)
    assert (graph.num_nodes, graph.num_edges, graph.num_relations) == (3, 3, 2)
    assert graph.device == torch.device("cpu")
    assert graph.edge_index is EDGES and graph.edge_type is TYPES
    assert repr(graph) == "RelationalGraph(num_nodes=3, num_relations=2, num_edges=3, device='cpu')"


@pytest.mark.parametrize("piece", [1, 2, 3, 100])
def test_pieces_of_short_segments_are_the_segments(tiny_graph, piece, monkeypatch):
    """If no segment is cut, the pieces need no synchronisation; they equal those of the general case."""
    monkeypatch.setattr(pieces, "PIECE", piece)
    for segment in ("target", "source", "relation"):
        ordering = tiny_graph.ordering(segment)
        assert tiny_graph.pieces(segment) is tiny_graph.pieces(segment)
        expected = pieces.cut_to_pieces(ordering._replace(longest=10**9))
        for one, other in zip(tiny_graph.pieces(segment), expected, strict=True):
            assert torch.equal(torch.as_tensor(one), torch.as_tensor(other))


def test_moving_keeps_orderings():
    graph = RelationalGraph(EDGES, TYPES, 3, 2)
    graph.ordering("target")
    assert graph.to("cpu") is graph
    moved = graph.to("meta")
    assert moved.device.type == "meta" and (moved.num_nodes, moved.num_relations) == (3, 2)
    assert moved.ordering("target").offsets.device.type == "meta"
    assert graph.device.type == "cpu"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            (EDGES.t(), TYPES, 3, 2),
            r"edge_index must have shape \[2, num_edges\], got \[3, 2\]; transpose it",
        ),
        ((TYPES, TYPES, 3, 2), r"edge_index must have shape \[2, num_edges\], got \[3\]"),
        ((EDGES.float(), TYPES, 3, 2), "edge_index must be int64 or int32, got torch.float32"),
        ((EDGES.tolist(), TYPES, 3, 2), "edge_index must be a torch.Tensor, got list"),
        ((EDGES, TYPES.bool(), 3, 2), "edge_type must be int64 or int32, got torch.bool"),
        ((EDGES, TYPES[:2], 3, 2), r"edge_type must have shape \[3\].*got \[2\]"),
        ((EDGES, TYPES.to("meta"), 3, 2), "edge_index is on cpu, but edge_type on meta"),
        ((EDGES, TYPES, 2, 2), r"edge_index\[0\] must be in 0..1 \(num_nodes=2\), got 2 at position 2"),
        ((EDGES.flip(0), TYPES, 2, 2), r"edge_index\[0\].*got 2 at position 1"),
        ((torch.tensor([[0], [-1]]), TYPES[:1], 3, 2), r"edge_index\[1\].*got -1 at position 0"),
        ((EDGES, TYPES, 3, 1), r"edge_type must be in 0..0 \(num_relations=1\), got 1 at position 1"),
        ((EDGES, TYPES, -1, 2), "num_nodes must be at least 0, got -1"),
        ((EDGES, TYPES, 3, 2.0), "num_relations must be a whole number of at least 0, got 2.0"),
    ],
)
def test_wrong_input_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        RelationalGraph(*arguments)


def test_empty_graphs():
    no_edges = torch.zeros(2, 0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64)
    assert RelationalGraph(*no_edges, 4, 0).ordering("target").offsets.tolist() == [0] * 5
    assert RelationalGraph(*no_edges, 0, 0).ordering("relation").offsets.tolist() == [0]
