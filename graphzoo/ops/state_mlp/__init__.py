"""A two-layer perceptron of [N, B, D] states with one extra channel, fused.

Backends: `naive` (torch, everywhere), `numba` (the CPU default) and `triton` (the CUDA default).
"""

from __future__ import annotations

import torch
from torch import Tensor

from graphzoo.ops.eager import is_traced, row_backend, rows_in_autocast
from graphzoo.ops.relational_spmm.query_graph import is_query_major
from graphzoo.ops.row_function import RowFunction
from graphzoo.ops.state_mlp import naive, operator

__all__ = ["state_mlp"]


def state_mlp(
    x: Tensor | None,
    extra: Tensor | None,
    weight: Tensor,
    extra_weight: Tensor | None,
    parameters: tuple[Tensor, Tensor, Tensor],
    *,
    backend: str | None = None,
) -> Tensor:
    """`relu(x W^T + extra w^T + b1) W2^T + b2`, without storing the hidden layer.

    Differentiable once in all tensors except `extra`.

    Args:
        x: States [N, B, D]; None for zeros.
        extra: One extra channel [N, B, 1]; None for none. It gets no gradient.
        weight: W [D, D].
        extra_weight: w [D]; None if `extra` is None.
        parameters: b1 [D], W2 [D, D], b2 [D].
        backend: "naive", "numba" or "triton"; None chooses by device, dtype and width.

    Returns:
        [N, B, D].

    Raises:
        ValueError: if both `x` and `extra` are None.
    """
    if x is None and extra is None:
        raise ValueError("state_mlp needs x or extra, got None for both")
    if backend is None:
        given = [t for t in (x, extra, weight, extra_weight, *parameters) if t is not None]
        backend = row_backend(weight.shape[0], *given)
    if backend == "naive":
        return naive.state_mlp(x, extra, weight, extra_weight, parameters)
    if is_query_major(x if x is not None else extra):  # type: ignore[arg-type]  # one of them is not None
        x, extra = (None if t is None else t.transpose(0, 1) for t in (x, extra))
        by_query = state_mlp(x, extra, weight, extra_weight, parameters, backend=backend)
        return by_query.transpose(0, 1)
    if backend == "triton":
        x, extra = rows_in_autocast(x, extra)
    out: Tensor
    if is_traced(weight):
        out = torch.ops.graphzoo.state_mlp(x, extra, weight, extra_weight, *parameters, backend)
        return out
    kernels = operator.kernels_of(backend)
    out = RowFunction.apply(kernels, x, extra, weight, extra_weight, *parameters)  # type: ignore[no-untyped-call]
    return out
