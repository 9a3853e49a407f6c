"""Positive random features of the softmax kernel, and the random draws of NodeFormer's attention.

Letters: N nodes, H heads, D channels of a head, M random features.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import Function, once_differentiable

from graphzoo.errors import check_whole
from graphzoo.ops.eager import run_eagerly, without_autocast


def orthogonal_projection(
    num_features: int,
    dim: int,
    generator: torch.Generator | None = None,
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str | None = None,
) -> Tensor:
    """Random directions [M, D] in orthogonal blocks; each single row is a standard Gaussian vector.

    Every block of up to D rows is part of a uniformly distributed orthogonal matrix. This is the Q of a QR
    decomposition, multiplied by the signs of the diagonal of R; without the signs Q is not uniform, and the
    estimate of the kernel is biased (Mezzadri, 2007). The rows have the lengths of independent Gaussian
    vectors.

    Args:
        num_features: M, the number of rows, at least 1.
        dim: D, the number of columns, at least 1.
        generator: Random generator; None takes torch's global one.
        dtype: Dtype of the result.
        device: Device of the result; None takes that of the generator.

    Raises:
        UsageError: if a size is not a whole number of at least 1.
    """
    check_whole(at_least=1, num_features=num_features, dim=dim)
    if device is None and generator is not None:
        device = generator.device
    num_blocks = -(-num_features // dim)
    # float32 or wider, since there is no QR decomposition in half precision.
    kind = torch.promote_types(dtype, torch.float32)
    gaussian = torch.randn(num_blocks, dim, dim, generator=generator, dtype=kind, device=device)
    q, r = torch.linalg.qr(gaussian)
    diagonal = r.diagonal(dim1=-2, dim2=-1)
    directions = (q * torch.where(diagonal < 0, -1.0, 1.0)[:, None, :]).mT.reshape(-1, dim)
    lengths = torch.randn(num_features, dim, generator=generator, dtype=kind, device=device).norm(dim=1)
    projection: Tensor = (directions[:num_features] * lengths[:, None]).to(dtype)
    return projection


def positive_random_features(
    x: Tensor, projection: Tensor, *, is_query: bool, stabilize: bool = True, eps: float = 1e-6
) -> Tensor:
    r"""Features whose inner products estimate the softmax kernel (Eq. 4; Choromanski et al., 2021).

    .. math:: \phi(x) = M^{-1/2} (\exp(W x - |x|^2 / 2 - s) + \epsilon)

    With `stabilize=False, eps=0` the inner product is an unbiased estimate of exp(q k) over Gaussian W
    (Proposition 1). The stabiliser s prevents overflow. It is the largest entry of W x: for a query that of
    the same node and head, for keys that of all nodes of a head. So it multiplies all weights of a node by
    the same factor, and attention does not change.

    Args:
        x: Queries or keys, scaled as the kernel needs them, [N, H, D].
        projection: W, [M, D].
        is_query: Whether `x` are queries; chooses the stabiliser.
        stabilize: Whether to subtract s.
        eps: Number that is added to the exponential, so that features are not 0.

    Returns:
        [N, H, M]; float32 for half precision.

    Raises:
        ValueError: for shapes that do not fit.
    """
    return _features(x, projection, 1.0, is_query, stabilize, eps)


def random_features_at(x: Tensor, projection: Tensor, *, tau: float, is_query: bool) -> Tensor:
    """`positive_random_features` of queries or keys [N, H, D], divided by sqrt(tau) D^(1/4).

    Inner products of these features estimate exp(q k / (tau sqrt(D))).
    """
    scale = tau**-0.5 * x.shape[-1] ** -0.25
    return _features(x, projection, scale, is_query, True, 1e-6)


@run_eagerly
def _features(
    x: Tensor, projection: Tensor, scale: float, is_query: bool, stabilize: bool, eps: float
) -> Tensor:
    if x.dim() != 3 or projection.dim() != 2 or projection.shape[1] != x.shape[2]:
        raise ValueError(
            "x must be [N, H, D] and projection [M, D] with the same D, got "
            f"{list(x.shape)} and {list(projection.shape)}"
        )
    out: Tensor = _Features.apply(x, projection, scale, is_query, stabilize, eps)  # type: ignore[no-untyped-call]
    return out


class _Features(Function):
    """Features of `scale * x`; the backward pass needs only `x`, the projection and the features."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, projection: Tensor, scale: float, is_query: bool, stabilize: bool, eps: float
    ) -> Tensor:
        dtype = torch.promote_types(x.dtype, torch.float32)
        largest: Tensor | tuple[Tensor, ...] | None = None  # position of the largest entries
        with without_autocast(x.device.type):
            scaled = x.to(dtype) * scale
            out = scaled @ projection.to(dtype).t()  # [N, H, M]
            offset = scaled.square().sum(-1, keepdim=True) / 2
            if stabilize and out.numel():
                if is_query:
                    top, largest = out.max(-1, keepdim=True)
                else:
                    top, feature = out.amax(0).max(-1)  # [H]
                    heads = torch.arange(out.shape[1], device=out.device)
                    largest = (out[:, heads, feature].argmax(0), heads, feature)
                    top = top[:, None]
                offset += top
            factor = projection.shape[0] ** -0.5
            out.sub_(offset).exp_().mul_(factor).add_(eps * factor)
        ctx.save_for_backward(x, projection, out)
        ctx.scale, ctx.floor, ctx.largest = scale, eps * factor, largest
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, projection, out = ctx.saved_tensors
        with without_autocast(x.device.type):
            grad_exponent = (out - ctx.floor).mul_(grad)
            grad_offset = grad_exponent.sum(-1, keepdim=True)
            if isinstance(ctx.largest, tuple):
                grad_exponent[ctx.largest] -= grad_offset.sum((0, 2))
            elif ctx.largest is not None:
                grad_exponent.scatter_add_(-1, ctx.largest, -grad_offset)
            scaled = x.to(out.dtype) * ctx.scale
            grad_x = grad_projection = None
            if ctx.needs_input_grad[0]:
                grad_x = grad_exponent @ projection.to(out.dtype)
                grad_x = grad_x.addcmul_(scaled, grad_offset, value=-1).mul_(ctx.scale).to(x.dtype)
            if ctx.needs_input_grad[1]:
                grad_projection = (grad_exponent.flatten(0, 1).t() @ scaled.flatten(0, 1)).to(
                    projection.dtype
                )
        return grad_x, grad_projection, None, None, None, None


def draw_gumbel(shape: tuple[int, ...], generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    """Draws from Gumbel(0, 1): -log(E) for exponentially distributed E."""
    exponential = torch.empty(shape, dtype=dtype, device=generator.device).exponential_(generator=generator)
    return exponential.clamp_min_(torch.finfo(dtype).tiny).log_().neg_()
