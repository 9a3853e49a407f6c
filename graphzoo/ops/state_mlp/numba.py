"""CPU backend: the perceptron of a block of rows in one pass. The gradient computes the block again."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphzoo.ops.row_kernels import add_rows, block_rows, helper, jit, piece_bounds
from graphzoo.ops.threads import run_pieces


def forward(x: Tensor | None, extra: Tensor | None, *parameters: Tensor | None) -> Tensor:
    """Output [N, B, D] for contiguous `x` [N, B, D] and `extra` [N, B, 1].

    `parameters` are weight, extra_weight, b1, W2 and b2.
    """
    some = x if x is not None else extra
    b1 = parameters[2]
    assert some is not None and b1 is not None
    out = b1.new_empty(*some.shape[:2], b1.numel())
    target = out.view(-1, b1.numel()).numpy()
    arrays = _arrays(x, extra, *parameters)
    block = block_rows(b1.numel())
    bounds = piece_bounds(target.shape[0], block)

    def work(i: int) -> None:
        _perceptron(*arrays, target, bounds[i], bounds[i + 1], block)

    run_pieces(work, len(bounds) - 1)
    return out


def gradient(
    grad: Tensor, x: Tensor | None, extra: Tensor | None, *parameters: Tensor | None
) -> tuple[Tensor | None, ...]:
    """Gradients with respect to the arguments of `forward`; None for `extra` and for arguments that are None.

    All tensors are contiguous.
    """
    weight, extra_weight, b1, w2, b2 = parameters
    assert weight is not None and b1 is not None and w2 is not None and b2 is not None
    channels = b1.numel()
    arrays = _arrays(x, extra, *parameters)
    grad_x = None if x is None else torch.empty_like(x)
    given = grad.view(-1, channels).numpy()
    target = np.empty((0, channels), given.dtype) if grad_x is None else grad_x.view(-1, channels).numpy()
    block = block_rows(channels)
    bounds = piece_bounds(given.shape[0], block)
    num_pieces = len(bounds) - 1
    # There is an array for the extra weight even if it is None, since the loop is compiled for one layout.
    shapes = [weight.shape, b1.shape, b1.shape, w2.shape, b2.shape]
    partial = [np.zeros((num_pieces, *shape), given.dtype) for shape in shapes]

    def work(i: int) -> None:
        parts = [part[i] for part in partial]
        _gradient(*arrays, given, target, *parts, bounds[i], bounds[i + 1], block)

    run_pieces(work, num_pieces)
    by_weight, by_extra, *rest = (torch.from_numpy(part.sum(0)) for part in partial)
    return grad_x, None, by_weight, None if extra_weight is None else by_extra, *rest


def _arrays(x: Tensor | None, extra: Tensor | None, *parameters: Tensor | None) -> tuple[Any, ...]:
    """Inputs as rows, and parameters, each matrix followed by its transpose."""
    weight, extra_weight, b1, w2, b2 = parameters
    assert weight is not None and b1 is not None and w2 is not None and b2 is not None
    # An input that is None becomes an array of length 0, which the loops do not read.
    x = b1.new_empty(0, b1.numel()) if x is None else x
    extra, extra_weight = (b1.new_empty(0) if part is None else part for part in (extra, extra_weight))
    w, e, first, second, last = (t.detach().contiguous().numpy() for t in (weight, extra_weight, b1, w2, b2))
    rows = x.detach().view(-1, first.shape[0]).numpy()
    return (
        rows, extra.detach().view(-1).numpy(), w, np.ascontiguousarray(w.T), e, first, second,
        np.ascontiguousarray(second.T), last,
    )  # fmt: skip


@helper
def _hidden(
    x: Any, extra: Any, weight_t: Any, extra_weight: Any, b1: Any, start: int, n: int, hidden: Any
) -> None:
    zero = b1.dtype.type(0)
    if x.shape[0]:
        np.dot(x[start : start + n], weight_t, hidden[:n])
    for r in range(n):
        added = extra[start + r] if extra.shape[0] else zero
        for c in range(hidden.shape[1]):
            value = b1[c] + (hidden[r, c] if x.shape[0] else zero)
            if extra.shape[0]:
                value += added * extra_weight[c]
            hidden[r, c] = zero if value <= 0 else value  # a NaN stays one


@jit
def _perceptron(
    x: Any, extra: Any, weight: Any, weight_t: Any, extra_weight: Any, b1: Any, w2: Any, w2_t: Any, b2: Any,
    out: Any, begin: int, end: int, block: int,
) -> None:  # fmt: skip
    hidden = np.empty((block, b1.shape[0]), b1.dtype)
    for start in range(begin, end, block):
        n = min(block, end - start)
        _hidden(x, extra, weight_t, extra_weight, b1, start, n, hidden)
        rows = out[start : start + n]
        np.dot(hidden[:n], w2_t, rows)
        add_rows(rows, b2, n)


@jit
def _gradient(
    x: Any, extra: Any, weight: Any, weight_t: Any, extra_weight: Any, b1: Any, w2: Any, w2_t: Any, b2: Any,
    grad: Any, grad_x: Any, grad_weight: Any, grad_extra_weight: Any, grad_b1: Any, grad_w2: Any,
    grad_b2: Any, begin: int, end: int, block: int,
) -> None:  # fmt: skip
    """Write the gradient of the states, and add up those of the parameters."""
    channels = b1.shape[0]
    hidden, grad_hidden = np.empty((block, channels), b1.dtype), np.empty((block, channels), b1.dtype)
    product = np.empty((channels, channels), b1.dtype)
    for start in range(begin, end, block):
        n = min(block, end - start)
        _hidden(x, extra, weight_t, extra_weight, b1, start, n, hidden)
        given = grad[start : start + n]
        np.dot(given.T, hidden[:n], product)
        grad_w2 += product
        np.dot(given, w2, grad_hidden[:n])
        for r in range(n):
            added = extra[start + r] if extra.shape[0] else b1.dtype.type(0)
            for c in range(channels):
                grad_b2[c] += given[r, c]
                if hidden[r, c] <= 0:
                    grad_hidden[r, c] = 0
                grad_b1[c] += grad_hidden[r, c]
                grad_extra_weight[c] += added * grad_hidden[r, c]
        if x.shape[0]:
            np.dot(grad_hidden[:n].T, x[start : start + n], product)
            grad_weight += product
            np.dot(grad_hidden[:n], weight, grad_x[start : start + n])
