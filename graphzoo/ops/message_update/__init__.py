"""The update of a message-passing layer, fused: z + LayerNorm(MLP2(aggregated + alpha * z)).

Backends: `naive` (torch, everywhere), `numba` (the CPU default) and `triton` (the CUDA default).
"""

from __future__ import annotations

import torch
from torch import Tensor

from graphzoo.ops.eager import is_traced, row_backend, rows_in_autocast
from graphzoo.ops.message_update import naive, operator
from graphzoo.ops.relational_spmm.query_graph import is_query_major
from graphzoo.ops.row_function import RowFunction

__all__ = ["message_update"]


def message_update(
    z: Tensor, aggregated: Tensor, parameters: tuple[Tensor, ...], *, backend: str | None = None
) -> Tensor:
    """New states z + LayerNorm(MLP2(aggregated + alpha * z)) of a layer (KnowFormer, Eq. 5 and 6).

    Differentiable once in every argument.

    Args:
        z: States [N, B, D].
        aggregated: Sums of incoming messages, [N, B, D].
        parameters: alpha [D]; weight [D, D] and bias [D] of the first and of the second linear map; weight
            and bias [D] of the layer normalisation.
        backend: "naive", "numba" or "triton"; None chooses by device, dtype and width.

    Returns:
        [N, B, D].
    """
    if backend is None:
        backend = row_backend(z.shape[-1], z, aggregated, *parameters)
    if backend == "naive":
        return naive.message_update(z, aggregated, parameters)
    if is_query_major(z):  # rows are independent, so their order in memory does not matter
        by_query = message_update(z.transpose(0, 1), aggregated.transpose(0, 1), parameters, backend=backend)
        return by_query.transpose(0, 1)
    if backend == "triton":
        z, aggregated = rows_in_autocast(z, aggregated)
    out: Tensor
    if is_traced(z):
        out = torch.ops.graphzoo.message_update(z, aggregated, *parameters, backend)
        return out
    out = RowFunction.apply(operator.kernels_of(backend), z, aggregated, *parameters)  # type: ignore[no-untyped-call]
    return out
