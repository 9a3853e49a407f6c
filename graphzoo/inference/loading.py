"""`graphzoo.load`: a run directory or a checkpoint becomes a model."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from graphzoo.datamodules.features import FeatureTransform
from graphzoo.datasets import KnowledgeGraph, LinkGraph, NodeGraph
from graphzoo.errors import UsageError
from graphzoo.inference.checkpoint import build_task, find_checkpoint, read_checkpoint
from graphzoo.inference.graphs import GraphSource, load_graph, stored_graph
from graphzoo.inference.link_graphs import LinkGraphSource, load_link_source, stored_link_graph
from graphzoo.inference.link_model import LinkModel
from graphzoo.inference.model import KGModel
from graphzoo.inference.node_graphs import NodeGraphSource, load_node_source, stored_node_graph
from graphzoo.inference.node_model import NodeModel

if TYPE_CHECKING:
    from graphzoo.tasks import LinkPrediction, NodeClassification

__all__ = ["load"]

_Source = GraphSource | LinkGraphSource | NodeGraphSource
_GRAPHS = {
    KnowledgeGraph: "a knowledge graph",
    LinkGraph: "a graph of links",
    NodeGraph: "a graph of nodes with features",
}


def load(
    path: str | PathLike[str],
    data: _Source | None = None,
    *,
    device: str = "cpu",
    trust: bool = False,
) -> KGModel | LinkModel | NodeModel:
    """Load a trained model.

    Args:
        path: A run directory, or a checkpoint file. A file outside a run directory needs `data`.
        data: Another graph than the run's. For knowledge-graph completion a KnowledgeGraph, a folder or files
            of triples, or the name of a data set; its relations must be among those of the training graph,
            its entities may be others. For node classification a NodeGraph, files as for `--data nodes`, or
            the name of a data set; its features must be those of the training graph. For link prediction a
            LinkGraph, files as for `--data links`, or the name of a data set; its features, if the model uses
            any, must be those of the training graph. All links of a single file pass messages.
        device: "cpu", "cuda", "cuda:1", ... or "auto" for the GPU if there is one.
        trust: Import classes that the checkpoint names even if they are neither registered nor imported.

    Returns:
        A `KGModel`, `LinkModel` or `NodeModel`, ready to predict. Without `data`, it answers on the graph the
        run was tested on.

    Raises:
        UsageError: (a ValueError) if the checkpoint is missing, damaged or unsafe, the weights do not fit
            their settings, or the graph has unknown relations or other features; the message names the
            remedy.
    """
    file, run = find_checkpoint(path)
    where = _device(device)
    if data is None and run is None:
        raise UsageError(
            f"{file} lies outside a run directory, so the graph is not known: give data= (a graph, its files "
            "or the name of a data set), or the run directory"
        )
    from graphzoo.tasks import LinkPrediction, NodeClassification

    checkpoint = read_checkpoint(file)
    task = build_task(checkpoint, file, trust=trust).to(where)
    described = checkpoint["graphzoo"]
    if isinstance(task, NodeClassification):
        return _node_model(task, described, run, data)
    if isinstance(task, LinkPrediction):
        return _link_model(task, described, run, data)
    _refuse_others(data, KnowledgeGraph, "the model completes knowledge graphs")
    relations = tuple(described["relations"])
    source = data if data is not None or run is None else stored_graph(run)
    assert source is not None
    return KGModel(task, load_graph(source, relations))  # type: ignore[arg-type]  # others are refused


def _refuse_others(data: _Source | None, wanted: type, what: str) -> None:
    """Refuse graphs of another kind than the model's."""
    kind = _GRAPHS.get(type(data))
    if kind is not None and not isinstance(data, wanted):
        raise UsageError(f"{what}, and data= is {kind}")


def _node_model(
    task: NodeClassification, described: dict[str, Any], run: Path | None, data: _Source | None
) -> NodeModel:
    _refuse_others(data, NodeGraph, "the model labels nodes with features")
    projection = None if run is None else run / "graph" / "projection.npy"
    transform = FeatureTransform.load(described["features"], projection)
    if data is None:
        assert run is not None
        graph = stored_node_graph(run)
    else:
        graph = load_node_source(data)  # type: ignore[arg-type]
    return NodeModel(task, graph, transform, described["classes"])


def _link_model(
    task: LinkPrediction, described: dict[str, Any], run: Path | None, data: _Source | None
) -> LinkModel:
    _refuse_others(data, LinkGraph, "the model predicts links")
    features = described.get("features")
    transform = None if features is None else FeatureTransform.load(features, None)
    settings = described["data"]["settings"]
    if data is None:
        assert run is not None
        graph = stored_link_graph(run)
    else:
        graph = load_link_source(data, directed=settings.get("is_directed", False))  # type: ignore[arg-type]
    return LinkModel(task, graph, transform, settings)


def _device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
        if device.type == "meta":
            raise RuntimeError("it holds shapes and no numbers")
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise UsageError(f"device {name!r} is not available here ({reason}); take cpu or auto") from error
    return device
