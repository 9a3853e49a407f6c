"""The fast backends as one operator of tensors, for `torch.compile`, `torch.export` and fake tensors.

It is a `custom_op`, not a `triton_op`. The compiler would trace the inside of a `triton_op`, which here sorts
edges on the host, keeps them for later calls, and runs numba on a CPU. It could not fuse any of that.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, cast

import torch
from torch import Tensor

from graphzoo.ops.relational_spmm.graph import RelationalGraph, Segment, graph_of


def relational_spmm(
    x: Tensor, relation: Tensor, graph: RelationalGraph, edge_mask: Tensor | None, backend: str
) -> Tensor:
    """`RelationalSpMM.apply` as an operator: x [N, F], relation [R, F] -> [N, F]."""
    edges = graph.edge_index, graph.edge_type, edge_mask, graph.num_nodes, graph.num_relations
    out: Tensor = torch.ops.graphzoo.segment_products(x, relation, *edges, "target", backend)
    return out


@torch.library.custom_op(
    "graphzoo::segment_products",
    mutates_args=(),
    schema="(Tensor a, Tensor b, Tensor edge_index, Tensor edge_type, Tensor? edge_mask, SymInt num_nodes, "
    "SymInt num_relations, str segment, str backend) -> Tensor",
)
def _segment_products(
    a: Tensor,
    b: Tensor,
    edge_index: Tensor,
    edge_type: Tensor,
    edge_mask: Tensor | None,
    num_nodes: int,
    num_relations: int,
    segment: str,
    backend: str,
) -> Tensor:
    kernel = import_module(f"graphzoo.ops.relational_spmm.{backend}").segment_products
    graph = graph_of(edge_index, edge_type, num_nodes, num_relations)
    out: Tensor = kernel(graph, cast(Segment, segment), a.contiguous(), b.contiguous(), edge_mask)
    return out


@_segment_products.register_fake
def _(
    a: Tensor, b: Tensor, edge_index: Tensor, edge_type: Tensor, edge_mask: Tensor | None, *settings: Any
) -> Tensor:
    num_nodes, num_relations, segment, _ = settings
    return a.new_empty(num_relations if segment == "relation" else num_nodes, a.shape[1])


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:5])
    ctx.settings = inputs[5:]


def _gradient(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    """Gradients of a sum over one column of the edges: they are sums over the two other columns."""
    a, b, *edges = ctx.saved_tensors
    *sizes, segment, backend = ctx.settings

    def products(first: Tensor, second: Tensor, by: Segment) -> Tensor:
        out: Tensor = torch.ops.graphzoo.segment_products(first, second, *edges, *sizes, by, backend)
        return out

    # Columns of the operands: source and relation for sums by target; target and relation for sums by source;
    # source and target for sums by relation.
    ways: dict[str, Any] = {
        "target": (lambda: products(grad, b, "source"), lambda: products(a, grad, "relation")),
        "source": (lambda: products(grad, b, "target"), lambda: products(grad, a, "relation")),
        "relation": (lambda: products(b, grad, "source"), lambda: products(a, grad, "target")),
    }
    first, second = (
        way() if wanted else None for way, wanted in zip(ways[segment], ctx.needs_input_grad, strict=False)
    )
    return first, second, *(None,) * 7


_segment_products.register_autograd(_gradient, setup_context=_keep)
