"""Lets node encoders be built and called like models of PyG: `GALiT(16, 64, 7)`, with edges in any form."""

from __future__ import annotations

import inspect
import threading
from abc import ABCMeta
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, overload

import torch
from torch import Tensor, nn

from graphzoo.errors import UsageError, check_whole
from graphzoo.ops.eager import run_eagerly, with_own_code
from graphzoo.ops.last_result import LastResult
from graphzoo.types import GraphSpec, plain_whole, refuse_kinds

T = TypeVar("T")
_POSITIONS = ("in_channels", "hidden_channels", "out_channels")
_calls = threading.local()  # `encoder`: the encoder that this thread is calling


def has_other_forms(init: Callable[..., None]) -> Callable[..., None]:
    """Mark an `__init__` whose class also takes channels: type checkers then accept any arguments."""
    return init


class PyGForm(ABCMeta):
    """The metaclass of node encoders: it builds them from a `GraphSpec`, or from numbers of channels.

    `Encoder(in_channels, hidden_channels, out_channels, **settings)` is `Encoder(GraphSpec(0,
    in_channels=in_channels), hidden_channels=hidden_channels, **settings)`. Unless `out_channels` is None, a
    linear layer follows that maps the states to this width.
    """

    @property
    def __signature__(cls) -> Any:
        # what `__init__` takes, not what the method below does
        signature = inspect.signature(cls.__init__)  # type: ignore[misc]
        return signature.replace(parameters=list(signature.parameters.values())[1:])

    @overload
    def __call__(cls: type[T], spec: GraphSpec, **settings: Any) -> T: ...

    @overload
    def __call__(
        cls: type[T],
        in_channels: int,
        hidden_channels: int | None = None,
        out_channels: int | None = None,
        **settings: Any,
    ) -> T: ...

    def __call__(cls: Any, *args: Any, **settings: Any) -> Any:
        """Build an encoder from either form of arguments."""
        out_channels = None
        spec = cls.__signature__.parameters.get("spec")
        is_needed = spec is not None and spec.default is inspect.Parameter.empty
        if not args and is_needed and not {"spec", "in_channels"} & {*settings}:
            raise UsageError(
                f"{cls.__name__} needs the width of features\nGive in_channels=x.shape[1], or a GraphSpec"
            )
        if ((args and not isinstance(args[0], GraphSpec)) or "in_channels" in settings) and not _has_own_form(
            cls.__signature__
        ):
            args, settings, out_channels = _from_channels(cls.__name__, args, settings)
        elif "out_channels" in settings and "out_channels" not in cls.__signature__.parameters:
            out_channels = _count(settings.pop("out_channels"))
        encoder = super().__call__(*args, **settings)
        encoder._edges = LastResult()
        if out_channels is not None:
            encoder.output = nn.Linear(encoder.out_channels, out_channels)
            encoder.out_channels = out_channels
            encoder.init_args["out_channels"] = out_channels
            encoder._has_output = True
        return encoder


def _has_own_form(signature: inspect.Signature) -> bool:
    """Whether `__init__` itself takes channels, or does not begin with a spec, as a user's encoder may."""
    if "in_channels" in signature.parameters:
        return True
    first = next(iter(signature.parameters.values()), None)
    gathers = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    if first is None or first.kind in gathers or first.annotation is inspect.Parameter.empty:
        return False
    return "GraphSpec" not in str(first.annotation)


def _from_channels(
    name: str, args: tuple[Any, ...], settings: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any], int | None]:
    """Turn numbers of channels into a spec, further settings, and the width of the output layer."""
    if len(args) > len(_POSITIONS):
        raise UsageError(f"{name} takes {', '.join(_POSITIONS)} by position; give other settings by name")
    given = dict(zip(_POSITIONS, args, strict=False))
    if twice := given.keys() & settings.keys():
        raise UsageError(f"{name}: {sorted(twice)[0]} is given twice, by position and by name")
    given |= {key: settings[key] for key in _POSITIONS if key in settings}
    settings = {key: value for key, value in settings.items() if key not in _POSITIONS}
    if "spec" in settings:
        raise UsageError(f"{name} takes a spec, or in_channels: give one of the two")
    channels = plain_whole(given.get("in_channels"))
    if isinstance(channels, bool) or not isinstance(channels, int):
        raise UsageError(
            f"{name} takes a GraphSpec, or {', '.join(_POSITIONS)}; got a {type(channels).__name__} first"
        )
    if channels < 1:
        raise UsageError(
            f"in_channels must be the width of the features, x.shape[1], got {channels}: it cannot be found "
            "out later"
        )
    if given.get("hidden_channels") is not None:
        settings["hidden_channels"] = given["hidden_channels"]
    return (GraphSpec(0, in_channels=channels),), settings, _count(given.get("out_channels"))


def _count(out_channels: int | None) -> int | None:
    out_channels = plain_whole(out_channels)
    if out_channels is not None:
        check_whole(at_least=1, out_channels=out_channels)
    return out_channels


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
    wanted = parameters.get("edge_index")
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    unused = set() if takes_any else {"edge_weight", "edge_attr"} - parameters.keys()
    wants_edges = wanted is not None and wanted.annotation in (Tensor, "Tensor")

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
