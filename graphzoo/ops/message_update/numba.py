"""CPU backend: the update of a block of rows in one pass. The gradient computes the block again."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphzoo.ops.row_kernels import (
    add_rows,
    block_rows,
    helper,
    jit,
    linear_relu,
    normalize_rows,
    normalize_rows_gradient,
    piece_bounds,
)
from graphzoo.ops.threads import run_pieces


def forward(z: Tensor, aggregated: Tensor, *parameters: Tensor) -> Tensor:
    """New states [N, B, D] from contiguous `z` and `aggregated` [N, B, D]."""
    channels = z.shape[-1]
    out = torch.empty_like(z)
    states, sums, target = (x.detach().view(-1, channels).numpy() for x in (z, aggregated, out))
    alpha, w1, b1, w2, b2, weight, bias = (x.detach().contiguous().numpy() for x in parameters)
    w1_t, w2_t = np.ascontiguousarray(w1.T), np.ascontiguousarray(w2.T)
    block = block_rows(channels)
    bounds = piece_bounds(states.shape[0], block)

    def work(i: int) -> None:
        _update(
            states, sums, alpha, w1_t, b1, w2_t, b2, weight, bias, target, bounds[i], bounds[i + 1], block
        )

    run_pieces(work, len(bounds) - 1)
    return out


def gradient(grad: Tensor, z: Tensor, aggregated: Tensor, *parameters: Tensor) -> tuple[Tensor, ...]:
    """Gradients with respect to the arguments of `forward`; all tensors are contiguous."""
    channels = z.shape[-1]
    grad_z, grad_aggregated = torch.empty_like(z), torch.empty_like(z)
    tensors = (z, aggregated, grad, grad_z, grad_aggregated)
    rows = [x.detach().view(-1, channels).numpy() for x in tensors]
    alpha, w1, b1, w2, b2, weight, _ = (x.detach().contiguous().numpy() for x in parameters)
    w1_t, w2_t = np.ascontiguousarray(w1.T), np.ascontiguousarray(w2.T)
    block = block_rows(channels)
    bounds = piece_bounds(rows[0].shape[0], block)
    num_pieces = len(bounds) - 1
    partial = [np.zeros((num_pieces, *x.shape), w1.dtype) for x in parameters]

    def work(i: int) -> None:
        _gradient(
            *rows, alpha, w1, w1_t, b1, w2, w2_t, b2, weight, *(part[i] for part in partial),
            bounds[i], bounds[i + 1], block,
        )  # fmt: skip

    run_pieces(work, num_pieces)
    return (grad_z, grad_aggregated, *(torch.from_numpy(part.sum(0)) for part in partial))


@helper
def _hidden(
    z: Any, sums: Any, alpha: Any, w1_t: Any, b1: Any, w2_t: Any, b2: Any, start: int, n: int, work: Any
) -> None:
    """Compute the MLP of a block into `work` = (u, h, y): its input, its hidden layer and its output."""
    u, h, y = work
    for r in range(n):
        for c in range(z.shape[1]):
            u[r, c] = sums[start + r, c] + alpha[c] * z[start + r, c]
    linear_relu(u, w1_t, b1, h, n)
    np.dot(h[:n], w2_t, y[:n])
    add_rows(y, b2, n)


@jit
def _update(
    z: Any, sums: Any, alpha: Any, w1_t: Any, b1: Any, w2_t: Any, b2: Any, weight: Any, bias: Any, out: Any,
    begin: int, end: int, block: int,
) -> None:  # fmt: skip
    shape = (block, z.shape[1])
    u, h, y = np.empty(shape, z.dtype), np.empty(shape, z.dtype), np.empty(shape, z.dtype)
    inverse_std = np.empty(block, z.dtype)
    for start in range(begin, end, block):
        n = min(block, end - start)
        _hidden(z, sums, alpha, w1_t, b1, w2_t, b2, start, n, (u, h, y))
        normalize_rows(y, u, inverse_std, n)
        for r in range(n):
            for c in range(z.shape[1]):
                out[start + r, c] = z[start + r, c] + u[r, c] * weight[c] + bias[c]


@jit
def _gradient(
    z: Any, sums: Any, grad: Any, grad_z: Any, grad_sums: Any,
    alpha: Any, w1: Any, w1_t: Any, b1: Any, w2: Any, w2_t: Any, b2: Any, weight: Any,
    grad_alpha: Any, grad_w1: Any, grad_b1: Any, grad_w2: Any, grad_b2: Any, grad_weight: Any, grad_bias: Any,
    begin: int, end: int, block: int,
) -> None:  # fmt: skip
    """Write the gradients of the rows, and add up those of the parameters."""
    channels = z.shape[1]
    shape = (block, channels)
    u, h, y = np.empty(shape, z.dtype), np.empty(shape, z.dtype), np.empty(shape, z.dtype)
    unit, grad_h, grad_u = np.empty(shape, z.dtype), np.empty(shape, z.dtype), np.empty(shape, z.dtype)
    inverse_std = np.empty(block, z.dtype)
    product = np.empty((channels, channels), z.dtype)
    for start in range(begin, end, block):
        n = min(block, end - start)
        _hidden(z, sums, alpha, w1_t, b1, w2_t, b2, start, n, (u, h, y))
        normalize_rows(y, unit, inverse_std, n)
        grad_y = y  # reuses the memory of y, whose values are no longer needed
        normalize_rows_gradient(
            grad[start : start + n], unit, inverse_std, weight, grad_y, grad_weight, grad_bias, n
        )
        np.dot(grad_y[:n].T, h[:n], product)
        grad_w2 += product
        np.dot(grad_y[:n], w2, grad_h[:n])
        for r in range(n):
            for c in range(channels):
                grad_b2[c] += grad_y[r, c]
                if h[r, c] <= 0:
                    grad_h[r, c] = 0
                grad_b1[c] += grad_h[r, c]
        np.dot(grad_h[:n].T, u[:n], product)
        grad_w1 += product
        np.dot(grad_h[:n], w1, grad_u[:n])
        for r in range(n):
            for c in range(channels):
                g = grad_u[r, c]
                grad_alpha[c] += g * z[start + r, c]
                grad_sums[start + r, c] = g
                grad_z[start + r, c] = grad[start + r, c] + g * alpha[c]
