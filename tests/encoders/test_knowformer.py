import copy

import pytest
import torch
from helpers.knowformer_reference import encode
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.parametrize import register_parametrization

from graphzoo.encoders import KnowFormer
from graphzoo.errors import UsageError
from graphzoo.ops import RelationalGraph
from graphzoo.ops.prototype_layer import RowDropout
from graphzoo.sampling import NeighbourhoodSampler
from graphzoo.types import GraphSpec

N, R, B = 9, 3, 4
SMALL = {"hidden_channels": 8, "num_layers": 2, "num_heads": 2, "dropout": 0.0}
VARIANTS = {
    "published": {},
    "frobenius": {"norm": "fro"},
    "no attention": {"attention": "none"},
    "no query net": {"query_net": False},
    "no value net": {"value_net": False},
    "exponential": {"attention": "exponential"},
    "random features": {"attention": "random_features", "num_random_features": 5},
    "one layer each": {"num_layers": 1, "num_query_layers": 1, "num_value_layers": 1},
    "no messages": {"num_query_layers": 0, "num_value_layers": 0},
    "one head": {"num_heads": 1},
    "eight heads": {"num_heads": 8},
}


def make_graph(num_nodes=N, num_facts=20, num_relations=R):
    triples = torch.stack(
        [torch.randint(size, (num_facts,)) for size in (num_nodes, num_relations, num_nodes)], dim=1
    )
    head, relation, tail = triples.t()
    edge_index = torch.stack([torch.cat([head, tail]), torch.cat([tail, head])])
    return RelationalGraph(
        edge_index, torch.cat([relation, relation + num_relations]), num_nodes, 2 * num_relations
    )


def make_encoder(dtype=torch.float64, **settings):
    encoder = KnowFormer(GraphSpec(N, R), **{**SMALL, **settings}).to(dtype)
    with torch.no_grad():  # at 1 and 0, a missing weight of LayerNorm would not be noticed
        for name, parameter in encoder.named_parameters():
            if "norm" in name:
                parameter.add_(0.3 * torch.randn_like(parameter))
    return encoder


def make_queries():
    return torch.randint(N, (B,)), torch.randint(2 * R, (B,)), torch.randn(2, N, B, dtype=torch.float64) * 4


def edge_list(graph):
    return list(
        zip(graph.edge_index[0].tolist(), graph.edge_type.tolist(), graph.edge_index[1].tolist(), strict=True)
    )


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("masked", [False, True])
def test_states_and_gradients_equal_the_reference(variant, masked):
    encoder, graph = make_encoder(**VARIANTS[variant]), make_graph()
    head, relation, noise = make_queries()
    edges = edge_list(graph)
    mask = torch.rand(graph.num_edges) < 0.7 if masked else None
    if mask is not None:
        edges = [edge for edge, keep in zip(edges, mask.tolist(), strict=True) if keep]
    weights = {
        k: v.detach().clone().requires_grad_(v.is_floating_point()) for k, v in encoder.state_dict().items()
    }
    expected = torch.stack(
        [
            encode(weights, edges, N, head[b], relation[b], noise[:, :, b], encoder.init_args)
            for b in range(B)
        ],
        dim=1,
    )
    states = encoder(graph, head, relation, edge_mask=mask, noise=noise)
    torch.testing.assert_close(states, expected, atol=1e-9, rtol=1e-9)

    direction = torch.randn_like(states)
    (states * direction).sum().backward()
    (expected * direction).sum().backward()
    for name, parameter in encoder.named_parameters():
        torch.testing.assert_close(
            parameter.grad if parameter.grad is not None else torch.zeros_like(parameter),
            weights[name].grad if weights[name].grad is not None else torch.zeros_like(parameter),
            atol=1e-8, rtol=1e-7, msg=lambda text, name=name: f"{name}: {text}",
        )  # fmt: skip


@pytest.mark.parametrize("attention", ["prototype", "random_features", "none"])
def test_every_parameter_gets_a_gradient(attention):
    encoder, graph = make_encoder(attention=attention), make_graph()
    head, relation, _ = make_queries()
    encoder(graph, head, relation).square().sum().backward()
    without = {name for name, p in encoder.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0}
    # The first layer's input is zero, so some columns have a zero gradient, but no whole parameter.
    assert without == set()


def test_renumbering_the_entities_renumbers_the_states():
    encoder, graph = make_encoder(), make_graph()
    head, relation, noise = make_queries()
    order = torch.randperm(N)
    moved = RelationalGraph(order[graph.edge_index], graph.edge_type, N, 2 * R)
    moved_noise = torch.empty_like(noise)
    moved_noise[:, order] = noise
    states = encoder(graph, head, relation, noise=noise)
    torch.testing.assert_close(encoder(moved, order[head], relation, noise=moved_noise)[order], states)


def test_states_of_a_query_do_not_depend_on_its_batch():
    encoder, graph = make_encoder().eval(), make_graph()
    head, relation, _ = make_queries()
    together = encoder(graph, head, relation, noise_seed=5)
    alone = torch.cat(
        [encoder(graph, head[b : b + 1], relation[b : b + 1], noise_seed=5) for b in range(B)], 1
    )
    torch.testing.assert_close(together, alone, atol=1e-12, rtol=1e-12)


def test_dropout_does_not_depend_on_the_batch_and_has_the_given_rate():
    encoder, graph = make_encoder(dropout=0.25).train(), make_graph()
    head, relation, _ = make_queries()
    together = encoder(graph, head, relation, noise_seed=5)
    alone = torch.cat(
        [encoder(graph, head[b : b + 1], relation[b : b + 1], noise_seed=5) for b in range(B)], 1
    )
    torch.testing.assert_close(together, alone, atol=1e-12, rtol=1e-12)
    assert not torch.equal(together, encoder(graph, head, relation, noise_seed=6))
    encoder.eval()
    without = make_encoder(dropout=0.0).eval()
    without.load_state_dict(encoder.state_dict())
    assert torch.equal(
        encoder(graph, head, relation, noise_seed=5), without(graph, head, relation, noise_seed=5)
    )
    dropout = RowDropout(0.25, torch.arange(4))
    hidden = torch.ones(500, 4, 10)
    mask = dropout.mask(hidden, 0)
    assert mask.unique().tolist() == pytest.approx([0.0, 4 / 3], rel=1e-4)
    assert (mask == 0).float().mean().item() == pytest.approx(0.25, abs=0.02)
    # A later chunk has its part of the same mask; queries and channels have different masks.
    torch.testing.assert_close(dropout.mask(hidden[100:], 100), mask[100:])
    assert all(not torch.equal(mask[:, 0], mask[:, b]) for b in range(1, 4))
    assert all(not torch.equal(mask[:, :, 0], mask[:, :, c]) for c in range(1, 10))
    columns = mask.reshape(-1, 10).bool().double()
    assert torch.corrcoef(columns.t()).fill_diagonal_(0).abs().max() < 0.1


def test_noise_depends_on_the_noise_seed_and_not_on_the_global_state():
    encoder, graph = make_encoder().eval(), make_graph()
    head, relation, _ = make_queries()
    state = torch.get_rng_state()
    first = encoder(graph, head, relation, noise_seed=1)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(first, encoder(graph, head, relation, noise_seed=1))
    assert not torch.equal(first, encoder(graph, head, relation, noise_seed=2))
    without_noise = make_encoder(noise_std=0.0).eval()
    assert torch.equal(
        without_noise(graph, head, relation, noise_seed=1), without_noise(graph, head, relation, noise_seed=2)
    )


def test_noise_is_that_of_the_layer_and_of_the_entity_in_the_whole_graph():
    encoder, graph = make_encoder().eval(), make_graph()
    head, relation, _ = make_queries()
    drawn = []
    for layer in encoder.layers:
        layer.query_net.register_forward_pre_hook(lambda _, arguments: drawn.append(arguments[1]))
    encoder(graph, head, relation, noise_seed=5)
    near, _ = NeighbourhoodSampler(graph, 5)(head, relation)
    encoder(near, near.find(head), relation, noise_seed=5)
    first, second, *of_near = drawn
    assert not torch.equal(first, second)
    for whole, part in zip((first, second), of_near, strict=True):
        assert torch.equal(part, whole[near.entities, torch.arange(B)])


def test_a_trained_encoder_runs_on_another_graph_with_its_relations():
    encoder = make_encoder().eval()
    graph = make_graph(num_nodes=17, num_facts=30)
    assert encoder(graph, torch.tensor([16]), torch.tensor([5])).shape == (17, 1, 8)
    with pytest.raises(ValueError, match="knows 6 edge types.*has 8"):
        encoder(make_graph(num_relations=4), torch.tensor([0]), torch.tensor([0]))


def test_tied_layers_start_equal_and_train_separately():
    tied, free = make_encoder(torch.float32, tie_initialization=True), KnowFormer(GraphSpec(N, R), **SMALL)
    plain = KnowFormer(GraphSpec(N, R), **SMALL, tie_initialization=True)
    states = [layer.state_dict() for layer in plain.layers]
    assert all(torch.equal(states[0][k], states[1][k]) for k in states[0])
    value = plain.layers[0].value_net
    assert torch.equal(value.layers[0].alpha, value.layers[2].alpha)
    assert torch.equal(value.relations[0].weight, value.relations[1].weight)
    assert not torch.equal(free.layers[0].ffn1.weight, free.layers[1].ffn1.weight)
    graph = make_graph()
    head, relation, _ = make_queries()
    optimizer = torch.optim.SGD(tied.parameters(), lr=0.1)
    tied(graph, head, relation).square().sum().backward()
    optimizer.step()
    assert not torch.equal(tied.layers[0].ffn1.weight, tied.layers[1].ffn1.weight)


def test_copies_keep_the_settings():
    encoder = KnowFormer(GraphSpec(N, R), **SMALL)
    assert encoder.init_args["hidden_channels"] == 8 and encoder.init_args["num_query_layers"] == 2
    twin = KnowFormer(GraphSpec(N, R), **encoder.init_args)
    twin.load_state_dict(encoder.state_dict())
    assert copy.deepcopy(encoder).init_args == encoder.init_args


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hidden_channels": 10, "num_heads": 4}, "multiple of num_heads"),
        ({"num_layers": 0}, "num_layers must be at least 1"),
        ({"dropout": 1.0}, "dropout must be"),
        ({"norm": "l1"}, "norm must be one of l2, fro"),
        ({"attention": "linear"}, "attention must be one of"),
        ({"noise_std": -1.0}, "noise_std must be at least 0"),
    ],
)
def test_settings_that_cannot_be_built_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        KnowFormer(GraphSpec(N, R), **settings)
    with pytest.raises(ValueError, match="needs a graph with relations"):
        KnowFormer(GraphSpec(N, 0))


def test_bfloat16_autocast_stays_close_and_trains():
    encoder, graph = make_encoder(torch.float32), make_graph()
    head, relation, noise = make_queries()
    noise = noise.float()
    exact = encoder(graph, head, relation, noise=noise)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = encoder(graph, head, relation, noise=noise)
        F.mse_loss(rounded.float(), torch.zeros(rounded.shape)).backward()
    assert (rounded.float() - exact).norm() / exact.norm() < 0.05
    assert all(torch.isfinite(p.grad).all() for p in encoder.parameters())


def test_bfloat16_trains_where_autocast_keeps_layer_norm_in_float32(monkeypatch):
    """CUDA's autocast does so, unlike the CPU's."""
    original = F.layer_norm
    monkeypatch.setattr(
        F,
        "layer_norm",
        lambda x, *args: original(x.float(), *(a.float() if torch.is_tensor(a) else a for a in args)),
    )
    encoder, graph = make_encoder(torch.float32), make_graph()
    head, relation, noise = make_queries()
    with torch.autocast("cpu", torch.bfloat16):
        states = encoder(graph, head, relation, noise=noise.float())
        states.square().mean().backward()
    assert states.dtype == torch.float32
    assert all(torch.isfinite(p.grad).all() for p in encoder.parameters())


class Wide(KnowFormer):
    def __init__(self, spec, *, width=8, **settings):
        super().__init__(spec, hidden_channels=width, num_heads=2, **settings)


def test_a_subclass_may_have_settings_of_its_own():
    encoder = Wide(GraphSpec(N, R), width=16, num_layers=1)
    assert encoder.init_args == {"width": 16, "num_layers": 1} and encoder.out_channels == 16
    twin = Wide(GraphSpec(N, R), **encoder.init_args)
    twin.load_state_dict(encoder.state_dict())
    with pytest.raises(ValueError, match="multiple of num_heads"):
        Wide(GraphSpec(N, R), width=3)


@pytest.mark.parametrize("attention", ["prototype", "random_features", "exponential", "none"])
def test_no_queries_give_no_states_and_gradients_of_zero(attention):
    encoder, graph = make_encoder(attention=attention, dropout=0.1), make_graph()
    none = torch.empty(0, dtype=torch.int64)
    states = encoder(graph, none, none)
    assert states.shape == (N, 0, 8)
    states.sum().backward()
    assert all(p.grad is None or not p.grad.any() for p in encoder.parameters())


@pytest.mark.parametrize("settings", [{"dropout": 0.5, "noise_std": 0.0}, {"dropout": 0.0}])
def test_every_step_of_a_plain_loop_has_other_noise(settings):
    encoder, graph = make_encoder(**settings).train(), make_graph()
    head, relation, _ = make_queries()
    first = encoder(graph, head, relation)
    twin = copy.deepcopy(encoder)
    second = encoder(graph, head, relation)
    named = encoder(graph, head, relation, noise_seed=0)
    assert not torch.equal(first, second) and not torch.equal(first, named)
    assert torch.equal(twin(graph, head, relation), second), "a copy does not continue the stream"
    assert not any("noise" in name for name in encoder.state_dict()), "state_dict has weights only"
    encoder.eval()
    states = encoder(graph, head, relation)
    assert torch.equal(states, encoder(graph, head, relation))
    assert torch.equal(states, encoder(graph, head, relation, noise_seed=0))


def test_wrong_queries_are_refused_with_the_valid_range():
    encoder, graph = make_encoder(), make_graph()
    head, relation, _ = make_queries()
    for wrong in (-1, N):
        with pytest.raises(UsageError, match=rf"^head\[2\] = {wrong}: nodes are 0\.\.8$"):
            encoder(graph, head.index_fill(0, torch.tensor([2]), wrong), relation)
    with pytest.raises(UsageError, match=r"^relation\[0\] = 6: relations and their inverses are 0\.\.5$"):
        encoder(graph, head, torch.full_like(relation, 2 * R))
    with pytest.raises(UsageError, match=r"head must be int64 of shape \[B\], got 0\nGive torch\.tensor"):
        encoder(graph, 0, relation)
    with pytest.raises(
        UsageError, match=r"relation must be int64 of shape \[B\], got torch.int32 \[4\]\nGive relation.long"
    ):
        encoder(graph, head, relation.int())
    with pytest.raises(UsageError, match="3 heads and 4 relations"):
        encoder(graph, head[:3], relation)
    with pytest.raises(UsageError, match="takes a graph of facts first, got a Tensor\nGive graphzoo"):
        encoder(graph.edge_index, head, relation)


class _Doubled(nn.Module):
    def forward(self, half):
        return 2 * half

    def right_inverse(self, whole):
        return whole / 2


def test_parametrized_weights_are_used():
    """Parametrizations, as by `spectral_norm`, replace parameters and change their order."""
    graph, (head, relation, noise) = make_graph(), make_queries()
    encoder = make_encoder()
    expected = encoder(graph, head, relation, noise=noise)
    for module in [*encoder.modules()]:
        if isinstance(module, nn.Linear | nn.LayerNorm):
            for name in ("weight", "bias"):
                register_parametrization(module, name, _Doubled())
    torch.testing.assert_close(encoder(graph, head, relation, noise=noise), expected)
