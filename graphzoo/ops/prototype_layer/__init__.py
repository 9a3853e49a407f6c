"""KnowFormer's layer above its two nets, fused: prototype attention, then the feed-forward network.

Backends: `naive` (torch, everywhere); for l2 norms also `numba` (the CPU default) and `triton` (the CUDA
default where width and number of heads are powers of two).
"""

from __future__ import annotations

import torch
from torch import Tensor

from graphzoo.ops.attention import AttentionNorm
from graphzoo.ops.eager import is_traced, row_backend, rows_in_autocast
from graphzoo.ops.prototype_layer import naive, operator
from graphzoo.ops.prototype_layer.dropout import RowDropout
from graphzoo.ops.prototype_layer.function import Attend, Sums

__all__ = ["RowDropout", "prototype_layer"]


def prototype_layer(
    states: Tensor,
    value: Tensor,
    skip: Tensor | None,
    query_key: tuple[Tensor, Tensor],
    parameters: tuple[Tensor, ...],
    *,
    num_heads: int,
    norm: AttentionNorm = "l2",
    dropout: RowDropout | None = None,
    backend: str | None = None,
) -> Tensor:
    """Prototype attention and feed-forward network (KnowFormer, Eq. 10 and 11) without their intermediates.

    With q, k = halves of a linear map of `states`: A = LN(skip + attention(q, k, value)), LN(A + FFN(A)).
    Differentiable once in every tensor.

    Args:
        states: [N, B, D], as `value` and the layer input `skip` (None stands for zeros) and the result.
        value: See `states`.
        skip: See `states`.
        query_key: Weight [2D, D] and bias [2D] of the map to queries and keys.
        parameters: Weight and bias of the first normalisation, of the two linear maps of the FFN, and of
            the second normalisation.
        num_heads: H, a divisor of D.
        norm: See `graphzoo.ops.prototype_attention`; the fast backends raise `ValueError` but for "l2".
        dropout: Dropout between the two maps of the FFN; None for none.
        backend: "naive", "numba" or "triton"; None chooses by device, type, norm and width.
    """
    if backend is None:
        tensors = (states, value, *(() if skip is None else (skip,)), *query_key, *parameters)
        backend = row_backend(states.shape[-1], *tensors) if norm == "l2" else "naive"
        if backend == "triton" and (not _splits(states.shape[-1], num_heads) or _is_short(*tensors)):
            backend = "naive"
    if backend == "naive":
        if torch.is_autocast_enabled("cuda"):  # rows of other kernels are in its type, norms here in float32
            states, value, skip = (None if x is None else x.float() for x in (states, value, skip))  # type: ignore[assignment]
        return naive.prototype_layer(
            states, value, skip, query_key, parameters, num_heads=num_heads, norm=norm, dropout=dropout
        )
    if norm != "l2":
        raise ValueError(f"the {backend} backend knows norm 'l2' only, got {norm!r}")
    if backend == "triton":
        if not _splits(states.shape[-1], num_heads):
            raise ValueError(
                f"the triton backend takes widths of 16, 32 or 64 and 1, 2, 4, ... heads, got "
                f"{states.shape[-1]} and {num_heads}"
            )
        states, value, skip = rows_in_autocast(states, value, skip)
    channels, (weight, bias) = states.shape[-1], query_key
    of_keys, of_queries = (weight[channels:], bias[channels:]), (weight[:channels], bias[:channels])
    out: Tensor
    if is_traced(states):
        ops = torch.ops.graphzoo
        sums = ops.prototype_sums(states, value, *of_keys, num_heads, backend)
        drawn = (0.0, None) if dropout is None else (dropout.p, dropout.keys)
        shared = (*of_queries, *sums, *parameters)
        out = ops.prototype_attend(backend, num_heads, *drawn, states, value, skip, *shared)
        return out
    kernels = operator.kernels_of(backend)
    sums = Sums.apply(kernels, num_heads, states, value, *of_keys)  # type: ignore[no-untyped-call]
    shared = (*of_queries, *sums, *parameters)
    out = Attend.apply(kernels, num_heads, dropout, states, value, skip, *shared)  # type: ignore[no-untyped-call]
    return out


def _is_short(*tensors: Tensor) -> bool:
    """Whether rows are in float16: sums over all nodes overflow there, and their gradients vanish."""
    wanted = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else None
    return torch.float16 in (wanted, *(tensor.dtype for tensor in tensors))


def _splits(channels: int, num_heads: int) -> bool:
    """Whether rows split into heads as Triton can reshape them."""
    return channels in (16, 32, 64) and channels % num_heads == 0 and num_heads & (num_heads - 1) == 0
