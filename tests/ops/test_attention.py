import math

import pytest
import torch
from helpers.attention_matrices import explicit_prototype

from graphzoo.ops import (
    exponential_attention,
    prototype_attention,
    prototype_attention_weights,
    random_feature_attention,
)
from graphzoo.ops.norms import inverse_norm


def states(num_nodes=13, batch=3, heads=2, channels=4, dtype=torch.float64):
    return [torch.randn(num_nodes, batch, heads, channels, dtype=dtype, requires_grad=True) for _ in range(3)]


@pytest.mark.parametrize("norm", ["l2", "fro"])
@pytest.mark.parametrize("shape", [(13, 3, 2, 4), (1, 1, 1, 1), (700, 40, 4, 8)])
def test_linear_form_equals_the_explicit_matrix(norm, shape):
    q, k, v = states(*shape)
    out, expected = prototype_attention(q, k, v, norm=norm), explicit_prototype(q, k, v, norm)
    torch.testing.assert_close(out, expected, atol=1e-10, rtol=1e-10)
    direction = torch.randn_like(out)
    actual = torch.autograd.grad((out * direction).sum(), (q, k, v))
    for a, e in zip(actual, torch.autograd.grad((expected * direction).sum(), (q, k, v)), strict=True):
        torch.testing.assert_close(a, e, atol=1e-9, rtol=1e-7)


def test_weights_are_a_distribution():
    q, k, _ = states()
    ones = torch.ones_like(q)
    torch.testing.assert_close(prototype_attention(q, k, ones), ones)
    torch.testing.assert_close(exponential_attention(q, k, ones), ones)


def test_exponential_equals_the_explicit_matrix_and_does_not_overflow():
    q, k, v = states()
    torch.testing.assert_close(exponential_attention(q, k, v), explicit_prototype(q, k, v, "exponential"))
    assert torch.isfinite(exponential_attention(q * 1e3, k * 1e3, v)).all()


def test_error_of_the_first_order_kernel_is_within_the_taylor_bound():
    """Theorem 4.2: |kappa - kappa_exp| is at most e^gamma / 2 for unit vectors."""
    q, k = (torch.nn.functional.normalize(torch.randn(200, 8, dtype=torch.float64), dim=1) for _ in range(2))
    dot = q @ k.t()
    error = (1 + dot - torch.exp(dot)).abs()
    assert (error <= torch.exp(dot.clamp(min=0)) * dot.square() / 2 + 1e-12).all()
    assert error.max() <= math.e / 2


def test_random_features_tend_to_the_exponential_kernel():
    q, k, v = (x * 0.5 for x in states(num_nodes=20, batch=1, heads=1))
    exact = exponential_attention(q, k, v)
    errors = []
    for count in (8, 20_000):
        projection = torch.randn(count, 4, dtype=torch.float64)
        errors.append((random_feature_attention(q, k, v, projection) - exact).norm() / exact.norm())
    assert errors[1] < 0.02 and errors[1] < errors[0]
    assert torch.isfinite(
        random_feature_attention(q * 1e3, k * 1e3, v, torch.randn(8, 4, dtype=torch.float64))
    ).all()


def test_wrong_input_is_refused():
    q, k, v = states()
    with pytest.raises(ValueError, match=r"\[N, B, H, D\] of one shape"):
        prototype_attention(q, k[:, :1], v)
    with pytest.raises(ValueError, match="norm must be one of l2, fro, got 'max'"):
        prototype_attention(q, k, v, norm="max")


def test_weights_take_one_node_per_query():
    query, key = torch.randn(2, 5, 2, 1, 3)
    for wrong in (torch.tensor([3]), torch.tensor([3.0, 1.0])):
        with pytest.raises(ValueError, match="node must be"):
            prototype_attention_weights(query, key, wrong)
    for wrong in (-1, 5):
        with pytest.raises(ValueError, match=rf"node\[1\] = {wrong}: nodes are 0..4"):
            prototype_attention_weights(query, key, torch.tensor([3, wrong]))
    whole = prototype_attention_weights(query, key, torch.tensor([3, 1]))
    assert torch.equal(
        prototype_attention_weights(query, key, torch.tensor([3, 1], dtype=torch.int32)), whole
    )
    on_meta = (each.to("meta") for each in (query, key, torch.tensor([3, 1])))
    assert prototype_attention_weights(*on_meta).shape == whole.shape


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("norm", ["l2", "fro"])
def test_half_precision_holds_many_nodes_and_rows_of_zeros(dtype, norm):
    query, key, value = (x.detach() for x in states(40_000, 1, 1, 2, torch.float32))
    query[0], key[1] = 0, 0
    exact = prototype_attention(query, key, value, norm=norm)
    found = prototype_attention(query.to(dtype), key.to(dtype), value.to(dtype), norm=norm)
    assert found.dtype == dtype
    torch.testing.assert_close(found.float(), exact, atol=0.05, rtol=0.05)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_random_features_in_half_precision_hold_many_nodes(dtype):
    query, key, value = (x.detach() for x in states(70_000, 1, 1, 2, torch.float32))
    projection = torch.randn(4, 2)
    exact = random_feature_attention(query, key, value, projection)
    halves = (x.to(dtype) for x in (query, key, value, projection))
    found = random_feature_attention(*halves)
    assert found.dtype == dtype
    torch.testing.assert_close(found.float(), exact, atol=0.05, rtol=0.05)


@pytest.mark.parametrize("norm", ["l2", "fro"])
def test_zero_vectors_have_no_gradient(norm):
    inputs = [x.requires_grad_() for x in states()]
    with torch.no_grad():
        for x in inputs[:2]:
            x[0] = 0
    prototype_attention(*inputs, norm=norm).square().sum().backward()
    grads = [x.grad for x in inputs]
    assert all(float(grad.abs().max()) < 100 for grad in grads)
    if norm == "l2":
        assert not grads[0][0].any() and not grads[1][0].any()


@pytest.mark.parametrize("attend", [prototype_attention, exponential_attention])
def test_attention_of_no_nodes(attend):
    empty = torch.empty(0, 2, 1, 4)
    assert attend(empty, empty, empty).shape == empty.shape
    assert random_feature_attention(empty, empty, empty, torch.randn(3, 4)).shape == empty.shape


@pytest.mark.parametrize("norm", ["l2", "fro"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_does_not_round_sums_over_all_nodes(norm, dtype):
    """float16 ends at 65,504, and gradients of a mean over many nodes underflow in it."""
    inputs = [x.detach() for x in states(15_000, 1, 2, 8, torch.float32)]
    upstream = torch.randn(15_000, 1, 2, 8)

    def run(enabled):
        leaves = [x.clone().requires_grad_() for x in inputs]
        with torch.autocast("cpu", dtype=dtype, enabled=enabled):
            out = prototype_attention(*leaves, norm=norm)
        (out.float() * upstream).sum().backward()
        return [out.detach().float(), *(leaf.grad for leaf in leaves)]

    for found, exact in zip(run(True), run(False), strict=True):
        assert (found - exact).norm() < 0.02 * exact.norm()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_inverse_norm_of_zero_is_zero_in_half_precision(dtype):
    squares = torch.zeros(2, dtype=dtype, requires_grad=True)
    out = inverse_norm(squares)
    out.sum().backward()
    assert not out.any() and not squares.grad.any()
