"""KnowFormer's layer without its two message-passing networks, fused: attention and feed-forward network.

Backends: `naive` (torch, everywhere); for norm "l2" also `numba` (the CPU default) and `triton` (the CUDA
default for widths 16, 32 and 64 and 1, 2, 4, ... heads, except in float16).
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
    """Prototype attention and feed-forward network (KnowFormer, Eq. 10 and 11), without stored intermediates.

    With queries q and keys k from a linear map of `states`, A = LN(skip + attention(q, k, value)), and the
    result is LN(A + FFN(A)). Differentiable once in every tensor.

    Args:
        states: States from which queries and keys are computed, [N, B, D].
        value: Values [N, B, D].
        skip: Input of the layer, [N, B, D]; None for zeros.
        query_key: Weight [2D, D] and bias [2D] of the linear map to queries (first half) and keys.
        parameters: Weight and bias of the first normalisation, of the two linear maps of the FFN, and of
            the second normalisation.
        num_heads: H, a divisor of D.
        norm: "l2" or "fro", see `graphzoo.ops.prototype_attention`.
        dropout: Dropout between the two maps of the FFN; None for none.
        backend: "naive", "numba" or "triton"; None chooses by device, dtype, norm and width.

    Returns:
        [N, B, D].

    Raises:
        ValueError: if the given backend does not support the norm, the width or the number of heads.
    """
    if backend is None:
        tensors = (states, value, *(() if skip is None else (skip,)), *query_key, *parameters)
        backend = row_backend(states.shape[-1], *tensors) if norm == "l2" else "naive"
        if backend == "triton" and (not _splits(states.shape[-1], num_heads) or _is_short(*tensors)):
            backend = "naive"
    if backend == "naive":
        if torch.is_autocast_enabled("cuda"):  # rows come in autocast's dtype, norms are float32
            states, value, skip = (None if x is None else x.float() for x in (states, value, skip))  # type: ignore[assignment]
        return naive.prototype_layer(
            states, value, skip, query_key, parameters, num_heads=num_heads, norm=norm, dropout=dropout
        )
    if norm != "l2":
        raise ValueError(f"the {backend} backend supports only norm 'l2', got {norm!r}")
    if backend == "triton":
        if not _splits(states.shape[-1], num_heads):
            raise ValueError(
                f"the triton backend supports widths 16, 32 and 64 with 1, 2, 4, ... heads, got width "
                f"{states.shape[-1]} and {num_heads} heads"
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
    """Whether rows are in float16, in which sums over all nodes overflow and their gradients vanish."""
    wanted = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else None
    return torch.float16 in (wanted, *(tensor.dtype for tensor in tensors))


def _splits(channels: int, num_heads: int) -> bool:
    """Whether the Triton kernels support this width and number of heads."""
    return channels in (16, 32, 64) and channels % num_heads == 0 and num_heads & (num_heads - 1) == 0
