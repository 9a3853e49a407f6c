"""CUDA backend: the update of a block of rows in one pass, and its gradient with the block computed again."""

from typing import Any

import torch
from torch import Tensor

from graphzoo.ops.row_triton import (
    cut,
    dot,
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

_PROGRAMS = 512  # that share the rows of a gradient; each has sums of its own


@triton.jit
def _update_kernel(
    z_ptr, sums_ptr, alpha_ptr, w1_ptr, b1_ptr, w2_ptr, b2_ptr, weight_ptr, bias_ptr, out_ptr, num_rows,
    D: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    c = tl.arange(0, BLOCK)
    inside = c < D
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    wanted = (rows < num_rows)[:, None] & inside[None, :]
    at = rows[:, None] * D + c[None, :]
    TYPE = z_ptr.dtype.element_ty
    z = tl.load(z_ptr + at, mask=wanted, other=0.0).to(tl.float32)
    sums = tl.load(sums_ptr + at, mask=wanted, other=0.0).to(tl.float32)
    u = sums + vector(alpha_ptr, D, BLOCK) * z
    h = relu(times(u, w1_ptr, D, BLOCK, True, PRECISION, TYPE) + vector(b1_ptr, D, BLOCK))
    y = times(h, w2_ptr, D, BLOCK, True, PRECISION, TYPE) + vector(b2_ptr, D, BLOCK)
    unit, _ = normalize(y, D, BLOCK)
    out = z + unit * vector(weight_ptr, D, BLOCK) + vector(bias_ptr, D, BLOCK)
    tl.store(out_ptr + at, out.to(TYPE), mask=wanted)


@triton.jit
def _gradient_kernel(
    grad_ptr, z_ptr, sums_ptr, alpha_ptr, w1_ptr, b1_ptr, w2_ptr, b2_ptr, weight_ptr, grad_z_ptr,
    grad_sums_ptr, partial_ptr, num_rows,
    D: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    c = tl.arange(0, BLOCK)
    inside = c < D
    TYPE = z_ptr.dtype.element_ty
    by_alpha = tl.zeros((BLOCK,), tl.float32)
    by_b1 = tl.zeros((BLOCK,), tl.float32)
    by_b2 = tl.zeros((BLOCK,), tl.float32)
    by_weight = tl.zeros((BLOCK,), tl.float32)
    by_bias = tl.zeros((BLOCK,), tl.float32)
    by_w1 = tl.zeros((BLOCK, BLOCK), tl.float32)
    by_w2 = tl.zeros((BLOCK, BLOCK), tl.float32)
    for block in tl.range(tl.program_id(0), tl.cdiv(num_rows, ROWS), tl.num_programs(0), disable_licm=True):
        rows = tl.cast(block, tl.int64) * ROWS + tl.arange(0, ROWS)
        # rows behind the last have a gradient of 0, and add nothing
        wanted = (rows < num_rows)[:, None] & inside[None, :]
        first = tl.cast(block, tl.int64) * ROWS * D  # offsets from it fit into 32 bits
        at = tl.arange(0, ROWS)[:, None] * D + c[None, :]
        z = tl.load(z_ptr + first + at, mask=wanted, other=0.0).to(tl.float32)
        sums = tl.load(sums_ptr + first + at, mask=wanted, other=0.0).to(tl.float32)
        grad = tl.load(grad_ptr + first + at, mask=wanted, other=0.0).to(tl.float32)
        u = (sums + vector(alpha_ptr, D, BLOCK) * z).to(TYPE)
        h = relu(times(u, w1_ptr, D, BLOCK, True, PRECISION, TYPE) + vector(b1_ptr, D, BLOCK))
        y = times(h, w2_ptr, D, BLOCK, True, PRECISION, TYPE) + vector(b2_ptr, D, BLOCK)
        unit, inverse = normalize(y, D, BLOCK)
        by_weight += tl.sum(grad * unit, 0)
        by_bias += tl.sum(grad, 0)
        of_y = normalize_gradient(grad, unit, inverse, vector(weight_ptr, D, BLOCK), D, BLOCK)
        by_b2 += tl.sum(of_y, 0)
        by_w2 += dot(tl.trans(of_y.to(TYPE)), h.to(TYPE), PRECISION)
        of_h = tl.where(h <= 0, 0.0, times(of_y, w2_ptr, D, BLOCK, False, PRECISION, TYPE))
        by_b1 += tl.sum(of_h, 0)
        by_w1 += dot(tl.trans(of_h.to(TYPE)), u, PRECISION)
        of_u = times(of_h, w1_ptr, D, BLOCK, False, PRECISION, TYPE)
        by_alpha += tl.sum(of_u * z, 0)
        tl.store(grad_sums_ptr + first + at, of_u.to(TYPE), mask=wanted)
        tl.store(grad_z_ptr + first + at, (grad + of_u * vector(alpha_ptr, D, BLOCK)).to(TYPE), mask=wanted)
    place = partial_ptr + tl.program_id(0).to(tl.int64) * (2 * D * D + 5 * D)
    place = store_sum(place, by_alpha, D, BLOCK)
    place = store_sum(place, by_w1, D, BLOCK)
    place = store_sum(place, by_b1, D, BLOCK)
    place = store_sum(place, by_w2, D, BLOCK)
    place = store_sum(place, by_b2, D, BLOCK)
    place = store_sum(place, by_weight, D, BLOCK)
    store_sum(place, by_bias, D, BLOCK)


def forward(z: Tensor, aggregated: Tensor, *parameters: Tensor) -> Tensor:
    """New states of contiguous z and aggregated [N, B, D]."""
    out = torch.empty_like(z)
    settings = _settings(z, is_gradient=False)
    num_rows = z.numel() // z.shape[-1]
    if num_rows:
        with on_device(z):
            _update_kernel[(triton.cdiv(num_rows, settings["ROWS"]),)](
                z, aggregated, *(x.contiguous() for x in parameters), out, num_rows, **settings
            )
    return out


def gradient(grad: Tensor, z: Tensor, aggregated: Tensor, *parameters: Tensor) -> tuple[Tensor, ...]:
    """Gradients of the arguments of `forward`; all contiguous."""
    grad_z, grad_aggregated = torch.empty_like(z), torch.empty_like(z)
    settings = _settings(z, is_gradient=True)
    num_rows = z.numel() // z.shape[-1]
    programs = max(1, min(_PROGRAMS, triton.cdiv(num_rows, settings["ROWS"])))
    shapes = [x.shape for x in parameters]
    size = sum(shape.numel() for shape in shapes)
    partial = torch.empty(programs, size, dtype=torch.float32, device=z.device)
    with on_device(z):
        _gradient_kernel[(programs,)](
            grad, z, aggregated, *(x.contiguous() for x in parameters[:-1]), grad_z, grad_aggregated, partial,
            num_rows, **settings,
        )  # fmt: skip
    by_parameters = (x.to(like.dtype) for x, like in zip(cut(partial, shapes), parameters, strict=True))
    return grad_z, grad_aggregated, *by_parameters


def _settings(z: Tensor, *, is_gradient: bool) -> dict[str, Any]:
    block = max(16, triton.next_power_of_2(z.shape[-1]))
    settings = {"BLOCK": block, **launch(z.shape[-1], is_gradient=is_gradient)}
    if is_gradient and block != 32:
        settings["maxnreg"] = 255  # else the compiler spills some, to run more programs at once
    return settings
