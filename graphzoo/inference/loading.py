"""`graphzoo.load`: a run directory or a checkpoint becomes a model."""

from __future__ import annotations

from importlib import import_module
from os import PathLike
from typing import TYPE_CHECKING, Any

import torch

from graphzoo.catalog.tasks import inference_of
from graphzoo.errors import UsageError
from graphzoo.inference.checkpoint import build_task, find_checkpoint, read_checkpoint
from graphzoo.inference.forks import heed_fork

if TYPE_CHECKING:
    from graphzoo.inference.graphs import GraphSource
    from graphzoo.inference.link_model import LinkModel
    from graphzoo.inference.model import KGModel
    from graphzoo.inference.node_model import NodeModel
    from graphzoo.inference.sources import LinkGraphSource, NodeGraphSource


def load(
    path: str | PathLike[str],
    data: GraphSource | LinkGraphSource | NodeGraphSource | None = None,
    *,
    device: str = "cpu",
    trust: bool = False,
) -> KGModel | LinkModel | NodeModel:
    """Load a trained model.

    Args:
        path: A run directory, a checkpoint file, or the name of weights that ship with graphzoo
            (`knowformer-any`). Without a run directory, `data` must be given.
        data: Another graph than the run's: a graph, files or the name of a data set. For knowledge-graph
            completion a KnowledgeGraph, a DataFrame or list of triples, a folder or files of them; its
            relations must be among those of the training graph (not for `knowformer-any`), its entities may
            be others. For node classification a NodeGraph, a PyG `Data` or files as for `--data nodes`; its
            features must be those of the training graph. For link prediction a LinkGraph, a `Data` or files
            as for `--data links`; its features, if the model uses any, must be those of the training graph.
            All links of a single file or `Data` pass messages.
        device: "cpu", "cuda", "cuda:1", ... or "auto" for the GPU if there is one.
        trust: Whether to import classes that the checkpoint names even if they are neither registered nor
            imported.

    Returns:
        A model, ready to predict. Without `data`, it answers on the graph that the run was tested on.
        `metrics` has the run's test scores, `report()` writes the HTML report, `save()` exports the model.

    Raises:
        UsageError: (a ValueError) if the checkpoint is missing, damaged or unsafe, the weights do not fit
            their settings, or the graph has unknown relations or other features; the message names the
            remedy.
    """
    heed_fork(depth=1)
    file, run = find_checkpoint(path)
    if data is None and run is None:
        place = "" if file.parent.name == "checkpoints" else ", or the run"  # that of a mixture has no graph
        raise UsageError(
            f"{path} comes without a graph to answer on\n"
            f"Give --data.path with a folder, files or the name of a data set (in Python data=){place}"
        )
    checkpoint = read_checkpoint(file)
    with torch.inference_mode(False):  # the model may be trained on
        task = build_task(checkpoint, file, trust=trust).to(_device(device))
    cls: Any = getattr(import_module("graphzoo.inference"), inference_of(type(task)))
    # without `data` the run has the graph that is answered on
    model: KGModel | LinkModel | NodeModel = cls.of_checkpoint(checkpoint["graphzoo"], task, run, data)
    model.checkpoint, model.run_dir = file.absolute(), None if run is None else run.absolute()
    model._written = {name: checkpoint.get(name) for name in ("epoch", "global_step")}
    return model


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
