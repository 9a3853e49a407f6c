"""CUDA backend: a program has one query and a part of its entities, block by block, with sums of its own.

Widths and numbers of heads are powers of two, so that a row splits into its heads. Blocks are computed again
for the gradient.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from graphzoo.ops.prototype_layer.dropout import RowDropout
from graphzoo.ops.row_triton import (
    cut,
    dot,
    head_sums,
    kept,
    launch,
    normalize,
    normalize_gradient,
    on_device,
    relu,
    store_sum,
    times,
    tl,
    triton,
    vector,
)

_FAR = 1 << 31  # from here on, offsets within a block count in 64 bits
_PROGRAMS = 1024  # about so many share the work; a query is cut into parts where there are fewer queries


class _Masks(NamedTuple):
    """What the kernels draw dropout from."""

    words: Tensor  # [B, D / 4]
    entities: Tensor  # [N]
    threshold: int
    scale: float


@triton.jit
def _unit_rows(states, weight_ptr, bias, ROWS: tl.constexpr, D: tl.constexpr, HEADS: tl.constexpr,
               PRECISION: tl.constexpr, TYPE: tl.constexpr):  # fmt: skip
    """Keys or queries with heads of norm 1, and 1 / norm in all channels of its head."""
    x = times(states, weight_ptr, D, D, True, PRECISION, TYPE) + bias
    spread = 1.0 / tl.sqrt(tl.maximum(head_sums(x * x, ROWS, D, HEADS), 1e-24))
    return x * spread, spread


@triton.jit
def _unit_rows_gradient(grad, unit, spread, ROWS: tl.constexpr, D: tl.constexpr, HEADS: tl.constexpr):
    """Gradient through the division; 0 for a head of norm zero."""
    grad = tl.where(spread < 0.99e12, grad, 0.0)  # before the sum: after it, registers are spilled
    return (grad - head_sums(grad * unit, ROWS, D, HEADS) * unit) * spread


@triton.jit
def _sums_kernel(
    states_ptr, value_ptr, weight_ptr, bias_ptr, partial_ptr, num_nodes, num_parts, by_node, by_query,
    D: tl.constexpr, HEADS: tl.constexpr, ROWS: tl.constexpr, PRECISION: tl.constexpr, INDEX: tl.constexpr,
):  # fmt: skip
    query = (tl.program_id(0) // num_parts).to(tl.int64)
    c = tl.arange(0, D)
    TYPE = states_ptr.dtype.element_ty
    bias = vector(bias_ptr, D, D)
    key_sum = tl.zeros((D,), tl.float32)
    product = tl.zeros((D, D), tl.float32)
    value_sum = tl.zeros((D,), tl.float32)
    # Few matrices: what is made before this loop leaves registers enough.
    for block in range(tl.program_id(0) % num_parts, tl.cdiv(num_nodes, ROWS), num_parts):
        node = block * ROWS + tl.arange(0, ROWS)
        there = (node < num_nodes)[:, None]
        begin = tl.cast(block, tl.int64) * ROWS * by_node + query * by_query
        at = tl.arange(0, ROWS).to(INDEX)[:, None] * by_node + c[None, :]
        s = tl.load(states_ptr + begin + at, mask=there, other=0.0)
        v = tl.load(value_ptr + begin + at, mask=there, other=0.0)
        k, _ = _unit_rows(s, weight_ptr, bias, ROWS, D, HEADS, PRECISION, TYPE)
        k = tl.where(there, k, 0.0)
        key_sum += tl.sum(k, 0)
        product += dot(tl.trans(k.to(TYPE)), v, PRECISION)
        value_sum += tl.sum(v.to(tl.float32), 0)
    place = partial_ptr + tl.program_id(0).to(tl.int64) * (D * D + 2 * D)
    place = store_sum(place, key_sum, D, D)
    place = store_sum(place, product, D, D)
    store_sum(place, value_sum, D, D)


@triton.jit
def _sums_gradient_kernel(
    states_ptr, value_ptr, weight_ptr, bias_ptr, by_key_ptr, by_product_ptr, by_value_ptr,
    grad_states_ptr, grad_value_ptr, partial_ptr, num_nodes, num_parts, by_node, by_query,
    D: tl.constexpr, HEADS: tl.constexpr, ROWS: tl.constexpr, PRECISION: tl.constexpr, INDEX: tl.constexpr,
):  # fmt: skip
    query = (tl.program_id(0) // num_parts).to(tl.int64)
    c = tl.arange(0, D)
    TYPE = states_ptr.dtype.element_ty
    bias = vector(bias_ptr, D, D)
    of_key = vector(by_key_ptr + query * D, D, D)
    of_product_ptr = by_product_ptr + query * D * D
    of_value = vector(by_value_ptr + query * D, D, D)
    by_weight = tl.zeros((D, D), tl.float32)
    by_bias = tl.zeros((D,), tl.float32)
    for block in tl.range(
        tl.program_id(0) % num_parts, tl.cdiv(num_nodes, ROWS), num_parts, disable_licm=True
    ):
        node = block * ROWS + tl.arange(0, ROWS)
        there = (node < num_nodes)[:, None]
        begin = tl.cast(block, tl.int64) * ROWS * by_node + query * by_query
        at = tl.arange(0, ROWS).to(INDEX)[:, None] * by_node + c[None, :]
        s = tl.load(states_ptr + begin + at, mask=there, other=0.0)
        v = tl.load(value_ptr + begin + at, mask=there, other=0.0)
        k, spread = _unit_rows(s, weight_ptr, bias, ROWS, D, HEADS, PRECISION, TYPE)
        of_v = times(k, of_product_ptr, D, D, False, PRECISION, TYPE) + of_value
        tl.store(grad_value_ptr + begin + at, of_v.to(TYPE), mask=there)
        of_k = times(v, of_product_ptr, D, D, True, PRECISION, TYPE) + of_key
        of_k = tl.where(there, _unit_rows_gradient(of_k, k, spread, ROWS, D, HEADS), 0.0)
        by_weight += dot(tl.trans(of_k.to(TYPE)), s, PRECISION)
        by_bias += tl.sum(of_k, 0)
        of_s = times(of_k, weight_ptr, D, D, False, PRECISION, TYPE)
        tl.store(grad_states_ptr + begin + at, of_s.to(TYPE), mask=there)
    place = partial_ptr + tl.program_id(0).to(tl.int64) * (D * D + D)
    place = store_sum(place, by_weight, D, D)
    store_sum(place, by_bias, D, D)


@triton.jit
def _attention(q, v, product_ptr, key_sum_ptr, value_sum_ptr, num_nodes, ROWS: tl.constexpr, D: tl.constexpr,
               HEADS: tl.constexpr, PRECISION: tl.constexpr, TYPE: tl.constexpr):  # fmt: skip
    """Eq. 10 with numerator and denominator times N: the output, and 1 / denominator."""
    count = tl.cast(num_nodes, tl.float32)  # Triton makes a constant of 1, which has no `to`
    total = 1.0 / (head_sums(q * vector(key_sum_ptr, D, D), ROWS, D, HEADS) + 2.0 * count)
    attended = times(q, product_ptr, D, D, False, PRECISION, TYPE)
    return (attended + vector(value_sum_ptr, D, D) + count * v.to(tl.float32)) * total, total


@triton.jit
def _attend_kernel(
    states_ptr, value_ptr, skip_ptr, out_ptr, weight_ptr, bias_ptr, key_sum_ptr, product_ptr, value_sum_ptr,
    n1w_ptr, n1b_ptr, w1_ptr, b1_ptr, w2_ptr, b2_ptr, n2w_ptr, n2b_ptr, words_ptr, entities_ptr,
    threshold, scale, num_nodes, num_parts, by_node, by_query,
    HAS_SKIP: tl.constexpr, DROPS: tl.constexpr,
    D: tl.constexpr, HEADS: tl.constexpr, ROWS: tl.constexpr, PRECISION: tl.constexpr, INDEX: tl.constexpr,
):  # fmt: skip
    query = (tl.program_id(0) // num_parts).to(tl.int64)
    c = tl.arange(0, D)
    TYPE = states_ptr.dtype.element_ty
    key_sum_ptr += query * D
    product_ptr += query * D * D
    value_sum_ptr += query * D
    for block in tl.range(
        tl.program_id(0) % num_parts, tl.cdiv(num_nodes, ROWS), num_parts, disable_licm=True
    ):
        node = block * ROWS + tl.arange(0, ROWS)
        there = (node < num_nodes)[:, None]
        begin = tl.cast(block, tl.int64) * ROWS * by_node + query * by_query
        at = tl.arange(0, ROWS).to(INDEX)[:, None] * by_node + c[None, :]
        s = tl.load(states_ptr + begin + at, mask=there, other=0.0)
        v = tl.load(value_ptr + begin + at, mask=there, other=0.0)
        q, _ = _unit_rows(s, weight_ptr, vector(bias_ptr, D, D), ROWS, D, HEADS, PRECISION, TYPE)
        a, _ = _attention(
            q, v, product_ptr, key_sum_ptr, value_sum_ptr, num_nodes, ROWS, D, HEADS, PRECISION, TYPE
        )
        if HAS_SKIP:
            a += tl.load(skip_ptr + begin + at, mask=there, other=0.0).to(tl.float32)
        unit, _ = normalize(a, D, D)
        x = unit * vector(n1w_ptr, D, D) + vector(n1b_ptr, D, D)
        hidden = relu(times(x, w1_ptr, D, D, True, PRECISION, TYPE) + vector(b1_ptr, D, D))
        if DROPS:
            words = tl.load(words_ptr + query * (D // 4) + tl.arange(0, D // 4))
            entities = tl.load(entities_ptr + node, mask=node < num_nodes, other=0)
            hidden = hidden * tl.where(kept(words, entities, threshold, ROWS, D), scale, 0.0)
        out = x + times(hidden, w2_ptr, D, D, True, PRECISION, TYPE) + vector(b2_ptr, D, D)
        unit, _ = normalize(out, D, D)
        tl.store(
            out_ptr + begin + at, (unit * vector(n2w_ptr, D, D) + vector(n2b_ptr, D, D)).to(TYPE), mask=there
        )


@triton.jit
def _attend_gradient_kernel(
    grad_ptr, states_ptr, value_ptr, skip_ptr, grad_states_ptr, grad_value_ptr, grad_attended_ptr,
    weight_ptr, bias_ptr, key_sum_ptr, product_ptr, value_sum_ptr,
    n1w_ptr, n1b_ptr, w1_ptr, b1_ptr, w2_ptr, b2_ptr, n2w_ptr, n2b_ptr, words_ptr, entities_ptr,
    threshold, scale, partial_ptr, num_nodes, num_parts, by_node, by_query,
    HAS_SKIP: tl.constexpr, DROPS: tl.constexpr, UPPER: tl.constexpr, LOWER: tl.constexpr,
    D: tl.constexpr, HEADS: tl.constexpr, ROWS: tl.constexpr, PRECISION: tl.constexpr, INDEX: tl.constexpr,
):  # fmt: skip
    """UPPER: back to what was attended, which is the gradient of the skip, too. LOWER: from there on."""
    query = (tl.program_id(0) // num_parts).to(tl.int64)
    c = tl.arange(0, D)
    TYPE = states_ptr.dtype.element_ty
    key_sum_ptr += query * D
    product_ptr += query * D * D
    value_sum_ptr += query * D
    by_weight, by_bias = tl.zeros((D, D), tl.float32), tl.zeros((D,), tl.float32)
    by_key, by_product = tl.zeros((D,), tl.float32), tl.zeros((D, D), tl.float32)
    by_value = tl.zeros((D,), tl.float32)
    by_n1w, by_n1b = tl.zeros((D,), tl.float32), tl.zeros((D,), tl.float32)
    by_w1, by_b1 = tl.zeros((D, D), tl.float32), tl.zeros((D,), tl.float32)
    by_w2, by_b2 = tl.zeros((D, D), tl.float32), tl.zeros((D,), tl.float32)
    by_n2w, by_n2b = tl.zeros((D,), tl.float32), tl.zeros((D,), tl.float32)
    for block in tl.range(
        tl.program_id(0) % num_parts, tl.cdiv(num_nodes, ROWS), num_parts, disable_licm=True
    ):
        node = block * ROWS + tl.arange(0, ROWS)
        # rows behind the last have a gradient of 0, and add nothing
        there = (node < num_nodes)[:, None]
        begin = tl.cast(block, tl.int64) * ROWS * by_node + query * by_query
        at = tl.arange(0, ROWS).to(INDEX)[:, None] * by_node + c[None, :]
        s = tl.load(states_ptr + begin + at, mask=there, other=0.0)
        v = tl.load(value_ptr + begin + at, mask=there, other=0.0)
        q, spread = _unit_rows(s, weight_ptr, vector(bias_ptr, D, D), ROWS, D, HEADS, PRECISION, TYPE)
        attended, total = _attention(
            q, v, product_ptr, key_sum_ptr, value_sum_ptr, num_nodes, ROWS, D, HEADS, PRECISION, TYPE
        )
        if UPPER:
            grad = tl.load(grad_ptr + begin + at, mask=there, other=0.0).to(tl.float32)
            a = attended
            if HAS_SKIP:
                a += tl.load(skip_ptr + begin + at, mask=there, other=0.0).to(tl.float32)
            unit1, std1 = normalize(a, D, D)
            x = unit1 * vector(n1w_ptr, D, D) + vector(n1b_ptr, D, D)
            hidden = relu(times(x, w1_ptr, D, D, True, PRECISION, TYPE) + vector(b1_ptr, D, D))
            if DROPS:
                words = tl.load(words_ptr + query * (D // 4) + tl.arange(0, D // 4))
                entities = tl.load(entities_ptr + node, mask=node < num_nodes, other=0)
                hidden = hidden * tl.where(kept(words, entities, threshold, ROWS, D), scale, 0.0)
            out = x + times(hidden, w2_ptr, D, D, True, PRECISION, TYPE) + vector(b2_ptr, D, D)
            unit2, std2 = normalize(out, D, D)

            by_n2w += tl.sum(grad * unit2, 0)
            by_n2b += tl.sum(grad, 0)
            of_out = normalize_gradient(grad, unit2, std2, vector(n2w_ptr, D, D), D, D)
            by_b2 += tl.sum(of_out, 0)
            by_w2 += dot(tl.trans(of_out.to(TYPE)), hidden.to(TYPE), PRECISION)
            # what was dropped or cut off is 0, what was kept was scaled
            of_hidden = times(of_out, w2_ptr, D, D, False, PRECISION, TYPE)
            of_hidden = of_hidden * tl.where(hidden <= 0, 0.0, scale)
            by_b1 += tl.sum(of_hidden, 0)
            by_w1 += dot(tl.trans(of_hidden.to(TYPE)), x.to(TYPE), PRECISION)
            of_x = of_out + times(of_hidden, w1_ptr, D, D, False, PRECISION, TYPE)
            by_n1w += tl.sum(of_x * unit1, 0)
            by_n1b += tl.sum(of_x, 0)
            of_a = normalize_gradient(of_x, unit1, std1, vector(n1w_ptr, D, D), D, D)
            if HAS_SKIP or not LOWER:
                tl.store(grad_attended_ptr + begin + at, of_a.to(TYPE), mask=there)
        else:
            of_a = tl.load(grad_attended_ptr + begin + at, mask=there, other=0.0).to(tl.float32)

        if LOWER:
            of_denominator = -head_sums(of_a * attended, ROWS, D, HEADS) * total
            of_numerator = of_a * total
            by_value += tl.sum(of_numerator, 0)
            by_key += tl.sum(of_denominator * q, 0)
            by_product += dot(tl.trans(q.to(TYPE)), of_numerator.to(TYPE), PRECISION)
            of_q = times(of_numerator, product_ptr, D, D, True, PRECISION, TYPE)
            of_v = tl.cast(num_nodes, tl.float32) * of_numerator
            tl.store(grad_value_ptr + begin + at, of_v.to(TYPE), mask=there)
            of_q += of_denominator * vector(key_sum_ptr, D, D)
            of_q = _unit_rows_gradient(of_q, q, spread, ROWS, D, HEADS)
            by_weight += dot(tl.trans(of_q.to(TYPE)), s, PRECISION)
            by_bias += tl.sum(of_q, 0)
            of_s = times(of_q, weight_ptr, D, D, False, PRECISION, TYPE)
            tl.store(grad_states_ptr + begin + at, of_s.to(TYPE), mask=there)
    place = partial_ptr + tl.program_id(0).to(tl.int64) * (4 * D * D + 9 * D)
    if LOWER:
        to = store_sum(place, by_key, D, D)
        to = store_sum(to, by_product, D, D)
        to = store_sum(to, by_value, D, D)
        to = store_sum(to, by_weight, D, D)
        store_sum(to, by_bias, D, D)
    if UPPER:
        to = store_sum(place + 2 * D * D + 3 * D, by_n1w, D, D)
        to = store_sum(to, by_n1b, D, D)
        to = store_sum(to, by_w1, D, D)
        to = store_sum(to, by_b1, D, D)
        to = store_sum(to, by_w2, D, D)
        to = store_sum(to, by_b2, D, D)
        to = store_sum(to, by_n2w, D, D)
        store_sum(to, by_n2b, D, D)


# Rows come arranged alike, as `arranged` does it.


def sums(states: Tensor, value: Tensor, weight: Tensor, bias: Tensor, num_heads: int) -> tuple[Tensor, ...]:
    """Sums of unit keys [B, D], of key-value products [B, D, D] and of values [B, D], in float32."""
    channels, num_queries = states.shape[2], states.shape[1]
    grid, settings = _settings(states, num_heads)
    shapes = [torch.Size(s) for s in ((channels,), (channels, channels), (channels,))]
    partial = _partial(grid, states, shapes)
    with on_device(states):
        _sums_kernel[(grid[0] * num_queries,)](
            states, value, weight.contiguous(), bias.contiguous(), partial, states.shape[0], *grid, **settings
        )
    return _by_query(partial, num_queries, shapes)


def sums_gradient(
    grads: tuple[Tensor, ...], states: Tensor, value: Tensor, weight: Tensor, bias: Tensor, num_heads: int
) -> tuple[Tensor, ...]:
    """Gradients of the tensors that `sums` takes."""
    grad_states, grad_value = torch.empty_like(states), torch.empty_like(value)
    grid, settings = _settings(states, num_heads, is_gradient=True)
    partial = _partial(grid, states, [weight.shape, bias.shape])
    with on_device(states):
        _sums_gradient_kernel[(grid[0] * states.shape[1],)](
            states, value, weight.contiguous(), bias.contiguous(), *(x.float().contiguous() for x in grads),
            grad_states, grad_value, partial, states.shape[0], *grid, **settings,
        )  # fmt: skip
    by_weight, by_bias = cut(partial, [weight.shape, bias.shape])
    return grad_states, grad_value, by_weight.to(weight.dtype), by_bias.to(bias.dtype)


def attend(
    states: Tensor,
    value: Tensor,
    skip: Tensor | None,
    shared: Sequence[Tensor],
    num_heads: int,
    masks: _Masks | None,
) -> Tensor:
    """The layer's output; `shared` are the weights of the queries, the sums and the other parameters."""
    out = torch.empty_like(states)
    grid, settings = _settings(states, num_heads)
    drawn, drops = _drawn(masks, states)
    with on_device(states):
        _attend_kernel[(grid[0] * states.shape[1],)](
            states, value, states if skip is None else skip, out, *_parameters(shared, num_heads), *drawn,
            states.shape[0], *grid, HAS_SKIP=skip is not None, DROPS=drops, **settings,
        )  # fmt: skip
    return out


def attend_gradient(
    grad: Tensor,
    states: Tensor,
    value: Tensor,
    skip: Tensor | None,
    shared: Sequence[Tensor],
    num_heads: int,
    masks: _Masks | None,
) -> tuple[Tensor | None, ...]:
    """Gradients of the tensors that `attend` takes, None for a skip that is not there."""
    grad_states, grad_value = torch.empty_like(states), torch.empty_like(value)
    # In float32 in two passes: the sums of a whole one would not fit into the registers.
    passes = ((True, False), (False, True)) if states.dtype == torch.float32 else ((True, True),)
    is_kept = skip is not None or len(passes) > 1
    grad_attended = torch.empty_like(states) if is_kept else grad_states  # not written
    weight, bias, key_sum, product, value_sum, *parameters = shared
    grid, settings = _settings(states, num_heads, is_gradient=True)
    num_queries, channels = states.shape[1:]
    drawn, drops = _drawn(masks, states)
    of_query = [torch.Size(s) for s in ((channels,), (channels, channels), (channels,))]
    of_all = [x.shape for x in (weight, bias, *parameters)]
    partial = _partial(grid, states, [*of_query, *of_all])
    for upper, lower in passes:
        with on_device(states):
            _attend_gradient_kernel[(grid[0] * num_queries,)](
                grad, states, value, states if skip is None else skip, grad_states, grad_value, grad_attended,
                *_parameters(shared, num_heads), *drawn, partial, states.shape[0], *grid,
                HAS_SKIP=skip is not None, DROPS=drops, UPPER=upper, LOWER=lower, **settings,
            )  # fmt: skip
    own = sum(shape.numel() for shape in of_query)
    by_key, by_product, by_value = _by_query(partial[:, :own], num_queries, of_query)
    by_product = by_product * _inside_heads(product, num_heads)
    by_weight, by_bias, *rest = (
        gradient.to(given.dtype)
        for gradient, given in zip(cut(partial[:, own:], of_all), (weight, bias, *parameters), strict=True)
    )
    by_sums = (by_key.to(key_sum.dtype), by_product.to(product.dtype), by_value.to(value_sum.dtype))
    grad_skip = None if skip is None else grad_attended
    return (grad_states, grad_value, grad_skip, by_weight, by_bias, *by_sums, *rest)


def masks(dropout: RowDropout | None, states: Tensor) -> _Masks | None:
    """What the kernels draw dropout from."""
    if dropout is None:
        return None
    words, entities = dropout.words(states.shape[2]), dropout.entities(0, states.shape[0])
    return _Masks(words.contiguous(), entities, dropout.threshold, dropout.scale)


def _drawn(masks: _Masks | None, states: Tensor) -> tuple[tuple[Tensor | int | float, ...], bool]:
    """Nothing is read from the states where nothing is dropped."""
    return ((states, states, 0, 1.0), False) if masks is None else (tuple(masks), True)


def _parameters(shared: Sequence[Tensor], num_heads: int) -> list[Tensor]:
    """In the order of the kernels: sums in float32, products cut to their heads."""
    weight, bias, key_sum, product, value_sum, *others = shared
    product = product.float() * _inside_heads(product, num_heads)
    queries = (weight, bias, key_sum.float(), product, value_sum.float())
    return [x.contiguous() for x in (*queries, *others)]


def _inside_heads(product: Tensor, num_heads: int) -> Tensor:
    """1 where two channels share a head, [D, D]: only there does a product count."""
    head = torch.arange(product.shape[-1], device=product.device) // (product.shape[-1] // num_heads)
    return (head[:, None] == head).to(torch.float32)


def _settings(
    states: Tensor, num_heads: int, *, is_gradient: bool = False
) -> tuple[tuple[int, int, int], dict[str, Any]]:
    """(Parts of a query, elements between two entities, between two queries), and compile-time settings."""
    num_nodes, num_queries, channels = states.shape
    settings = {"HEADS": num_heads, **launch(channels, is_gradient=is_gradient)}
    rows = min(settings["ROWS"], 32)
    if channels == 64 and settings["PRECISION"] == "tf32x3":
        rows = 16
    settings |= {"ROWS": rows, "INDEX": tl.int32 if rows * states.stride(0) < _FAR else tl.int64}
    parts = max(1, min(triton.cdiv(num_nodes, rows), _PROGRAMS // max(num_queries, 1)))
    return (parts, states.stride(0), states.stride(1)), settings


def _partial(grid: tuple[int, int, int], states: Tensor, shapes: list[torch.Size]) -> Tensor:
    size = sum(shape.numel() for shape in shapes)
    return torch.empty(grid[0] * states.shape[1], size, dtype=torch.float32, device=states.device)


def _by_query(partial: Tensor, num_queries: int, shapes: list[torch.Size]) -> tuple[Tensor, ...]:
    """Partial sums [B parts, ...] summed over the parts: one tensor [B, ...] a shape."""
    num_parts = partial.shape[0] // max(1, num_queries)  # said, for nothing can be inferred without queries
    total = partial.view(num_queries, num_parts, partial.shape[1]).sum(1)
    parts = total.split([shape.numel() for shape in shapes], 1)
    return tuple(
        part.clone(memory_format=torch.contiguous_format).view(num_queries, *shape)
        for part, shape in zip(parts, shapes, strict=True)
    )
