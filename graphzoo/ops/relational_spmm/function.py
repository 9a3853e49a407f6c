"""The autograd function of the fast backends: one sum of products forwards, and one for each gradient."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor
from torch.autograd.function import Function, once_differentiable

from graphzoo.ops.relational_spmm.graph import RelationalGraph, Segment


class SegmentProducts(Protocol):
    """The function of a backend: `out[s] = sum of a[first[e]] * b[second[e]]` over the edges e of segment s.

    Segments are those of `graph.ordering(segment)`; edges whose mask is False are left out. The operands `a`
    and `b` have F features and are contiguous.
    """

    def __call__(
        self, graph: RelationalGraph, segment: Segment, a: Tensor, b: Tensor, edge_mask: Tensor | None
    ) -> Tensor:
        """Return the sums [S, F]."""


class RelationalSpMM(Function):
    """`apply(x [N, F], relation [R, F], graph, edge_mask, segment_products) -> [N, F]`, with gradients."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        relation: Tensor,
        graph: RelationalGraph,
        edge_mask: Tensor | None,
        segment_products: SegmentProducts,
    ) -> Tensor:
        """Sum the source's state times the relation's vector by target."""
        x_needs_grad, relation_needs_grad = ctx.needs_input_grad[:2]
        ctx.save_for_backward(
            x if relation_needs_grad else None, relation if x_needs_grad else None, edge_mask
        )
        ctx.graph, ctx.segment_products = graph, segment_products
        return segment_products(graph, "target", x, relation, edge_mask)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None, None, None]:
        """Compute both gradients.

        That of `x` sums the target's gradient times the relation's vector by source. That of `relation` sums
        the source's state times the target's gradient by relation.
        """
        x, relation, edge_mask = ctx.saved_tensors
        grad = grad.contiguous()
        grad_x = grad_relation = None
        if relation is not None:
            grad_x = ctx.segment_products(ctx.graph, "source", grad, relation, edge_mask)
        if x is not None:
            grad_relation = ctx.segment_products(ctx.graph, "relation", x, grad, edge_mask)
        return grad_x, grad_relation, None, None, None
