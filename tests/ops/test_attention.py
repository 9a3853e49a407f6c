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


def test_weights_are_of_one_node_for_each_query():
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
