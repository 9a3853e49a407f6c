import copy
import importlib
import itertools
import math
import random

import numpy as np
import pytest
import torch
from helpers.memory import MemoryRecorder
from torch import nn
from torch.nn import functional as F

from graphzoo.encoders import SGC, GALiT, galit, sgc
from graphzoo.errors import UsageError
from graphzoo.types import GraphSpec

SIMILARITIES = ["cos", "wcos", "mcos", "qkcos"]


def graph(num_nodes=30, channels=9, dtype=torch.float64):
    return torch.randn(num_nodes, channels, dtype=dtype), torch.randint(0, num_nodes, (2, 3 * num_nodes))


def build(channels=9, seed=0, **settings):
    torch.manual_seed(seed)
    return GALiT(GraphSpec(30, in_channels=channels), hidden_channels=8, **settings).double()


def communities(per_class=60):
    """Two classes that differ little in their features and much in their edges."""
    y = torch.arange(2 * per_class) % 2
    x = torch.randn(2 * per_class, 6) + 0.25 * (2 * y[:, None] - 1)
    edges = torch.randint(0, 2 * per_class, (2, 4000))
    same = y[edges[0]] == y[edges[1]]
    return x, edges[:, same | (torch.rand(4000) < 0.1)], y


def test_it_trains_and_predicts_without_the_graph():
    x, edge_index, y = communities()
    encoder = GALiT(GraphSpec(120, in_channels=6, num_classes=2), hidden_channels=16, dropout=0.2)
    denoised = encoder.precompute(x, edge_index)["denoised"]
    del edge_index
    decoder = nn.Linear(encoder.out_channels, 2)
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=0.02)
    for step in range(60):
        states, auxiliary = encoder.forward_with_auxiliary(x, None, noise_seed=step, denoised=denoised)
        assert auxiliary is None
        optimizer.zero_grad()
        F.cross_entropy(decoder(states)[:20], y[:20]).backward()
        optimizer.step()
    encoder.eval()
    accuracy = (decoder(encoder(x, denoised=denoised)).argmax(1) == y)[20:].float().mean()
    assert accuracy > 0.9
    without = (decoder(encoder(x, denoised=x)).argmax(1) == y)[20:].float().mean()
    assert accuracy > without + 0.1


@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("norm", ["l2", "fro"])
def test_every_parameter_gets_a_gradient(similarity, norm):
    x, edge_index = graph()
    encoder = build(similarity=similarity, norm=norm, num_heads=3, linear_update=True, input_dropout=0.3)
    states = encoder(x, edge_index)
    assert states.shape == (30, encoder.out_channels) == (30, 8)
    states.square().sum().backward()
    for name, parameter in encoder.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().max() > 0, name
    assert encoder.needs_edges is False
    assert encoder.init_args["similarity"] == similarity and encoder.init_args["alpha"] == 0.5


@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("norm", ["l2", "fro"])
def test_renumbering_the_nodes_renumbers_the_states(similarity, norm):
    x, edge_index = graph()
    encoder = build(similarity=similarity, norm=norm, num_heads=2).eval()
    order = torch.randperm(30)
    place = torch.empty(30, dtype=torch.int64)
    place[order] = torch.arange(30)
    torch.testing.assert_close(encoder(x[order], place[edge_index]), encoder(x, edge_index)[order])


@pytest.mark.parametrize("settings", [{"attention": "none"}, {"alpha": 1.0}])
def test_without_attention_it_is_an_mlp_on_denoised_features(settings):
    x, edge_index = graph()
    encoder = build(**settings).eval()
    denoised = encoder.precompute(x, edge_index)["denoised"]
    expected = torch.relu(denoised @ encoder.input.weight.t() + encoder.input.bias)
    torch.testing.assert_close(encoder(x, edge_index), expected)
    assert sorted(dict(encoder.named_parameters())) == ["input.bias", "input.weight"]
    assert encoder.return_attention(x, edge_index, torch.zeros(2, 1, dtype=torch.int64)) == []


def test_alpha_near_one_tends_to_no_attention():
    x, edge_index = graph()
    near, none = build(alpha=1 - 1e-9).eval(), build(attention="none").eval()
    torch.testing.assert_close(near(x, edge_index), none(x, edge_index), atol=1e-7, rtol=1e-7)


def test_the_number_of_heads_does_not_matter_with_cos():
    x, edge_index = graph()
    torch.testing.assert_close(
        build(num_heads=4).eval()(x, edge_index), build(num_heads=1).eval()(x, edge_index)
    )


def test_wcos_starts_as_cos():
    x, edge_index = graph()
    torch.testing.assert_close(
        build(similarity="wcos").eval()(x, edge_index), build(similarity="cos").eval()(x, edge_index)
    )


def test_precomputed_denoised_features_give_the_same(tmp_path):
    x, edge_index = graph()
    encoder = build(gamma=0.3, num_iterations=3).eval()
    expected = encoder(x, edge_index)
    for cache in (None, tmp_path, tmp_path):
        found = encoder.precompute(x, edge_index, cache=cache)
        assert list(found) == ["denoised"]
        assert torch.equal(encoder(x, None, **found), expected)
    assert len(list(tmp_path.glob("*.bin"))) == 1


def test_denoised_features_are_made_once_for_the_same_tensors(monkeypatch):
    counted, whole = [], sgc.cached_denoise
    monkeypatch.setattr(sgc, "cached_denoise", lambda *a, **k: counted.append(1) or whole(*a, **k))
    x, edge_index = graph()
    encoder = build().eval()
    first = encoder(x, edge_index)
    assert torch.equal(encoder(x, edge_index), first) and len(counted) == 1
    x += 1
    assert not torch.equal(encoder(x, edge_index), first) and len(counted) == 2
    encoder(x, edge_index.clone())
    assert len(counted) == 3


@pytest.mark.parametrize("input_dropout", [0.0, 0.5])
def test_sparse_features_equal_dense_ones(input_dropout):
    x, edge_index = graph()
    x = x * (x > 0.5)
    encoder = build(similarity="mcos", input_dropout=input_dropout)
    sparse = x.to_sparse_csr()
    outputs = [encoder.eval()(features, edge_index) for features in (x, sparse)]
    torch.testing.assert_close(*outputs)
    grads = [torch.autograd.grad(out.square().sum(), list(encoder.parameters())) for out in outputs]
    for dense, other in zip(*grads, strict=True):
        torch.testing.assert_close(dense, other)
    encoder.train()
    first = encoder(sparse, edge_index, noise_seed=1)
    assert torch.equal(first, encoder(sparse, edge_index, noise_seed=1))
    first.square().sum().backward()
    assert torch.isfinite(encoder.input.weight.grad).all()


def after_input_dropout(encoder, x):
    """The features after input dropout: the output of f_I with the identity as its matrix."""
    with torch.no_grad():
        encoder.input.weight.copy_(torch.eye(9)[:8])
        encoder.input.bias.zero_()
    return linear_of(encoder, x)


def linear_of(encoder, x):
    """f_I without its non-linearity and its second dropout."""
    encoder.activation, encoder.dropout = False, 0.0
    return encoder._embed(x, encoder.noise.generator(3, "cpu"))


@pytest.mark.parametrize("kind", ["dense", "sparse", "chunked"])
def test_input_dropout_zeroes_and_scales(kind, monkeypatch):
    x = torch.ones(4000, 9, dtype=torch.float64)
    if kind == "chunked":
        monkeypatch.setattr(galit, "_WHOLE_ELEMENTS", 0)
        monkeypatch.setattr(galit, "_CHUNK_ELEMENTS", 900)
    encoder = build(input_dropout=0.25)
    kept = after_input_dropout(encoder, x.to_sparse_csr() if kind == "sparse" else x)
    torch.testing.assert_close(
        kept[kept != 0], torch.tensor(4 / 3, dtype=torch.float64).expand_as(kept[kept != 0])
    )
    assert abs((kept == 0).double().mean() - 0.25) < 0.02
    # no two chunks and no two columns have the same mask
    assert len({bytes(block.numpy()) for block in kept.detach().view(40, -1)}) == 40
    assert len({bytes(column.contiguous().numpy()) for column in kept.detach().t()}) == 8


def test_gradients_of_chunked_wide_features_use_the_mask_of_the_chunk(monkeypatch):
    monkeypatch.setattr(galit, "_WHOLE_ELEMENTS", 0)
    monkeypatch.setattr(galit, "_CHUNK_ELEMENTS", 50)
    encoder = build(input_dropout=0.5)
    x = torch.randn(40, 9, dtype=torch.float64)
    direction = torch.randn(40, 8, dtype=torch.float64)

    def value():
        return (linear_of(encoder, x) * direction).sum()

    (gradient,) = torch.autograd.grad(value(), encoder.input.weight)
    with torch.no_grad():
        before = value()
        for place in ((0, 0), (7, 8), (3, 4)):
            encoder.input.weight[place] += 1
            torch.testing.assert_close(value() - before, gradient[place])
            encoder.input.weight[place] -= 1


@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("norm", ["l2", "fro"])
def test_tensors_grow_linearly_with_the_nodes(similarity, norm):
    sizes = {}
    for num_nodes in (1_500, 6_000):
        x = torch.randn(num_nodes, 9, dtype=torch.float64)
        encoder = build(similarity=similarity, norm=norm, num_heads=4, input_dropout=0.5)
        with MemoryRecorder() as recorded:
            encoder(x, denoised=x).square().sum().backward()
        sizes[num_nodes] = recorded.largest
    assert sizes == {1_500: 1_500 * 9, 6_000: 6_000 * 9}


def test_peak_memory_lies_on_a_line_of_slope_one(monkeypatch):
    # Usual chunks would dominate the memory of the smallest graph, and the slope would be below 1.
    monkeypatch.setattr(importlib.import_module("graphzoo.ops.map_rows"), "CPU_ROWS", 1024)
    peaks = []
    for num_nodes in (10_000, 40_000, 160_000):
        x = torch.randn(num_nodes, 9)
        encoder = build(similarity="mcos", num_heads=2).float()
        with MemoryRecorder() as recorded:
            encoder(x, denoised=x).square().sum().backward()
        peaks.append(recorded.peak_bytes)
    slopes = [math.log(after / before, 4) for before, after in itertools.pairwise(peaks)]
    assert all(0.96 < slope < 1.02 for slope in slopes), (peaks, slopes)


def test_the_global_random_state_is_not_changed():
    x, edge_index = graph()
    encoder = build(similarity="qkcos", num_heads=2, dropout=0.5, input_dropout=0.5)
    before = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
    encoder(x, edge_index).sum().backward()
    encoder(x, edge_index, noise_seed=4)
    encoder(x.to_sparse_csr(), edge_index)
    encoder.eval()(x, edge_index)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1]) and random.getstate() == before[2]


def test_noise_depends_on_the_noise_seed_or_the_count():
    x, edge_index = graph()
    torch.manual_seed(5)
    first = build(input_dropout=0.3)
    named = first(x, edge_index, noise_seed=11)
    assert torch.equal(named, first(x, edge_index, noise_seed=11))
    assert not torch.equal(named, first(x, edge_index, noise_seed=12))
    torch.manual_seed(99)
    second = build(input_dropout=0.3)
    assert torch.equal(second(x, edge_index, noise_seed=11), named)
    unnamed = [first(x, edge_index) for _ in range(2)]
    assert not torch.equal(*unnamed)
    assert torch.equal(second(x, edge_index), unnamed[0])
    other = GALiT(first.spec, **{**first.init_args, "seed": 1}).double()
    other.load_state_dict(first.state_dict())
    assert not torch.equal(other(x, edge_index, noise_seed=11), named)


def test_resuming_from_a_state_dict_continues_the_noise():
    x, edge_index = graph()
    encoder = build(input_dropout=0.3, similarity="mcos")
    for _ in range(3):
        encoder(x, edge_index)
    state = copy.deepcopy(encoder.state_dict())
    expected = [encoder(x, edge_index) for _ in range(2)]
    resumed = build(seed=7, input_dropout=0.3, similarity="mcos")
    resumed.load_state_dict(state)
    assert all(torch.equal(resumed(x, edge_index), out) for out in expected)


def test_dropout_acts_on_the_embedded_features():
    x = torch.randn(4000, 9, dtype=torch.float64)
    encoder = build(attention="none", activation=False, dropout=0.25)
    states = encoder(x, denoised=x, noise_seed=0)
    kept = states != 0
    assert abs(kept.double().mean() - 0.75) < 0.02
    torch.testing.assert_close(states[kept], 4 / 3 * encoder.eval()(x, denoised=x)[kept])


def test_raw_and_denoised_features_have_different_dropout():
    """With one mask for both, the errors of the two would be dependent."""
    x, _ = graph()
    encoder = build(input_dropout=0.5, dropout=0.0)
    generator = encoder.noise.generator(0, "cpu")
    assert not torch.equal(encoder._embed(x, generator), encoder._embed(x, generator))


@pytest.mark.parametrize("norm", ["l2", "fro"])
@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_bfloat16_autocast_is_near_float32(norm, similarity):
    """The tolerance, 3 % of the largest state, is for two bfloat16 products (2^-8) and rounded states."""
    x, edge_index = graph(500, 9, torch.float32)
    encoder = build(similarity=similarity, norm=norm, num_heads=2).float()
    expected = encoder(x, edge_index, noise_seed=1)
    with torch.autocast("cpu", torch.bfloat16):
        out = encoder(x, edge_index, noise_seed=1)
    torch.testing.assert_close(
        out.float(), expected, rtol=0, atol=0.03 * float(expected.detach().abs().max())
    )
    out.float().square().sum().backward()
    actual = [parameter.grad.clone() for parameter in encoder.parameters()]
    encoder.zero_grad()
    expected.square().sum().backward()
    for a, parameter in zip(actual, encoder.parameters(), strict=True):
        assert (a - parameter.grad).norm() <= 0.05 * parameter.grad.norm() + 1e-3


@pytest.mark.parametrize(
    ("backend", "similarity"),
    [("aot_eager", "cos"), pytest.param("inductor", "qkcos", marks=pytest.mark.slow)],
)
def test_compiled_equals_eager(backend, similarity):
    torch._dynamo.reset()
    x, edge_index = graph()
    encoder = build(similarity=similarity, num_heads=2, input_dropout=0.3, norm="fro")
    compiled = torch.compile(encoder, backend=backend)
    for given in ({"denoised": encoder.precompute(x, edge_index)["denoised"]}, {"edge_index": edge_index}):
        expected = encoder(x, **given, noise_seed=2)
        reference = torch.autograd.grad(expected.square().sum(), list(encoder.parameters()))
        out = compiled(x, **given, noise_seed=2)
        torch.testing.assert_close(out, expected, atol=1e-10, rtol=1e-10)
        for a, e in zip(
            torch.autograd.grad(out.square().sum(), list(encoder.parameters())), reference, strict=True
        ):
            torch.testing.assert_close(a, e, atol=1e-8, rtol=1e-8)


def test_the_same_seed_gives_the_same_training():
    x, edge_index, y = communities()
    results = []
    for _ in range(2):
        torch.manual_seed(3)
        encoder = GALiT(
            GraphSpec(120, in_channels=6), hidden_channels=8, similarity="mcos", input_dropout=0.2
        )
        decoder = nn.Linear(8, 2)
        optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=0.02)
        for _ in range(5):
            optimizer.zero_grad()
            F.cross_entropy(decoder(encoder(x, edge_index)), y).backward()
            optimizer.step()
        results.append(decoder(encoder.eval()(x, edge_index)))
    assert torch.equal(*results)


def test_a_trained_encoder_applies_to_another_graph():
    encoder = build(similarity="mcos").eval()
    x, edge_index = graph(11)
    assert encoder(x, edge_index).shape == (11, 8)
    parts = encoder.precompute(x, edge_index)["denoised"][:4]
    assert encoder(x[:4], denoised=parts).shape == (4, 8)


def test_attention_rows_sum_to_one():
    x, edge_index = graph()
    encoder = build(similarity="mcos", num_heads=3).train()
    pairs = torch.stack([torch.full((30,), 4), torch.arange(30)])
    draws = int(encoder.noise.draws)
    weights = encoder.return_attention(x, edge_index, pairs)
    assert [w.shape for w in weights] == [(30, 3)] * 2 and int(encoder.noise.draws) == draws
    for layer in weights:
        torch.testing.assert_close(layer.sum(0), torch.ones(3, dtype=torch.float64))
        assert layer.std() > 0 and not layer.requires_grad


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hidden_channels": 0}, "hidden_channels must be at least 1, got 0"),
        ({"num_layers": 0}, "num_layers must be at least 1"),
        ({"num_heads": 0}, "num_heads must be at least 1"),
        ({"alpha": 1.1}, "alpha must be at least 0 and at most 1, got 1.1"),
        ({"gamma": 0.0}, "gamma must be above 0 and at most 1, got 0.0"),
        ({"num_iterations": -1}, "num_iterations must be at least 0"),
        ({"num_iterations": 10_001}, "at most 10,000, got 10001"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1"),
        ({"input_dropout": -0.1}, "input_dropout must be at least 0"),
        ({"similarity": "dot"}, "similarity must be one of cos, wcos, mcos, qkcos, got 'dot'"),
        ({"attention": "softmax"}, "attention must be one of cosine, none, got 'softmax'"),
        ({"norm": "l1"}, "norm must be one of l2, fro, got 'l1'"),
        ({"eps": 0.0}, "eps must be above 0 and below"),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        GALiT(GraphSpec(5, in_channels=3), **settings)


def test_wrong_input_is_refused():
    x, edge_index = graph()
    encoder = build()
    with pytest.raises(ValueError, match="pass edge_index, or denoised= from precompute"):
        encoder(x)
    with pytest.raises(ValueError, match=r"denoised must have the shape of x, \[30, 9\], got \[29, 9\]"):
        encoder(x, denoised=x[1:])
    with pytest.raises(ValueError, match=r"built for features \[N, 9\], got \[30, 8\]"):
        encoder(x[:, 1:], edge_index)
    with pytest.raises(ValueError, match="GALiT needs node features; the data has none"):
        GALiT(GraphSpec(5))


@pytest.mark.parametrize(("cls", "given"), [(GALiT, "denoised"), (SGC, "propagated")])
def test_an_export_with_edges_is_refused(cls, given):
    encoder, x = cls(8, 16, 3).eval(), torch.randn(20, 8)
    edge_index = torch.randint(20, (2, 50))
    with pytest.raises(UsageError, match=f"takes no edges: give {given}= from precompute"):
        torch.export.export(encoder, (x, edge_index))


@pytest.mark.parametrize("similarity", ["mcos", "qkcos"])
def test_similarity_maps_start_like_linear_layers(similarity):
    layer = GALiT(
        GraphSpec(5, in_channels=3), hidden_channels=64, num_layers=1, similarity=similarity
    ).layers[0]
    linear = torch.nn.Linear(64, 64)
    for value in layer.attention.parameters():
        wanted = linear.weight if value.dim() == 3 else linear.bias
        torch.testing.assert_close(value.abs().max(), wanted.abs().max(), atol=0, rtol=0.1)


def test_half_precision_is_denoised_alike_with_hidden_edges():
    x = torch.rand(30, 3).half()
    edges = torch.randint(30, (2, 80))
    encoder = GALiT(GraphSpec(30, in_channels=3))
    _, masked = encoder.precompute_masked(x, edges, torch.ones(80, dtype=torch.bool))
    torch.testing.assert_close(masked, encoder.precompute(x, edges))
