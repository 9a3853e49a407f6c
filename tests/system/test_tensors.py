"""Arrays and lists, and tensors of another kind, are refused by the name of the argument."""

import pytest
import torch

from graphzoo.datasets import knn_graph, link_graph_from_edges
from graphzoo.errors import UsageError
from graphzoo.metrics import filtered_ranks, link_ranks, roc_auc
from graphzoo.ops import (
    RelationalGraph,
    cosine_linear_attention,
    denoise_features,
    exponential_attention,
    kernelized_edge_weights,
    kernelized_softmax,
    relational_spmm,
)
from graphzoo.sampling import FactRemover, LinkHider, NegativePairs, induced_subgraph

EDGES = torch.tensor([[0, 1], [1, 2]])
GRAPH = RelationalGraph(EDGES, torch.tensor([0, 1]), 3, 2)
X = torch.ones(3, 4)
THREE, FOUR = torch.ones(3, 2, 4), torch.ones(3, 1, 2, 4)
PLACES = torch.tensor([0])

# the argument, its value, and a call with it
CALLS = [
    ("x", X, lambda x: relational_spmm(x, torch.ones(2, 4), GRAPH)),
    ("relation", torch.ones(2, 4), lambda relation: relational_spmm(X, relation, GRAPH)),
    ("edge_mask", torch.tensor([True, False]), lambda m: relational_spmm(X, X[:2], GRAPH, edge_mask=m)),
    ("triples", torch.tensor([[0, 0, 1]]), lambda triples: RelationalGraph.from_triples(triples, 2, 1)),
    ("x", X, lambda x: denoise_features(x, EDGES)),
    ("value", THREE, lambda value: cosine_linear_attention(THREE, THREE, value)),
    ("key", FOUR, lambda key: exponential_attention(FOUR, key, FOUR)),
    ("projection", X, lambda directions: kernelized_softmax(THREE, THREE, THREE, directions, tau=0.25)),
    ("query", THREE, lambda query: kernelized_edge_weights(query, THREE, X, EDGES, tau=0.25)),
    ("triples", torch.tensor([[0, 0, 1]]), lambda triples: FactRemover(triples, 2)),
    ("removed", PLACES, lambda removed: FactRemover(torch.tensor([[0, 0, 1]]), 2).edge_mask(removed)),
    ("edge_index", EDGES, lambda edge_index: NegativePairs(edge_index, 3)),
    ("index", PLACES, lambda index: NegativePairs(EDGES, 3).sample(index, seed=0, epoch=0)),
    ("source", PLACES, lambda u: NegativePairs(EDGES, 3).sample(PLACES, source=u, seed=0, epoch=0)),
    ("pairs", EDGES, lambda pairs: LinkHider(EDGES, 3).keep(pairs)),
    ("nodes", PLACES, lambda nodes: induced_subgraph(EDGES, nodes, 3)),
    ("scores", X, lambda scores: filtered_ranks(scores, torch.zeros(3).long(), torch.zeros(3, 4).bool())),
    ("negative", X[0], lambda negative: link_ranks(X[0], negative)),
    ("target", torch.tensor([0.0, 1.0]), lambda target: roc_auc(torch.ones(2), target)),
    ("x", X, lambda x: knn_graph(x, 2)),
    ("edge_index", torch.randint(9, (2, 60)), lambda edge_index: link_graph_from_edges(edge_index)),
]


@pytest.mark.parametrize(("name", "value", "call"), CALLS)
@pytest.mark.filterwarnings("ignore::graphzoo.errors.GraphzooDataWarning")
def test_what_is_no_tensor_is_named(name, value, call):
    call(value)
    for other in (value.numpy(), value.tolist()):
        kind = type(other).__name__
        with pytest.raises(UsageError, match=rf"^{name} must be a torch.Tensor, got {kind}\nGive torch.as"):
            call(other)


def test_masks_and_fractions_are_no_positions():
    mask = torch.tensor([True, False, True])
    with pytest.raises(UsageError, match=r"nodes must be int64 or int32, got torch.bool; give nodes.nonzero"):
        induced_subgraph(EDGES, mask, 3)
    assert induced_subgraph(EDGES, mask.nonzero()[:, 0], 3).tolist() == [[], []]
    with pytest.raises(UsageError, match=r"triples must be int64 or int32, got torch.float32; call .long"):
        FactRemover(torch.tensor([[0.0, 0.0, 0.5]]), 2)


def test_shapes_of_which_another_answer_would_come_are_refused():
    with pytest.raises(ValueError, match=r"pairs must have shape \[2, G\], got \[3, 2\]; transpose it"):
        LinkHider(EDGES, 3).keep(torch.tensor([[0, 1], [1, 2], [0, 2]]))
    with pytest.raises(ValueError, match=r"triples must have shape \[n, 3\], got \[1, 2\]"):
        FactRemover(torch.tensor([[0, 1]]), 3)
    with pytest.raises(ValueError, match=r"scores and target must be \[T\], got \[2, 2\] and \[2, 2\]"):
        roc_auc(torch.rand(2, 2), torch.eye(2))
