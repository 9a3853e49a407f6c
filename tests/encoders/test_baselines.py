"""SGC, MLP, SGFormer and Polynormer, compared with explicit formulas and PyG's classes."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from helpers.node_cases import graph
from torch import nn
from torch.nn import functional as F
from torch_geometric.nn import GCNConv, SGConv
from torch_geometric.nn.models import Polynormer as PyGPolynormer
from torch_geometric.nn.models import SGFormer as PyGSGFormer

from graphzoo.encoders import GNN, MLP, SGC, GALiT, Polynormer, SGFormer, SGFormerPyG
from graphzoo.encoders.sgformer import simple_attention
from graphzoo.errors import UsageError
from graphzoo.layers import NoiseStream, seeded_noise
from graphzoo.ops import denoise_features
from graphzoo.types import GraphSpec

SPEC = GraphSpec(30, in_channels=9, num_classes=4)


def dense_adjacency(edge_index, num_nodes):
    adjacency = torch.eye(num_nodes, dtype=torch.float64)
    adjacency[edge_index[0], edge_index[1]] = 1
    scale = adjacency.sum(1).rsqrt()
    return scale[:, None] * adjacency * scale


@pytest.mark.parametrize("num_steps", [0, 1, 2, 5])
def test_sgc_is_the_power_of_the_normalised_adjacency(num_steps):
    x, edge_index = graph()
    x = x.double()
    power = torch.linalg.matrix_power(dense_adjacency(edge_index, 30), num_steps)
    states = SGC(SPEC, num_steps=num_steps)(x, edge_index)
    torch.testing.assert_close(states, power @ x)
    encoder = SGC(SPEC, num_steps=num_steps, hidden_channels=5).double()
    expected = power @ x @ encoder.map.weight.t() + encoder.map.bias
    torch.testing.assert_close(encoder(x, edge_index), expected)


def test_sgc_equals_pygs():
    x, edge_index = graph()
    conv = SGConv(9, 5, K=3)
    encoder = SGC(SPEC, num_steps=3, hidden_channels=5)
    encoder.map.load_state_dict(conv.lin.state_dict())
    torch.testing.assert_close(encoder(x, edge_index), conv(x, edge_index))


def test_sgc_and_the_denoised_mlp_keep_their_features_in_files(tmp_path):
    x, edge_index = graph()
    sgc, mlp = SGC(SPEC), MLP(SPEC, denoise=True)
    for encoder in (sgc, mlp):
        once = encoder.precompute(x, edge_index, cache=tmp_path)
        for name, value in encoder.precompute(x, edge_index, cache=tmp_path).items():
            assert torch.equal(value, once[name])
    assert len(list(tmp_path.glob("denoised-*.bin"))) == 2


@pytest.mark.parametrize("num_layers", [1, 3])
def test_mlp_is_linear_layers_with_relu(num_layers):
    x, edge_index = graph()
    encoder = MLP(SPEC, hidden_channels=5, num_layers=num_layers).eval()
    expected = x
    for layer in encoder.layers:
        expected = F.relu(F.linear(expected, layer.weight, layer.bias))
    assert torch.equal(encoder(x, None), expected) and encoder.precompute(x, edge_index) == {}


def test_mlp_on_denoised_features_is_an_mlp_and_galit_without_attention():
    x, edge_index = graph()
    settings = {"hidden_channels": 5, "gamma": 0.3, "num_iterations": 4}
    denoised = denoise_features(x, edge_index, gamma=0.3, num_iterations=4)
    encoder = MLP(SPEC, denoise=True, **settings).eval()
    raw = MLP(SPEC, hidden_channels=5).eval()
    raw.load_state_dict(encoder.state_dict())
    assert torch.equal(encoder(x, edge_index), raw(denoised))
    assert not torch.allclose(encoder(x, edge_index), raw(x))
    galit = GALiT(SPEC, attention="none", **settings).eval()
    galit.input.load_state_dict(encoder.layers[0].state_dict())
    assert torch.equal(encoder(x, edge_index), galit(x, edge_index))


def test_mlp_drops_the_values_of_sparse_features():
    x = torch.ones(200, 9)
    encoder = MLP(SPEC, hidden_channels=9, dropout=0.0, input_dropout=0.5).train()
    with torch.no_grad():
        encoder.layers[0].weight.copy_(torch.eye(9))
        encoder.layers[0].bias.zero_()
    for given in (x, x.to_sparse_csr()):
        found = encoder(given, noise_seed=1)
        assert found.unique().tolist() == [0.0, 2.0] and 0.4 < (found > 0).float().mean() < 0.6


def with_weights_of(encoder, model):
    """PyG's model with the encoder's weights; its output layers keep their random weights."""
    missing, unexpected = model.load_state_dict(encoder.model.state_dict(), strict=False)
    assert not unexpected and all(name.startswith(("fc.", "pred_", "lin_in.")) for name in missing)
    return model.train(encoder.training)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("aggregate", ["add", "cat"])
def test_sgformer_pyg_equals_pygs(aggregate, training):
    x, edge_index = graph()
    settings = {"gnn_num_layers": 2, "graph_weight": 0.7, "aggregate": aggregate}
    encoder = SGFormerPyG(SPEC, hidden_channels=8, num_layers=3, num_heads=2, dropout=0.3, **settings)
    encoder.train(training)
    model = PyGSGFormer(9, 8, 4, trans_num_layers=3, trans_num_heads=2, trans_dropout=0.3, **settings)
    with_weights_of(encoder, model)
    states = encoder(x, edge_index, noise_seed=5)
    with seeded_noise(NoiseStream().generator(5, "cpu")):
        expected = model(x, edge_index, torch.zeros(30, dtype=torch.int64))
    torch.testing.assert_close(F.log_softmax(model.fc(states), -1), expected)


def explicit_attention(q, k, v):
    """SGFormer's attention with explicit weights, [N, N] per head."""
    count = q.shape[0]
    q, k = q / q.square().sum().sqrt(), k / k.square().sum().sqrt()
    weights = torch.einsum("uhd,whd->huw", q, k) + count * torch.eye(count, dtype=q.dtype)
    weights = weights / weights.sum(-1, keepdim=True)
    return torch.einsum("huw,whd->uhd", weights, v)


def test_sgformers_attention_equals_the_explicit_form():
    parts = torch.randn(3, 20, 2, 5, dtype=torch.float64)

    def results(attend):
        leaves = parts.clone().requires_grad_()
        out = attend(*leaves.unbind())
        return out, *torch.autograd.grad(out.square().sum(), leaves)

    found, expected = results(simple_attention), results(explicit_attention)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_queries_of_zero_keep_the_values():
    v = torch.randn(5, 1, 3)
    assert torch.equal(simple_attention(torch.zeros(5, 1, 3), torch.randn(5, 1, 3), v), v)


def test_sgformers_attention_of_many_nodes_in_half_precision():
    """The formula contains N times a value, and half precision ends at 65,504."""
    q, k, v = torch.randn(3, 70_000, 1, 2)
    exact = simple_attention(q, k, v)
    with torch.autocast("cpu", torch.float16):
        found = simple_attention(q, k, v.half())
    torch.testing.assert_close(found.float(), exact, atol=0.02, rtol=0.01)


@pytest.mark.parametrize("aggregate", ["add", "cat"])
def test_sgformer_layer_by_layer(aggregate):
    """The authors' steps, with the GCN of this package for the graph branch."""
    x, edge_index = graph()
    encoder = SGFormer(
        SPEC, hidden_channels=8, num_layers=2, num_heads=2, alpha=0.3, gnn_num_layers=2, graph_weight=0.7,
        aggregate=aggregate,
    ).eval()  # fmt: skip
    z = encoder.norms[0](x @ encoder.first.weight.T + encoder.first.bias).relu()
    for layer, norm in zip(encoder.maps, encoder.norms[1:], strict=True):
        q, k, v = layer(z).view(30, 3, 2, 8).unbind(1)
        z = norm(0.3 * explicit_attention(q, k, v).mean(1) + 0.7 * z)
    gcn = GNN(SPEC, hidden_channels=8, num_layers=1).eval()
    gcn.layers.convs[0].load_state_dict(encoder.gnn.convs[0].state_dict())
    second = GCNConv(8, 8)
    second.load_state_dict(encoder.gnn.convs[1].state_dict())
    local = second(gcn(x, edge_index), edge_index)
    expected = torch.cat([z, local], -1) if aggregate == "cat" else 0.7 * local + 0.3 * z
    torch.testing.assert_close(encoder(x, edge_index), expected)
    assert (expected < 0).any(), "a ReLU after the last layers"


def test_sgformer_of_the_authors_commands_for_citation_graphs():
    """Without LayerNorm and residual, and the layer's input as values of every head."""
    x, edge_index = graph()
    encoder = SGFormer(
        SPEC, hidden_channels=8, num_layers=2, num_heads=2, alpha=1.0, gnn_num_layers=1, graph_weight=0.0,
        layer_norm=False, value_map=False,
    ).eval()  # fmt: skip
    z = (x @ encoder.first.weight.T + encoder.first.bias).relu()
    for layer in encoder.maps:
        q, k = layer(z).view(30, 2, 2, 8).unbind(1)
        z = explicit_attention(q, k, torch.stack([z, z], 1)).mean(1)
    torch.testing.assert_close(encoder(x, edge_index), z)
    whole = SGFormer(SPEC, hidden_channels=8, num_layers=2, num_heads=2, gnn_num_layers=1)
    names = {name for name, _ in whole.named_parameters()} - {name for name, _ in encoder.named_parameters()}
    assert names and all(name.startswith("norms.") for name in names)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("is_global", [False, True])
@pytest.mark.parametrize("local_attention", [False, True])
def test_polynormer_equals_pygs(is_global, training, local_attention):
    x, edge_index = graph()
    encoder = Polynormer(
        SPEC,
        hidden_channels=8,
        num_layers=3,
        local_attention=local_attention,
        local_passes=0 if is_global else 9,
    ).train(training)
    model = PyGPolynormer(9, 8, 4, local_layers=3, local_attn=local_attention)
    with_weights_of(encoder, model)
    model._global = is_global
    states = encoder(x, edge_index, noise_seed=5)
    with seeded_noise(NoiseStream().generator(5, "cpu")):
        expected = model(x, edge_index, torch.zeros(30, dtype=torch.int64))
    output = model.pred_global if is_global else model.pred_local
    torch.testing.assert_close(F.log_softmax(output(states), -1), expected)


def test_polynormers_global_attention_begins_after_its_local_passes():
    x, edge_index = graph()
    encoder = Polynormer(SPEC, hidden_channels=8, num_layers=2, local_passes=2)

    def uses_attention(training):
        encoder.train(training)
        encoder.zero_grad()
        encoder(x, edge_index, noise_seed=0).square().sum().backward()
        return encoder.model.global_attn[0].k.weight.grad is not None

    assert [uses_attention(mode) for mode in (False, True, False, True, False)] == [False] * 5
    saved = encoder.state_dict()
    assert uses_attention(True) and uses_attention(False)
    resumed = Polynormer(SPEC, hidden_channels=8, num_layers=2, local_passes=2)
    resumed.load_state_dict(saved)
    assert int(resumed.passes) == int(encoder.passes) == 3


def test_seeded_noise_seeds_torchs_dropout():
    layer, x = nn.Dropout(0.5), torch.ones(100)
    before = torch.get_rng_state()
    with seeded_noise(torch.Generator().manual_seed(7)):
        one = layer(x)
    with pytest.raises(KeyError), seeded_noise(torch.Generator().manual_seed(7)):
        assert torch.equal(layer(x), one)
        raise KeyError
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(7)
    assert torch.equal(layer(x), one)


@pytest.mark.parametrize(
    ("cls", "settings", "words"),
    [
        (SGC, {"num_steps": -1}, "num_steps must be at least 0 and at most 10,000, got -1"),
        (SGC, {"hidden_channels": -1}, "hidden_channels must be at least 0"),
        (MLP, {"num_layers": 0}, "num_layers must be at least 1, got 0"),
        (MLP, {"gamma": 0.0}, "gamma must be above 0"),
        (MLP, {"num_iterations": 10**9}, "num_iterations must be at least 0 and at most 10,000"),
        (MLP, {"input_dropout": 1.0}, "input_dropout must be at least 0 and below 1, got 1.0"),
        (SGFormer, {"alpha": -0.1}, "alpha must be at least 0 and at most 1"),
        (SGFormer, {"gnn_num_layers": 0}, "gnn_num_layers must be at least 1"),
        (SGFormer, {"graph_weight": 1.5}, "graph_weight must be at least 0 and at most 1"),
        (SGFormer, {"aggregate": "mean"}, "aggregate must be one of add, cat, got 'mean'"),
        (SGFormerPyG, {"gnn_num_layers": 0}, "gnn_num_layers must be at least 1"),
        (SGFormerPyG, {"hidden_channels": 8, "num_heads": 3}, "multiple of num_heads, got 8 and 3"),
        (SGFormerPyG, {"graph_weight": 1.5}, "graph_weight must be at least 0 and at most 1"),
        (SGFormerPyG, {"aggregate": "mean"}, "aggregate must be one of add, cat, got 'mean'"),
        (Polynormer, {"num_global_layers": 0}, "num_global_layers must be at least 1"),
        (Polynormer, {"global_dropout": -0.1}, "global_dropout must be at least 0"),
        (Polynormer, {"beta": 2.0}, "beta must be at least 0 and at most 1, got 2.0"),
        (Polynormer, {"local_passes": -1}, "local_passes must be at least 0, got -1"),
    ],
)
def test_wrong_settings_are_refused(cls, settings, words):
    with pytest.raises(ValueError, match=words):
        cls(SPEC, **settings)


@pytest.mark.parametrize("cls", [SGFormerPyG, Polynormer])
def test_too_few_nodes_are_refused_where_pygs_class_fails(cls):
    x, edge_index = torch.randn(1, 9), torch.zeros(2, 0, dtype=torch.int64)
    encoder = cls(SPEC, hidden_channels=8)
    with pytest.raises(UsageError, match="needs two nodes while training, got 1"):
        encoder.train()(x, edge_index)
    with pytest.raises(UsageError, match="needs a node, got 0"):
        encoder.eval()(x[:0], edge_index)
    assert encoder(x, edge_index).shape == (1, 8)


def test_without_batch_norm_one_node_is_enough():
    encoder = Polynormer(SPEC, hidden_channels=8, post_norm=False).train()
    assert encoder(torch.randn(1, 9), torch.zeros(2, 0, dtype=torch.int64)).shape == (1, 8)


def test_edges_or_precomputed_features_are_needed():
    x, edge_index = graph()
    for encoder, name in ((SGC(SPEC), "propagated"), (MLP(SPEC, denoise=True).eval(), "denoised")):
        with pytest.raises(ValueError, match=f"edge_index, or {name}= from precompute"):
            encoder(x)
        with pytest.raises(ValueError, match=f"{name} must have the shape of x"):
            encoder(x, **{name: x[:5]})
        assert torch.equal(encoder(x, edge_index), encoder(x, **encoder.precompute(x, edge_index)))


@pytest.mark.parametrize("of_weights", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("of_features", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize(("cls", "settings"), [(SGC, {}), (MLP, {"denoise": True, "num_layers": 2})])
def test_denoised_features_are_converted_to_the_dtype_of_the_weights(cls, settings, of_features, of_weights):
    x, edge_index = graph()
    encoder = cls(SPEC, hidden_channels=5, **settings).eval()
    expected = encoder(x, edge_index)
    found = encoder.to(of_weights)(x.to(of_features), edge_index)
    assert found.dtype == of_weights
    torch.testing.assert_close(found.float(), expected, atol=0.05, rtol=0.05)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_dtypes_that_pygs_sgformer_cannot_compute_in_are_refused(dtype):
    x, edge_index = graph()
    encoder = SGFormerPyG(SPEC, hidden_channels=4).to(dtype)
    with pytest.raises(UsageError, match=rf"torch.float32, got {dtype}\nTake SGFormer"):
        encoder(x.to(dtype), edge_index)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert SGFormerPyG(SPEC, hidden_channels=4)(x, edge_index).isfinite().all()


@pytest.mark.parametrize("cls", [SGFormerPyG, Polynormer])
def test_threads_that_share_a_model_of_pyg_get_their_own_states(cls):
    """Both calls are inside the model at the same time, as in a server."""
    encoder, (x, edge_index) = cls(SPEC, hidden_channels=4).eval(), graph()
    inputs = [x, 2 * x]
    expected = [encoder(part, edge_index) for part in inputs]
    meeting = threading.Barrier(2)
    encoder.model.register_forward_pre_hook(lambda *_: [meeting.wait(timeout=60)].clear())
    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(encoder, part, edge_index) for part in inputs]
        for call, states in zip(calls, expected, strict=True):
            assert torch.equal(call.result(), states)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_propagated_features_have_the_dtype_of_the_encoder_or_of_the_features(dtype):
    # an SGC without `hidden_channels` has no weights whose dtype it could take
    x, edge_index = graph()
    expected = SGC(SPEC)(x, edge_index).to(dtype)
    for encoder, features in (
        (SGC(SPEC).to(dtype), x),
        (SGC(SPEC), x.to(dtype)),
        (SGC(SPEC).to(dtype), x.to(dtype)),
    ):
        states = encoder(features, edge_index)
        assert states.dtype == dtype
        torch.testing.assert_close(states, expected, atol=0.05, rtol=0.05)
    assert SGC(9, out_channels=4).to(dtype)(x, edge_index).dtype == dtype
    assert SGC(SPEC)(torch.ones(30, 9, dtype=torch.int64), edge_index).dtype == torch.float32
