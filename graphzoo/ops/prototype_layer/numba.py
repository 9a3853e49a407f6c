"""CPU backend for norm "l2": it calls the compiled loops of `kernels` on the arrays of tensors.

Queries are independent except for the gradients of parameters. So each thread takes some of the B queries.
The functions need all their [N, B, D] tensors in the same memory layout, see `arranged`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphzoo.ops.prototype_layer import kernels
from graphzoo.ops.prototype_layer.dropout import RowDropout
from graphzoo.ops.relational_spmm.query_graph import is_query_major
from graphzoo.ops.row_kernels import block_rows
from graphzoo.ops.threads import run_pieces

# Pieces of work that threads take one by one. The number does not depend on the threads, so that partial sums
# are always added up in the same order.
_MAX_PIECES = 16
# Entities of a block. The rows of one query are far apart in memory, and more of them would exceed the cache
# of addresses (TLB).
_MAX_ENTITIES = 160

_Array = np.ndarray[Any, np.dtype[Any]]
_Masks = tuple[_Array, _Array, np.int16, Any]


def sums(states: Tensor, value: Tensor, weight: Tensor, bias: Tensor, num_heads: int) -> tuple[Tensor, ...]:
    """Sums of normalised keys [B, D], of key-value products [B, D, D] and of values [B, D]."""
    _, num_queries, channels = states.shape
    results = (
        states.new_zeros(num_queries, channels),
        states.new_zeros(num_queries, channels, channels),
        states.new_zeros(num_queries, channels),
    )
    rows, settings = _rows(states, value), _settings(states, num_heads)
    w, b = _arrays(weight, bias)
    w_t, outputs = _transposed(w), _arrays(*results)

    def work(first: int, last: int, piece: int) -> None:
        kernels.sums(*rows, w_t, b, *outputs, *settings, first, last)

    _share_out(work, num_queries)
    return results


def sums_gradient(
    grads: tuple[Tensor, ...], states: Tensor, value: Tensor, weight: Tensor, bias: Tensor, num_heads: int
) -> tuple[Tensor, ...]:
    """Gradients with respect to the tensors that `sums` takes."""
    grad_rows = torch.empty_like(states), torch.empty_like(value)
    partial = _partial(_num_pieces(states.shape[1]), (weight, bias))
    rows, settings = _rows(states, value), _settings(states, num_heads)
    w, b = _arrays(weight, bias)
    w_t, given, outputs = _transposed(w), _arrays(*grads), _rows(*grad_rows)

    def work(first: int, last: int, piece: int) -> None:
        parts = [part[piece] for part in partial]
        kernels.sums_gradient(*rows, w, w_t, b, *given, *outputs, *parts, *settings, first, last)

    _share_out(work, states.shape[1])
    return (*grad_rows, *(torch.from_numpy(part.sum(0)) for part in partial))


def attend(
    states: Tensor,
    value: Tensor,
    skip: Tensor | None,
    shared: Sequence[Tensor],
    num_heads: int,
    masks: _Masks,
) -> Tensor:
    """The layer's output [N, B, D].

    `shared` has weight and bias of the queries' linear map, the three sums, and the eight parameters.
    """
    out = torch.empty_like(states)
    rows, arrays = _rows(states, value, _some_skip(skip, states)), _parameters(shared, num_heads)
    (target,) = _rows(out)
    settings = _settings(states, num_heads)

    def work(first: int, last: int, piece: int) -> None:
        kernels.attend(*rows, target, arrays, masks, *settings, first, last)

    _share_out(work, states.shape[1])
    return out


def attend_gradient(
    grad: Tensor,
    states: Tensor,
    value: Tensor,
    skip: Tensor | None,
    shared: Sequence[Tensor],
    num_heads: int,
    masks: _Masks,
) -> tuple[Tensor | None, ...]:
    """Gradients with respect to the tensors that `attend` takes; None for `skip` if it is None."""
    skip_rows = _some_skip(skip, states)
    grad_rows = [torch.empty_like(x) for x in (states, value, skip_rows)]
    weight, bias, key_sum, product, value_sum, *parameters = shared
    grad_sums = [torch.zeros_like(x) for x in (key_sum, product, value_sum)]
    partial = _partial(_num_pieces(states.shape[1]), (weight, bias, *parameters))
    rows, outputs = _rows(states, value, skip_rows, grad), _rows(*grad_rows)
    arrays, sums = _parameters(shared, num_heads), _arrays(*grad_sums)
    settings = _settings(states, num_heads)

    def work(first: int, last: int, piece: int) -> None:
        parts = tuple(part[piece] for part in partial)
        kernels.attend_gradient(*rows, *outputs, arrays, tuple(sums), parts, masks, *settings, first, last)

    _share_out(work, states.shape[1])
    grad_sums[1] *= _inside_heads(product, num_heads)
    by_weights = [torch.from_numpy(part.sum(0)) for part in partial]
    grad_skip = None if skip is None else grad_rows[2]
    return (*grad_rows[:2], grad_skip, *by_weights[:2], *grad_sums, *by_weights[2:])


def _some_skip(skip: Tensor | None, states: Tensor) -> Tensor:
    """`skip`, or an array of length 0, which the loops do not read."""
    return states.new_empty(0, *states.shape[1:]) if skip is None else skip


def _arrays(*tensors: Tensor) -> list[_Array]:
    return [tensor.detach().contiguous().numpy() for tensor in tensors]


def _rows(*tensors: Tensor) -> list[_Array]:
    """Each tensor [N, B, D] as rows [N B, D] in their order in memory."""
    dense = (x.transpose(0, 1) if is_query_major(x) else x for x in tensors)
    return [x.detach().reshape(-1, x.shape[-1]).numpy() for x in dense]


def _transposed(array: _Array) -> _Array:
    return np.ascontiguousarray(array.T)


def _inside_heads(product: Tensor, num_heads: int) -> Tensor:
    """A matrix [D, D] that is 1 if two channels belong to the same head, else 0."""
    head = torch.arange(product.shape[-1]) // (product.shape[-1] // num_heads)
    return (head[:, None] == head).to(product.dtype)


def _parameters(shared: Sequence[Tensor], num_heads: int) -> tuple[_Array, ...]:
    """Parameters of the loops: each weight with its transpose; products across heads are set to 0."""
    shared = [*shared[:3], shared[3] * _inside_heads(shared[3], num_heads), *shared[4:]]
    weight, bias, key_sum, product, value_sum, n1w, n1b, w1, b1, w2, b2, n2w, n2b = _arrays(*shared)
    return (
        weight, _transposed(weight), bias, key_sum, product, value_sum, n1w, n1b, w1, _transposed(w1), b1,
        w2, _transposed(w2), b2, n2w, n2b,
    )  # fmt: skip


def masks(dropout: RowDropout | None, states: Tensor) -> _Masks:
    """Hashes of queries and of entities, threshold and scale, from which the loops compute dropout masks."""
    number = states.detach().numpy().dtype.type
    if dropout is None:
        empty = np.zeros((states.shape[1], 0), np.uint64)
        return empty, np.zeros(0, np.uint64), np.int16(0), number(1)
    words = dropout.words(states.shape[2]).numpy().view(np.uint64)
    entities = dropout.entities(0, states.shape[0]).numpy().view(np.uint64)
    return words, entities, np.int16(dropout.threshold), number(dropout.scale)


def _settings(states: Tensor, num_heads: int) -> tuple[tuple[int, int, int], _Array, _Array, int]:
    """The arguments `grid`, `blocks` and `blocks_t` of the loops, and the number of entities in a block."""
    num_nodes, num_queries, channels = states.shape
    grid = (num_nodes, 1, num_nodes) if is_query_major(states) else (num_nodes, num_queries, 1)
    blocks = np.repeat(np.eye(num_heads, dtype=states.detach().numpy().dtype), channels // num_heads, axis=0)
    # Blocks of nearly equal size: a small last block would take as many calls as a whole one.
    num_blocks = -(-states.shape[0] // min(block_rows(channels), _MAX_ENTITIES))
    return grid, np.ascontiguousarray(blocks), _transposed(blocks), -(-states.shape[0] // num_blocks)


def _num_pieces(num_queries: int) -> int:
    return min(_MAX_PIECES, num_queries)


def _partial(num_pieces: int, like: tuple[Tensor, ...]) -> list[_Array]:
    return [np.zeros((num_pieces, *x.shape), x.detach().numpy().dtype) for x in like]


def _share_out(work: Any, num_queries: int) -> None:
    num_pieces = _num_pieces(num_queries)

    def run(i: int) -> None:
        work(num_queries * i // num_pieces, num_queries * (i + 1) // num_pieces, i)

    run_pieces(run, num_pieces)
