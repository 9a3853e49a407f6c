"""NodeFormer's attention against explicit N x N matrices; its statistics are in `test_random_features.py`."""

import pytest
import torch
from helpers.attention_matrices import SHAPES, matrices, problem, quadratic
from helpers.memory import MemoryRecorder

from graphzoo.errors import UsageError
from graphzoo.ops import kernelized_attention as module
from graphzoo.ops import (
    kernelized_edge_weights,
    kernelized_softmax,
    positive_random_features,
)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("tau", [0.25, 1.0])
@pytest.mark.parametrize("noisy", [True, False])
def test_linear_form_equals_the_explicit_matrix(shape, tau, noisy, monkeypatch):
    monkeypatch.setattr(module, "_CPU_BLOCK", 300)  # so that rows go through several blocks
    inputs, gumbel = problem(shape)
    gumbel = gumbel.requires_grad_() if noisy else None
    out = kernelized_softmax(*inputs, tau=tau, gumbel=gumbel)
    expected = quadratic(*inputs, gumbel, tau)
    torch.testing.assert_close(out, expected, atol=1e-11, rtol=1e-11)
    direction = torch.randn_like(out)
    wanted = (*inputs, gumbel) if noisy else tuple(inputs)
    actual = torch.autograd.grad((out * direction).sum(), wanted)
    for a, e in zip(actual, torch.autograd.grad((expected * direction).sum(), wanted), strict=True):
        torch.testing.assert_close(a, e, atol=1e-10, rtol=1e-9)


def test_gradients_equal_differences():
    (query, key, value, projection), gumbel = problem((5, 2, 3, 4, 2))
    gumbel.requires_grad_()

    def attend(*inputs):
        return kernelized_softmax(*inputs[:4], tau=0.5, gumbel=inputs[4])

    assert torch.autograd.gradcheck(attend, (query, key, value, projection, gumbel))
    for is_query in (True, False):
        for stabilize in (True, False):
            assert torch.autograd.gradcheck(
                lambda x, w: positive_random_features(x, w, is_query=is_query, stabilize=stabilize),  # noqa: B023
                (query, projection),
            )
    pairs = torch.tensor([[0, 1, 4, 1, 2], [1, 1, 0, 1, 3]])
    assert torch.autograd.gradcheck(
        lambda *inputs: kernelized_edge_weights(*inputs, pairs, tau=0.5), (query, key, projection)
    )


def test_values_may_be_wider_than_queries():
    (query, key, _, projection), gumbel = problem("small")
    value = torch.randn(13, 2, 7, dtype=torch.float64)
    out = kernelized_softmax(query, key, value, projection, tau=0.5, gumbel=gumbel)
    torch.testing.assert_close(out, quadratic(query, key, value, projection, gumbel, 0.5))


@pytest.mark.parametrize("block", [1, 50, 1 << 18])
def test_size_of_the_blocks_does_not_matter(block, monkeypatch):
    inputs, gumbel = problem("several_blocks")
    expected = quadratic(*inputs, gumbel, 0.25)
    monkeypatch.setattr(module, "_CPU_BLOCK", block)
    torch.testing.assert_close(kernelized_softmax(*inputs, tau=0.25, gumbel=gumbel), expected)


def test_every_sample_is_a_distribution():
    (query, key, _, projection), gumbel = problem("small")
    ones = torch.ones(13, 2, 1, dtype=torch.float64)
    torch.testing.assert_close(kernelized_softmax(query, key, ones, projection, tau=0.1, gumbel=gumbel), ones)


@pytest.mark.parametrize("noisy", [True, False])
def test_stabilisation_cancels(noisy):
    """With eps = 0, the stabiliser does not change the attention."""
    (query, key, value, projection), gumbel = problem("small")
    gumbel = gumbel if noisy else None
    outs = []
    for stabilize in (True, False):
        phi_q, phi_k = (
            positive_random_features(x, projection, is_query=is_query, stabilize=stabilize, eps=0)
            for x, is_query in ((query, True), (key, False))
        )
        outs.append(module.attend_features(phi_q, phi_k, value, tau=0.25, gumbel=gumbel))
    torch.testing.assert_close(*outs, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_nothing_overflows_at_low_temperature(dtype, scale):
    """With tau = 0.05, e^(g / tau) reaches e^200, and keys of scale 30 give exponents of thousands."""
    inputs, gumbel = problem((500, 2, 8, 16, 4), dtype, scale=scale)
    out = kernelized_softmax(*inputs, tau=0.05, gumbel=gumbel.to(dtype))
    assert out.dtype == dtype
    exact = [x.detach().double().requires_grad_() for x in inputs]
    expected = kernelized_softmax(*exact, tau=0.05, gumbel=gumbel.to(dtype).double())
    grads = torch.autograd.grad(out.square().sum(), inputs)
    assert all(torch.isfinite(x).all() for x in (out, *grads))
    # The two differ by the rounding of exponents up to |x|^2 / (2 tau) = 10^3 to 10^5.
    tolerance = (1e-4 if dtype is torch.float32 else 2e-2) if scale == 1 else 0.3
    assert (out.double() - expected).norm() <= tolerance * expected.norm()


def test_large_noise_does_not_overflow():
    (query, key, value, projection), _ = problem("small", torch.float32)
    gumbel = torch.full((13, 2, 3), 15.0)
    gumbel[4] = 60.0
    out = kernelized_softmax(query, key, value, projection, tau=0.05, gumbel=gumbel)
    torch.testing.assert_close(out, value[4].expand_as(out), atol=1e-5, rtol=1e-5)


def test_edge_weights_equal_the_matrix():
    (query, key, _, projection), _ = problem("small")
    pairs = torch.randint(13, (2, 60))
    pairs[:, 7] = pairs[:, 3]
    weights = kernelized_edge_weights(query, key, projection, pairs, tau=0.25)
    matrix = matrices(query, key, projection, None, 0.25)[:, 0]
    torch.testing.assert_close(weights, matrix[:, pairs[1], pairs[0]].t(), atol=1e-12, rtol=1e-12)
    everything = torch.cartesian_prod(torch.arange(13), torch.arange(13)).t()
    sums = kernelized_edge_weights(query, key, projection, everything, tau=0.25).view(13, 13, 2).sum(0)
    torch.testing.assert_close(sums, torch.ones_like(sums))
    assert kernelized_edge_weights(query, key, projection, pairs[:, :0], tau=0.25).shape == (0, 2)


def test_permuted_nodes_and_noise_give_permuted_results():
    (query, key, value, projection), gumbel = problem("several_blocks")
    order = torch.randperm(61)
    out = kernelized_softmax(query, key, value, projection, tau=0.25, gumbel=gumbel)
    permuted = kernelized_softmax(
        query[order], key[order], value[order], projection, tau=0.25, gumbel=gumbel[order]
    )
    torch.testing.assert_close(permuted, out[order], atol=1e-12, rtol=1e-12)


def test_autocast_does_not_round_inside():
    inputs, gumbel = problem("small", torch.float32)
    plain = kernelized_softmax(*inputs, tau=0.25, gumbel=gumbel)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = kernelized_softmax(*inputs, tau=0.25, gumbel=gumbel)
    assert torch.equal(plain, cast)
    pairs = torch.randint(13, (2, 60))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        weights = kernelized_edge_weights(inputs[0], inputs[1], inputs[3], pairs, tau=0.25)
    assert torch.equal(weights, kernelized_edge_weights(inputs[0], inputs[1], inputs[3], pairs, tau=0.25))


def test_memory_and_work_are_linear_in_the_nodes(monkeypatch):
    """Forward and backward at N, 2N and 4N: each node costs the same, and no tensor has N x N elements."""
    monkeypatch.setattr(module, "_CPU_BLOCK", 1 << 14)  # keeps the constant part small
    recorded = []
    for nodes in (2000, 4000, 8000):
        inputs, gumbel = problem((nodes, 2, 8, 10, 5), torch.float32)
        pairs = torch.randint(nodes, (2, 4 * nodes))
        with MemoryRecorder() as recorder:
            out = kernelized_softmax(*inputs, tau=0.25, gumbel=gumbel.float())
            weights = kernelized_edge_weights(inputs[0], inputs[1], inputs[3], pairs, tau=0.25)
            torch.autograd.grad(out.sum() + weights.log().sum(), inputs)
        assert recorder.largest < nodes * nodes / 10
        recorded.append(recorder)
    for figure in ("peak_bytes", "written_bytes"):
        values = [getattr(recorder, figure) for recorder in recorded]
        slope = (values[2] - values[1]) / (2 * (values[1] - values[0]))
        assert abs(slope - 1) < 0.03, (figure, values)
    # All noisy copies of the keys together are [N, H, 15, 40], 600 numbers for each node and head.
    inputs, gumbel = problem((8000, 2, 8, 40, 15), torch.float32)
    with MemoryRecorder() as recorder:
        out = kernelized_softmax(*inputs, tau=0.25, gumbel=gumbel.float())
        torch.autograd.grad(out.sum(), inputs)
    assert recorder.peak_bytes < 8000 * 2 * 4 * 400


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"key": torch.ones(3, 2, 5)}, r"query and key must be \[N, H, D\] of one shape"),
        ({"value": torch.ones(4, 2, 4)}, r"value \[N, H, C\], got .*\[4, 2, 4\]"),
        ({"projection": torch.ones(5, 3)}, r"projection \[M, D\] with the same D"),
        ({"tau": 0.0}, "tau must be above 0, got 0.0"),
        ({"gumbel": torch.ones(3, 1, 5)}, r"gumbel must be \[3, 2, K\].* got \[3, 1, 5\]"),
        ({"gumbel": torch.ones(3, 2, 0)}, r"K at least 1, got \[3, 2, 0\]"),
    ],
)
def test_wrong_input_is_refused(change, message):
    given = {name: torch.ones(3, 2, 4) for name in ("query", "key", "value")}
    given |= {"projection": torch.ones(5, 4), "tau": 0.25} | change
    with pytest.raises(ValueError, match=message):
        kernelized_softmax(**given)


def test_edge_weights_refuse_wrong_input():
    edges, query, projection = torch.tensor([[0], [1]]), torch.randn(4, 1, 3), torch.randn(5, 3)
    for tau in (0.0, -1.0):
        with pytest.raises(UsageError, match="tau must be above 0"):
            kernelized_edge_weights(query, query, projection, edges, tau=tau)
    with pytest.raises(ValueError, match="of one shape"):
        kernelized_edge_weights(query, query[:3], projection, edges, tau=1.0)
