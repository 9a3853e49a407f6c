"""Means and distributions of random features and Gumbel noise. Bounds are multiples of standard errors."""

import math

import pytest
import torch
from scipy import stats

from graphzoo.ops import orthogonal_projection, positive_random_features
from graphzoo.ops.kernelized_attention import attend_features
from graphzoo.ops.random_features import draw_gumbel, random_features_at

# At this level, a test of several fixed-seed figures fails by chance with probability below 10^-4.
ALPHA = 1e-5
Z = stats.norm.ppf(1 - ALPHA / 2)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def estimates(x, y, num_features, repeats, orthogonal):
    """`repeats` independent estimates of exp(x y) for vectors [D]."""
    draw = generator(1)
    if orthogonal:
        projection = torch.stack(
            [orthogonal_projection(num_features, x.numel(), draw, dtype=x.dtype) for _ in range(repeats)]
        ).flatten(0, 1)
    else:
        projection = torch.randn(repeats * num_features, x.numel(), generator=draw, dtype=x.dtype)
    phi = [
        positive_random_features(z[None, None], projection, is_query=is_query, stabilize=False, eps=0)
        for z, is_query in ((x, True), (y, False))
    ]
    # The features are scaled for `repeats * M` directions; each estimate sums over M of them.
    return (phi[0] * phi[1])[0, 0].view(repeats, num_features).sum(1) * repeats


VECTORS = [
    tuple(torch.tensor(vector, dtype=torch.float64) for vector in pair)
    for pair in (
        ([0.3, -0.2, 0.1], [0.2, 0.4, -0.3]),
        ([0.4, 0.3, 0.0], [0.3, 0.2, 0.2]),
        ([-0.5, 0.3, 0.2], [0.5, 0.1, 0.1]),
    )
]


@pytest.mark.parametrize("orthogonal", [False, True])
@pytest.mark.parametrize("num_features", [2, 3, 7])
@pytest.mark.parametrize("pair", range(len(VECTORS)))
def test_plain_features_are_unbiased(pair, num_features, orthogonal):
    x, y = VECTORS[pair]
    found = estimates(x, y, num_features, 10_000, orthogonal)
    error = found.std() / math.sqrt(found.numel())
    assert abs(found.mean() - torch.exp(x @ y)) < Z * error


@pytest.mark.parametrize("pair", range(len(VECTORS)))
@pytest.mark.parametrize("num_features", [1, 4])
def test_variance_is_that_of_proposition_1(pair, num_features):
    x, y = VECTORS[pair]
    found = estimates(x, y, num_features, 400_000, orthogonal=False)
    length = (x + y).square().sum()
    expected = torch.exp(length) * torch.exp(2 * x @ y) * (1 - torch.exp(-length)) / num_features
    squares = (found - found.mean()).square()
    assert abs(squares.mean() - expected) < Z * squares.std() / math.sqrt(found.numel())


def test_orthogonal_directions_estimate_better_than_independent_ones():
    x, y = VECTORS[1]
    independent, orthogonal = (estimates(x, y, 3, 20_000, flag).var() for flag in (False, True))
    assert orthogonal < 0.95 * independent


def test_rows_of_a_block_are_orthogonal_and_blocks_are_independent():
    projection = orthogonal_projection(7, 3, generator(), dtype=torch.float64)
    directions = torch.nn.functional.normalize(projection, dim=1)
    for block in (directions[:3], directions[3:6]):
        torch.testing.assert_close(block @ block.t(), torch.eye(3, dtype=torch.float64))
    assert (directions[:3] @ directions[3:].t()).abs().max() < 0.999


def test_lengths_of_rows_are_those_of_gaussian_vectors():
    lengths = torch.cat([orthogonal_projection(5, 4, generator(seed)).norm(dim=1) for seed in range(2000)])
    assert stats.kstest(lengths.numpy(), stats.chi(4).cdf).pvalue > ALPHA


def test_directions_are_uniform():
    """Without the sign correction, the first coordinate of the first row always has the same sign."""
    rows = torch.stack([orthogonal_projection(3, 3, generator(seed)) for seed in range(4000)])
    unit = torch.nn.functional.normalize(rows, dim=2)
    # A coordinate of a uniform direction in three dimensions is uniform in [-1, 1].
    uniform = stats.uniform(-1, 2).cdf
    for row in range(3):
        for column in range(3):
            assert stats.kstest(unit[:, row, column].numpy(), uniform).pvalue > ALPHA / 9


def test_projection_comes_from_its_generator_alone():
    state = torch.get_rng_state()
    first, again = (orthogonal_projection(7, 3, generator(5)) for _ in range(2))
    assert torch.equal(first, again) and first.shape == (7, 3) and first.dtype == torch.float32
    assert torch.equal(torch.get_rng_state(), state)
    assert orthogonal_projection(7, 3, generator(5), dtype=torch.bfloat16).dtype == torch.bfloat16
    with pytest.raises(ValueError, match="num_features must be at least 1, got 0"):
        orthogonal_projection(0, 3)


def test_features_are_those_of_the_equation():
    """phi(x) = M^(-1/2) (exp(W x - |x|^2 / 2 - s) + eps), written out entry by entry."""
    x = torch.randn(4, 2, 3, generator=generator(), dtype=torch.float64)
    projection = torch.randn(5, 3, generator=generator(1), dtype=torch.float64)
    for is_query in (True, False):
        found = positive_random_features(x, projection, is_query=is_query)
        for n in range(4):
            for h in range(2):
                rows = [x[n, h]] if is_query else list(x[:, h])
                stabiliser = max(float(w @ row) for row in rows for w in projection)
                for m, w in enumerate(projection):
                    exponent = float(w @ x[n, h] - x[n, h] @ x[n, h] / 2) - stabiliser
                    expected = (math.exp(exponent) + 1e-6) / math.sqrt(5)
                    assert found[n, h, m].item() == pytest.approx(expected, rel=1e-12)


def test_temperature_divides_the_logits():
    x = torch.randn(4, 2, 3, generator=generator(), dtype=torch.float64)
    projection = torch.randn(5, 3, generator=generator(1), dtype=torch.float64)
    scaled = x / (math.sqrt(0.3) * 3**0.25)
    torch.testing.assert_close(
        random_features_at(x, projection, tau=0.3, is_query=True),
        positive_random_features(scaled, projection, is_query=True),
    )


def test_gumbel_draws_have_their_distribution():
    draws = draw_gumbel((2000, 5, 20), generator(3), torch.float32)
    assert draws.shape == (2000, 5, 20)
    assert stats.kstest(draws.flatten().double().numpy(), stats.gumbel_r.cdf).pvalue > ALPHA


def sampled_weights(phi_q, phi_k, tau, num_samples, seed=0):
    """Weights of every sample and query, [samples, N, N]; heads are used as independent samples."""
    num_nodes = phi_k.shape[0]
    gumbel = draw_gumbel((num_nodes, num_samples, 1), generator(seed), torch.float64)
    identity = torch.eye(num_nodes, dtype=torch.float64)[:, None].expand(-1, num_samples, -1)
    phi_q, phi_k = (phi.expand(-1, num_samples, -1) for phi in (phi_q, phi_k))
    return attend_features(phi_q, phi_k, identity, tau=tau, gumbel=gumbel).transpose(0, 1)


def assert_largest_with(weights, probability):
    """Chi-square test, for each query, of how often each node has the largest weight."""
    counts = torch.nn.functional.one_hot(weights.argmax(-1), probability.shape[1]).sum(0)
    for observed, p in zip(counts, probability, strict=True):
        assert stats.chisquare(observed.numpy(), (p * observed.sum()).numpy()).pvalue > ALPHA


def test_with_the_exact_kernel_small_tau_draws_one_neighbour():
    """As tau goes to 0, weights become one-hot with probability alpha_v / sum alpha, alpha_v = exp(q k_v)."""
    logits = torch.tensor([[0.3, -0.4, 1.0, 0.0, 0.6]], dtype=torch.float64)
    one_hot_share = []
    for tau in (0.5, 0.1, 0.01):
        # One feature per key gives exactly the kernel exp(q k_v / tau).
        phi_q = torch.ones(5, 1, 5, dtype=torch.float64)
        phi_k = torch.diag(torch.exp((logits[0] - logits.max()) / tau))[:, None]
        weights = sampled_weights(phi_q, phi_k, tau, 20_000)
        torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
        assert_largest_with(weights, torch.softmax(logits, 1).expand(5, -1))
        one_hot_share.append((weights.amax(-1) > 0.999).double().mean().item())
    assert one_hot_share == sorted(one_hot_share)
    assert one_hot_share[0] < 0.2 and one_hot_share[-1] > 0.9


@pytest.mark.parametrize("tau", [0.25, 0.5, 1.0])
def test_random_features_draw_with_the_power_tau(tau):
    """Node v has the largest weight with probability beta_v^tau / sum beta^tau, beta_v = phi(q) phi(k_v)."""
    x = torch.randn(2, 6, 1, 3, generator=generator(4), dtype=torch.float64)
    projection = orthogonal_projection(4, 3, generator(5), dtype=torch.float64)
    phi_q = random_features_at(x[0], projection, tau=tau, is_query=True)
    phi_k = random_features_at(x[1], projection, tau=tau, is_query=False)
    beta = phi_q[:, 0] @ phi_k[:, 0].t()
    expected = beta**tau / (beta**tau).sum(1, keepdim=True)
    assert_largest_with(sampled_weights(phi_q, phi_k, tau, 20_000), expected)
