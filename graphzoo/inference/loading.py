"""`graphzoo.load`: a run directory or a checkpoint becomes a model."""

from __future__ import annotations

from os import PathLike

import torch

from graphzoo.errors import UsageError
from graphzoo.inference.checkpoint import build_task, find_checkpoint, read_checkpoint
from graphzoo.inference.graphs import GraphSource, load_graph, stored_graph
from graphzoo.inference.model import KGModel

__all__ = ["load"]


def load(
    path: str | PathLike[str],
    data: GraphSource | None = None,
    *,
    device: str = "cpu",
    trust: bool = False,
) -> KGModel:
    """Load a trained model.

    Args:
        path: A run directory, or a checkpoint file. A file outside a run directory needs `data`.
        data: Graph to reason over instead of the run's: a KnowledgeGraph, a folder or files of triples, or
            the name of a data set. Its relations must be among those of the training graph; its entities may
            be others.
        device: "cpu", "cuda", "cuda:1", ... or "auto" for the GPU if there is one.
        trust: Import classes that the checkpoint names even if they are neither registered nor imported.

    Returns:
        The model, ready to predict. Without `data`, it answers on the graph the run was tested on.

    Raises:
        UsageError: (a ValueError) if the checkpoint is missing, damaged or unsafe, the weights do not fit
            their settings, or the graph has unknown relations; the message names the remedy.
    """
    file, run = find_checkpoint(path)
    where = _device(device)
    if data is None and run is None:
        raise UsageError(
            f"{file} lies outside a run directory, so the graph is not known: give data= (a folder of "
            "triples, a KnowledgeGraph or the name of a data set), or the run directory"
        )
    checkpoint = read_checkpoint(file)
    task = build_task(checkpoint, file, trust=trust).to(where)
    relations = tuple(checkpoint["graphzoo"]["relations"])
    source = data if data is not None or run is None else stored_graph(run)
    assert source is not None
    return KGModel(task, load_graph(source, relations))


def _device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise UsageError(f"device {name!r} is not available here ({reason}); take cpu or auto") from error
    return device
