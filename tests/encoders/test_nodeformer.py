import copy
import pickle

import pytest
import torch
from helpers.memory import MemoryRecorder
from helpers.nodeformer_cases import SMALL, build, graph
from helpers.nodeformer_reference import encode
from helpers.tiny_graphs import TINY_GRAPHS

from graphzoo.encoders import NodeFormer
from graphzoo.encoders import nodeformer as module
from graphzoo.layers import sparse_linear
from graphzoo.ops import kernelized_attention as kernelized_attention_module
from graphzoo.types import GraphSpec


def recorded_draws(encoder, monkeypatch):
    """The list to which the draws of later passes are appended."""
    draws, original, fixed = [], encoder._draw, encoder.draw_projections

    def draw(*args):
        draws.append(original(*args))
        return draws[-1]

    def draw_fixed():
        draws.extend((directions, None) for directions in fixed())
        return [directions for directions, _ in draws]

    monkeypatch.setattr(encoder, "_draw", draw)
    monkeypatch.setattr(encoder, "draw_projections", draw_fixed)
    return draws


VARIANTS = {
    "default": {},
    "three_orders": {"rb_order": 3, "rb_transform": "identity", "edge_loss_weight": 0.1},
    "plain": {"residual": False, "layer_norm": False, "use_gumbel": False, "rb_order": 1},
    "published_large": {"activation": True, "jumping_knowledge": True, "num_layers": 3, "num_heads": 1},
    "without_relations": {"rb_order": 0, "tau": 0.5, "edge_loss_weight": 2.0},
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("training", [True, False])
def test_encoder_equals_the_explicit_form(variant, training, monkeypatch):
    """States, edge loss, attention weights and the gradient of every parameter."""
    settings = SMALL | VARIANTS[variant]
    encoder = build(dtype=torch.float64, **settings).train(training)
    for parameter in encoder.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    x, edge_index = graph(dtype=torch.float64)
    draws = recorded_draws(encoder, monkeypatch)
    out, auxiliary = encoder.forward_with_auxiliary(x, edge_index)
    assert (draws[0][1] is None) == (not training or settings.get("use_gumbel") is False)
    weights = dict(encoder.named_parameters())
    expected, edge_loss, attention = encode(weights, x, edge_index, draws, **settings)
    weight = settings.get("edge_loss_weight", 1.0)
    assert out.shape == (12, encoder.out_channels)
    torch.testing.assert_close(out, expected, atol=1e-9, rtol=1e-9)
    torch.testing.assert_close(auxiliary, -weight * edge_loss, atol=1e-9, rtol=1e-9)
    direction = torch.randn_like(out)
    actual = torch.autograd.grad((out * direction).sum() + auxiliary, list(weights.values()))
    wanted = torch.autograd.grad(
        (expected * direction).sum() - weight * edge_loss, list(weights.values()), allow_unused=True
    )
    for name, a, e in zip(weights, actual, wanted, strict=True):
        torch.testing.assert_close(a, e, atol=1e-8, rtol=1e-7, msg=lambda text, name=name: f"{name}: {text}")
    if not training:
        pairs = torch.tensor([[0, 3, 3, 11], [1, 2, 2, 11]])
        for found, matrices in zip(encoder.return_attention(x, edge_index, pairs), attention, strict=True):
            rows = torch.stack([matrix[pairs[1], pairs[0]] for matrix in matrices], 1)
            torch.testing.assert_close(found, rows.detach(), atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("name", TINY_GRAPHS)
def test_tiny_graphs(name, monkeypatch):
    pairs, _, num_nodes, _ = TINY_GRAPHS[name]
    edge_index = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).t()
    x = torch.randn(num_nodes, 6, dtype=torch.float64)
    encoder = build(dtype=torch.float64)
    draws = recorded_draws(encoder, monkeypatch)
    out, auxiliary = encoder.forward_with_auxiliary(x, edge_index)
    expected, edge_loss, _ = encode(dict(encoder.named_parameters()), x, edge_index, draws, **SMALL)
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(auxiliary, -edge_loss)


def test_numbering_of_the_nodes_does_not_matter():
    encoder = build().double().eval()
    x, edge_index = graph(dtype=torch.float64)
    order = torch.randperm(12)
    position = torch.argsort(order)
    out, loss = encoder.forward_with_auxiliary(x, edge_index)
    permuted, permuted_loss = encoder.forward_with_auxiliary(x[order], position[edge_index])
    torch.testing.assert_close(permuted, out[order], atol=1e-10, rtol=1e-10)
    torch.testing.assert_close(permuted_loss, loss, atol=1e-10, rtol=1e-10)


def test_precomputed_results_give_the_same_states():
    encoder, (x, edge_index) = build(), graph()
    precomputed = encoder.precompute(x, edge_index)
    assert not encoder.needs_edges
    out, loss = encoder.forward_with_auxiliary(x, None, noise_seed=1, **precomputed)
    expected, expected_loss = encoder.forward_with_auxiliary(x, edge_index, noise_seed=1)
    assert torch.equal(out, expected) and torch.equal(loss, expected_loss)
    assert torch.equal(encoder(x, edge_index, noise_seed=1), out)
    assert torch.equal(encoder(x, None, noise_seed=1, **precomputed), out)


def test_adjacency_is_made_once_per_graph(monkeypatch):
    made, original = [], module.adjacency_orders

    def count(*args, **kwargs):
        made.append(args[0])
        return original(*args, **kwargs)

    monkeypatch.setattr(module, "adjacency_orders", count)
    encoder, (x, edge_index) = build().eval(), graph()
    first = encoder(x, edge_index)
    for _ in range(3):
        encoder(x, edge_index)
        encoder.forward_with_auxiliary(x, edge_index)
    assert len(made) == 1
    other = edge_index.flip(0).contiguous()
    assert not torch.equal(encoder(x, other), first)
    edge_index[:, 0] = 0  # changed in place
    encoder(x, edge_index)
    assert len(made) == 3


@pytest.mark.parametrize("form", ["csr", "dense"])
def test_sparse_and_dense_features_give_the_same_states(form, monkeypatch):
    x, edge_index = graph(in_channels=400)
    x = x * (torch.rand(12, 400) < 0.03)
    encoder = build(in_channels=400).eval()
    found = encoder.precompute(x.to_sparse_csr() if form == "csr" else x, edge_index)
    assert found["features"].nnz == x.count_nonzero()
    out = encoder(x.to_sparse_csr() if form == "csr" else x, edge_index)
    monkeypatch.setattr(module, "_SPARSE_SHARE", -1.0)
    dense = copy.deepcopy(encoder)
    assert "features" not in dense.precompute(x, edge_index)
    torch.testing.assert_close(dense(x, edge_index), out, atol=1e-5, rtol=1e-5)


def test_no_edges_are_needed_without_relational_bias():
    x, edge_index = graph()
    encoder = build(rb_order=0, edge_loss_weight=0.0).eval()
    states, loss = encoder.forward_with_auxiliary(x, None)
    assert loss is None and states.shape == (12, 4)
    assert torch.equal(encoder(x, edge_index), states) and torch.equal(encoder(x), states)
    # With the edge loss alone, states need no edges, but the loss does.
    encoder = build(rb_order=0).eval()
    assert torch.equal(encoder(x), states)
    with pytest.raises(ValueError, match="edge loss needs edge_index"):
        encoder.forward_with_auxiliary(x, None)
    with pytest.raises(ValueError, match="relational bias of order 2 needs edge_index"):
        build()(x)


def test_edge_loss_raises_the_attention_along_edges():
    encoder, (x, edge_index) = build().eval(), graph()
    optimizer = torch.optim.Adam(encoder.parameters(), lr=0.01)
    before = torch.stack(encoder.return_attention(x, edge_index, edge_index)).log().mean()
    for _ in range(20):
        optimizer.zero_grad()
        _, loss = encoder.forward_with_auxiliary(x, edge_index)
        loss.backward()
        optimizer.step()
    after = torch.stack(encoder.return_attention(x, edge_index, edge_index)).log().mean()
    assert after > before + 0.5


def test_attention_is_that_of_evaluation_in_any_mode():
    encoder, (x, edge_index) = build(dropout=0.5), graph()
    pairs = torch.cartesian_prod(torch.arange(12), torch.arange(12)).t()
    found = encoder.return_attention(x, edge_index, pairs)
    assert encoder.training and int(encoder.noise.draws) == 0
    assert all(layer.training for layer in encoder.modules())
    again = encoder.eval().return_attention(x, edge_index, pairs)
    assert len(found) == 2
    for one, other in zip(found, again, strict=True):
        assert torch.equal(one, other) and one.shape == (144, 3)
        torch.testing.assert_close(one.view(12, 12, 3).sum(0), torch.ones(12, 3))


def test_copies_and_pickles_encode_alike():
    encoder, (x, edge_index) = build().eval(), graph()
    out = encoder(x, edge_index)
    for twin in (copy.deepcopy(encoder), pickle.loads(pickle.dumps(encoder))):
        assert torch.equal(twin(x, edge_index), out)
    rebuilt = NodeFormer(encoder.spec, **encoder.init_args).eval()
    rebuilt.load_state_dict(encoder.state_dict())
    assert torch.equal(rebuilt(x, edge_index), out)


def test_memory_and_work_of_a_step_are_linear_in_the_nodes(monkeypatch):
    """Forward, edge loss and backward at N, 2N and 4N with four edges per node."""
    monkeypatch.setattr(kernelized_attention_module, "_CPU_BLOCK", 1 << 14)
    recorded = []
    for num_nodes in (1000, 2000, 4000):
        # In a ring, the number of second-order neighbours is linear in N, too.
        nodes = torch.arange(num_nodes)
        edge_index = torch.cat(
            [torch.stack([nodes, (nodes + step) % num_nodes]) for step in (1, 2, -1, -2)], 1
        )
        x = torch.randn(num_nodes, 6)
        encoder = build(hidden_channels=8)
        with MemoryRecorder() as recorder:
            states, loss = encoder.forward_with_auxiliary(x, edge_index)
            (states.sum() + loss).backward()
        assert recorder.largest < num_nodes * num_nodes / 10
        recorded.append(recorder)
    for figure in ("peak_bytes", "written_bytes"):
        values = [getattr(recorder, figure) for recorder in recorded]
        slope = (values[2] - values[1]) / (2 * (values[1] - values[0]))
        assert abs(slope - 1) < 0.03, (figure, values)


@pytest.mark.parametrize("form", ["sparse", "dense"])
def test_input_dropout_applies_to_features_in_training_only(form, monkeypatch):
    x, edge_index = graph(num_nodes=200, in_channels=300)
    if form == "sparse":
        x = x * (torch.rand(200, 300) < 0.03)
    encoder = build(in_channels=300, input_dropout=0.25)
    assert ("features" in encoder.precompute(x, edge_index)) == (form == "sparse")
    seen, drop = [], sparse_linear.dropout
    monkeypatch.setattr(sparse_linear, "dropout", lambda *given: seen.append(drop(*given)) or seen[-1])
    first, again = encoder(x, edge_index, noise_seed=1), encoder(x, edge_index, noise_seed=1)
    assert torch.equal(first, again) and not torch.equal(first, encoder(x, edge_index, noise_seed=2))
    given = x[x != 0] if form == "sparse" else x.flatten()
    values = seen[0].flatten()
    kept = values != 0
    assert kept.float().mean().item() == pytest.approx(0.75, abs=0.03)
    torch.testing.assert_close(values[kept], given[kept] / 0.75, rtol=1e-4, atol=0)
    encoder.eval()
    torch.testing.assert_close(
        encoder(x, edge_index), build(in_channels=300).eval()(x, edge_index), atol=1e-6, rtol=1e-6
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hidden_channels": 0}, "hidden_channels must be at least 1, got 0"),
        ({"num_heads": -1}, "num_heads must be at least 1, got -1"),
        ({"num_gumbel_samples": 0}, "num_gumbel_samples must be at least 1, got 0"),
        ({"rb_order": -1}, "rb_order must be at least 0, got -1"),
        ({"edge_loss_weight": -0.5}, "edge_loss_weight must be at least 0, got -0.5"),
        ({"tau": 0}, "tau must be above 0, got 0"),
        ({"input_dropout": -0.1}, "input_dropout must be at least 0 and below 1, got -0.1"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1, got 1.0"),
        ({"rb_transform": "tanh"}, "rb_transform must be one of sigmoid, identity, got 'tanh'"),
    ],
)
def test_settings_that_cannot_be_built_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        build(**settings)


def test_wrong_features_are_refused():
    with pytest.raises(ValueError, match="needs node features"):
        build(in_channels=0)
    with pytest.raises(ValueError, match=r"features \[N, 6\], got \[12, 5\]"):
        build()(*graph(in_channels=5))


def test_the_benchmark_compares_the_same_model(monkeypatch):
    """The plain operations, the baseline of the benchmark, give the same states and edge loss."""
    from benchmarks import bench_nodeformer_step as bench

    encoder, (x, edge_index) = build(), graph()
    states, loss = encoder.forward_with_auxiliary(x, edge_index, noise_seed=1)
    for name in ("random_features_at", "attend_features", "edge_log_weights", "_SPARSE_SHARE"):
        monkeypatch.setattr(module, name, getattr(module, name))  # so that it is restored afterwards
    bench.use_plain_operations()
    assert module.attend_features is bench.plain_attention
    plain_states, plain_loss = encoder.forward_with_auxiliary(x, edge_index, noise_seed=1)
    torch.testing.assert_close(plain_states, states, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(plain_loss, loss, atol=1e-5, rtol=1e-5)


def test_training_uses_results_of_inference_mode():
    """Lightning validates before the first step, in inference mode, and cached results are from there."""
    encoder, (x, edge_index) = build(in_channels=400), graph(in_channels=400)
    x = x * (torch.rand(12, 400) < 0.03)
    with torch.inference_mode():
        expected = encoder.eval()(x, edge_index)
    states, loss = encoder.train().forward_with_auxiliary(x, edge_index)
    (states.sum() + loss).backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in encoder.parameters())
    assert torch.equal(encoder.eval()(x, edge_index), expected)


@pytest.mark.parametrize("training", [False, True])
def test_features_of_another_dtype_are_converted_to_that_of_the_weights(training):
    encoder = build(dropout=0.2, input_dropout=0.2).train(training)
    x, edge_index = graph()
    states = encoder(x, edge_index, noise_seed=1)
    torch.testing.assert_close(encoder(x.double(), edge_index, noise_seed=1), states)


def test_new_features_do_not_recompute_the_adjacency(monkeypatch):
    made, original = [], module.adjacency_orders

    def count(*args, **kwargs):
        made.append(args)
        return original(*args, **kwargs)

    monkeypatch.setattr(module, "adjacency_orders", count)
    encoder, (x, edge_index) = build().eval(), graph()
    for step in range(3):
        features = x + step
        again = encoder(features, edge_index)
        assert torch.equal(again, copy.deepcopy(encoder)(features, edge_index))
    assert len(made) == 1 + 3, "once, and once for each copy"
    more = torch.cat([x, x])  # the same edges with more nodes
    assert torch.equal(encoder(more, edge_index), copy.deepcopy(encoder)(more, edge_index))


def test_wide_features_get_a_gradient_after_a_call_without():
    encoder, (x, edge_index) = build(in_channels=400).eval(), graph(in_channels=400)
    x *= torch.rand(12, 400) < 0.03
    encoder(x, edge_index)
    states = encoder(x.requires_grad_(), edge_index)
    assert torch.autograd.grad(states.sum(), x)[0].any()


def test_attention_does_not_change_the_modes_of_modules():
    encoder, (x, edge_index) = build(), graph()
    encoder.train().norms.eval()
    modes = [part.training for part in encoder.modules()]
    encoder.attention(x, edge_index, torch.tensor([0]))
    encoder.draw_projections()
    assert [part.training for part in encoder.modules()] == modes and encoder.training


def test_a_graph_without_nodes_has_no_loss():
    encoder = NodeFormer(GraphSpec(0, in_channels=4), hidden_channels=8).train()
    states, loss = encoder.forward_with_auxiliary(torch.empty(0, 4), torch.empty(2, 0, dtype=torch.int64))
    assert states.shape == (0, 8) and float(loss) == 0


@pytest.mark.parametrize(("transform", "start"), [("sigmoid", 0.1), ("identity", 1.0)])
def test_the_relational_bias_starts_as_documented(transform, start):
    for layer in build(rb_transform=transform).layers:
        torch.testing.assert_close(layer.relational_bias, torch.full_like(layer.relational_bias, start))
