"""KnowFormer's layer above its two nets, fused: prototype attention, then the feed-forward network.

Backends: `naive` (chunks of rows in torch, everywhere) and `numba` (the CPU default for l2 norms).
"""

from __future__ import annotations

from torch import Tensor

from graphzoo.ops.attention import AttentionNorm
from graphzoo.ops.eager import is_traced, runs_compiled
from graphzoo.ops.prototype_layer import naive, operator
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
    Differentiable once in every tensor.

    Args:
        states: [N, B, D], as `value` and the layer input `skip` (None stands for zeros) and the result.
        value: See `states`.
        skip: See `states`.
        query_key: Weight [2D, D] and bias [2D] of the map to queries and keys.
        parameters: Weight and bias of the first normalisation, of the two linear maps of the FFN, and of
            the second normalisation.
        num_heads: H, a divisor of D.
        norm: See `graphzoo.ops.prototype_attention`; the numba backend raises `ValueError` but for "l2".
        dropout: Dropout between the two maps of the FFN; None for none.
        backend: "naive" or "numba"; None chooses by device, type and norm.
    """
    if backend is None:
        tensors = (states, value, *(() if skip is None else (skip,)), *query_key, *parameters)
        backend = "numba" if norm == "l2" and runs_compiled(*tensors) else "naive"
    if backend == "naive":
        return naive.prototype_layer(
            states, value, skip, query_key, parameters, num_heads=num_heads, norm=norm, dropout=dropout
        )
    if norm != "l2":
        raise ValueError(f"the numba backend knows norm 'l2' only, got {norm!r}")
    if is_traced(states):
        return operator.prototype_layer(states, value, skip, query_key, parameters, num_heads, dropout)
    from graphzoo.ops.prototype_layer.numba import prototype_layer as compiled

    return compiled(states, value, skip, query_key, parameters, num_heads=num_heads, dropout=dropout)
