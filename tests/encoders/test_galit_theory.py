"""GALiT's layer is a gradient step on an energy, as the paper derives it (Theorem 1, Eq. 9 to 14)."""

import pytest
import torch
from torch import nn

from graphzoo.encoders import GALiT
from graphzoo.encoders.galit import CosineAttention, GALiTLayer
from graphzoo.ops import denoise_features
from graphzoo.types import GraphSpec


class FixedAttention(nn.Module):
    """Replaces the attention by a given matrix."""

    def __init__(self, matrix):
        super().__init__()
        self.matrix = matrix

    def forward(self, states, value):
        return self.matrix @ value


def doubly_stochastic(num_nodes):
    """A mean of permutations: positive, symmetric, and every row and column sums to 1."""
    eye = torch.eye(num_nodes, dtype=torch.float64)
    shuffled = [eye[torch.randperm(num_nodes)] for _ in range(40)]
    matrix = sum(p + p.t() for p in shuffled) / 80
    return 0.9 * matrix + 0.1 / num_nodes


def energy(z, anchor, matrix, weight):
    """Eq. 10."""
    differences = (z[:, None] - z[None]).square().sum(-1)
    return 0.5 * (z - anchor).square().sum() + weight / 4 * (matrix * differences).sum()


@pytest.mark.parametrize("alpha", [0.1, 0.5, 0.9])
def test_a_layer_is_a_gradient_step_for_a_doubly_stochastic_matrix(alpha):
    matrix = doubly_stochastic(12)
    torch.testing.assert_close(matrix, matrix.t())
    torch.testing.assert_close(matrix.sum(1), torch.ones(12, dtype=torch.float64))
    z, anchor = (torch.randn(12, 5, dtype=torch.float64) for _ in range(2))
    layer = GALiTLayer(FixedAttention(matrix), 5, alpha, linear_update=False)
    leaf = z.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(energy(leaf, anchor, matrix, 1 / alpha - 1), leaf)
    torch.testing.assert_close(layer(z, anchor), z - alpha * gradient)


def test_without_symmetry_a_layer_is_not_the_gradient_step():
    """Theorem 1 needs symmetry without saying so: Eq. 11 has no terms of the columns."""
    matrix = torch.rand(12, 12, dtype=torch.float64)
    matrix = matrix / matrix.sum(1, keepdim=True)
    z, anchor = (torch.randn(12, 5, dtype=torch.float64) for _ in range(2))
    layer = GALiTLayer(FixedAttention(matrix), 5, 0.5, linear_update=False)
    leaf = z.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(energy(leaf, anchor, matrix, 1.0), leaf)
    assert (layer(z, anchor) - (z - 0.5 * gradient)).abs().max() > 1e-3
    symmetric = (matrix + matrix.t()) / 2
    columns = matrix.sum(0)[:, None]
    # the true step: with the symmetric part, corrected where its rows and columns do not sum to 1
    step = 0.5 * (symmetric @ z + anchor) + 0.25 * (1 - columns) * z
    torch.testing.assert_close(step, z - 0.5 * gradient)


@pytest.mark.parametrize("norm", ["l2", "fro"])
@pytest.mark.parametrize("similarity", ["cos", "qkcos"])
@pytest.mark.parametrize("alpha", [0.3, 0.8])
def test_a_layer_is_the_step_of_equations_11_to_13(norm, similarity, alpha):
    """The matrix in the equations is the attention's own, row-normalised one."""
    num_nodes, channels = 14, 6
    attention = CosineAttention(channels, 2, similarity, norm=norm, bias=1.0, eps=1e-6).double()
    layer = GALiTLayer(attention, channels, alpha, linear_update=False)
    z, anchor = (torch.randn(num_nodes, channels, dtype=torch.float64) for _ in range(2))
    nodes = torch.arange(num_nodes)
    matrix = attention.weights(z, torch.cartesian_prod(nodes, nodes).t()).mean(1).view(num_nodes, num_nodes)
    gradient = z - anchor  # Eq. 11
    for i in range(num_nodes):
        for j in range(num_nodes):
            gradient[i] += (1 - alpha) / alpha * matrix[i, j] * (z[i] - z[j])
    torch.testing.assert_close(layer(z, anchor), z - alpha * gradient)


def test_the_linear_update_is_applied_to_the_values_alone():
    attention = CosineAttention(6, 1, "cos", norm="l2", bias=1.0, eps=1e-6)
    layer = GALiTLayer(attention, 6, 0.25, linear_update=True).double()
    z, anchor = (torch.randn(14, 6, dtype=torch.float64) for _ in range(2))
    nodes = torch.arange(14)
    matrix = attention.weights(z, torch.cartesian_prod(nodes, nodes).t()).view(14, 14)
    value = z @ layer.update.weight.t() + layer.update.bias
    torch.testing.assert_close(layer(z, anchor), 0.75 * matrix @ value + 0.25 * anchor)


@pytest.mark.parametrize("similarity", ["wcos", "mcos", "qkcos"])
def test_more_heads_give_the_attention_a_higher_rank(similarity):
    """Eq. 35 for the weights of `return_attention`; the constant of each head adds 1."""
    num_nodes, channels = 50, 4
    x = torch.randn(num_nodes, 9, dtype=torch.float64)
    nodes = torch.arange(num_nodes)
    pairs = torch.cartesian_prod(nodes, nodes).t()
    ranks = {}
    for heads in (1, 3):
        torch.manual_seed(1)
        encoder = GALiT(
            GraphSpec(num_nodes, in_channels=9),
            hidden_channels=channels,
            num_heads=heads,
            num_layers=1,
            similarity=similarity,
            activation=False,
        ).double()
        (weights,) = encoder.return_attention(x, None, pairs, denoised=x)
        matrix = weights.mean(1).view(num_nodes, num_nodes)
        ranks[heads] = int(torch.linalg.matrix_rank(matrix, rtol=1e-11))
    assert ranks[1] == channels + 1
    assert ranks[1] < ranks[3] <= 3 * (channels + 1)


def reference(encoder, x, denoised, pairs):
    """Eq. 30 and 31 with the explicit matrices of `return_attention`."""
    num_nodes = x.shape[0]
    anchor = torch.relu(denoised @ encoder.input.weight.t() + encoder.input.bias)
    z = torch.relu(x @ encoder.input.weight.t() + encoder.input.bias)
    for layer, weights in zip(
        encoder.layers, encoder.return_attention(x, None, pairs, denoised=denoised), strict=True
    ):
        matrix = weights.mean(1).view(num_nodes, num_nodes)
        z = (1 - layer.alpha) * matrix @ layer.update(z) + layer.alpha * anchor
    return z


@pytest.mark.parametrize("norm", ["l2", "fro"])
@pytest.mark.parametrize("similarity", ["cos", "wcos", "mcos", "qkcos"])
def test_the_encoder_is_equations_30_and_31(norm, similarity):
    num_nodes = 20
    x, edges = torch.randn(num_nodes, 9, dtype=torch.float64), torch.randint(0, num_nodes, (2, 50))
    encoder = GALiT(
        GraphSpec(num_nodes, in_channels=9),
        hidden_channels=8,
        num_layers=3,
        num_heads=2,
        alpha=0.3,
        gamma=0.2,
        num_iterations=4,
        similarity=similarity,
        norm=norm,
        linear_update=True,
    )
    encoder = encoder.double().eval()
    nodes = torch.arange(num_nodes)
    denoised = denoise_features(x, edges, gamma=0.2, num_iterations=4)
    expected = reference(encoder, x, denoised, torch.cartesian_prod(nodes, nodes).t())
    torch.testing.assert_close(encoder(x, edges), expected)
