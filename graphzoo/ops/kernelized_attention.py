"""All-pair attention of NodeFormer by positive random features, with time and memory linear in the nodes.

Wu, Zhao, Li, Wipf and Yan, "NodeFormer: A Scalable Graph Structure Learning Transformer for Node
Classification", NeurIPS 2022. Letters: N nodes, H heads, D channels of a head, M random features, K samples.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import Function, once_differentiable

from graphzoo.errors import check_range
from graphzoo.ops.eager import run_eagerly
from graphzoo.ops.random_features import random_features_at
from graphzoo.ops.sparse import SparseMatrix
from graphzoo.system.tensors import check_tensors

# Elements of the block of perturbed features that is computed at once. On the CPU a block fits into the
# second-level cache (2 MiB). On a GPU a few large products are faster than many small ones.
_CPU_BLOCK = 1 << 18
_GPU_BLOCK = 1 << 26


def kernelized_softmax(
    query: Tensor, key: Tensor, value: Tensor, projection: Tensor, *, tau: float, gumbel: Tensor | None = None
) -> Tensor:
    r"""Kernelized Gumbel-softmax: the message that each node receives from all nodes, in O(N) (Eq. 17).

    .. math:: z_u = \frac 1K \sum_k \frac{\phi(q_u)^\top \sum_v e^{g_{kv} / \tau} \phi(k_v) v_v^\top}
        {\phi(q_u)^\top \sum_v e^{g_{kv} / \tau} \phi(k_v)}

    Without noise, K = 1 and g = 0. A sample chooses node v with probability proportional to
    (phi(q) phi(k_v))^tau. As tau tends to 0 at fixed M, the choice becomes independent of the query, so
    Theorem 2 holds only if M grows first.

    Args:
        query: [N, H, D]; it is divided by sqrt(tau) D^(1/4) here.
        key: [N, H, D]; it is divided likewise.
        value: [N, H, C].
        projection: Random directions, [M, D].
        tau: Temperature, above 0.
        gumbel: Draws from Gumbel(0, 1) for each key, head and sample, [N, H, K]; None for no noise.

    Returns:
        [N, H, C], in the dtype of `value`; computed in float32 or wider. Perturbed features are computed in
        blocks of a fixed size, to bound the memory.

    Raises:
        ValueError: for shapes that do not fit, or a temperature that is not above 0.
    """
    check_tensors(query=query, key=key, value=value, projection=projection)
    if query.dim() != 3 or query.shape != key.shape or value.dim() != 3 or query.shape[:2] != value.shape[:2]:
        raise ValueError(
            "query and key must be [N, H, D] of one shape and value [N, H, C], got "
            f"{list(query.shape)}, {list(key.shape)}, {list(value.shape)}"
        )
    check_range(above=0, tau=tau)
    query_features = random_features_at(query, projection, tau=tau, is_query=True)
    key_features = random_features_at(key, projection, tau=tau, is_query=False)
    return attend_features(query_features, key_features, value, tau=tau, gumbel=gumbel)


def attend_features(
    query_features: Tensor,
    key_features: Tensor,
    value: Tensor,
    *,
    tau: float = 1.0,
    gumbel: Tensor | None = None,
) -> Tensor:
    """`kernelized_softmax` from the features of queries and keys, [N, H, M], and values [N, H, C].

    Returns:
        [N, H, C], in the dtype of `value`.

    Raises:
        ValueError: if `gumbel` is not [N, H, K] with K of at least 1.
    """
    weight = None
    if gumbel is not None:
        if gumbel.dim() != 3 or gumbel.shape[:2] != value.shape[:2] or gumbel.shape[2] < 1:
            raise ValueError(
                f"gumbel must be [{value.shape[0]}, {value.shape[1]}, K] with K at least 1, "
                f"got {list(gumbel.shape)}"
            )
        if gumbel.numel():
            gumbel = gumbel.to(query_features.dtype)
            # Relative to the largest draw of each sample, so that nothing overflows; the factor cancels.
            weight = torch.exp((gumbel - gumbel.detach().amax(0)) / tau)
    return _attend(query_features, key_features, value.to(query_features.dtype), weight).to(value.dtype)


@run_eagerly
def _attend(query: Tensor, key: Tensor, value: Tensor, weight: Tensor | None) -> Tensor:
    if torch.compiler.is_exporting() and weight is None:
        sums = torch.einsum("nhm,nhd->hmd", key, value)
        mixed = torch.einsum("nhm,hmd->nhd", query, sums)
        shared: Tensor = mixed / torch.einsum("nhm,hm->nh", query, key.sum(0))[..., None]
        return shared
    out: Tensor = _Attend.apply(query, key, value, weight)  # type: ignore[no-untyped-call]
    return out


class _Attend(Function):
    """`apply(phi_q [N, H, M], phi_k [N, H, M], value [N, H, D], weight [N, H, K] or None) -> [N, H, D]`.

    The product of features and weights, [N, H, K, M], would be by far the largest tensor. It is computed
    block by block, again for each use, and multiplied at once: one product for the K matrices [M, D] of a
    head.
    """

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, weight: Tensor | None) -> Tensor:
        with torch.autocast(value.device.type, enabled=False):
            block = _Block(query, weight)
            sums = value.new_zeros(block.heads, block.samples * block.features, value.shape[2])
            for rows in block.chunks():
                sums.baddbmm_(block.spread(rows, key, weight).mT, _by_head(value, rows))
            totals = _total(key, weight)  # [H, M, K]
            shares = _shares(query, totals)
            out = torch.empty_like(value, memory_format=torch.contiguous_format)
            for rows in block.chunks():
                _by_head(out, rows).copy_(block.spread(rows, query, shares) @ sums)
        ctx.save_for_backward(query, key, value, weight, sums, totals)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, weight, sums, totals = ctx.saved_tensors
        with torch.autocast(value.device.type, enabled=False):
            block = _Block(query, weight)
            shares = _shares(query, totals)
            grad_query, grad_sums = torch.empty_like(query), torch.zeros_like(sums)
            grad_totals, spread_t = torch.zeros_like(totals), sums.mT
            for rows in block.chunks():
                g = _by_head(grad, rows)
                grad_sums.baddbmm_(block.spread(rows, query, shares).mT, g)
                by_sample = block.product(g, spread_t)  # [H, n, K, M]
                share, features = _by_head(shares, rows), _by_head(query, rows)
                # shares = 1 / (K phi_q totals)
                grad_share = block.times(by_sample, features[:, :, None, :]).sum(-1)
                grad_denominator = grad_share * share.square() * -block.samples
                grad_totals.baddbmm_(features.mT, grad_denominator)
                direct = block.times(by_sample, share[..., None]).sum(2)
                _by_head(grad_query, rows).copy_(direct.baddbmm_(grad_denominator, totals.mT))
            grad_key, grad_value = torch.empty_like(key), torch.empty_like(value)
            wants_weight = weight is not None and ctx.needs_input_grad[3]
            grad_weight = torch.empty_like(weight) if wants_weight else None
            mixed = grad_sums.view(block.heads, block.samples, block.features, -1)
            mixed = mixed.transpose(2, 3).flatten(1, 2)  # [H, K D, M]
            for rows in block.chunks():
                _by_head(grad_value, rows).copy_(block.spread(rows, key, weight) @ grad_sums)
                direct = block.spread(rows, value, weight) @ mixed
                if weight is None:
                    direct += grad_totals.mT
                else:
                    direct.baddbmm_(_by_head(weight, rows), grad_totals.mT)
                _by_head(grad_key, rows).copy_(direct)
                if grad_weight is not None:
                    by_sample = block.product(_by_head(value, rows), grad_sums.mT)
                    by_sample += grad_totals.mT[:, None]
                    features = _by_head(key, rows)[:, :, None, :]
                    _by_head(grad_weight, rows).copy_(block.times(by_sample, features).sum(-1))
        return grad_query, grad_key, grad_value, grad_weight


class _Block:
    """Memory for blocks [H, n, K, M] of n nodes, where n is chosen so that a block has the wanted size."""

    def __init__(self, features: Tensor, weight: Tensor | None) -> None:
        self.rows, self.heads, self.features = features.shape
        self.samples = 1 if weight is None else weight.shape[2]
        per_row = max(1, self.heads * self.samples * self.features)
        limit = _CPU_BLOCK if features.device.type == "cpu" else _GPU_BLOCK
        self.height = max(1, min(self.rows, limit // per_row))
        self._like = features
        self._rooms: dict[tuple[str, int], Tensor] = {}

    def chunks(self) -> list[slice]:
        """Slices of the nodes, one for each block."""
        starts = range(0, self.rows, self.height)
        return [slice(start, min(start + self.height, self.rows)) for start in starts]

    def spread(self, rows: slice, x: Tensor, weight: Tensor | None) -> Tensor:
        """Rows of x [N, H, F] times every sample's weight, [H, n, K F]."""
        by_head = _by_head(x, rows)
        if weight is None:
            return by_head
        out = self._room("spread", *by_head.shape[1:])
        torch.mul(_by_head(weight, rows)[..., None], by_head[:, :, None, :], out=out)
        return out.flatten(2)

    def product(self, x: Tensor, matrix: Tensor) -> Tensor:
        """`x [H, n, D] @ matrix [H, D, K M]` as [H, n, K, M]."""
        out = self._room("product", x.shape[1], self.features)
        torch.bmm(x, matrix, out=out.flatten(2))
        return out

    def times(self, block: Tensor, factor: Tensor) -> Tensor:
        """The elementwise product of `block` [H, n, K, M] with a factor that is broadcast."""
        return torch.mul(block, factor, out=self._room("times", block.shape[1], self.features))

    def _room(self, purpose: str, num_rows: int, width: int) -> Tensor:
        name = (purpose, width)
        if name not in self._rooms:
            self._rooms[name] = self._like.new_empty(self.heads, self.height, self.samples, width)
        return self._rooms[name][:, :num_rows]


def _by_head(x: Tensor, rows: slice) -> Tensor:
    """The slice `rows` of [N, H, F], as [H, n, F]."""
    return x[rows].transpose(0, 1)


def _total(key: Tensor, weight: Tensor | None) -> Tensor:
    """Sum of weight times features over the nodes, [H, M, K]."""
    if weight is None:
        return key.sum(0)[..., None]
    return torch.bmm(key.permute(1, 2, 0), weight.transpose(0, 1))


def _shares(query: Tensor, totals: Tensor) -> Tensor:
    """The factors 1 / (K phi_q totals), [N, H, K], with which the sums of samples enter a node's result."""
    denominator = torch.bmm(query.transpose(0, 1), totals)
    return (denominator * totals.shape[2]).reciprocal_().transpose(0, 1)


def edge_log_weights(query_features: Tensor, key_features: Tensor, pattern: SparseMatrix) -> Tensor:
    """Logarithms of the noise-free attention weights at the entries of a sparse pattern, [nnz, H].

    For every entry (v, u) of the pattern this is log(phi(q_v) phi(k_u) / sum_w phi(q_v) phi(k_w)), from
    features [N, H, M]. The values of the pattern are ignored. Weights of other pairs are not computed: each
    head takes O(nnz M + N M) time and O(nnz + N M) memory.
    """
    with torch.autocast(query_features.device.type, enabled=False):
        products = pattern.sampled_product(query_features, key_features)
        denominator = (query_features * key_features.sum(0)).sum(-1)
        logarithm: Tensor = products.log() - denominator.log()[pattern.row_of_entry()]
    return logarithm


def kernelized_edge_weights(
    query: Tensor, key: Tensor, projection: Tensor, edge_index: Tensor, *, tau: float
) -> Tensor:
    """Noise-free attention weights of `kernelized_softmax` for given pairs of nodes.

    Args:
        query: [N, H, D].
        key: [N, H, D].
        projection: Random directions, [M, D].
        edge_index: Pairs (u, v) of a key u and a query v, [2, E], int64; pairs may be repeated.
        tau: Temperature, above 0.

    Returns:
        Weights [E, H]; those of one v sum to 1 over all u.

    Raises:
        ValueError: for shapes that do not fit, nodes outside 0..N-1, or a temperature that is not above 0.
    """
    check_tensors(query=query, key=key, projection=projection)
    if query.dim() != 3 or query.shape != key.shape:
        raise ValueError(
            f"query and key must be [N, H, D] of one shape, got {list(query.shape)}, {list(key.shape)}"
        )
    check_range(above=0, tau=tau)
    query_features = random_features_at(query, projection, tau=tau, is_query=True)
    key_features = random_features_at(key, projection, tau=tau, is_query=False)
    pattern, position = SparseMatrix.from_pairs(edge_index, query.shape[0])
    return edge_log_weights(query_features, key_features, pattern).exp()[position]
