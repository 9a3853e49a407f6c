"""What a task says about a user's encoder that does not keep to the interface of its kind."""

import pytest
import torch
from torch import nn
from torch_geometric.data import Data

from graphzoo.encoders import GALiT, NodeEncoder, PairEncoder, QueryEncoder
from graphzoo.errors import UsageError
from graphzoo.ops import RelationalGraph
from graphzoo.sampling import PairSubgraphSampler
from graphzoo.tasks import KGCompletion, LinkPrediction, NodeClassification
from graphzoo.types import GraphSpec

N, B, D = 5, 3, 4


class Query(QueryEncoder):
    def __init__(self, spec, *, make=lambda: torch.zeros(N, B, D), out_channels=D):
        super().__init__()
        self.make = make
        if out_channels is not None:
            self.out_channels = out_channels

    def forward(self, graph, head, relation, *, edge_mask=None, noise_seed=None):
        return self.make()


class Plain(NodeEncoder):
    def __init__(self, spec, *, make=lambda: torch.zeros(N, D)):
        super().__init__()
        self.make, self.out_channels = make, D
        self.unused = nn.Linear(2, 2)

    def forward(self, x, edge_index):
        return self.make()


class Node(Plain):
    def precompute(self, x, edge_index, *, cache=None):
        return {"made": 1}

    def forward(self, x, edge_index, *, made):
        return self.make()


class Pair(PairEncoder):
    def __init__(self, spec, *, make=lambda: torch.zeros(B, D)):
        super().__init__()
        self.make, self.out_channels = make, D

    def forward(self, subgraphs, x=None, *, noise_seed=None):
        return self.make()


class NoMask(Query):
    def forward(self, graph, head, relation, *, noise_seed=None):
        return self.make()


class NoSeed(Pair):
    def forward(self, subgraphs, x=None):
        return self.make()


class Renamed(Pair):
    def forward(self, batch, x=None, *, noise_seed=None):
        return self.make()


class Weights(Plain):
    def forward(self, x, edge_index, edge_weight):
        return self.make()


class NoEdges(Node):
    def forward(self, x):
        return self.make()


TASKS = {Query: KGCompletion, Plain: NodeClassification, Pair: LinkPrediction}


def built(encoder, **settings):
    task = next(task for kind, task in TASKS.items() if issubclass(encoder, kind))
    made = task(lambda spec: encoder(spec, **settings))
    made.build(GraphSpec(N, 1, in_channels=2, num_classes=2, max_subgraph_nodes=4))
    return made.encoder


def inputs(kind):
    edges = torch.tensor([[0, 1, 2], [1, 2, 3]])
    if kind is Query:
        graph = RelationalGraph(edges, torch.zeros(3, dtype=torch.int64), N, 2)
        return (graph, torch.arange(B), torch.zeros(B, dtype=torch.int64)), {}
    if kind is Node:
        return (torch.ones(N, 2), edges), {"made": 1}
    pairs = torch.tensor([[0, 1], [0, 2], [1, 3]])
    return (PairSubgraphSampler(edges, N, depth=1, num_neighbors=2)(pairs, seed=0),), {}


@pytest.mark.parametrize(
    ("encoder", "problem", "remedy"),
    [
        (
            NoMask,
            "NoMask.forward does not fit: .*'edge_mask'",
            "a QueryEncoder takes graph, .* by name edge_",
        ),
        (
            NoSeed,
            "NoSeed.forward does not fit: .*'noise_seed'",
            "a PairEncoder takes subgraphs, x, and by name",
        ),
        (Weights, "Weights.forward does not fit: .*'edge_weight'", "a NodeEncoder takes x, edge_index$"),
        (NoEdges, "NoEdges.forward does not fit: too many positional", "a NodeEncoder takes x, edge_index$"),
    ],
)
def test_a_forward_with_other_arguments_is_refused_before_training(encoder, problem, remedy):
    with pytest.raises(UsageError, match=f"{problem}.*\n.*{remedy}"):
        built(encoder)


@pytest.mark.parametrize(
    ("width", "got"),
    [
        (None, "out_channels\n"),
        (4.0, "out_channels: it is 4.0\n"),
        (0, "out_channels: it is 0\n"),
        (True, "out_channels: it is True\n"),
    ],
)
def test_a_width_of_states_is_required(width, got):
    with pytest.raises(UsageError, match=f"Query has no width of states in {got}Set self.out_channels"):
        built(Query, out_channels=width)


@pytest.mark.fault("a user's encoder returns states of another shape", "refused with both shapes")
@pytest.mark.parametrize(
    ("kind", "made", "message"),
    [
        (
            Query,
            torch.zeros(B, N, D),
            r"Query.forward returned \[3, 5, 4\], .* QueryEncoder .*\[5, 3, 4\]: D is",
        ),
        (Query, torch.zeros(N, B, 7), r"returned \[5, 3, 7\]"),
        (Node, torch.zeros(N - 1, D), r"Node.forward returned \[4, 4\], .* NodeEncoder .*\[5, 4\]"),
        (Node, (torch.zeros(N, D), None), "returned a tuple"),
        (Pair, torch.zeros(B, 2, D), r"Pair.forward returned \[3, 2, 4\], .* PairEncoder .*\[3, 4\]"),
    ],
)
def test_states_of_another_shape_are_refused(kind, made, message):
    given, named = inputs(kind)
    built(kind)(*given, **named)
    with pytest.raises(UsageError, match=message):
        built(kind, make=lambda: made)(*given, **named)


def test_encoders_may_be_called_by_keywords_and_with_a_graph_of_pyg():
    (graph, head, relation), _ = inputs(Query)
    assert built(Query)(graph, head=head, relation=relation).shape == (N, B, D)
    (subgraphs,), _ = inputs(Pair)
    assert built(Pair)(subgraphs=subgraphs).shape == (B, D)
    (x, edge_index), named = inputs(Node)
    assert built(Node)(Data(x=x, edge_index=edge_index), **named).shape == (N, D)
    assert built(Renamed)(batch=subgraphs).shape == (B, D)


def test_states_of_graphzoos_own_encoders_are_not_checked_in_every_call():
    task = NodeClassification(lambda spec: GALiT(spec, hidden_channels=D))
    task.build(GraphSpec(N, in_channels=2, num_classes=2))
    assert not task.encoder._forward_hooks
    own = Node(GraphSpec(N))
    for _ in range(2):
        NodeClassification(lambda spec: own).build(GraphSpec(N, in_channels=2, num_classes=2))
    assert len(own._forward_hooks) == 1
