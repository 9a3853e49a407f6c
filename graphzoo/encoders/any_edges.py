"""Lets node encoders be called like models of PyG: with a `Data`, and with edges in any form."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor

from graphzoo.errors import UsageError
from graphzoo.ops.eager import run_eagerly, with_own_code
from graphzoo.ops.last_result import LastResult
from graphzoo.types import refuse_kinds

_calls = threading.local()  # `encoder`: the encoder that this thread is calling


def with_any_edges(
    method: Callable[..., Any], finish: Callable[[Any, Any], Any] | None
) -> Callable[..., Any]:
    """Wrap a method `x, edge_index, ...` of an encoder, so that it takes edges in every form of PyG.

    Args:
        method: The method; it receives a plain edge_index [2, E].
        finish: Applies the output layer: a function of the encoder and the method's result. If methods of one
            encoder call each other, only the outermost call is finished. None if no output layer applies.
    """
    parameters = inspect.signature(method).parameters
    edges = parameters.get("edge_index")
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    unused = set() if takes_any else {"edge_weight", "edge_attr"} - parameters.keys()
    wants_edges = edges is not None and edges.annotation in (Tensor, "Tensor")

    @wraps(method)
    def called(self: Any, x: Any, edge_index: Any = None, *more: Any, **settings: Any) -> Any:
        if not isinstance(x, Tensor) and edge_index is None and hasattr(x, "to_dict"):
            if self.attends_to_all and getattr(x, "num_graphs", 1) > 1:
                raise UsageError(
                    f"{type(self).__name__} attends to all nodes, also to those of other graphs\n"
                    "Give one graph at a time: [encoder(graph) for graph in batch.to_data_list()]"
                )
            x, edge_index = _of_data(x)
        if edge_index is not None:
            edge_index = as_edge_index(edge_index, self._edges)
        elif wants_edges and self.needs_edges:
            raise UsageError(f"{type(self).__name__} needs edges\nGive an edge_index [2, E]; E may be 0")
        if (more or unused & settings.keys()) and method.__name__ == "forward":
            raise UsageError(
                f"{type(self).__name__} takes x and edge_index; weights and attributes of edges are not used"
            )
        outer = getattr(_calls, "encoder", None)
        if finish is None or not self._has_output or outer is self:
            return method(self, x, edge_index, *more, **settings)
        _calls.encoder = self
        try:
            result = method(self, x, edge_index, *more, **settings)
        finally:
            _calls.encoder = outer
        return finish(self, result)

    return with_own_code(called)


def as_edge_index(edges: Any, kept: LastResult[Tensor] | None = None) -> Tensor:
    """Edges in any form of PyG as edge_index [2, E], int64.

    Args:
        edges: An edge_index, also PyG's `EdgeIndex`; or the transposed adjacency [N, N] (PyG's `adj_t`: row =
            target), a `SparseTensor` of torch_sparse or a sparse tensor of torch, all of whose values are 1.
        kept: Remembers the result for later calls with the same tensors.

    Raises:
        UsageError: for a dense adjacency, a transposed edge_index, another dtype than int64, and weights.
    """
    if not isinstance(edges, Tensor):
        target, source, values = _parts_of_sparse_tensor(edges)
        parts = (target, source) if values is None else (target, source, values)
        return _once(kept, parts, lambda: _of_parts(*parts))
    given: Tensor = edges
    if type(edges).__name__ == "EdgeIndex":
        given = _once(kept, (edges,), lambda: edges.as_subclass(Tensor))
    if given.layout is not torch.strided:
        return _once(kept, (given,), lambda: _of_sparse(given))
    if given.dim() != 2 or given.shape[0] != 2:
        shape = list(given.shape)
        if given.dim() == 2 and given.shape[1] == 2:
            raise UsageError(f"edge_index must be [2, E], got {shape}: transpose it, edge_index.t()")
        if given.dim() == 2 and given.shape[0] == given.shape[1]:
            raise UsageError(
                f"edge_index must be [2, E], got {shape}, a dense adjacency: give adjacency.nonzero().t()"
            )
        raise UsageError(f"edge_index must be [2, E], got {shape}")
    if given.dtype is not torch.int64:
        kind = str(given.dtype).removeprefix("torch.")
        raise UsageError(f"edge_index must be int64, got {kind}: give edge_index.long()")
    return given


@run_eagerly
def _once(kept: LastResult[Tensor] | None, tensors: tuple[Tensor, ...], make: Callable[[], Tensor]) -> Tensor:
    """The result of `make`; the same object for the same tensors, so that caches recognise it."""
    if kept is None:
        return make()
    with torch.inference_mode(False), torch.no_grad():
        return kept.get(tensors, make)


def _of_data(data: Any) -> tuple[Any, Any]:
    """Features and edges of a PyG `Data`."""
    refuse_kinds(data)
    edges = data.get("edge_index")
    if edges is None:
        edges = data.get("adj_t")
    if data.get("x") is None or edges is None:
        raise UsageError(f"data needs x and edge_index; it holds {', '.join(sorted(data.keys()))}")
    if data.get("edge_weight") is not None:  # even if all are 1: to read them would slow down every call
        raise UsageError("data has edge_weight, which encoders do not use; give data.x and data.edge_index")
    return data.x, edges


def _of_sparse(adjacency: Tensor) -> Tensor:
    """edge_index of a sparse tensor of torch [N, N] whose rows are targets."""
    if adjacency.dim() != 2 or adjacency.shape[0] != adjacency.shape[1]:
        raise UsageError(f"a sparse adjacency must be [N, N], got {list(adjacency.shape)}")
    coo: Tensor = adjacency if adjacency.layout is torch.sparse_coo else adjacency.to_sparse()
    coo = coo.coalesce()
    _refuse_weights(coo.values())
    return coo.indices().flip(0).contiguous()


def _parts_of_sparse_tensor(adjacency: Any) -> tuple[Tensor, Tensor, Tensor | None]:
    """Target, source and values of a torch_sparse `SparseTensor`, without importing torch_sparse."""
    if type(adjacency).__name__ != "SparseTensor" or not hasattr(adjacency, "coo"):
        raise UsageError(
            f"edges are a {type(adjacency).__name__}; give edge_index [2, E] of int64, an EdgeIndex, a "
            "SparseTensor or a sparse tensor of torch"
        )
    target, source, values = adjacency.coo()
    return target, source, values


def _of_parts(target: Tensor, source: Tensor, values: Tensor | None = None) -> Tensor:
    if values is not None:
        _refuse_weights(values)
    return torch.stack([source, target])


def _refuse_weights(values: Tensor) -> None:
    if bool((values != 1).any()):
        raise UsageError(
            "the sparse adjacency has weights, which encoders do not use; give it with ones, or edge_index"
        )
