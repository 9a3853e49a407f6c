"""All-pair attention of KnowFormer and the kernels it is compared with; states are node-major, [N, B, H, D].

Every kernel kappa enters in the same way (Eq. 10 with numerator and denominator times N):

    out_u = (N v_u + sum_w kappa(q_u, k_w) v_w) / (N + sum_w kappa(q_u, k_w))
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from graphzoo.ops.map_rows import map_rows

__all__ = [
    "AttentionNorm",
    "apply_prototypes",
    "exponential_attention",
    "prototype_attention",
    "random_feature_attention",
    "sum_prototypes",
]

AttentionNorm = Literal["l2", "fro"]
_EPS = 1e-12


def sum_prototypes(query: Tensor, key: Tensor, value: Tensor, norm: AttentionNorm) -> tuple[Tensor, ...]:
    """What Eq. 10 needs to know of all entities, as sums over the given rows.

    Args:
        query: [n, B, H, D]; looked at for "fro" only.
        key: [n, B, H, D].
        value: [n, B, H, D].
        norm: "l2" normalises each key here, "fro" is applied to the finished sums by `apply_prototypes`.

    Returns:
        Sums of keys [B, H, D], of key-value products [B, H, D, D], of values [B, H, D], and for "fro" of squared keys
        and squared queries [B, H, 1].
    """
    if norm == "l2":
        key = F.normalize(key, dim=-1, eps=_EPS)
    n, b, h, d = key.shape
    product = torch.bmm(key.reshape(n, b * h, d).permute(1, 2, 0), value.reshape(n, b * h, d).transpose(0, 1))
    sums = (key.sum(0), product.view(b, h, d, d), value.sum(0))
    if norm == "l2":
        return sums
    return (*sums, key.square().sum((0, 3))[..., None], query.square().sum((0, 3))[..., None])


def apply_prototypes(
    query: Tensor, value: Tensor, sums: tuple[Tensor, ...], num_nodes: int, norm: AttentionNorm
) -> Tensor:
    """Attention output of some rows from the sums over all rows (Eq. 10).

    Args:
        query: [n, B, H, D], not yet normalised.
        value: [n, B, H, D].
        sums: Result of `sum_prototypes` over all N entities.
        num_nodes: N.
        norm: As for `sum_prototypes`.

    Returns:
        [n, B, H, D].
    """
    key_sum, product, value_sum = sums[:3]
    if norm == "l2":
        query = F.normalize(query, dim=-1, eps=_EPS)
    else:
        scale = (sums[3].clamp(min=_EPS**2) * sums[4].clamp(min=_EPS**2)).rsqrt()  # 1 / (|K| |Q|), [B, H, 1]
        key_sum, product = key_sum * scale, product * scale[..., None]
    n, b, h, d = query.shape
    mixed = torch.bmm(query.reshape(n, b * h, d).transpose(0, 1), product.reshape(b * h, d, d)).transpose(
        0, 1
    )
    numerator = mixed.reshape(n, b, h, d) + value_sum + num_nodes * value
    return numerator / ((query * key_sum).sum(-1, keepdim=True) + 2 * num_nodes)


def prototype_attention(query: Tensor, key: Tensor, value: Tensor, *, norm: AttentionNorm = "l2") -> Tensor:
    r"""KnowFormer's kernel attention (Liu et al., 2024, Eq. 9 and 10) in O(N D^2) instead of O(N^2 D).

    .. math:: \kappa(q_u, k_w) = 1 + \langle \hat q_u, \hat k_w \rangle

    Args:
        query: [N, B, H, D].
        key: [N, B, H, D].
        value: [N, B, H, D].
        norm: What the hats mean: "l2" divides by the norm of each entity and head (what the published numbers use),
            "fro" by the norm over all entities and channels, per query and head (Eq. 10 as printed).

    Returns:
        [N, B, H, D].

    Raises:
        ValueError: for an unknown norm or tensors of different shape.
    """
    _check(query, key, value)
    if norm not in ("l2", "fro"):
        raise ValueError(f"norm must be 'l2' or 'fro', got {norm!r}")
    num_nodes = query.shape[0]
    sums = map_rows(
        lambda rows, _, __: sum_prototypes(*rows, norm),
        (query, key, value),
        num_sums=3 if norm == "l2" else 5,
    )
    (out,) = map_rows(
        lambda rows, shared, _: (apply_prototypes(*rows, shared, num_nodes, norm),), (query, value), sums
    )
    return out


def exponential_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    r"""The full exponential kernel :math:`\kappa = \exp(q \cdot k / \sqrt D)` of Eq. 7: quadratic, for small graphs.

    Args:
        query: [N, B, H, D].
        key: [N, B, H, D].
        value: [N, B, H, D].

    Returns:
        [N, B, H, D]. Memory grows with N^2 times B times H.
    """
    _check(query, key, value)
    num_nodes = query.shape[0]
    q, k, v = (x.permute(1, 2, 0, 3) for x in (query, key, value))  # [B, H, N, D]
    logits = q @ k.transpose(-1, -2) / math.sqrt(query.shape[-1])
    # The term N v_u is one more candidate with logit log N, so a softmax does the whole of it without overflow.
    own = logits.new_full((*logits.shape[:-1], 1), math.log(num_nodes))
    weights = torch.softmax(torch.cat([logits, own], dim=-1), dim=-1)
    return (weights[..., :-1] @ v + weights[..., -1:] * v).permute(2, 0, 1, 3)


def random_feature_attention(query: Tensor, key: Tensor, value: Tensor, projection: Tensor) -> Tensor:
    """The exponential kernel through positive random features (Choromanski et al., 2021), linear in N.

    Args:
        query: [N, B, H, D].
        key: [N, B, H, D].
        value: [N, B, H, D].
        projection: Rows drawn from N(0, I), [M, D].

    Returns:
        [N, B, H, D]; tends to `exponential_attention` as M grows.
    """
    _check(query, key, value)
    scale = query.shape[-1] ** -0.25
    q = (query * scale) @ projection.t() - (query * scale).square().sum(
        -1, keepdim=True
    ) / 2  # log phi, [N, B, H, M]
    k = (key * scale) @ projection.t() - (key * scale).square().sum(-1, keepdim=True) / 2
    # Largest exponents are taken out of queries (each its own) and keys (one per query and head); they cancel, since
    # the N v_u term is scaled alike.
    q_max = q.detach().amax(-1, keepdim=True)
    k_max = k.detach().amax((0, 3), keepdim=True)
    q, k = torch.exp(q - q_max), torch.exp(k - k_max)
    own = query.shape[0] * projection.shape[0] * torch.exp(-q_max - k_max)
    mixed = torch.einsum("nbhm,bhmd->nbhd", q, torch.einsum("nbhm,nbhd->bhmd", k, value))
    return (mixed + own * value) / (torch.einsum("nbhm,bhm->nbh", q, k.sum(0))[..., None] + own)


def _check(query: Tensor, key: Tensor, value: Tensor) -> None:
    if query.dim() != 4 or query.shape != key.shape or query.shape != value.shape:
        raise ValueError(
            "query, key and value must be [N, B, H, D] of one shape, got "
            f"{list(query.shape)}, {list(key.shape)}, {list(value.shape)}"
        )
