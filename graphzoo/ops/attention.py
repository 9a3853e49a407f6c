"""All-pair attention of KnowFormer, and the kernels it is compared with, on states [N, B, H, D].

Every kernel kappa enters in the same way (Eq. 10, numerator and denominator multiplied by N):

    out_u = (N v_u + sum_w kappa(q_u, k_w) v_w) / (N + sum_w kappa(q_u, k_w))
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from typing import Any, Literal, ParamSpec, TypeVar

import torch
from torch import Tensor

from graphzoo.errors import check_choice
from graphzoo.ops.eager import is_traced, without_autocast
from graphzoo.ops.map_rows import map_rows
from graphzoo.ops.norms import TINY, inverse_norm, wide
from graphzoo.system.tensors import check_tensors

AttentionNorm = Literal["l2", "fro"]
P = ParamSpec("P")
R = TypeVar("R")


def _in_own_precision(function: Callable[P, R]) -> Callable[P, R]:
    """Run a function without autocast, which would compute sums over all nodes in half precision."""

    @wraps(function)
    def call(query: Tensor, *args: Any, **settings: Any) -> Any:
        with without_autocast(query.device.type):
            return function(query, *args, **settings)  # type: ignore[arg-type]

    return call  # type: ignore[return-value]


def _head_blocks(channels: int, num_heads: int, like: Tensor) -> Tensor:
    """A 0/1 matrix [D, H] that says which head a channel belongs to: sums over heads are products with it."""
    return torch.eye(num_heads, dtype=like.dtype, device=like.device).repeat_interleave(
        channels // num_heads, 0
    )


def _normalize(x: Tensor, blocks: Tensor) -> Tensor:
    """Divide each head of each row by its l2 norm; a head that is zero stays zero."""
    return x * (inverse_norm(x * x @ blocks) @ blocks.t())


@_in_own_precision
def sum_prototypes(
    query: Tensor, key: Tensor, value: Tensor, num_heads: int, norm: AttentionNorm
) -> tuple[Tensor, ...]:
    """The sums over rows [n, B, D] that Eq. 10 needs; heads are blocks of channels.

    With "l2" every key is normalised here, and queries are ignored. With "fro" `apply_prototypes` divides the
    finished sums by the norms.

    Returns:
        Sums of keys [B, D], of key-value products [B, D, D] (only those within a head are used) and of values
        [B, D]; with "fro" also of squared keys and of squared queries [B, H]. They are float32 for half
        precision.
    """
    query, key, value = wide(query), wide(key), wide(value)
    blocks = _head_blocks(key.shape[-1], num_heads, key)
    if norm == "l2":
        key = _normalize(key, blocks)
    # All D x D products instead of H blocks: BLAS is faster on one larger matrix than on many tiny ones.
    product = torch.bmm(key.permute(1, 2, 0), value.transpose(0, 1))
    sums = (key.sum(0), product, value.sum(0))
    if norm == "l2":
        return sums
    return (*sums, (key * key).sum(0) @ blocks, (query * query).sum(0) @ blocks)


@_in_own_precision
def apply_prototypes(
    query: Tensor,
    value: Tensor,
    sums: tuple[Tensor, ...],
    num_nodes: int,
    num_heads: int,
    norm: AttentionNorm,
) -> Tensor:
    """Attention output (Eq. 10) of rows [n, B, D] from `sum_prototypes` over all N entities, [n, B, D]."""
    key_sum, product, value_sum = sums[:3]
    dtype, query, value = value.dtype, wide(query), wide(value)
    blocks = _head_blocks(query.shape[-1], num_heads, query)
    product = product * (blocks @ blocks.t())
    if norm == "l2":
        query = _normalize(query, blocks)
    else:
        squares = sums[3].clamp_min(TINY) * sums[4].clamp_min(TINY)
        scale = torch.where((sums[3] > TINY) & (sums[4] > TINY), squares.rsqrt(), 0.0)
        query = query * (scale @ blocks.t())  # divided by |K| |Q|, [B, D]
    numerator = torch.bmm(query.transpose(0, 1), product).transpose(0, 1) + value_sum + num_nodes * value
    total = query * key_sum @ blocks + 2 * num_nodes
    return (numerator * (total.reciprocal() @ blocks.t())).to(dtype)


def prototype_attention(query: Tensor, key: Tensor, value: Tensor, *, norm: AttentionNorm = "l2") -> Tensor:
    r"""KnowFormer's kernel attention (Liu et al., 2024, Eq. 9 and 10) in O(N D^2) instead of O(N^2 D).

    .. math:: \kappa(q_u, k_w) = 1 + \langle \hat q_u, \hat k_w \rangle

    Args:
        query: [N, B, H, D].
        key: [N, B, H, D].
        value: [N, B, H, D].
        norm: How queries and keys are normalised. "l2" divides by the norm of each entity and head, as for
            the published results. "fro" divides by the norm over all entities and channels of a query and
            head, as Eq. 10 is printed.

    Returns:
        Output of the attention, [N, B, H, D].

    Raises:
        ValueError: for shapes that differ, or an unknown norm.
    """
    _check(query, key, value)
    check_choice("norm", norm, ("l2", "fro"))
    num_nodes, _, num_heads, _ = query.shape
    if not torch.compiler.is_compiling() and not num_nodes:
        return value.clone()

    def sums_of(rows: tuple[Tensor, ...], shared: tuple[Tensor, ...], start: int) -> tuple[Tensor, ...]:
        q, k, v = rows
        return sum_prototypes(q, k, v, num_heads, norm)

    def attend(rows: tuple[Tensor, ...], shared: tuple[Tensor, ...], start: int) -> tuple[Tensor, ...]:
        q, v = rows
        return (apply_prototypes(q, v, shared, num_nodes, num_heads, norm),)

    flat = query.flatten(2), key.flatten(2), value.flatten(2)
    sums = map_rows(sums_of, flat, num_sums=3 if norm == "l2" else 5)
    (out,) = map_rows(attend, (flat[0], flat[2]), sums)
    return out.view_as(query)


def prototype_attention_weights(
    query: Tensor, key: Tensor, node: Tensor, *, norm: AttentionNorm = "l2"
) -> Tensor:
    """Attention weights with which one node of each query attends to all nodes in `prototype_attention`.

    Args:
        query: [N, B, H, D].
        key: [N, B, H, D].
        node: Attending node of each query, [B], int64 or int32.
        norm: See `prototype_attention`.

    Returns:
        Weights of all N nodes, [N, B, H]; those of a query and head sum to 1. The kernel of a node with
        itself is increased by N, by the term N v_u of Eq. 10.

    Raises:
        ValueError: for shapes or dtypes that do not fit; on the CPU also for a node outside 0..N-1.
    """
    _check(query, key, key)
    if node.shape != query.shape[1:2] or node.dtype not in (torch.int64, torch.int32):
        raise ValueError(
            f"node must be integers [{query.shape[1]}], one for each query, got {node.dtype} "
            f"{list(node.shape)}"
        )
    node = node.long()
    if node.device.type == "cpu" and not is_traced(node):
        wrong = ((node < 0) | (node >= query.shape[0])).nonzero()
        if wrong.numel():
            place = int(wrong[0])
            raise ValueError(f"node[{place}] = {int(node[place])}: nodes are 0..{query.shape[0] - 1}")
    num_nodes = query.shape[0]
    dims = (3,) if norm == "l2" else (0, 3)
    q, k = (x * inverse_norm(x.square().sum(dims, keepdim=True)) for x in (wide(query), wide(key)))
    batch = torch.arange(node.numel(), device=node.device)
    weight = 1 + (q[node, batch] * k).sum(-1)  # [N, B, H]
    weight[node, batch] += num_nodes
    normalized: Tensor = weight / weight.sum(0)
    return normalized.to(query.dtype)


def exponential_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    r"""Attention with the exponential kernel :math:`\kappa = \exp(q \cdot k / \sqrt D)` (Eq. 7).

    Quadratic in the nodes: memory grows with N^2 B H.

    Args:
        query: [N, B, H, D].
        key: [N, B, H, D].
        value: [N, B, H, D].

    Returns:
        [N, B, H, D].

    Raises:
        ValueError: for shapes that differ.
    """
    _check(query, key, value)
    num_nodes = query.shape[0]
    q, k, v = (x.permute(1, 2, 0, 3) for x in (query, key, value))  # [B, H, N, D]
    logits = q @ k.transpose(-1, -2) / math.sqrt(query.shape[-1])
    # The term N v_u is one more candidate, with logit log N, so one softmax computes all weights without
    # overflow.
    own = _log(num_nodes, logits).expand(*logits.shape[:-1], 1)
    weights = torch.softmax(torch.cat([logits, own], dim=-1), dim=-1)
    return (weights[..., :-1] @ v + weights[..., -1:] * v).permute(2, 0, 1, 3)


@_in_own_precision
def random_feature_attention(query: Tensor, key: Tensor, value: Tensor, projection: Tensor) -> Tensor:
    """The exponential kernel, estimated by positive random features (Choromanski et al., 2021); linear in N.

    Args:
        query: [N, B, H, D].
        key: [N, B, H, D].
        value: [N, B, H, D].
        projection: Rows drawn from N(0, I), [M, D].

    Returns:
        [N, B, H, D]; it tends to `exponential_attention` as M grows.

    Raises:
        ValueError: if query, key and value differ in shape.
    """
    _check(query, key, value)
    if not torch.compiler.is_compiling() and not query.shape[0]:
        return value.clone()
    dtype, query, key, value = value.dtype, wide(query), wide(key), wide(value)
    projection = projection.to(query.dtype)
    scale = query.shape[-1] ** -0.25
    scaled = query * scale, key * scale
    q, k = (
        x @ projection.t() - x.square().sum(-1, keepdim=True) / 2 for x in scaled
    )  # log phi, [N, B, H, M]
    # Exponents are relative to their largest: that of each node's query features, and that of all keys of a
    # query and head. The factor is put back at the end, relative to the N v_u term, so nothing overflows.
    q_max = q.detach().amax(-1, keepdim=True)
    k_max = k.detach().amax((0, 3), keepdim=True)
    q, k = torch.exp(q - q_max), torch.exp(k - k_max)
    log_own = _log(query.shape[0] * projection.shape[0], query)
    largest = (q_max + k_max).clamp(min=log_own)
    scale, own = torch.exp(q_max + k_max - largest), torch.exp(log_own - largest)
    mixed = torch.einsum("nbhm,bhmd->nbhd", q, torch.einsum("nbhm,nbhd->bhmd", k, value))
    total = torch.einsum("nbhm,bhm->nbh", q, k.sum(0))[..., None]
    return ((scale * mixed + own * value) / (scale * total + own)).to(dtype)


def _log(number: int, like: Tensor) -> Tensor:
    """Logarithm of a number, as a tensor, since the number is symbolic in a traced program."""
    dtype = torch.promote_types(like.dtype, torch.float32)  # float16 ends at 65,504
    return torch.full((), number, dtype=dtype, device=like.device).log().to(like.dtype)


def _check(query: Tensor, key: Tensor, value: Tensor) -> None:
    check_tensors(query=query, key=key, value=value)
    if query.dim() != 4 or query.shape != key.shape or query.shape != value.shape:
        raise ValueError(
            "query, key and value must be [N, B, H, D] of one shape, got "
            f"{list(query.shape)}, {list(key.shape)}, {list(value.shape)}"
        )
