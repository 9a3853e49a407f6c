"""Compiled loops over the queries `first..last` of [N, B, D] states, in blocks of entities.

States are given as rows [N B, D] with `grid` = (N, rows between two entities, rows between two queries).

The 0/1 matrices `blocks` [D, H] and `blocks_t` [H, D] say which head a channel belongs to. Sums over heads
are products with them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphzoo.ops.row_kernels import (
    add_rows,
    gather_rows,
    helper,
    jit,
    linear_relu,
    normalize_rows,
    normalize_rows_gradient,
)

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31 = np.uint64(30), np.uint64(27), np.uint64(31)


@helper
def _mix(x: Any) -> Any:
    """The mixer of `graphzoo.ops.random`."""
    x = (x ^ (x >> _S30)) * _MIX_1
    x = (x ^ (x >> _S27)) * _MIX_2
    return x ^ (x >> _S31)


@helper
def _drop(hidden: Any, words: Any, entities: Any, threshold: Any, scale: Any, bits: Any, n: int) -> None:
    """Apply `RowDropout.mask` in place; `bits` is scratch memory for the words of a row."""
    halves = bits.view(np.int16)
    for r in range(n):
        entity = entities[r]
        for w in range(words.shape[0]):
            bits[w] = _mix(_GOLDEN ^ _mix((words[w] ^ entity) + _GOLDEN))
        for c in range(hidden.shape[1]):
            hidden[r, c] *= scale if halves[c] >= threshold else hidden.dtype.type(0)


@helper
def _head_sums(x: Any, y: Any, blocks: Any, product: Any, out: Any, n: int) -> None:
    """Compute `out[r, h]`, the sum of x times y over the channels of head h; `product` is scratch memory."""
    for r in range(n):
        for c in range(x.shape[1]):
            product[r, c] = x[r, c] * y[r, c]
    np.dot(product[:n], blocks, out[:n])


@helper
def _unit_heads(x: Any, blocks: Any, blocks_t: Any, inverse: Any, spread: Any, n: int) -> None:
    """Divide each head of each row by its norm, in place; write 1 / norm, or 0, to `spread` by channel."""
    _head_sums(x, x, blocks, spread, inverse, n)
    for r in range(n):
        for h in range(inverse.shape[1]):
            square = inverse[r, h]
            is_zero = square <= x.dtype.type(1e-24)
            inverse[r, h] = x.dtype.type(0) if is_zero else x.dtype.type(1) / np.sqrt(square)
    np.dot(inverse[:n], blocks_t, spread[:n])
    for r in range(n):
        for c in range(x.shape[1]):
            x[r, c] *= spread[r, c]


@helper
def _unit_heads_gradient(
    grad: Any, unit: Any, spread: Any, blocks: Any, blocks_t: Any, along: Any, scratch: Any, n: int
) -> None:
    """Gradient of `_unit_heads`, in place; 0 for a head of norm 0."""
    _head_sums(grad, unit, blocks, scratch, along, n)
    np.dot(along[:n], blocks_t, scratch[:n])
    for r in range(n):
        for c in range(grad.shape[1]):
            grad[r, c] = (grad[r, c] - scratch[r, c] * unit[r, c]) * spread[r, c]


@helper
def _four(states: Any, block: int) -> Any:
    """Four new arrays with the shape of a block."""
    shape, dtype = (block, states.shape[1]), states.dtype
    return np.empty(shape, dtype), np.empty(shape, dtype), np.empty(shape, dtype), np.empty(shape, dtype)


@helper
def _unit_rows(
    states: Any, grid: Any, weight_t: Any, bias: Any, blocks: Any, blocks_t: Any, start: int, n: int, b: int,
    s: Any, out: Any, heads: Any, spread: Any,
) -> None:  # fmt: skip
    """Keys or queries of a block, with heads of norm 1.

    Copies the states to `s`, and writes their linear map, normalised, to `out`.
    """
    gather_rows(states, grid, start, n, b, s)
    np.dot(s[:n], weight_t, out[:n])
    add_rows(out, bias, n)
    _unit_heads(out, blocks, blocks_t, heads, spread, n)


@jit
def sums(
    states: Any, value: Any, weight_t: Any, bias: Any, key_sum: Any, product: Any, value_sum: Any,
    grid: Any, blocks: Any, blocks_t: Any, block: int, first: int, last: int,
) -> None:  # fmt: skip
    """Add up keys, key-value products and values over all entities."""
    num_nodes, channels = grid[0], states.shape[1]
    dtype = states.dtype
    s, v, k, spread = _four(states, block)
    heads = np.empty((block, blocks.shape[1]), dtype)
    part = np.empty((channels, channels), dtype)
    for start in range(0, num_nodes, block):
        n = min(block, num_nodes - start)
        for b in range(first, last):
            gather_rows(value, grid, start, n, b, v)
            _unit_rows(states, grid, weight_t, bias, blocks, blocks_t, start, n, b, s, k, heads, spread)
            np.dot(k[:n].T, v[:n], part)
            for i in range(channels):
                for j in range(channels):
                    product[b, i, j] += part[i, j]
            for r in range(n):
                for c in range(channels):
                    key_sum[b, c] += k[r, c]
                    value_sum[b, c] += v[r, c]


@jit
def sums_gradient(
    states: Any, value: Any, weight: Any, weight_t: Any, bias: Any,
    grad_key_sum: Any, grad_product: Any, grad_value_sum: Any,
    grad_states: Any, grad_value: Any, grad_weight: Any, grad_bias: Any,
    grid: Any, blocks: Any, blocks_t: Any, block: int, first: int, last: int,
) -> None:  # fmt: skip
    """Write the gradients of the rows, and add up those of weight and bias."""
    num_nodes, channels = grid[0], states.shape[1]
    shape, dtype = (block, channels), states.dtype
    s, v, k, spread = _four(states, block)
    grad_k, out = np.empty(shape, dtype), np.empty(shape, dtype)
    heads = np.empty((block, blocks.shape[1]), dtype)
    part = np.empty((channels, channels), dtype)
    for start in range(0, num_nodes, block):
        n = min(block, num_nodes - start)
        for b in range(first, last):
            gather_rows(value, grid, start, n, b, v)
            _unit_rows(states, grid, weight_t, bias, blocks, blocks_t, start, n, b, s, k, heads, spread)
            np.dot(k[:n], grad_product[b], out[:n])
            for r in range(n):
                for c in range(channels):
                    grad_value[(start + r) * grid[1] + b * grid[2], c] = out[r, c] + grad_value_sum[b, c]
            np.dot(v[:n], grad_product[b].T, grad_k[:n])
            add_rows(grad_k, grad_key_sum[b], n)
            _unit_heads_gradient(grad_k, k, spread, blocks, blocks_t, heads, out, n)
            np.dot(grad_k[:n].T, s[:n], part)
            grad_weight += part
            np.dot(grad_k[:n], weight, out[:n])
            for r in range(n):
                for c in range(channels):
                    grad_bias[c] += grad_k[r, c]
                    grad_states[(start + r) * grid[1] + b * grid[2], c] = out[r, c]


@helper
def _attention(
    states: Any, value: Any, grid: Any, arrays: Any, blocks: Any, blocks_t: Any, start: int, n: int, b: int,
    s: Any, q: Any, attended: Any, spread: Any, spread_total: Any, heads: Any,
) -> None:  # fmt: skip
    """Eq. 10, numerator and denominator multiplied by N, for a block.

    Writes the normalised queries to `q`, the output to `attended` and 1 / denominator to `spread_total`.
    """
    _, weight_t, bias, key_sum, product, value_sum = arrays[:6]
    one, count = states.dtype.type(1), states.dtype.type(grid[0])
    _unit_rows(states, grid, weight_t, bias, blocks, blocks_t, start, n, b, s, q, heads, spread)
    np.dot(q[:n], product[b], attended[:n])
    for r in range(n):
        for c in range(q.shape[1]):
            spread_total[r, c] = q[r, c] * key_sum[b, c]
    np.dot(spread_total[:n], blocks, heads[:n])
    for r in range(n):
        for h in range(heads.shape[1]):
            heads[r, h] = one / (heads[r, h] + 2 * count)
    np.dot(heads[:n], blocks_t, spread_total[:n])
    for r in range(n):
        for c in range(q.shape[1]):
            numerator = (
                attended[r, c] + value_sum[b, c] + count * value[(start + r) * grid[1] + b * grid[2], c]
            )
            attended[r, c] = numerator * spread_total[r, c]


@helper
def _feed_forward(
    arrays: Any, masks: Any, start: int, n: int, b: int, x: Any, hidden: Any, out: Any, unit: Any,
    inverse_std: Any, bits: Any,
) -> None:  # fmt: skip
    """The feed-forward network of a block.

    Takes A before its normalisation in `out`. Writes A to `x`, the hidden layer to `hidden`, and A + FFN(A)
    to `out`.
    """
    n1w, n1b, _, w1_t, b1, _, w2_t, b2 = arrays[6:14]
    words, entities, threshold, scale = masks
    normalize_rows(out, unit, inverse_std, n)
    for r in range(n):
        for c in range(x.shape[1]):
            x[r, c] = unit[r, c] * n1w[c] + n1b[c]
    linear_relu(x, w1_t, b1, hidden, n)
    if entities.shape[0]:
        _drop(hidden, words[b], entities[start : start + n], threshold, scale, bits, n)
    np.dot(hidden[:n], w2_t, out[:n])
    for r in range(n):
        for c in range(x.shape[1]):
            out[r, c] += x[r, c] + b2[c]


@helper
def _add_skip(attended: Any, skip: Any, grid: Any, start: int, n: int, b: int, out: Any) -> None:
    if skip.shape[0]:
        for r in range(n):
            for c in range(out.shape[1]):
                out[r, c] = attended[r, c] + skip[(start + r) * grid[1] + b * grid[2], c]
    else:
        for r in range(n):
            for c in range(out.shape[1]):
                out[r, c] = attended[r, c]


@jit
def attend(
    states: Any, value: Any, skip: Any, out: Any, arrays: Any, masks: Any,
    grid: Any, blocks: Any, blocks_t: Any, block: int, first: int, last: int,
) -> None:  # fmt: skip
    """Compute the layer's output."""
    num_nodes, channels = grid[0], states.shape[1]
    shape, dtype = (block, channels), states.dtype
    s, q, a, x = _four(states, block)
    hidden, unit = np.empty(shape, dtype), np.empty(shape, dtype)
    heads, inverse_std = np.empty((block, blocks.shape[1]), dtype), np.empty(block, dtype)
    bits = np.empty((channels + 3) // 4, np.uint64)
    n2w, n2b = arrays[14:]
    for start in range(0, num_nodes, block):
        n = min(block, num_nodes - start)
        for b in range(first, last):
            _attention(states, value, grid, arrays, blocks, blocks_t, start, n, b, s, q, a, x, hidden, heads)
            _add_skip(a, skip, grid, start, n, b, a)
            _feed_forward(arrays, masks, start, n, b, x, hidden, a, unit, inverse_std, bits)
            normalize_rows(a, unit, inverse_std, n)
            for r in range(n):
                for c in range(channels):
                    out[(start + r) * grid[1] + b * grid[2], c] = unit[r, c] * n2w[c] + n2b[c]


@jit
def attend_gradient(
    states: Any, value: Any, skip: Any, grad: Any, grad_states: Any, grad_value: Any, grad_skip: Any,
    arrays: Any, grad_sums: Any, grad_parameters: Any, masks: Any,
    grid: Any, blocks: Any, blocks_t: Any, block: int, first: int, last: int,
) -> None:  # fmt: skip
    """Write the gradients of the rows, and add up those of the sums (per query) and of the parameters."""
    num_nodes, channels = grid[0], states.shape[1]
    shape, dtype = (block, channels), states.dtype
    s, q, attended, spread = _four(states, block)
    total, x, hidden, a = _four(states, block)
    g, unit1, unit2 = np.empty(shape, dtype), np.empty(shape, dtype), np.empty(shape, dtype)
    heads = np.empty((block, blocks.shape[1]), dtype)
    std1, std2 = np.empty(block, dtype), np.empty(block, dtype)
    bits = np.empty((channels + 3) // 4, np.uint64)
    part = np.empty((channels, channels), dtype)
    count = dtype.type(num_nodes)
    weight, _, _, key_sum, product, _, n1w, _, w1, _, _, w2, _, _, n2w, _ = arrays
    grad_key_sum, grad_product, grad_value_sum = grad_sums
    grad_w, grad_b, grad_n1w, grad_n1b, grad_w1, grad_b1, grad_w2, grad_b2, grad_n2w, grad_n2b = (
        grad_parameters
    )
    scale = masks[3]
    for start in range(0, num_nodes, block):
        n = min(block, num_nodes - start)
        for b in range(first, last):
            _attention(
                states, value, grid, arrays, blocks, blocks_t, start, n, b,
                s, q, attended, spread, total, heads,
            )  # fmt: skip
            _add_skip(attended, skip, grid, start, n, b, a)
            _feed_forward(arrays, masks, start, n, b, x, hidden, a, unit1, std1, bits)
            normalize_rows(a, unit2, std2, n)
            gather_rows(grad, grid, start, n, b, g)
            # `a` now has the gradient of A + FFN(A).
            normalize_rows_gradient(g, unit2, std2, n2w, a, grad_n2w, grad_n2b, n)
            np.dot(a[:n].T, hidden[:n], part)
            grad_w2 += part
            np.dot(a[:n], w2, unit2[:n])
            grad_hidden = unit2
            for r in range(n):
                for c in range(channels):
                    grad_b2[c] += a[r, c]
                    # Entries that dropout or ReLU set to 0 have gradient 0; the others were scaled.
                    grad_hidden[r, c] = grad_hidden[r, c] * (dtype.type(0) if hidden[r, c] <= 0 else scale)
                    grad_b1[c] += grad_hidden[r, c]
            np.dot(grad_hidden[:n].T, x[:n], part)
            grad_w1 += part
            np.dot(grad_hidden[:n], w1, g[:n])
            for r in range(n):
                for c in range(channels):
                    g[r, c] += a[r, c]
            # `a` now has the gradient of attended + skip.
            normalize_rows_gradient(g, unit1, std1, n1w, a, grad_n1w, grad_n1b, n)
            if skip.shape[0]:
                for r in range(n):
                    for c in range(channels):
                        grad_skip[(start + r) * grid[1] + b * grid[2], c] = a[r, c]
            _head_sums(a, attended, blocks, x, heads, n)
            for r in range(n):
                for c in range(channels):
                    a[r, c] *= total[r, c]  # gradient of the numerator
                    grad_value[(start + r) * grid[1] + b * grid[2], c] = count * a[r, c]
                    grad_value_sum[b, c] += a[r, c]
            np.dot(q[:n].T, a[:n], part)
            for i in range(channels):
                for j in range(channels):
                    grad_product[b, i, j] += part[i, j]
            np.dot(a[:n], product[b].T, g[:n])
            np.dot(heads[:n], blocks_t, x[:n])
            for r in range(n):
                for c in range(channels):
                    of_denominator = -x[r, c] * total[r, c]
                    g[r, c] += of_denominator * key_sum[b, c]
                    grad_key_sum[b, c] += of_denominator * q[r, c]
            _unit_heads_gradient(g, q, spread, blocks, blocks_t, heads, x, n)
            np.dot(g[:n].T, s[:n], part)
            grad_w += part
            np.dot(g[:n], weight, a[:n])
            for r in range(n):
                for c in range(channels):
                    grad_b[c] += g[r, c]
                    grad_states[(start + r) * grid[1] + b * grid[2], c] = a[r, c]
