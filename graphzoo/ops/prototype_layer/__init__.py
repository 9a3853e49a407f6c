"""KnowFormer's layer above its two nets, fused: prototype attention, then the feed-forward network.

Backends: `naive` (chunks of rows in torch, everywhere) and `numba` (the CPU default for l2 norms).
"""

from __future__ import annotations

from importlib import import_module

from torch import Tensor

from graphzoo.ops.attention import AttentionNorm
from graphzoo.ops.prototype_layer import naive
from graphzoo.ops.prototype_layer.dropout import RowDropout

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

    Args:
        states: What queries and keys are made of, [N, B, D].
        value: Values [N, B, D].
        skip: Layer input [N, B, D]; None stands for zeros.
        query_key: Weight [2D, D] and bias [2D] of the map to queries and keys.
        parameters: Weight and bias of the first normalisation, of the two linear maps of the FFN, and of
            the second normalisation.
        num_heads: H, a divisor of D.
        norm: See `graphzoo.ops.prototype_attention`.
        dropout: Dropout between the two maps of the FFN; None for none.
        backend: "naive" or "numba"; None chooses by device, type and norm.

    Returns:
        [N, B, D]; differentiable once in every tensor.

    Raises:
        ValueError: for the numba backend with another norm than "l2".
    """
    if backend is None:
        from graphzoo.ops.row_kernels import runs_compiled

        tensors = (states, value, *(() if skip is None else (skip,)), *query_key, *parameters)
        backend = "numba" if norm == "l2" and runs_compiled(*tensors) else "naive"
    if backend == "naive":
        return naive.prototype_layer(
            states, value, skip, query_key, parameters, num_heads=num_heads, norm=norm, dropout=dropout
        )
    if norm != "l2":
        raise ValueError(f"the numba backend knows norm 'l2' only, got {norm!r}")
    layer = import_module("graphzoo.ops.prototype_layer.numba").prototype_layer
    out: Tensor = layer(states, value, skip, query_key, parameters, num_heads=num_heads, dropout=dropout)
    return out
