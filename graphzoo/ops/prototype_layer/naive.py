"""Attention and feed-forward network in plain torch operations, chunk by chunk."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from graphzoo.ops.attention import AttentionNorm, apply_prototypes, sum_prototypes
from graphzoo.ops.map_rows import map_rows
from graphzoo.ops.norms import layer_norm
from graphzoo.ops.prototype_layer.dropout import RowDropout


def prototype_layer(
    states: Tensor,
    value: Tensor,
    skip: Tensor | None,
    query_key: tuple[Tensor, Tensor],
    parameters: tuple[Tensor, ...],
    *,
    num_heads: int,
    norm: AttentionNorm,
    dropout: RowDropout | None,
) -> Tensor:
    """See `graphzoo.ops.prototype_layer.prototype_layer`."""
    weight, bias = query_key
    num_nodes, channels = value.shape[0], value.shape[-1]
    num_sums = 3 if norm == "l2" else 5

    def sums_of(rows: tuple[Tensor, ...], shared: tuple[Tensor, ...], start: int) -> tuple[Tensor, ...]:
        w, b = shared
        key = F.linear(rows[0], w[channels:], b[channels:])
        query = F.linear(rows[0], w[:channels], b[:channels]) if norm == "fro" else key
        return sum_prototypes(query, key, rows[1], num_heads, norm)

    def attend(rows: tuple[Tensor, ...], shared: tuple[Tensor, ...], start: int) -> tuple[Tensor, ...]:
        query = F.linear(rows[0], *shared[:2])
        sums, tail = shared[2 : 2 + num_sums], shared[2 + num_sums :]
        attended = apply_prototypes(query, rows[1], sums, num_nodes, num_heads, norm)
        return (_feed_forward(attended, rows[2:], tail, start, dropout),)

    sums = map_rows(sums_of, (states, value), (weight, bias), num_sums=num_sums)
    rows = (states, value) if skip is None else (states, value, skip)
    (out,) = map_rows(attend, rows, (weight[:channels], bias[:channels], *sums, *parameters))
    return out


def feed_forward(
    attended: Tensor, skip: Tensor | None, parameters: tuple[Tensor, ...], dropout: RowDropout | None
) -> Tensor:
    """LN(A + FFN(A)) with A = LN(skip + attended) (Eq. 11); all are [N, B, D]."""
    rows = (attended,) if skip is None else (attended, skip)
    (out,) = map_rows(lambda r, s, i: (_feed_forward(r[0], r[1:], s, i, dropout),), rows, parameters)
    return out


def _feed_forward(
    attended: Tensor,
    skip: tuple[Tensor, ...],
    parameters: tuple[Tensor, ...],
    start: int,
    dropout: RowDropout | None,
) -> Tensor:
    n1w, n1b, w1, b1, w2, b2, n2w, n2b = parameters
    x = attended if not skip else attended + skip[0]
    x = layer_norm(x, n1w, n1b)
    hidden = F.linear(x, w1, b1).relu()
    if dropout is not None:
        hidden = hidden * dropout.mask(hidden, start)
    return layer_norm(x + F.linear(hidden, w2, b2), n2w, n2b)
