"""GALiT's all-pair attention by cosine similarity, linear in the number of nodes (Guo et al., Eq. 18-28).

In every head, node i attends to node j with weight s_ij = c + (c - eps) cos(q_i, k_j), divided by the sum of
its weights. All s_ij are at least eps (Theorem 2). With g_i h_j = (c - eps) cos(q_i, k_j):

    out_i = (c sum_j v_j + g_i (sum_j h_j^T v_j)) / (c N + g_i sum_j h_j)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from graphzoo.errors import check_choice, check_range
from graphzoo.ops.eager import without_autocast
from graphzoo.ops.map_rows import RowFunction, map_rows
from graphzoo.ops.norms import inverse_norm, wide
from graphzoo.system.tensors import check_tensors

CosineNorm = Literal["l2", "fro"]


def cosine_linear_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    norm: CosineNorm = "l2",
    bias: float = 1.0,
    eps: float = 1e-6,
) -> Tensor:
    r"""Attention with weights :math:`c + (c-\epsilon)\langle\hat q_i, \hat k_j\rangle` in O(N D^2) (Eq. 24).

    Args:
        query: [N, H, D].
        key: [N, H, D].
        value: [N, H, C].
        norm: How queries and keys are normalised. "l2" divides by the norm of each node and head, "fro" by
            the norm over all nodes of a head (Eq. 20).
        bias: The constant c.
        eps: Lower bound of the weights, above 0 and below c.

    Returns:
        [N, H, C], in the dtype of `value`; sums are float32 or wider.

    Raises:
        ValueError: for shapes that do not fit, an unknown norm, or an eps out of range.
    """
    check_tensors(query=query, key=key, value=value)
    if query.dim() != 3 or query.shape != key.shape or value.shape[:2] != query.shape[:2] or value.dim() != 3:
        raise ValueError(
            "query and key must be [N, H, D] of one shape and value [N, H, C], got "
            f"{list(query.shape)}, {list(key.shape)}, {list(value.shape)}"
        )
    check_settings(norm, bias, eps)
    num_nodes, num_heads, _ = query.shape
    if num_nodes == 0:
        return value.clone()

    def sums_of(rows: tuple[Tensor, ...], shared: tuple[Tensor, ...], start: int) -> tuple[Tensor, ...]:
        q, k, v = rows
        return _stack([_sums(q[:, h], k[:, h], v[:, h], norm) for h in range(num_heads)])

    def attend(rows: tuple[Tensor, ...], shared: tuple[Tensor, ...], start: int) -> tuple[Tensor, ...]:
        out = [
            _attend(rows[0][:, h], tuple(part[h] for part in shared), num_nodes, norm, bias, eps)
            for h in range(num_heads)
        ]
        return (torch.stack(out, 1).to(value.dtype),)

    sums = _map(sums_of, (query, key, value), (), 5)
    return _map(attend, (query,), sums, 0)[0]


def averaged_cosine_attention(
    states: Tensor,
    value: Tensor,
    query_map: Sequence[Tensor] = (),
    key_map: Sequence[Tensor] | None = None,
    *,
    norm: CosineNorm = "l2",
    bias: float = 1.0,
    eps: float = 1e-6,
) -> Tensor:
    """Mean of H heads that share one value and have different similarity maps (Eq. 25 and 35).

    The result is that of `cosine_linear_attention` on queries and keys [N, H, D] and the value repeated for
    every head, averaged over the heads. But queries and keys are computed where they are needed, and again
    for gradients, so no tensor [N, H, D] is stored.

    Args:
        states: States from which queries and keys are computed, [N, D].
        value: [N, C].
        query_map: How queries are computed: () takes the states themselves, with one head; (w [H, D],)
            multiplies them by a vector for each head; (W [H, D, D], b [H, D]) applies a linear layer for each
            head, as `torch.nn.functional.linear` does.
        key_map: How keys are computed, likewise; None takes the map of the queries.
        norm: "l2" or "fro", see `cosine_linear_attention`.
        bias: The constant c.
        eps: Lower bound of the weights, above 0 and below c.

    Returns:
        [N, C], in the dtype of `value`.

    Raises:
        ValueError: for an unknown norm or an eps out of range.
    """
    check_settings(norm, bias, eps)
    num_nodes, num_query = states.shape[0], len(query_map)
    if num_nodes == 0:
        return value.clone()
    num_heads = query_map[0].shape[0] if query_map else 1
    maps = (*query_map, *(key_map or ()))

    def keys(rows: Tensor, shared: tuple[Tensor, ...], h: int) -> Tensor:
        return similarity_map(rows, shared[num_query:] if key_map is not None else shared[:num_query], h)

    def sums_of(rows: tuple[Tensor, ...], shared: tuple[Tensor, ...], start: int) -> tuple[Tensor, ...]:
        heads = []
        for h in range(num_heads):
            key = keys(rows[0], shared, h)
            # Sums with "l2" do not need the queries.
            separate = key_map is not None and norm == "fro"
            query = similarity_map(rows[0], shared[:num_query], h) if separate else key
            heads.append(_sums(query, key, rows[1], norm))
        return _stack(heads)

    def attend(rows: tuple[Tensor, ...], shared: tuple[Tensor, ...], start: int) -> tuple[Tensor, ...]:
        sums, weights = shared[:5], shared[5:]
        total: Tensor | float = 0.0
        for h in range(num_heads):
            query = similarity_map(rows[0], weights[:num_query], h)
            total = total + _attend(query, tuple(part[h] for part in sums), num_nodes, norm, bias, eps)
        assert isinstance(total, Tensor)
        return ((total / num_heads).to(value.dtype),)

    sums = _map(sums_of, (states, value), maps, 5)
    return _map(attend, (states,), (*sums, *maps), 0)[0]


def cosine_attention_weights(
    query: Tensor, key: Tensor, pairs: Tensor, *, norm: CosineNorm, bias: float, eps: float
) -> Tensor:
    """Normalised weights with which the first node of each pair [2, P] attends to the second, [P, H]."""
    query, key = _normalized(query, key, norm, bias, eps)
    total = bias * key.shape[0] + (query * key.sum(0)).sum(-1)  # [N, H]
    chunk = max(1, 2**24 // max(1, key[0].numel()))
    parts = [
        (bias + (query[first] * key[second]).sum(-1)) / total[first]
        for first, second in torch.split(pairs, chunk, dim=1)
    ]
    return torch.cat(parts)


def cosine_attention_rows(
    query: Tensor, key: Tensor, nodes: Tensor, *, norm: CosineNorm, bias: float, eps: float
) -> Tensor:
    """Normalised weights with which `nodes` [Q] attend to all nodes, [H, Q, N]."""
    query, key = _normalized(query, key, norm, bias, eps)
    weights = bias + torch.einsum("qhd,nhd->hqn", query[nodes], key)
    return weights / weights.sum(-1, keepdim=True)


def _normalized(
    query: Tensor, key: Tensor, norm: CosineNorm, bias: float, eps: float
) -> tuple[Tensor, Tensor]:
    """Queries and keys [N, H, D] scaled so that their inner products are (c - eps) cos(q, k)."""
    check_settings(norm, bias, eps)
    axes = -1 if norm == "l2" else (0, 2)
    scale = (bias - eps) ** 0.5
    query, key = wide(query), wide(key)
    return (
        scale * query * inverse_norm((query * query).sum(axes, keepdim=True)),
        scale * key * inverse_norm((key * key).sum(axes, keepdim=True)),
    )


def similarity_map(states: Tensor, weights: Sequence[Tensor], head: int) -> Tensor:
    """Queries or keys of one head, [n, D]; see `query_map` of `averaged_cosine_attention`."""
    if not weights:
        return states
    if len(weights) == 1:
        return states * weights[0][head]
    return F.linear(states, weights[0][head], weights[1][head])


def check_settings(norm: str, bias: float, eps: float) -> None:
    """Require a known norm, and 0 < eps < bias, so that all weights are positive."""
    check_choice("norm", norm, ("l2", "fro"))
    check_range(above=0, below=bias, eps=eps)


def _sums(query: Tensor, key: Tensor, value: Tensor, norm: CosineNorm) -> tuple[Tensor, ...]:
    """Sums over the rows: keys [D], key-value products [D, C], values [C], squared keys and queries [].

    With "l2" every key is normalised here. With "fro" `_attend` divides the finished sums by the norms.
    """
    with without_autocast(key.device.type):
        query, key, value = wide(query), wide(key), wide(value)
        key_square = query_square = key.new_zeros(())
        if norm == "l2":
            key = key * inverse_norm((key * key).sum(-1, keepdim=True))
        else:
            key_square, query_square = (key * key).sum(), (query * query).sum()
        return key.sum(0), key.t() @ value, value.sum(0), key_square, query_square


def _attend(
    query: Tensor, sums: tuple[Tensor, ...], num_nodes: int, norm: CosineNorm, bias: float, eps: float
) -> Tensor:
    """Output of Eq. 24 for the rows of `query` [n, D], from the sums over all nodes, [n, C]."""
    key_sum, product, value_sum, key_square, query_square = sums
    with without_autocast(query.device.type):
        query = wide(query)
        if norm == "l2":
            scale = inverse_norm((query * query).sum(-1, keepdim=True))  # [n, 1]
        else:
            scale = inverse_norm(key_square) * inverse_norm(query_square)
        scale = (bias - eps) * scale
        numerator = torch.addcmul(bias * value_sum, query @ product, scale)
        return numerator / (bias * num_nodes + scale * (query @ key_sum)[:, None])


def _stack(heads: list[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    return tuple(torch.stack(parts) for parts in zip(*heads, strict=True))


def _map(
    fn: RowFunction, rows: tuple[Tensor, ...], shared: tuple[Tensor, ...], num_sums: int
) -> tuple[Tensor, ...]:
    # A compiler fuses the operations itself, and cannot compile the chunks.
    if torch.compiler.is_compiling():
        return fn(rows, shared, 0)
    return map_rows(fn, rows, shared, num_sums=num_sums)
