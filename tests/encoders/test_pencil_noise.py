"""PENCIL's dropout: where it applies, its random stream, and its behaviour in bfloat16 and compiled code."""

import shutil

import pytest
import torch
from helpers.pair_subgraphs import make_subgraphs
from helpers.pencil_cases import SIZES, build
from helpers.pencil_reference import bert_layer

from graphzoo.encoders import pencil as module
from graphzoo.layers import attention
from graphzoo.layers import noise as noise_module


def weights_of(encoder):
    return {name: weight for name, weight in encoder.named_parameters() if weight.requires_grad}


def test_a_layer_with_dropout_equals_the_explicit_form(monkeypatch):
    """With the drawn masks: dropout of attention weights, attention output and feed-forward output."""
    kept, original = [], attention.draw_kept

    def draw(x, p, generator):
        keep, scale = original(x, p, generator)
        kept.append(keep.double() * scale)
        return keep, scale

    monkeypatch.setattr(attention, "draw_kept", draw)
    monkeypatch.setattr(noise_module, "draw_kept", draw)
    encoder = build(num_layers=1, dropout=0.3, multiplicative_residual=False).train()
    name, h = "layers.0", torch.randn(4, 6, 12, dtype=torch.float64, requires_grad=True)
    mask = torch.arange(6) < torch.tensor([6, 2, 5, 1])[:, None]
    out = encoder.layers[0](h, mask, None, torch.Generator().manual_seed(0))
    assert [tuple(factors.shape) for factors in kept] == [(12, 6, 6), (4, 6, 12), (4, 6, 12)]
    for factors in kept:
        assert set(factors.unique().tolist()) == {0, kept[0].max().item()}
    rows = []
    for pair, size in enumerate((6, 2, 5, 1)):
        part = [kept[0].view(4, 3, 6, 6)[pair, :, :size, :size], kept[1][pair, :size], kept[2][pair, :size]]
        rows.append(bert_layer(dict(encoder.named_parameters()), name, h[pair, :size], 3, part))
    expected = torch.cat(rows)
    actual = torch.cat([row[:size] for row, size in zip(out, (6, 2, 5, 1), strict=True)])
    torch.testing.assert_close(actual, expected, atol=1e-9, rtol=1e-9)
    direction = torch.randn_like(actual)
    inputs = [h, *encoder.layers[0].parameters()]
    for a, e in zip(
        torch.autograd.grad((actual * direction).sum(), inputs),
        torch.autograd.grad((expected * direction).sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(a, e, atol=1e-8, rtol=1e-7)


def test_every_layer_and_pass_has_other_noise(monkeypatch):
    drawn, original = [], attention.draw_kept

    def draw(x, p, generator):
        keep, scale = original(x, p, generator)
        drawn.append(keep)
        return keep, scale

    monkeypatch.setattr(attention, "draw_kept", draw)
    encoder, subgraphs = build(dropout=0.5, num_layers=3).train(), make_subgraphs([9, 9])
    encoder(subgraphs)
    encoder(subgraphs)
    assert len(drawn) == 6
    first_two = [keep for number, keep in enumerate(drawn) if number % 3 < 2]  # masks of one shape
    for one in range(4):
        for other in range(one):
            assert not torch.equal(first_two[one], first_two[other])


def test_there_is_no_dropout_in_evaluation_or_at_rate_zero():
    subgraphs = make_subgraphs(SIZES)
    out = build(dropout=0.3)(subgraphs)
    assert torch.equal(build(dropout=0.3)(subgraphs, noise_seed=1), out)
    without = build(dropout=0.0).train()
    torch.testing.assert_close(without(subgraphs), out, atol=1e-11, rtol=1e-11)
    assert int(without.noise.draws) == 0
    noisy = build(dropout=0.3).train()
    assert not torch.allclose(noisy(subgraphs), out, atol=1e-3)
    assert int(noisy.noise.draws) == 1


@pytest.mark.parametrize("training", [True, False])
def test_the_global_random_state_is_not_changed(training):
    encoder, subgraphs = build(dropout=0.5).train(training), make_subgraphs(SIZES)
    state = torch.get_rng_state()
    encoder(subgraphs).sum().backward()
    assert torch.equal(torch.get_rng_state(), state)


def test_a_noise_seed_repeats_the_noise_in_any_global_state():
    encoder, subgraphs = build(dropout=0.5).train(), make_subgraphs(SIZES)
    torch.manual_seed(1)
    named = encoder(subgraphs, noise_seed=4)
    torch.manual_seed(2)
    assert torch.equal(encoder(subgraphs, noise_seed=4), named)
    assert not torch.equal(encoder(subgraphs, noise_seed=5), named)
    first, second = encoder(subgraphs), encoder(subgraphs)
    assert not torch.equal(first, second)
    other = build(dropout=0.5, seed=1).train()
    assert not torch.equal(other(subgraphs, noise_seed=4), named)


def test_a_loaded_state_dict_continues_the_noise():
    subgraphs = make_subgraphs(SIZES)
    encoder = build(dropout=0.5).train()
    encoder(subgraphs)
    resumed = build(dropout=0.5).train()
    resumed.load_state_dict(encoder.state_dict())
    assert torch.equal(resumed(subgraphs), encoder(subgraphs))


def test_noise_of_a_group_does_not_depend_on_the_order_of_the_batch(monkeypatch):
    """Two subgraphs of different sizes, a group each, in both orders. The groups have different noise."""
    monkeypatch.setattr(module, "_MIN_TOKENS", (1, 1))
    drawn, original = [], attention.draw_kept

    def draw(x, p, generator):
        keep, scale = original(x, p, generator)
        drawn.append(keep.flatten())
        return keep, scale

    monkeypatch.setattr(attention, "draw_kept", draw)
    encoder = build(dropout=0.5).train()
    subgraphs = make_subgraphs([10, 4])
    states = encoder(subgraphs, noise_seed=1)
    large, small = drawn[0], drawn[len(drawn) // 2]  # the first layer of each group
    assert small.numel() < large.numel() and not torch.equal(small, large[: small.numel()])
    assert torch.equal(encoder(subgraphs, noise_seed=1), states)
    subgraphs.num_nodes, subgraphs.adjacency = torch.tensor([4, 10]), subgraphs.adjacency.flip(0)
    torch.testing.assert_close(encoder(subgraphs, noise_seed=1), states.flip(0))


@pytest.mark.parametrize("training", [True, False])
def test_bfloat16_autocast_is_close_to_float32(training):
    """States and gradients are within 2 % of the norm: bfloat16 has 8 bits, and there are 2 layers."""
    encoder, subgraphs = build(7, dtype=torch.float32, dropout=0.1), make_subgraphs(SIZES)
    torch.manual_seed(0)
    for parameter in encoder.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    encoder.train(training)
    x = torch.randn(40, 7)
    weights = weights_of(encoder)
    found = {}
    for name in ("exact", "autocast"):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=name == "autocast"):
            out = encoder(subgraphs, x, noise_seed=1)
        found[name] = [out.float(), *torch.autograd.grad(out.float().square().sum(), list(weights.values()))]
    for name, exact, near in zip(["states", *weights], found["exact"], found["autocast"], strict=True):
        # The key's bias does not change a softmax, so its gradient is only rounding.
        if exact.norm() > 1e-4:
            assert (near - exact).norm() < 0.02 * exact.norm(), name


def test_bfloat16_parameters():
    """The error is below 3 % of the norm, because weights are rounded too."""
    encoder, subgraphs = build(dtype=torch.float32), make_subgraphs(SIZES)
    for parameter in encoder.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    exact = encoder(subgraphs)
    out = encoder.bfloat16()(subgraphs)
    assert out.dtype == torch.bfloat16
    assert (out.float() - exact).norm() < 0.03 * exact.norm()


def test_degrees_are_counted_right_in_bfloat16():
    """bfloat16 does not distinguish 257 from 256; a star of 600 nodes has a row sum of 599."""
    links = torch.zeros(1, 600, 600, dtype=torch.bfloat16)
    links[0, 0, 2:] = 1
    operator = module._operator(links, torch.ones(1, 600, dtype=torch.bool), "row")
    assert operator[0, 0, 2] == torch.tensor(1 / 599).bfloat16()


BACKEND = "inductor" if shutil.which("c++") or shutil.which("g++") else "aot_eager"


@pytest.mark.slow
def test_evaluation_and_training_without_dropout_compile_to_one_graph():
    """One compilation serves several sizes. Results agree up to rounding, as sums run in another order."""
    torch.compiler.reset()
    encoder = build(dtype=torch.float32, max_nodes=20, dropout=0.0)
    for parameter in encoder.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    compiled = torch.compile(encoder, backend=BACKEND, fullgraph=True, dynamic=True)
    for sizes in (SIZES, [13, 4, 9], [20, 20]):
        subgraphs = make_subgraphs(sizes)
        expected, out = encoder(subgraphs), compiled(subgraphs)
        torch.testing.assert_close(out, expected, atol=1e-5, rtol=1e-4)
        grads = [torch.autograd.grad(o.square().sum(), list(encoder.parameters())) for o in (out, expected)]
        for name, a, e in zip(dict(encoder.named_parameters()), *grads, strict=True):
            torch.testing.assert_close(a, e, atol=1e-4, rtol=1e-3, msg=lambda t, n=name: f"{n}: {t}")


@pytest.mark.slow
def test_compiled_training_with_dropout_and_features_equals_eager(monkeypatch):
    """Random generators and feature tables stay outside the compiled graphs."""
    torch.compiler.reset()
    encoder, subgraphs = build(7, dtype=torch.float32).train(), make_subgraphs([11, 11, 11])
    for parameter in encoder.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    # Compiled code computes all nodes in the last layer, which gives its noise another shape.
    every_node = module._senders
    monkeypatch.setattr(module, "_senders", lambda operator, most=None: every_node(torch.ones_like(operator)))
    x, weights = torch.randn(40, 7), weights_of(encoder)
    expected = encoder(subgraphs, x, noise_seed=1)
    out = torch.compile(encoder, backend=BACKEND)(subgraphs, x, noise_seed=1)
    torch.testing.assert_close(out, expected, atol=1e-5, rtol=1e-4)
    grads = [torch.autograd.grad(o.square().sum(), list(weights.values())) for o in (out, expected)]
    for name, a, e in zip(weights, *grads, strict=True):
        torch.testing.assert_close(a, e, atol=1e-4, rtol=1e-3, msg=lambda t, n=name: f"{n}: {t}")


@pytest.mark.gpu
def test_states_on_cuda_are_those_of_the_cpu():
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    encoder, subgraphs = build(dtype=torch.float32), make_subgraphs(SIZES)
    expected = encoder(subgraphs)
    out = encoder.cuda()(subgraphs.to("cuda"))
    torch.testing.assert_close(out.cpu(), expected, atol=1e-4, rtol=1e-3)
    state = torch.cuda.get_rng_state()
    encoder.train()
    named = encoder(subgraphs.to("cuda"), noise_seed=1)
    assert torch.equal(encoder(subgraphs.to("cuda"), noise_seed=1), named)
    assert torch.equal(torch.cuda.get_rng_state(), state)
