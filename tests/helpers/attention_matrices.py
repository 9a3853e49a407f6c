"""Attention with explicit N x N matrices, and inputs for it."""

import math

import torch

from graphzoo.ops import (
    orthogonal_projection,
    positive_random_features,
)
from graphzoo.ops.random_features import draw_gumbel
from helpers.knowformer_reference import attend


def explicit_prototype(query, key, value, norm):
    """Prototype attention with N x N matrices, for each query and head."""
    _, batch, heads, _ = query.shape
    return torch.stack(
        [
            torch.stack([attend(query[:, b, h], key[:, b, h], value[:, b, h], norm) for h in range(heads)], 1)
            for b in range(batch)
        ],
        dim=1,
    )


def similarities(query, key, norm, bias, eps):
    """Weights before normalisation, [H, N, N] (Eq. 18 to 20)."""
    heads = []
    for q, k in zip(query.unbind(1), key.unbind(1), strict=True):
        axis = 1 if norm == "l2" else None
        g = q * (bias - eps) ** 0.5 / torch.linalg.vector_norm(q, dim=axis, keepdim=True)
        h = k * (bias - eps) ** 0.5 / torch.linalg.vector_norm(k, dim=axis, keepdim=True)
        heads.append(bias + g @ h.t())
    return torch.stack(heads)


def explicit_cosine(query, key, value, norm, bias=1.0, eps=1e-6):
    """Eq. 15 and 2 with the N x N matrix."""
    weights = similarities(query, key, norm, bias, eps)
    return torch.einsum("hij,jhd->ihd", weights / weights.sum(-1, keepdim=True), value)


SHAPES = {  # nodes, heads, channels, features, samples
    "small": (13, 2, 4, 5, 3),
    "one_of_each": (1, 1, 1, 1, 1),
    "one_sample": (7, 3, 2, 9, 1),
    "several_blocks": (61, 2, 3, 4, 5),
}


def problem(shape, dtype=torch.float64, seed=0, scale=1.0):
    nodes, heads, channels, features, samples = SHAPES.get(shape, shape)
    generator = torch.Generator().manual_seed(seed)
    qkv = torch.randn(3, nodes, heads, channels, generator=generator, dtype=torch.float64) * scale
    projection = orthogonal_projection(features, channels, generator, dtype=torch.float64)
    gumbel = draw_gumbel((nodes, heads, samples), generator, torch.float64)
    return [x.to(dtype).requires_grad_() for x in (*qkv, projection)], gumbel


def features_of(query, key, projection, tau):
    scale = 1 / (math.sqrt(tau) * query.shape[-1] ** 0.25)
    return (
        positive_random_features(query * scale, projection, is_query=True),
        positive_random_features(key * scale, projection, is_query=False),
    )


def matrices(query, key, projection, gumbel, tau):
    """The attention matrix of each head and sample, [H, K, N, N], row u the weights of query u."""
    phi_q, phi_k = features_of(query, key, projection, tau)
    kernel = torch.einsum("uhm,vhm->huv", phi_q, phi_k)[:, None]
    if gumbel is not None:
        kernel = kernel * torch.exp(gumbel / tau).permute(1, 2, 0)[:, :, None, :]
    return kernel / kernel.sum(-1, keepdim=True)


def quadratic(query, key, value, projection, gumbel, tau):
    return torch.einsum("huv,vhd->uhd", matrices(query, key, projection, gumbel, tau).mean(1), value)
