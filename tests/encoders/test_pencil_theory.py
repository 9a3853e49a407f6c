"""Theorems of the PENCIL paper, and special cases that other libraries implement."""

import itertools

import pytest
import torch
from helpers.pair_subgraphs import make_subgraphs
from helpers.pencil_cases import SIZES, build
from torch_geometric.nn import SAGEConv

from graphzoo.encoders import PENCIL
from graphzoo.encoders.pencil import _operator
from graphzoo.types import GraphSpec


def test_without_attention_a_layer_is_a_mean_aggregation():
    """Without attention and feed-forward network: Z + SAGEConv(Z) on the subgraph with self-loops."""
    encoder, subgraphs = build(num_layers=2), make_subgraphs(SIZES)
    layer = encoder.layers[0]
    for part in (layer.attention_out, layer.ffn_out):
        torch.nn.init.zeros_(part.weight)
        torch.nn.init.zeros_(part.bias)
    conv = SAGEConv(12, 12, aggr="mean", root_weight=False).double()
    conv.lin_l.load_state_dict(layer.propagation.state_dict())
    links = subgraphs.adjacency.double()
    valid = torch.arange(11) < subgraphs.num_nodes[:, None]
    tokens = encoder._embed(links, None)
    mask = torch.nn.functional.pad(valid, (0, 2), value=True)
    out = layer(tokens, mask, _operator(links, valid, "row"), None)
    for states, h, link, size in zip(out, tokens, subgraphs.adjacency, subgraphs.num_nodes, strict=True):
        z = layer.ffn_norm(layer.attention_norm(h))
        receiver, sender = (link[:size, :size] | torch.eye(size, dtype=torch.bool)).nonzero().t()
        received = conv(z[:size], torch.stack([sender, receiver]))
        torch.testing.assert_close(states[:size], z[:size] + received, atol=1e-10, rtol=1e-10)
        # The task tokens receive the messages of u and v, and add them to their own states.
        torch.testing.assert_close(states[-2:], z[-2:] + received[:2], atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("norm", ["row", "none", "column"])
def test_operator_equals_the_normalised_adjacency(norm):
    """As computed by scipy, with the rows of the task tokens; entries of padding are zero."""
    from scipy.sparse import coo_matrix, diags, identity

    subgraphs = make_subgraphs(SIZES, directed=norm == "column")
    valid = torch.arange(11) < subgraphs.num_nodes[:, None]
    operators = _operator(subgraphs.adjacency.double(), valid, norm)
    for operator, links, size in zip(operators, subgraphs.adjacency, subgraphs.num_nodes, strict=True):
        row, column = links[:size, :size].nonzero().t().numpy()
        graph = coo_matrix(([1.0] * len(row), (row, column)), shape=(size, size)) + identity(int(size))
        degree = graph.sum(1).A1
        if norm == "row":
            graph = diags(1 / degree) @ graph
        if norm == "column":
            graph = graph @ diags(degree**-0.5)
        expected = torch.from_numpy(graph.toarray())
        torch.testing.assert_close(operator[:size, :size], expected, atol=1e-12, rtol=0)
        torch.testing.assert_close(operator[-2:, :size], expected[:2], atol=1e-12, rtol=0)
        assert not operator[size:11].any() and not operator[:, size:].any()


def common_neighbors(links):
    return (links[:, 0] & links[:, 1]).sum(1)


def test_task_tokens_count_common_neighbors():
    """With orthonormal rows of the projection, <h_u, h_v> is their number plus 1, for the shared role."""
    torch.manual_seed(0)
    encoder = PENCIL(GraphSpec(40), hidden_channels=64, max_nodes=20, num_layers=1)
    subgraphs = make_subgraphs([20, 13, 2, 17], density=0.4)
    tokens = encoder._embed(subgraphs.adjacency.float(), None)
    counted = (tokens[:, -2] * tokens[:, -1]).sum(1) - 1
    expected = common_neighbors(subgraphs.adjacency)
    assert expected.max() > 2
    torch.testing.assert_close(counted, expected.float(), atol=1e-4, rtol=0)


def test_propagated_orthonormal_states_count_walks():
    """Theorems B.3 and B.4 with the raw operator; its self-loops let walks stay at a node."""
    torch.manual_seed(0)
    states = torch.nn.init.orthogonal_(torch.empty(20, 64, dtype=torch.float64))
    subgraphs = make_subgraphs([20, 20], density=0.2)
    valid = torch.ones(2, 20, dtype=torch.bool)
    square = _operator(subgraphs.adjacency.double(), valid, "none")
    once = square @ states
    counted = (once[:, -2] * once[:, -1]).sum(1)
    torch.testing.assert_close(counted, common_neighbors(subgraphs.adjacency).double(), atol=1e-9, rtol=0)
    twice = square @ once[:, :20]
    counted = (twice[:, -2] * once[:, -1]).sum(1)
    for pair, found in enumerate(counted):
        loops = subgraphs.adjacency[pair] | torch.eye(20, dtype=torch.bool)
        walks = sum(
            int(loops[0, a] and loops[a, end] and loops[1, end])
            for a, end in itertools.product(range(20), repeat=2)
        )
        assert found.item() == pytest.approx(walks, abs=1e-9)


def states_in_all_orders(encoder, links):
    """States [orders, 2 D] for all orders of the nodes except the endpoints, from links [N, N]."""
    size = links.shape[0]
    places = torch.tensor([(0, 1, *order) for order in itertools.permutations(range(2, size))])
    subgraphs = make_subgraphs([size] * len(places))
    subgraphs.adjacency = torch.stack([links[place][:, place] for place in places])
    return encoder(subgraphs)


def test_relabelled_graphs_have_the_same_distribution_of_states():
    """Theorem 4.1, with all orders of the other nodes of a small subgraph."""
    encoder = build()
    (links,) = make_subgraphs([5], density=0.5, seed=3).adjacency
    relabelled = links[[0, 1, 4, 2, 3]][:, [0, 1, 4, 2, 3]]
    assert not torch.equal(links, relabelled)
    before, after = (states_in_all_orders(encoder, graph) for graph in (links, relabelled))
    assert before.std(0).max() > 1e-3
    before, after = (states[states[:, 0].argsort()] for states in (before, after))
    torch.testing.assert_close(after, before, atol=1e-10, rtol=1e-10)


def test_a_ring_is_distinguished_from_two_triangles():
    """Sec. 4.3: message passing cannot distinguish them, because every node has two neighbours in both."""
    ring, triangles = (torch.zeros(6, 6, dtype=torch.bool) for _ in range(2))
    for one, other in ((0, 2), (2, 3), (3, 1), (1, 4), (4, 5), (5, 0)):
        ring[one, other] = ring[other, one] = True
    for one, other in ((0, 2), (2, 3), (3, 0), (1, 4), (4, 5), (5, 1)):
        triangles[one, other] = triangles[other, one] = True
    conv = SAGEConv(4, 4, aggr="mean").double()
    alike = [conv(torch.ones(6, 4).double(), graph.nonzero().t()) for graph in (ring, triangles)]
    torch.testing.assert_close(alike[0], alike[1])
    encoder = build()
    means = [states_in_all_orders(encoder, graph).mean(0) for graph in (ring, triangles)]
    assert (means[0] - means[1]).abs().max() > 1e-3


@pytest.mark.parametrize(("num_layers", "millions"), [(3, 10.2), (8, 27.3)])
def test_the_number_of_parameters_is_that_of_table_10(num_layers, millions):
    with torch.device("meta"):
        encoder = PENCIL(GraphSpec(40), num_layers=num_layers, max_nodes=152)
    count = sum(weight.numel() for weight in encoder.parameters())
    assert round(count / 1e6, 1) == millions
