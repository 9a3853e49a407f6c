"""CUDA backend: the perceptron of a block of rows in one pass; its gradient computes the block again."""

from typing import Any

import torch
from torch import Tensor

from graphzoo.ops.row_triton import cut, dot, launch, on_device, relu, store_sum, times, tl, triton, vector

_PROGRAMS = 512  # that share the rows of a gradient; each has sums of its own


@triton.jit
def _perceptron_kernel(
    x_ptr, extra_ptr, weight_ptr, extra_weight_ptr, b1_ptr, w2_ptr, b2_ptr, out_ptr, num_rows,
    HAS_X: tl.constexpr, HAS_EXTRA: tl.constexpr,
    D: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    c = tl.arange(0, BLOCK)
    inside = c < D
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    wanted = (rows < num_rows)[:, None] & inside[None, :]
    at = rows[:, None] * D + c[None, :]
    TYPE = out_ptr.dtype.element_ty
    hidden = tl.zeros((ROWS, BLOCK), tl.float32) + vector(b1_ptr, D, BLOCK)
    if HAS_X:
        x = tl.load(x_ptr + at, mask=wanted, other=0.0).to(TYPE)
        hidden += times(x, weight_ptr, D, BLOCK, True, PRECISION, TYPE)
    if HAS_EXTRA:
        extra = tl.load(extra_ptr + rows, mask=rows < num_rows, other=0.0).to(tl.float32)
        hidden += extra[:, None] * vector(extra_weight_ptr, D, BLOCK)
    out = times(relu(hidden), w2_ptr, D, BLOCK, True, PRECISION, TYPE) + vector(b2_ptr, D, BLOCK)
    tl.store(out_ptr + at, out.to(TYPE), mask=wanted)


@triton.jit
def _gradient_kernel(
    grad_ptr, x_ptr, extra_ptr, weight_ptr, extra_weight_ptr, b1_ptr, w2_ptr, grad_x_ptr, partial_ptr,
    num_rows, HAS_X: tl.constexpr, HAS_EXTRA: tl.constexpr,
    D: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    c = tl.arange(0, BLOCK)
    inside = c < D
    TYPE = grad_ptr.dtype.element_ty
    by_weight = tl.zeros((BLOCK, BLOCK), tl.float32)
    by_extra_weight = tl.zeros((BLOCK,), tl.float32)
    by_b1 = tl.zeros((BLOCK,), tl.float32)
    by_w2 = tl.zeros((BLOCK, BLOCK), tl.float32)
    by_b2 = tl.zeros((BLOCK,), tl.float32)
    for block in tl.range(tl.program_id(0), tl.cdiv(num_rows, ROWS), tl.num_programs(0), disable_licm=True):
        rows = tl.cast(block, tl.int64) * ROWS + tl.arange(0, ROWS)
        # rows behind the last have a gradient of 0, and add nothing
        wanted = (rows < num_rows)[:, None] & inside[None, :]
        at = rows[:, None] * D + c[None, :]
        grad = tl.load(grad_ptr + at, mask=wanted, other=0.0)
        hidden = tl.zeros((ROWS, BLOCK), tl.float32) + vector(b1_ptr, D, BLOCK)
        if HAS_X:
            x = tl.load(x_ptr + at, mask=wanted, other=0.0).to(TYPE)
            hidden += times(x, weight_ptr, D, BLOCK, True, PRECISION, TYPE)
        if HAS_EXTRA:
            extra = tl.load(extra_ptr + rows, mask=rows < num_rows, other=0.0).to(tl.float32)
            hidden += extra[:, None] * vector(extra_weight_ptr, D, BLOCK)
        hidden = relu(hidden)
        by_b2 += tl.sum(grad.to(tl.float32), 0)
        by_w2 += dot(tl.trans(grad), hidden.to(TYPE), PRECISION)
        of_hidden = tl.where(hidden <= 0, 0.0, times(grad, w2_ptr, D, BLOCK, False, PRECISION, TYPE))
        by_b1 += tl.sum(of_hidden, 0)
        if HAS_EXTRA:
            by_extra_weight += tl.sum(extra[:, None] * of_hidden, 0)
        if HAS_X:
            by_weight += dot(tl.trans(of_hidden.to(TYPE)), x, PRECISION)
            of_x = times(of_hidden, weight_ptr, D, BLOCK, False, PRECISION, TYPE)
            tl.store(grad_x_ptr + at, of_x.to(TYPE), mask=wanted)
    place = partial_ptr + tl.program_id(0).to(tl.int64) * (2 * D * D + 3 * D)
    place = store_sum(place, by_weight, D, BLOCK)
    place = store_sum(place, by_extra_weight, D, BLOCK)
    place = store_sum(place, by_b1, D, BLOCK)
    place = store_sum(place, by_w2, D, BLOCK)
    store_sum(place, by_b2, D, BLOCK)


def forward(x: Tensor | None, extra: Tensor | None, *parameters: Tensor | None) -> Tensor:
    """Result for contiguous x [N, B, D] and extra [N, B, 1]; weight, extra weight, b1, W2, b2 follow."""
    some, b1 = x if x is not None else extra, parameters[2]
    assert some is not None and b1 is not None
    out = some.new_empty(*some.shape[:2], b1.numel())
    settings = _settings(x, extra, b1, is_gradient=False)
    num_rows = out.numel() // b1.numel()
    if num_rows:
        with on_device(out):
            _perceptron_kernel[(triton.cdiv(num_rows, settings["ROWS"]),)](
                *_pointers(out, x, extra, *parameters), out, num_rows, **settings
            )
    return out


def gradient(
    grad: Tensor, x: Tensor | None, extra: Tensor | None, *parameters: Tensor | None
) -> tuple[Tensor | None, ...]:
    """Gradients of the arguments of `forward`, None for those that have none; all contiguous."""
    weight, extra_weight, b1, w2, b2 = parameters
    assert weight is not None and b1 is not None and w2 is not None and b2 is not None
    grad_x = None if x is None else torch.empty_like(x)
    settings = _settings(x, extra, b1, is_gradient=True)
    num_rows = grad.numel() // b1.numel()
    programs = max(1, min(_PROGRAMS, triton.cdiv(num_rows, settings["ROWS"])))
    shapes = [weight.shape, b1.shape, b1.shape, w2.shape, b2.shape]
    size = sum(shape.numel() for shape in shapes)
    partial = torch.empty(programs, size, dtype=torch.float32, device=grad.device)
    target = grad if grad_x is None else grad_x
    with on_device(grad):
        _gradient_kernel[(programs,)](
            grad, *_pointers(grad, x, extra, *parameters)[:-1], target, partial, num_rows, **settings
        )
    by_weight, by_extra, by_b1, by_w2, by_b2 = cut(partial, shapes)
    by_extra_weight = None if extra_weight is None else by_extra.to(extra_weight.dtype)
    rest = by_b1.to(b1.dtype), by_w2.to(w2.dtype), by_b2.to(b2.dtype)
    return grad_x, None, by_weight.to(weight.dtype), by_extra_weight, *rest


def _pointers(other: Tensor, *tensors: Tensor | None) -> list[Tensor]:
    """`other` in place of what is not there: nothing is read from it."""
    return [other if x is None else x.contiguous() for x in tensors]


def _settings(x: Tensor | None, extra: Tensor | None, b1: Tensor, *, is_gradient: bool) -> dict[str, Any]:
    sizes = {
        "BLOCK": max(16, triton.next_power_of_2(b1.numel())),
        **launch(b1.numel(), is_gradient=is_gradient),
    }
    return {"HAS_X": x is not None, "HAS_EXTRA": extra is not None, **sizes}
