"""Ranks of the matrices in GALiT's Fig. 5, on graphs for which they are known."""

import pytest
import torch

from graphzoo.encoders import GALiT
from graphzoo.report.models import ranks
from graphzoo.types import GraphSpec


def complete(*sizes):
    """Disjoint complete graphs."""
    blocks = torch.block_diag(*(torch.ones(size, size) for size in sizes))
    return blocks.nonzero().t(), sum(sizes)


def build(num_nodes, **settings):
    encoder = GALiT(GraphSpec(num_nodes, in_channels=7), **settings)
    return encoder, torch.randn(num_nodes, 7)


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        (complete(12), 1),
        (complete(5, 7), 2),
        (complete(3, 4, 5), 3),
        ((torch.zeros(2, 0, dtype=torch.int64), 12), 12),
    ],
)
def test_the_rank_of_the_adjacency_is_the_number_of_complete_components(graph, expected):
    edge_index, num_nodes = graph
    matrix = ranks.adjacency_matrix(edge_index, num_nodes)
    assert ranks.rank(torch.linalg.svdvals(matrix)) == expected
    one_way = edge_index[:, edge_index[0] <= edge_index[1]]
    assert torch.equal(ranks.adjacency_matrix(one_way, num_nodes), matrix)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"hidden_channels": 3, "similarity": "cos"}, 3 + 1),
        ({"hidden_channels": 3, "similarity": "cos", "num_heads": 4}, 3 + 1),
        ({"hidden_channels": 3, "similarity": "mcos", "num_heads": 2}, 2 * 3 + 1),
        ({"hidden_channels": 3, "similarity": "qkcos", "num_heads": 3}, 3 * 3 + 1),
        # under "fro", all heads are linear maps of one D-dimensional space, so that the rank stays D + 1
        ({"hidden_channels": 3, "similarity": "qkcos", "num_heads": 3, "norm": "fro"}, 3 + 1),
        ({"hidden_channels": 3, "similarity": "mcos", "num_heads": 8}, 20),
    ],
)
def test_attention_has_the_rank_of_the_bound(settings, expected):
    """Random states reach the bound of Eq. 33 and 35, or the number of nodes if this is lower."""
    encoder, x = build(20, activation=False, **settings)
    found = ranks.spectra(encoder, x, complete(20)[0])
    assert ranks.rank(found["P"]) == expected
    assert ranks.rank(found["A"]) == 1 and encoder.input.weight.dtype == torch.float32


def test_the_mix_with_an_adjacency_of_full_rank_has_full_rank():
    encoder, x = build(20, hidden_channels=3, alpha=0.3)
    no_edges = torch.zeros(2, 0, dtype=torch.int64)  # A is the identity
    found = ranks.spectra(encoder, x, no_edges)
    assert ranks.rank(found["P"]) < 20 and ranks.rank(found["mix"]) == ranks.rank(found["A"]) == 20
    # the attention has a low rank, so most singular values are those of 0.7 times the identity
    torch.testing.assert_close(found["mix"][5:15], torch.full((10,), 0.7, dtype=torch.float64))


@pytest.mark.parametrize("similarity", ["cos", "wcos", "mcos", "qkcos"])
@pytest.mark.parametrize("norm", ["l2", "fro"])
def test_the_attention_matrix_is_that_of_the_encoder(similarity, norm):
    encoder, x = build(9, hidden_channels=4, num_heads=2, similarity=similarity, norm=norm)
    encoder, x = encoder.double().eval(), x.double()
    pairs = torch.cartesian_prod(torch.arange(9), torch.arange(9)).t()
    expected = encoder.return_attention(x, complete(9)[0], pairs)[0].mean(1).view(9, 9)
    matrix = ranks.attention_matrix(encoder.layers[0].attention, encoder._embed(x, None))
    torch.testing.assert_close(matrix, expected)


def test_effective_ranks():
    assert ranks.effective_rank(torch.tensor([2.0, 2.0, 2.0, 0.0])) == pytest.approx(3)
    assert ranks.effective_rank(torch.tensor([1.0, 0.0])) == pytest.approx(1)


def test_an_encoder_without_attention_is_refused():
    encoder, x = build(5, attention="none")
    with pytest.raises(ValueError, match="no attention"):
        ranks.spectra(encoder, x, complete(5)[0])


@pytest.mark.parametrize("norm", ["l2", "fro"])
def test_sampled_rows_and_columns_are_those_of_the_whole_matrices(norm):
    """In a large graph only a sample of nodes is used; its weights are still normalised over all nodes."""
    encoder, x = build(15, hidden_channels=4, num_heads=2, similarity="qkcos", norm=norm)
    layer, states = encoder.layers[0].attention.double(), encoder.double()._embed(x.double(), None)
    nodes, (edge_index, _) = torch.tensor([1, 4, 5, 13]), complete(6, 9)
    whole = ranks.attention_matrix(layer, states)
    torch.testing.assert_close(ranks.attention_matrix(layer, states, nodes), whole[nodes][:, nodes])
    adjacency = ranks.adjacency_matrix(edge_index, 15)
    assert torch.equal(ranks.adjacency_matrix(edge_index, 15, nodes), adjacency[nodes][:, nodes])


def test_the_bound_counts_nodes_heads_and_the_constant():
    encoder, _ = build(20, hidden_channels=3, num_heads=2, similarity="mcos")
    assert [ranks.rank_bound(encoder, count) for count in (5, 20)] == [5, 7]
