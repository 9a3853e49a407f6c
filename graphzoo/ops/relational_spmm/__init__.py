"""Relational SpMM: messages along typed edges, which are computed and summed without being stored.

Backends: `numba` (the CPU default), `triton` (the CUDA default), `naive` (the equation, any device) and
`scatter` (torch-scatter). All compute the same output and gradients, up to rounding.
"""

from __future__ import annotations

import math
from importlib import import_module
from typing import Literal

import torch
from torch import Tensor

from graphzoo.errors import check_choice
from graphzoo.ops.eager import is_traced, needs_plain_operators
from graphzoo.ops.relational_spmm import naive, operator
from graphzoo.ops.relational_spmm.function import RelationalSpMM
from graphzoo.ops.relational_spmm.graph import RelationalGraph
from graphzoo.ops.relational_spmm.query_graph import QueryGraph
from graphzoo.system.tensors import check_tensors

__all__ = ["Backend", "QueryGraph", "RelationalGraph", "relational_spmm"]

Backend = Literal["naive", "numba", "triton", "scatter"]
_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def relational_spmm(
    x: Tensor,
    relation: Tensor,
    graph: RelationalGraph | QueryGraph,
    *,
    edge_mask: Tensor | None = None,
    backend: Backend | None = None,
) -> Tensor:
    r"""Sum, at every node, the states of its in-neighbours times the vectors of the edges' relations.

    .. math:: \mathrm{out}_v = \sum_{(u, r, v) \in E,\ \mathrm{edge\_mask}} x_u \circ \mathrm{relation}_r

    Differentiable once in `x` and `relation`. Only `naive` stores the messages [E, \*F]. The first call of
    `numba` or `triton` on a machine compiles the kernel, which takes seconds; later ones load it from disk.

    Args:
        x: Node states, [N, \*F], float32, float64, bfloat16 or float16; half precision is summed in float32.
        relation: Relation vectors, [R, \*F], in the dtype and on the device of `x`.
        graph: Edges, on the device of `x`. For a `QueryGraph`, `x` is [K, B, \*F], `relation` [R, B, \*F]
            and `edge_mask` must be None.
        edge_mask: True for edges that are used, [E], bool, in the order of `graph.edge_index`; None for all.
        backend: "naive", "numba", "triton" or "scatter"; None chooses by device.

    Returns:
        [N, \*F], or [K, B, \*F] for a `QueryGraph`, in the dtype of `x`.

    Raises:
        ValueError: for shapes, dtypes or devices that do not fit, or an unknown backend.
        ImportError: if the given backend is not installed.

    >>> edge_index, edge_type = torch.tensor([[0, 1], [2, 2]]), torch.tensor([0, 1])
    >>> graph = RelationalGraph(edge_index, edge_type, num_nodes=3, num_relations=2)
    >>> relational_spmm(torch.ones(3, 1), torch.tensor([[1.0], [10.0]]), graph, backend="naive").flatten()
    tensor([ 0.,  0., 11.])
    """
    if isinstance(graph, QueryGraph):
        return _by_query(x, relation, graph, edge_mask, backend)
    _check_arguments(x, relation, graph, edge_mask)
    backend = _choose(backend, x.device)
    if backend == "naive":
        return naive.relational_spmm(x, relation, graph, edge_mask)
    shape, dtype = x.shape, x.dtype
    if backend != "triton" and dtype in (torch.bfloat16, torch.float16):
        x, relation = x.float(), relation.float()
    size = math.prod(shape[1:])
    x, relation = (part.reshape(part.shape[0], size).contiguous() for part in (x, relation))
    edge_mask = None if edge_mask is None else edge_mask.contiguous()
    if is_traced(x):
        flat = operator.relational_spmm(x, relation, graph, edge_mask, backend)
    else:
        segment_products = import_module(f"graphzoo.ops.relational_spmm.{backend}").segment_products
        flat = RelationalSpMM.apply(x, relation, graph, edge_mask, segment_products)  # type: ignore[no-untyped-call]
    return flat.reshape(shape).to(dtype)


def _choose(backend: Backend | None, device: torch.device) -> Backend:
    if needs_plain_operators():
        return "naive"
    if backend is None:
        usual: dict[str, Backend] = {"cpu": "numba", "cuda": "triton"}
        return usual.get(device.type, "naive")
    check_choice("backend", backend, Backend)
    if backend == "numba" and device.type != "cpu":
        raise ValueError(
            f"backend 'numba' runs on the CPU, but x is on {device}; use 'triton', or give no backend"
        )
    return backend


def _by_query(
    x: Tensor, relation: Tensor, graph: QueryGraph, edge_mask: Tensor | None, backend: Backend | None
) -> Tensor:
    """Apply the operator to the disjoint graph of all queries.

    The result is query-major in memory. If `x` is not, it is copied.
    """
    if edge_mask is not None:
        raise ValueError(
            "a QueryGraph takes no edge_mask: leave out edges when it is sampled (`hides` of a "
            "NeighbourhoodSampler)"
        )
    if x.shape[:2] != (graph.num_nodes, graph.num_queries):
        raise ValueError(
            f"x must have shape [K={graph.num_nodes}, B={graph.num_queries}, *F], got {list(x.shape)}"
        )
    if relation.shape[:2] != (graph.num_relations, graph.num_queries):
        raise ValueError(
            f"relation must have shape [R={graph.num_relations}, B={graph.num_queries}, *F], "
            f"got {list(relation.shape)}"
        )
    flat = relational_spmm(
        x.transpose(0, 1).flatten(0, 1), relation.transpose(0, 1).flatten(0, 1), graph.flat, backend=backend
    )
    return flat.view(graph.num_queries, graph.num_nodes, *x.shape[2:]).transpose(0, 1)


def _check_arguments(x: Tensor, relation: Tensor, graph: RelationalGraph, edge_mask: Tensor | None) -> None:
    if not isinstance(graph, RelationalGraph):
        raise ValueError(f"graph must be a RelationalGraph, got {type(graph).__name__}")
    check_tensors(x=x, relation=relation, **({} if edge_mask is None else {"edge_mask": edge_mask}))
    if x.dtype not in _DTYPES or x.dtype != relation.dtype:
        raise ValueError(
            f"x and relation must share one dtype of {', '.join(map(str, _DTYPES))}, "
            f"got {x.dtype} and {relation.dtype}"
        )
    for name, tensor, letter, rows in (
        ("x", x, "N", graph.num_nodes),
        ("relation", relation, "R", graph.num_relations),
    ):
        if not tensor.dim() or tensor.shape[0] != rows or tensor.shape[1:] != x.shape[1:]:
            features = map(str, x.shape[1:]) if name == "relation" else ["*F"]
            raise ValueError(
                f"{name} must have shape [{', '.join([f'{letter}={rows}', *features])}], "
                f"got {list(tensor.shape)}: "
                f"one row per {'node' if letter == 'N' else 'relation (inverses included)'} of {graph!r}"
            )
    tensors = {"relation": relation.device, "graph": graph.device}
    if edge_mask is not None:
        if edge_mask.dtype != torch.bool or edge_mask.shape != (graph.num_edges,):
            raise ValueError(
                f"edge_mask must be bool of shape [{graph.num_edges}], True for edges that are used, "
                f"got {edge_mask.dtype} of shape {list(edge_mask.shape)}"
            )
        tensors["edge_mask"] = edge_mask.device
    for name, device in tensors.items():
        if device != x.device:
            raise ValueError(
                f"x is on {x.device}, but {name} on {device}; move it with {name}.to({str(x.device)!r})"
            )
