"""Checks of the settings and inputs of encoders; each raises a `UsageError`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from graphzoo.errors import UsageError, check_range, check_whole
from graphzoo.ops import QueryGraph, RelationalGraph
from graphzoo.ops.eager import is_traced
from graphzoo.ops.relational_spmm.graph import check_edges
from graphzoo.types import GraphSpec


def check_spec(name: str, spec: GraphSpec) -> None:
    """Require node features in the data."""
    if spec.in_channels < 1:
        raise UsageError(
            f"{name} needs node features; the data has none (GraphSpec.in_channels is 0)\n"
            "Add some, such as degrees. For links of your own, put them into nodes.csv in the same folder"
        )


def check_features(x: Any, spec: GraphSpec) -> None:
    """Require real features [N, F] whose width is the spec's."""
    if not isinstance(x, Tensor) or x.dim() != 2 or x.shape[1] != spec.in_channels:
        got = list(x.shape) if isinstance(x, Tensor) else x if x is None else type(x).__name__
        raise UsageError(f"the encoder was built for features [N, {spec.in_channels}], got {got}")
    if x.is_complex():
        raise UsageError(
            "features are real numbers, got complex ones\nGive torch.view_as_real(x).flatten(1), "
            "real and imaginary parts side by side"
        )


def cast_features(x: Tensor, module: nn.Module) -> Tensor:
    """Convert features of any dtype, integers included, to the dtype of the module's weights."""
    return x.to(next(module.parameters()).dtype)


def require_features(x: Tensor | None, spec: GraphSpec, nodes: Tensor) -> Tensor:
    """The features of all nodes; a `UsageError` if they are missing, of another width or too few nodes."""
    if x is None or x.dim() != 2 or x.shape[1] != spec.in_channels:
        got = "none" if x is None else str(list(x.shape))
        raise UsageError(
            f"the encoder was built for node features [N, {spec.in_channels}] and got {got}: "
            "give x, or build it with use_features=False"
        )
    # Reading a value would make the host wait for a GPU, and would break a compiled graph.
    if nodes.device.type == "cpu" and not is_traced(nodes) and nodes.numel():
        last = int(nodes.max())
        if last >= x.shape[0]:
            raise UsageError(
                f"x has {x.shape[0]} rows, but a subgraph has node {last}: give a row for every node"
            )
    return x


def check_ends(edge_index: Tensor, x: Tensor) -> None:
    """Require edges between the nodes of `x` [N, F]; on the CPU, and not in compiled code."""
    if edge_index.device.type == "cpu" and not is_traced(edge_index):
        check_edges(edge_index, x.shape[0])


def refuse_features(x: Tensor | None) -> None:
    """Refuse features for an encoder that was built without any and would ignore them."""
    if x is not None:
        raise UsageError(
            f"x is given, but the encoder was built without features\n"
            f"Build it with GraphSpec(in_channels={x.shape[-1]}), or leave out x"
        )


def check_queries(name: str, graph: Any, head: Any, relation: Any) -> None:
    """Require a graph of facts, and heads and relations [B] that are in it.

    Values are checked on the CPU only, where reading them does not wait, and not in compiled code.
    """
    if not isinstance(graph, RelationalGraph | QueryGraph):
        raise UsageError(
            f"{name} takes a graph of facts first, got a {type(graph).__name__}\n"
            "Give graphzoo.ops.RelationalGraph(edge_index, edge_type, num_nodes, num_relations)"
        )
    for word, ids, count in (("head", head, graph.num_nodes), ("relation", relation, graph.num_relations)):
        if not isinstance(ids, Tensor) or ids.dim() != 1 or ids.dtype != torch.int64:
            got = f"{ids.dtype} {list(ids.shape)}" if isinstance(ids, Tensor) else repr(ids)
            is_other = isinstance(ids, Tensor) and ids.dim() == 1
            remedy = f"Give {word}.long()" if is_other else "Give torch.tensor([...])"
            raise UsageError(f"{word} must be int64 of shape [B], got {got}\n{remedy}")
        if ids.device.type != "cpu" or is_traced(ids) or not ids.numel():
            continue
        if int(ids.min()) < 0 or int(ids.max()) >= count:
            row = int(((ids < 0) | (ids >= count)).nonzero()[0])
            what = "nodes" if word == "head" else "relations and their inverses"
            raise UsageError(f"{word}[{row}] = {int(ids[row])}: {what} are 0..{count - 1}")
    if head.shape != relation.shape:
        raise UsageError(f"{len(head)} heads and {len(relation)} relations: give one of each per query")


def check_rows(name: str, given: Tensor, x: Tensor) -> None:
    """Require that precomputed features have the shape of `x`."""
    if given.shape != x.shape:
        raise UsageError(f"{name} must have the shape of x, {list(x.shape)}, got {list(given.shape)}")


def check_sizes(**sizes: int) -> None:
    """Require sizes of at least 1."""
    check_whole(at_least=1, **sizes)


def check_rates(**rates: float) -> None:
    """Require dropout rates in [0, 1)."""
    check_range(at_least=0, below=1, **rates)


def check_heads(hidden_channels: int, num_heads: int) -> None:
    """Require that the number of heads divides the width."""
    if hidden_channels % num_heads:
        raise UsageError(
            f"hidden_channels must be a multiple of num_heads, got {hidden_channels} and {num_heads}"
        )


def chosen(settings: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Some of an encoder's settings by name, to be checked together."""
    return {name: settings[name] for name in names}
