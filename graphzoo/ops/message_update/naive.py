"""The update in plain torch operations, chunk by chunk."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from graphzoo.ops.map_rows import map_rows
from graphzoo.ops.norms import layer_norm, wide


def message_update(z: Tensor, aggregated: Tensor, parameters: tuple[Tensor, ...]) -> Tensor:
    """See `graphzoo.ops.message_update.message_update`."""
    (out,) = map_rows(_update, (z, aggregated), parameters, gradient=_gradient)
    return out


def _update(rows: tuple[Tensor, ...], shared: tuple[Tensor, ...], start: int) -> tuple[Tensor, ...]:
    z, aggregated = rows
    alpha, w1, b1, w2, b2, weight, bias = shared
    hidden = F.linear(torch.addcmul(aggregated, z, alpha), w1, b1).relu_()
    return (z + layer_norm(F.linear(hidden, w2, b2), weight, bias),)


def _gradient(
    rows: tuple[Tensor, ...], shared: tuple[Tensor, ...], start: int, grads: tuple[Tensor, ...]
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Gradient of `_update`, by hand since autograd takes twice as long, and this runs very often."""
    alpha, w1, b1, w2, b2, weight, bias = shared
    channels = alpha.numel()
    z, aggregated, grad = (x.reshape(-1, channels) for x in (*rows, grads[0]))
    u = torch.addcmul(aggregated, z, alpha)
    h = torch.addmm(b1, u, w1.t()).relu_()
    y = torch.addmm(b2, h, w2.t())
    norm = wide(y), wide(weight), wide(bias)
    _, mean, rstd = torch.native_layer_norm(norm[0], (channels,), *norm[1:], 1e-5)
    grad_y, grad_weight, grad_bias = torch.ops.aten.native_layer_norm_backward(
        wide(grad), norm[0], (channels,), mean, rstd, *norm[1:], [True, True, True]
    )
    grad_y = grad_y.to(y.dtype)
    grad_h = torch.ops.aten.threshold_backward(grad_y @ w2, h, 0)
    grad_u = grad_h @ w1
    by_shared = (
        (grad_u * z).sum(0), grad_h.t() @ u, grad_h.sum(0), grad_y.t() @ h, grad_y.sum(0), grad_weight,
        grad_bias,
    )  # fmt: skip
    return (torch.addcmul(grad, grad_u, alpha).view_as(rows[0]), grad_u.view_as(rows[0])), by_shared
