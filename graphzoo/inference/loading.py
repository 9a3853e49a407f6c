"""`graphzoo.load`: a run directory or a checkpoint becomes a model."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any

import torch

from graphzoo.datamodules.features import FeatureTransform
from graphzoo.datasets import KnowledgeGraph, LinkGraph, NodeGraph
from graphzoo.errors import UsageError
from graphzoo.inference.checkpoint import build_task, find_checkpoint, read_checkpoint
from graphzoo.inference.graphs import GraphSource, load_graph, stored_graph
from graphzoo.inference.link_model import LinkModel
from graphzoo.inference.model import KGModel
from graphzoo.inference.node_model import NodeModel
from graphzoo.inference.sources import (
    LinkGraphSource,
    NodeGraphSource,
    load_link_source,
    load_node_source,
    stored_link_graph,
    stored_node_graph,
)
from graphzoo.tasks import LinkPrediction, NodeClassification

__all__ = ["load"]

_Source = GraphSource | LinkGraphSource | NodeGraphSource
_GRAPHS = {
    KnowledgeGraph: "a knowledge graph",
    LinkGraph: "a graph of links",
    NodeGraph: "a graph of nodes with features",
}


def load(
    path: str | PathLike[str], data: _Source | None = None, *, device: str = "cpu", trust: bool = False
) -> KGModel | LinkModel | NodeModel:
    """Load a trained model.

    Args:
        path: A run directory, a checkpoint file, or the name of weights that graphzoo brings along
            (`knowformer-any`). What lies outside a run directory needs `data`.
        data: Another graph than the run's: a graph, files or the name of a data set. For knowledge-graph
            completion a KnowledgeGraph, a DataFrame or list of triples, a folder or files of them; its
            relations must be among those of the training graph (not for `knowformer-any`), its entities may
            be others. For node classification
            a NodeGraph or files as for `--data nodes`; its features must be those of the training graph. For
            link prediction a LinkGraph or files as for `--data links`; its features, if the model uses any,
            must be those of the training graph. All links of a single file pass messages.
        device: "cpu", "cuda", "cuda:1", ... or "auto" for the GPU if there is one.
        trust: Import classes that the checkpoint names even if they are neither registered nor imported.

    Returns:
        A model, ready to predict. Without `data`, it answers on the graph the run was tested on. `metrics`
        are the run's test figures, `report()` writes its page, `save()` exports it; a notebook shows it.

    Raises:
        UsageError: (a ValueError) if the checkpoint is missing, damaged or unsafe, the weights do not fit
            their settings, or the graph has unknown relations or other features; the message names the
            remedy.
    """
    file, run = find_checkpoint(path)
    if data is None and run is None:
        raise UsageError(
            f"{path} lies outside a run directory, so the graph is not known: give data= (a graph, its files "
            "or the name of a data set; --data.path for the command), or the run directory"
        )
    checkpoint = read_checkpoint(file)
    task = build_task(checkpoint, file, trust=trust).to(_device(device))
    model = _model(checkpoint["graphzoo"], task, run, data)
    model.checkpoint, model.run_dir = file.absolute(), None if run is None else run.absolute()
    model._epoch = checkpoint.get("epoch")
    return model


def _model(
    described: dict[str, Any], task: Any, run: Path | None, data: _Source | None
) -> KGModel | LinkModel | NodeModel:
    """The task with the graph that it answers on."""
    kept = run if data is None else None  # has the graph that is answered on
    given: Any = data  # of another kind it is refused
    if isinstance(task, NodeClassification):
        _refuse_others(data, NodeGraph, "the model labels nodes with features")
        projection = None if run is None else run / "graph" / "projection.npy"
        transform = FeatureTransform.load(described["features"], projection)
        nodes = load_node_source(given) if kept is None else stored_node_graph(kept)
        return NodeModel(task, nodes, transform, described["classes"])
    if isinstance(task, LinkPrediction):
        _refuse_others(data, LinkGraph, "the model predicts links")
        features, settings = described.get("features"), described["data"]["settings"]
        seen = None if features is None else FeatureTransform.load(features, None)
        if kept is None:
            links = load_link_source(given, directed=settings.get("is_directed", False))
        else:
            links = stored_link_graph(kept)
        return LinkModel(task, links, seen, settings)
    _refuse_others(data, KnowledgeGraph, "the model completes knowledge graphs")
    relations = None if task.query_encoder.any_relations else tuple(described["relations"])
    facts = given if kept is None else stored_graph(kept)
    return KGModel(task, load_graph(facts, relations))


def _refuse_others(data: _Source | None, wanted: type, what: str) -> None:
    """Refuse graphs of another kind than the model's."""
    kind = _GRAPHS.get(type(data))
    if kind is not None and not isinstance(data, wanted):
        raise UsageError(f"{what}, and data= is {kind}")


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
