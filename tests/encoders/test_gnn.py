"""`GNN` and `PairGNN`, the encoders with PyG's layers on whole graphs and on subgraphs around node pairs."""

import copy

import pytest
import torch
from helpers.pair_subgraphs import make_subgraphs, pad, pick
from torch.nn import functional as F
from torch_geometric.nn import GATConv, GCNConv, SAGEConv

from graphzoo.encoders import GNN, PairGNN
from graphzoo.encoders.pair_gnn import _places
from graphzoo.types import GraphSpec

KINDS = ["gcn", "gat", "sage"]


def graph(num_nodes=30, channels=9):
    edge_index = torch.randint(0, num_nodes - 2, (2, 3 * num_nodes))
    return torch.randn(num_nodes, channels, dtype=torch.float64), edge_index


def build(kind, channels=9, **settings):
    torch.manual_seed(0)
    spec = GraphSpec(30, in_channels=channels)
    encoder = GNN(spec, kind=kind, hidden_channels=12, num_heads=3, **settings)
    return randomise(encoder.double())


def build_pairs(kind, *, channels=0, num_nodes=40, **settings):
    torch.manual_seed(0)
    spec = GraphSpec(num_nodes, in_channels=channels)
    encoder = PairGNN(spec, kind=kind, **{"hidden_channels": 12, "num_heads": 3, **settings})
    return randomise(encoder.double()).eval()


def randomise(encoder):
    # Biases start at 0, where a missing one would not be noticed.
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return encoder


def reference(encoder, kind, x, edge_index):
    """The states of PyG's modules with the same weights."""
    h = x
    for layer, conv in enumerate(encoder.layers.convs):
        width = h.shape[1]
        if kind == "gcn":
            plain = GCNConv(width, 12)
        elif kind == "gat":
            plain = GATConv(width, 4, heads=3)
        else:
            plain = SAGEConv(width, 12)
        plain = plain.double()
        if kind == "sage" and layer == 0:
            with torch.no_grad():
                plain.lin_l.weight.copy_(encoder.layers.before.weight)
                plain.lin_l.bias.copy_(conv.lin_r.bias)
                plain.lin_r.weight.copy_(conv.lin_r.weight)
        else:
            plain.load_state_dict(conv.state_dict())
        h = F.relu(plain(h, edge_index))
    return h


@pytest.mark.parametrize("kind", KINDS)
def test_states_equal_those_of_pyg(kind):
    x, edge_index = graph()
    encoder = build(kind, num_layers=3).eval()
    states = encoder(x, edge_index)
    assert states.shape == (30, 12) == (30, encoder.out_channels) and (states > 0).any()
    torch.testing.assert_close(states, reference(encoder, kind, x, edge_index))


@pytest.mark.parametrize("kind", KINDS)
def test_kept_edges_are_those_of_the_graph(kind):
    x, edge_index = graph()
    encoder = build(kind).eval()
    encoder(x, edge_index)
    torch.testing.assert_close(encoder(x[:-1], edge_index), reference(encoder, kind, x[:-1], edge_index))
    edge_index[:, ::2] = edge_index[:, ::2].flip(0)
    edge_index[0, 0] = edge_index[1, 0]
    torch.testing.assert_close(encoder(x, edge_index), reference(encoder, kind, x, edge_index))
    again = copy.deepcopy(encoder)
    torch.testing.assert_close(again(x, edge_index), encoder(x, edge_index))
    encoder(x, edge_index)
    encoder.double()
    exact = reference(encoder, kind, x.double(), edge_index)
    torch.testing.assert_close(encoder(x.double(), edge_index), exact, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("count", [0, 1, 7, 60])
def test_places_need_no_count_of_entries(count):
    mask = torch.zeros(3, 4, 5, dtype=torch.bool)
    mask.view(-1)[torch.randperm(60)[:count]] = True
    assert torch.equal(_places(mask, tuple(mask.flatten(1).sum(1).tolist())), _places(mask, None))


@pytest.mark.parametrize("kind", KINDS)
def test_sparse_features_give_the_same_states_and_gradients(kind):
    x, edge_index = graph()
    x = x * (torch.rand_like(x) < 0.3)
    dense, sparse = build(kind).eval(), build(kind).eval()
    for encoder, given in ((dense, x), (sparse, x.to_sparse_csr())):
        encoder(given, edge_index).square().sum().backward()
    torch.testing.assert_close(sparse(x.to_sparse_csr(), edge_index), dense(x, edge_index))
    for (name, one), other in zip(dense.named_parameters(), sparse.parameters(), strict=True):
        assert one.grad is not None and one.grad.abs().max() > 0, name
        torch.testing.assert_close(other.grad, one.grad)


def test_input_dropout_drops_stored_values():
    x = torch.ones(200, 9, dtype=torch.float64)
    loops = torch.arange(200).expand(2, -1)
    encoder = build("gcn", dropout=0.0, input_dropout=0.5, num_layers=1)
    conv = encoder.layers.convs[0]
    with torch.no_grad():
        conv.lin.weight.copy_(torch.eye(12, 9))
        conv.bias.zero_()
    for given in (x, x.to_sparse_csr()):
        found = encoder(given, loops, noise_seed=1)[:, :9]
        assert found.unique().tolist() == [0.0, 2.0] and 0.4 < (found > 0).double().mean() < 0.6
        assert torch.equal(encoder.eval()(given, loops)[:, :9], x)
        encoder.train()


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_dropout_depends_on_the_noise_seed_and_not_on_the_global_state(kind, pairs):
    x, edge_index = graph()
    encoder = build_pairs(kind, dropout=0.5).train() if pairs else build(kind, dropout=0.5)
    given = (make_subgraphs([6, 9]),) if pairs else (x, edge_index)
    before = torch.get_rng_state()
    one = encoder(*given, noise_seed=3)
    assert torch.equal(encoder(*given, noise_seed=3), one)
    assert not torch.equal(encoder(*given, noise_seed=4), one)
    following = encoder(*given)
    assert not torch.equal(encoder(*given), following)
    assert torch.equal(torch.get_rng_state(), before)
    encoder.eval()
    draws = int(encoder.noise.draws)
    assert torch.equal(encoder(*given, noise_seed=3), encoder(*given))
    assert int(encoder.noise.draws) == draws == 2, "evaluation draws nothing"


@pytest.mark.parametrize("aware", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_pairs_of_a_batch_are_encoded_separately(kind, aware):
    """Each pair has the states of PyG's modules on the edges of its subgraph."""
    subgraphs = make_subgraphs([5, 12, 2, 8], directed=True)
    encoder = build_pairs(kind, identity_aware=aware, num_layers=3)
    found = encoder(subgraphs)
    assert found.shape == (4, 24) == (4, encoder.out_channels)
    for row, size in enumerate(subgraphs.num_nodes.tolist()):
        edges = [(i, j) for i in range(size) for j in range(size) if subgraphs.adjacency[row, i, j]]
        edge_index = torch.tensor(edges, dtype=torch.int64).view(-1, 2).t()
        x = torch.ones(size, 1, dtype=torch.float64)
        if aware:
            x = torch.cat([x, torch.eye(size, dtype=torch.float64)[:, :2]], 1)
        expected = reference(encoder, kind, x, edge_index)[:2].flatten()
        torch.testing.assert_close(found[row], expected)


@pytest.mark.parametrize("kind", KINDS)
def test_padding_and_other_pairs_do_not_matter(kind):
    subgraphs = make_subgraphs([7, 3, 10])
    encoder = build_pairs(kind, identity_aware=True)
    expected = encoder(subgraphs)
    torch.testing.assert_close(encoder(pad(subgraphs, 25)), expected)
    torch.testing.assert_close(encoder(pick(subgraphs, [2, 0])), expected[[2, 0]])
    shuffled = torch.cat([torch.arange(2), 2 + torch.randperm(8)])
    last = pick(subgraphs, [2])
    last.adjacency = last.adjacency[:, shuffled][:, :, shuffled]
    torch.testing.assert_close(encoder(last), expected[2:])


@pytest.mark.parametrize("kind", KINDS)
def test_only_marks_distinguish_equivalent_nodes(kind):
    """u, v and w are leaves of one hub; without marks, all of them have the same states."""
    subgraphs = make_subgraphs([4])
    hub = torch.zeros(1, 4, 4, dtype=torch.bool)
    hub[0, 3, :3] = hub[0, :3, 3] = True
    subgraphs.adjacency = hub
    plain, aware = build_pairs(kind), build_pairs(kind, identity_aware=True)
    u, v = plain(subgraphs).view(2, -1)
    torch.testing.assert_close(u, v)
    u, v = aware(subgraphs).view(2, -1)
    assert not torch.allclose(u, v)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_features_of_the_subgraphs_nodes_are_used(kind, sparse):
    subgraphs = make_subgraphs([6, 4], num_nodes=200)
    x = torch.randn(200, 7, dtype=torch.float64) * (torch.rand(200, 7) < 0.5)
    encoder = build_pairs(kind, channels=7, num_nodes=200)
    given = x.to_sparse_csr() if sparse else x
    found = encoder(subgraphs, given)
    mapped = F.linear(x, encoder.features.linear.weight, encoder.features.linear.bias)
    for row, size in enumerate(subgraphs.num_nodes.tolist()):
        edge_index = subgraphs.adjacency[row].nonzero().t()
        own = mapped[subgraphs.nodes[row, :size]]
        inputs = torch.cat([torch.ones(size, 1, dtype=torch.float64), own], 1)
        torch.testing.assert_close(found[row], reference(encoder, kind, inputs, edge_index)[:2].flatten())
    found.sum().backward()
    assert all(parameter.grad is not None for parameter in encoder.parameters())
    without = build_pairs(kind, channels=7, num_nodes=200, use_features=False)
    assert without.features is None and torch.equal(without(subgraphs, x), without(subgraphs))
    with pytest.raises(ValueError, match=r"node features \[N, 7\] and got none"):
        encoder(subgraphs)
    with pytest.raises(ValueError, match=r"got \[200, 6\]"):
        encoder(subgraphs, x[:, :6])
    with pytest.raises(ValueError, match="x has 2 rows, but a subgraph has node"):
        encoder(subgraphs, x[:2])


@pytest.mark.parametrize("kind", KINDS)
def test_pairs_without_other_nodes(kind):
    subgraphs = make_subgraphs([2, 2])
    found = build_pairs(kind, identity_aware=True)(subgraphs)
    assert torch.isfinite(found).all() and torch.equal(found[0], found[1])


def test_init_args_have_the_defaults_and_copies_give_the_same_states():
    encoder = GNN(GraphSpec(5, in_channels=3), kind="gat", hidden_channels=8)
    assert encoder.init_args["num_heads"] == 8 and encoder.init_args["num_layers"] == 2
    x, edge_index = torch.randn(5, 3), torch.tensor([[0, 1], [1, 2]])
    encoder.eval()
    assert torch.equal(copy.deepcopy(encoder)(x, edge_index), encoder(x, edge_index))


@pytest.mark.parametrize("cls", [GNN, PairGNN])
def test_wrong_settings_are_refused(cls):
    spec = GraphSpec(5, in_channels=3)
    for settings, words in (
        ({"kind": "gin"}, "kind must be one of gcn, gat, sage, got 'gin'"),
        ({"num_layers": 0}, "num_layers must be at least 1"),
        ({"hidden_channels": 0}, "hidden_channels must be at least 1"),
        ({"kind": "gat", "hidden_channels": 12}, "multiple of num_heads, got 12 and 8"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1"),
    ):
        with pytest.raises(ValueError, match=words):
            cls(spec, **settings)


def test_a_gnn_needs_features():
    with pytest.raises(ValueError, match="needs node features"):
        GNN(GraphSpec(5))
    encoder = GNN(GraphSpec(5, in_channels=3))
    with pytest.raises(ValueError, match="input_dropout must be at least 0 and below 1, got 1.0"):
        GNN(GraphSpec(5, in_channels=3), input_dropout=1.0)
    with pytest.raises(ValueError, match=r"features \[N, 3\], got \[5, 4\]"):
        encoder(torch.randn(5, 4), torch.tensor([[0], [1]]))
